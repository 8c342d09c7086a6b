"""`socsched run`: execute a plan on a board, frame by frame, against its deadlines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import RunOptions, argument, option, requested
from socsched.cli import results
from socsched.cli.options import output_folder, source
from socsched.cli.output import Output, ready_to_write
from socsched.cli.results import CONSTANT, SINGLE, scenario
from socsched.cli.verbs import Request, verb

if TYPE_CHECKING:
    from socsched.api.results import Result
    from socsched.descriptor.pipeline import Pipeline

MCAP = ".mcap"


class RunRequest(Request):
    """What runs, on which input, for how long, and where the results go."""

    plan: Path = argument("path", metavar="PLAN.json")
    how: RunOptions = requested(RunOptions)
    scenario: str | None = scenario(CONSTANT, SINGLE)
    source: str | None = source()
    learn: bool = option(
        "--learn", kind="flag", help="Keep the stages' measured times for later plans for this machine (-p host)."
    )
    folder: Path | None = output_folder(
        "Folder for the result files; a name that ends in .mcap: file for Foxglove instead.", kind="path"
    )


@verb("run", RunRequest, "Execute a plan on this machine and measure it.")
def command(output: Output, request: RunRequest) -> int:
    """Execute a plan on this machine: compile what is not cached, run every frame, measure, compare with the plan.

    With --no-pace frames are not released at a sensor's rate: frames per second are reported, and no frame is late.

    With --scenario and neither --frames nor --duration, it runs as many frames as the percentile needs (6,636).

    Exit code 0: every frame in time, with --scenario a valid result; 1: some late, dropped, aborted or too old, or
    an invalid result; 2: no input could be used.
    """
    from socsched.api import execution, folders, loading
    from socsched.trace.scenario import least_frames

    _check(request)
    plan = loading.load_plan(request.plan)
    if not plan.tasks:
        return results.show_refusal(output, plan)
    pipeline = loading.pipeline_of(plan, request.source, output.warn)
    board, folder, recording = execution.board_of(request.how), request.folder, None
    if folder and folder.suffix == MCAP:
        folder, recording = None, folder
    ready_to_write(file=recording, folder=folder)
    if folder:
        loading.save_plan(plan, folder / folders.PLAN)
    scans = execution.list_inputs(request.how.inputs)
    how = replace(request.how, inputs=scans)
    if request.scenario:
        frames = how.frames or (None if how.duration else least_frames())
        how = replace(how, pace=request.scenario == CONSTANT, frames=frames)
    pace, total = how.pace, (how.frames or len(scans or ())) * len(plan.chains)
    notes = results.frame_notes(output.note, pace, total, how.duration)
    done = execution.run(plan, how, pipeline=pipeline, board=board, folder=folder, on_frame=notes, warn=output.warn)
    if request.scenario and done.trace is not None:
        done = replace(done, figures=results.measure(done.figures, done.trace, plan, request.scenario))
    result = done.figures
    if folder:
        done.save(folder, kept=(folders.FRAMES,))
        output.note(folders.describe_files(folder, ", frames.jsonl"))
    if request.learn:
        _learn(output, done, pipeline)
    if recording:
        sources = folders.Sources(request.source, input=request.how.inputs, topics=dict(how.topics))
        done.render(recording, sources)
        output.note(f"wrote {recording}")

    def show() -> list[Any]:
        from socsched.reporting import terminal

        return [
            terminal.observed(result, pace),
            terminal.planned(plan),
            terminal.predicted_against_measured(plan, result),
            terminal.outcome(result, pace),
            terminal.power_line(plan, result),
            *results.run_lines(result["run"], how.hang_after or 0),
            *([results.scenario_table(result["scenario"])] if "scenario" in result else []),
        ]

    output.result(result, show)
    if done.trace is not None:
        results.require_frames(done.trace.details)
    return results.outcome_code(result, pace)


def _learn(output: Output, done: Result, pipeline: Pipeline) -> None:
    from socsched.api.execution import learn

    none = "no stage had enough jobs without another beside them"
    output.note(f"learned for later plans of this machine: {', '.join(learn(done, pipeline)) or none}")


def _check(request: RunRequest) -> None:
    how = request.how
    if how.frames and how.duration:
        raise click.UsageError("--frames and --duration are mutually exclusive")
    if how.loop and not (how.duration and how.inputs):
        raise click.UsageError("--loop repeats the files of --input for --duration: give both options")
    if request.scenario == CONSTANT and not how.pace:
        raise click.UsageError("constant-stream releases frames at the sensors' rates: leave out --no-pace")
    if request.scenario == SINGLE and how.in_flight > 1:
        raise click.UsageError("single-stream has one frame in flight: leave out --in-flight")
