"""`socsched run`: execute a plan on a board, frame by frame, against its deadlines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import RunOptions, SimulateOptions, Whole, argument, option, requested, shared
from socsched.cli.options import inputs, output_folder, source, topics, weights
from socsched.cli.output import Output, ready_to_write
from socsched.cli.results import CONSTANT, SINGLE, scenario
from socsched.cli.verbs import Request, verb
from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.api.results import Result
    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan
    from socsched.runtime.boards.base import Board
    from socsched.runtime.options import Options

MCAP = ".mcap"


class RunRequest(Request):
    """What runs, on which input, for how long, and where the results go."""

    plan: Path = argument("path", metavar="PLAN.json")
    frames: int | None = option(
        "--frames", kind=Whole(1), help="Number of frames of the first sensor; default: all files of --input."
    )
    duration: int | None = option(
        "--duration", kind="duration", help="Run for this duration instead of a number of frames."
    )
    inputs: Path | None = inputs()
    topics: tuple[tuple[str, str], ...] = topics()
    weights: Path | None = weights(".npz file with weights; default: seeded random weights.")
    scales: Path | None = option(
        "--scales", kind="path", help="JSON file with int8 scales, as `socsched calibrate` writes it."
    )
    pace: bool = option(
        "--pace/--no-pace", default=True, shown=True,
        help="Release frames at the sensor's rate, or as fast as possible.",
    )  # fmt: skip
    scenario: str | None = scenario(CONSTANT, SINGLE)
    source: str | None = source()
    loop: bool = option("--loop", kind="flag", help="With --duration: repeat the files of --input.")
    stats: bool = option("--stats", kind="flag", help="Record tensor statistics of every stage (slower).")
    learn: bool = option(
        "--learn", kind="flag", help="Keep the stages' measured times for later plans for this machine (-p host)."
    )
    how: RunOptions = requested(RunOptions)
    seed: int = shared(SimulateOptions, "seed")
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
    from socsched.cli import results
    from socsched.trace.scenario import least_frames

    _check(request)
    plan = loading.load_plan(request.plan)
    if not plan.tasks:
        return results.show_refusal(output, plan)
    pipeline = loading.pipeline_of(plan, request.source, output.warn)
    board, folder, recording = _board(request.how), request.folder, None
    if folder and folder.suffix == MCAP:
        folder, recording = None, folder
    ready_to_write(file=recording, folder=folder)
    if folder:
        loading.save_plan(plan, folder / folders.PLAN)
    options = replace(_options(request.how, plan, pipeline, board, folder), topics=dict(request.topics))
    scans = execution.list_inputs(request.inputs)
    pace, frames = request.pace, request.frames
    if request.scenario:
        pace = request.scenario == CONSTANT
        frames = frames or (None if request.duration else least_frames())
    total = (frames or len(scans or ())) * len(plan.chains)
    done = execution.run(
        plan,
        pipeline=pipeline,
        frames=frames,
        duration=request.duration,
        inputs=scans,
        weights=request.weights,
        scales=request.scales,
        pace=pace,
        stats=request.stats,
        loop=request.loop,
        seed=request.seed,
        options=options,
        board=board,
        on_frame=results.frame_notes(output.note, pace, total, request.duration),
    )
    if request.scenario and done.trace is not None:
        done = replace(done, figures=results.measure(done.figures, done.trace, plan, request.scenario))
    result = done.figures
    if folder:
        done.save(folder, kept=(folders.FRAMES,))
        output.note(folders.describe_files(folder, ", frames.jsonl"))
        if done.trace is not None:
            results.save_logs(output, done.trace, plan, request.scenario, folder)
    if request.learn:
        _learn(output, done, pipeline)
    if recording:
        sources = folders.Sources(request.source, input=request.inputs, topics=dict(request.topics))
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
            *results.run_lines(result["run"], options.hang_ns),
            *([results.scenario_table(result["scenario"])] if "scenario" in result else []),
        ]

    output.result(result, show)
    if done.trace is not None:
        results.require_frames(done.trace.details)
    return results.outcome_code(result, pace)


def _learn(output: Output, done: Result, pipeline: Pipeline) -> None:
    from socsched.api.learning import learn

    none = "no stage had enough jobs without another beside them"
    output.note(f"learned for later plans of this machine: {', '.join(learn(done, pipeline)) or none}")


def _check(request: RunRequest) -> None:
    if request.frames and request.duration:
        raise click.UsageError("--frames and --duration are mutually exclusive")
    if request.loop and not (request.duration and request.inputs):
        raise click.UsageError("--loop repeats the files of --input for --duration: give both options")
    if request.scenario == CONSTANT and not request.pace:
        raise click.UsageError("constant-stream releases frames at the sensors' rates: leave out --no-pace")
    if request.scenario == SINGLE and request.how.in_flight > 1:
        raise click.UsageError("single-stream has one frame in flight: leave out --in-flight")


def _board(how: RunOptions) -> Board:
    if how.board == "jetson":
        from socsched.runtime.boards.jetson import JetsonBoard

        return JetsonBoard(apply_mode=how.apply_mode)
    if how.apply_mode:
        raise UsageError("--apply-mode needs a board with power modes", "add --board jetson")
    from socsched.runtime.boards.local import LocalBoard

    return LocalBoard()


def _options(how: RunOptions, plan: Plan, pipeline: Pipeline, board: Board, folder: Path | None) -> Options:
    """Return the executor's options; reads files, makes or reads spare plans; `folder` receives files of the run."""
    from socsched.api import folders
    from socsched.faults.file import load_faults
    from socsched.faults.model import RUN
    from socsched.runtime.frames_file import NAME
    from socsched.runtime.options import Options
    from socsched.runtime.overload import load_policies

    return Options(
        executor=how.executor,
        in_flight=how.in_flight,
        steal=how.steal,
        shield=how.shield,
        awake_ns=how.awake,
        realtime=how.realtime,
        faults=load_faults(how.faults, plan, RUN) if how.faults else None,
        policies=load_policies(how.overload, plan) if how.overload else None,
        limp_home=_spare_plans(how.limp_home, plan, pipeline, board),
        hang_ns=how.hang_after or 0,
        journal=folder / folders.JOURNAL if folder else None,
        frames=folder / NAME if folder else None,
    )


def _spare_plans(names: tuple[str, ...], plan: Plan, pipeline: Pipeline, board: Board) -> tuple[Plan, ...]:
    from socsched.api import loading
    from socsched.modebook.book import is_book, load_book

    plans: list[Plan] = []
    for name in names:
        if name == "auto":
            from socsched.models.work import stage_work
            from socsched.runtime.limp_home import limp_home_plans

            plans += limp_home_plans(plan, pipeline, board.platform_for(plan), stage_work)
        elif is_book(name):
            plans += load_book(name).spares(plan)
        else:
            other = loading.load_plan(Path(name))
            if (other.pipeline, other.platform) != (plan.pipeline, plan.platform):
                raise UsageError(f"{name} is a plan for {other.pipeline} on {other.platform}", "plan the same pipeline")
            plans.append(other)
    return tuple(plans)
