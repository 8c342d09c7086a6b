"""`socsched run`: execute a plan on a board, frame by frame, against its deadlines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from socsched.cli.options import (
    Output,
    Quantity,
    input_option,
    output_options,
    ready_to_write,
    seed_option,
    source_option,
    terminal_width,
    topic_option,
)
from socsched.cli.run_options import run_options
from socsched.cli.scenario import CONSTANT, SINGLE, measure, save_logs, scenario_code, scenario_option, scenario_table

MCAP = ".mcap"


@click.command("run", short_help="Execute a plan on this machine and measure it.")
@click.argument("plan", metavar="PLAN.json", type=click.Path(path_type=Path))
@click.option(
    "--frames", type=click.IntRange(1), help="Number of frames of the first sensor; default: all files of --input."
)
@click.option("--duration", type=Quantity("duration"), help="Run for this duration instead of a number of frames.")
@input_option
@topic_option
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    envvar="SOCSCHED_WEIGHTS",
    help=".npz file with weights; default: seeded random weights.",
)
@click.option(
    "--scales", type=click.Path(path_type=Path), help="JSON file with int8 scales, as `socsched calibrate` writes it."
)
@click.option(
    "--pace/--no-pace",
    default=True,
    show_default=True,
    help="Release frames at the sensor's rate, or as fast as possible.",
)
@scenario_option(CONSTANT, SINGLE)
@source_option
@click.option("--loop", is_flag=True, help="With --duration: repeat the files of --input.")
@click.option("--stats", is_flag=True, help="Record tensor statistics of every stage (slower).")
@run_options
@seed_option
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder for the result files; a name that ends in .mcap: file for Foxglove instead.",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    /,
    plan: Path,
    frames: int | None,
    duration: int | None,
    input_path: Path | None,
    topics: tuple[tuple[str, str], ...],
    weights: Path | None,
    scales: Path | None,
    pace: bool,
    scenario: str | None,
    source: str | None,
    stats: bool,
    loop: bool,
    seed: int,
    folder: Path | None,
    **how: Any,
) -> int:
    """Execute a plan on this machine: compile what is not cached, run every frame, measure, compare with the plan.

    With --no-pace frames are not released at a sensor's rate: frames per second are reported, and no frame is late.

    With --scenario and neither --frames nor --duration, it runs as many frames as the percentile needs (6,636).

    Exit code 0: every frame in time, with --scenario a valid result; 1: some late, dropped, aborted or too old, or
    an invalid result; 2: no input could be used.
    """
    from dataclasses import replace

    from socsched.api import execution, folders, loading
    from socsched.cli import outcomes
    from socsched.cli.run_options import board_of, options_of
    from socsched.cli.run_view import frame_notes, run_lines

    if frames and duration:
        raise click.UsageError("--frames and --duration are mutually exclusive")
    if loop and not (duration and input_path):
        raise click.UsageError("--loop repeats the files of --input for --duration: give both options")
    if scenario == CONSTANT and not pace:
        raise click.UsageError("constant-stream releases frames at the sensors' rates: leave out --no-pace")
    if scenario == SINGLE and how["in_flight"] > 1:
        raise click.UsageError("single-stream has one frame in flight: leave out --in-flight")
    loaded = loading.load_plan(plan)
    if not loaded.tasks:
        return outcomes.show_refusal(output, loaded)
    workload = loading.pipeline_of(loaded, source, output.warn)
    board = board_of(how)
    folder, recording = (None, folder) if folder and folder.suffix == MCAP else (folder, None)
    ready_to_write(file=recording, folder=folder)
    if folder:
        loading.save_plan(loaded, folder / folders.PLAN)
    options = replace(options_of(how, loaded, workload, board, folder), topics=dict(topics))
    inputs = execution.list_inputs(input_path)
    if scenario:
        from socsched.trace.scenario import least_frames

        pace = scenario == CONSTANT
        frames = frames or (None if duration else least_frames())
    total = (frames or len(inputs or ())) * len(loaded.chains)
    done = execution.run(
        loaded,
        pipeline=workload,
        frames=frames,
        duration=duration,
        inputs=inputs,
        weights=weights,
        scales=scales,
        pace=pace,
        stats=stats,
        loop=loop,
        seed=seed,
        options=options,
        board=board,
        on_frame=frame_notes(output.note, pace, total, duration),
    )
    if scenario and done.trace is not None:
        done = replace(done, figures=measure(done.figures, done.trace, loaded, scenario))
    result = done.figures
    if folder:
        done.save(folder, kept=(folders.FRAMES,))
        output.note(f"wrote {folder}/ (report.html, trace.pftrace, frames.jsonl, plan.json, result.json)")

    if folder and done.trace is not None:
        save_logs(output, done.trace, loaded, scenario, folder)
    if recording:
        given = folders.Sources(source, input=input_path, topics=dict(topics))
        done.render(recording, given)
        output.note(f"wrote {recording}")

    def show() -> None:
        from socsched.reporting import terminal

        screen = terminal.console(terminal_width())
        for item in (
            terminal.observed(result, pace),
            terminal.planned(loaded),
            terminal.predicted_against_measured(loaded, result),
            terminal.outcome(result, pace),
            terminal.power_line(loaded, result),
            *run_lines(result["run"], options.hang_ns),
        ):
            screen.print(item)
        if "scenario" in result:
            screen.print(scenario_table(result["scenario"]))

    output.result(result, show)
    if done.trace is not None:
        outcomes.require_frames(done.trace.details)
    return scenario_code(result["scenario"]) if "scenario" in result else outcomes.outcome_code(result, pace)
