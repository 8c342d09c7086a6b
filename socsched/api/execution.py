"""Runs of a plan on this machine or a board: inputs, execution and results."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.api.folders import JOURNAL
from socsched.api.loading import load_plan, pipeline_of
from socsched.api.options import RunOptions
from socsched.api.results import Result
from socsched.api.simulation import duration_ns
from socsched.cost.profile import learn as keep
from socsched.cost.profile import place
from socsched.descriptor.catalog import HOST, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.executor.run_native import execute
from socsched.executor.settings import AUTO, NATIVE
from socsched.faults.file import load_faults
from socsched.faults.model import RUN
from socsched.modebook.book import is_book, load_book
from socsched.models.pointpillars.scan import list_scans, write_bin
from socsched.models.street import scan
from socsched.planning.plan import Plan
from socsched.runtime.boards import Board
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.collect import NAME
from socsched.runtime.frames import FrameReport
from socsched.runtime.input_files import list_frames
from socsched.runtime.options import Inputs, Options, load_policies
from socsched.trace.io import RunDocument
from socsched.trace.metrics import overheads, result
from socsched.trace.trace import Trace

Note = Callable[[str], None]
_MOST_REASONS = 8
"""Reasons for aborted jobs that are told apart in a result."""


@dataclass(frozen=True, slots=True)
class Run(Result):
    """Result of a plan run on this machine or a board; `accounts`: frames of every source by outcome."""

    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def run(
    plan: str | Path | Plan,
    options: RunOptions = RunOptions(),  # frozen
    *,
    pipeline: str | Path | Pipeline | None = None,
    board: Board | None = None,
    folder: Path | None = None,
    on_frame: Callable[[FrameReport], None] | None = None,
    warn: Note = warnings.warn,
    **how: Any,
) -> Run:
    """Execute a plan on this machine or a board, frame by frame against its deadlines, and return the result.

    `how`: fields of `RunOptions` that differ from `options`; a duration may be text such as "10 s", topics a mapping.
    `pipeline`: the pipeline, if its name in the plan does not locate it.  `board`: in place of the one that the options
    name.  `folder` receives journal and frames while the run goes on.  `on_frame` is called at the end of every chain.
    Raises UsageError for a plan that this machine cannot run, MachineError without a C++ compiler.
    """
    loaded = load_plan(plan)
    if not loaded.tasks:
        raise UsageError("nothing to run: a stage has no engine", "see the plan's violations")
    options = replace(options, **how)
    files = list_inputs(options.inputs)
    length = duration_ns(options.duration)
    fed = Inputs(files, options.weights, options.scales, options.frames, length, options.loop, options.seed)
    described = pipeline_of(loaded, pipeline, warn)
    board = board or board_of(options)
    accounts: dict[str, dict[str, int]] = {}
    settings = _settings(options, loaded, described, board, folder)
    trace = execute(loaded, described, fed, settings, board=board, on_frame=on_frame, accounts=accounts)
    name = NATIVE if settings.executor == AUTO else settings.executor
    return _finished(loaded, trace, replace(settings, executor=name), board, accounts)


def board_of(options: RunOptions) -> Board:
    """Return the board that the options name."""
    if options.board == "jetson":
        from socsched.runtime.boards.local import JetsonBoard

        return JetsonBoard(apply_mode=options.apply_mode)
    if options.apply_mode:
        raise UsageError("--apply-mode needs a board with power modes", "add --board jetson")
    return LocalBoard()


def _settings(options: RunOptions, plan: Plan, pipeline: Pipeline, board: Board, folder: Path | None) -> Options:
    """Return the executor's options; reads files, makes or reads spare plans."""
    return Options(
        executor=options.executor,
        in_flight=options.in_flight,
        steal=options.steal,
        shield=options.shield,
        awake_ns=options.awake,
        realtime=options.realtime,
        faults=load_faults(options.faults, plan, RUN) if options.faults else None,
        policies=load_policies(options.overload, plan) if options.overload else None,
        limp_home=_spare_plans(options.limp_home, plan, pipeline, board),
        hang_ns=options.hang_after or 0,
        journal=folder / JOURNAL if folder else None,
        frames=folder / NAME if folder else None,
        topics=dict(options.topics),
        pace="rate" if options.pace else "asap",
        stats=options.stats,
    )


def _spare_plans(names: Sequence[str], plan: Plan, pipeline: Pipeline, board: Board) -> tuple[Plan, ...]:
    plans: list[Plan] = []
    for name in names:
        if name == "auto":
            from socsched.models.work import stage_work
            from socsched.runtime.limp_home import limp_home_plans

            plans += limp_home_plans(plan, pipeline, board.platform_for(plan), stage_work)
        elif is_book(name):
            plans += load_book(name).spares(plan)
        else:
            other = load_plan(Path(name))
            if (other.pipeline, other.platform) != (plan.pipeline, plan.platform):
                raise UsageError(f"{name} is a plan for {other.pipeline} on {other.platform}", "plan the same pipeline")
            plans.append(other)
    return tuple(plans)


def _finished(plan: Plan, trace: Trace, options: Options, board: Board, accounts: dict[str, dict[str, int]]) -> Run:
    """Return the result of a run with its figures."""
    reasons = Counter(instant.text for instant in trace.instants if instant.kind in ("abort", "fault"))
    known: RunDocument = {
        "accounts": accounts,
        "reasons": dict(reasons.most_common(_MOST_REASONS)),
        **overheads(trace),
        "executor": options.executor,
        "in_flight": options.in_flight,
        "realtime": options.realtime,
        "board": dict(board.facts()),
    }
    return Run(plan, trace, {**result(trace, plan), "run": known}, accounts)


FEWEST = 5
"""Jobs of a stage, with no other job beside them, that are enough to learn its time."""


def learn(run: Result, pipeline: Pipeline) -> list[str]:
    """Keep the times of the stages of a run on this machine; return the names of those learned.

    Jobs that ran while another one did are left out: contention is no part of a stage's own time.  Raises UsageError
    for a run elsewhere.
    """
    if run.plan.platform != HOST or run.trace is None or run.trace.kind != "measured":
        raise UsageError("only a run of a plan for this machine teaches its times", "plan with -p host")
    done = sorted((job for job in run.trace.jobs if job.status == "done"), key=lambda job: job.start_ns)
    latest = 0
    times: dict[str, list[int]] = {}
    for at, job in enumerate(done):
        following = done[at + 1].start_ns if at + 1 < len(done) else job.finish_ns
        if latest <= job.start_ns and job.finish_ns <= following:
            times.setdefault(job.task, []).append(job.exec_ns)
        latest = max(latest, job.finish_ns)
    stages = {stage.name: stage for stage in pipeline.stages if stage.model}
    found = {
        task.name: (place(stages[task.name], task.engine, task.precision, len(task.lanes), task.runtime), values)
        for task in run.plan.tasks
        if task.name in stages and len(values := times.get(task.name, [])) >= FEWEST
    }
    keep(found.values())
    return list(found)


def list_inputs(given: Path | Sequence[Path] | None) -> Sequence[Path] | None:
    """Return the scans, images and arrays of a file or folder; what is listed already as it is."""
    return list(list_frames(given)) if isinstance(given, Path) else given


def scans_or_street(given: Path | None, folder: Path, frames: int, seed: int) -> list[Path]:
    """Return the scan files of `given`, or write `frames` shipped ones to `folder`/scans; `seed` chooses the first."""
    if given is not None:
        return list(list_scans(given))
    target = folder / "scans"
    target.mkdir(parents=True, exist_ok=True)
    files = [target / f"{number:06d}.bin" for number in range(frames)]
    for number, file in enumerate(files, seed):
        write_bin(file, scan(number))
    return files


def compute(
    plan: Plan,
    pipeline: Pipeline,
    frames: int | None,
    scans: Sequence[Path] | None,
    weights: Path | None,
    scales: Path | None,
    seed: int,
    vendor: bool = False,
) -> dict[int, dict[str, Any]]:
    """Return the outputs of a plan's stages for each frame, computed on this machine as on the planned engines.

    With `vendor`, stages of accelerators run in their vendor's simulator.
    """
    from socsched.runtime.functional import compute as run

    inputs = Inputs(scans, weights, scales, frames, seed=seed)
    return run(plan, pipeline, get_platform(plan.platform), inputs, vendor=vendor)
