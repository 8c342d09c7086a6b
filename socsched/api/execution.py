"""Runs of a plan on this machine or a board: inputs, execution and results."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.results import Result
from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan
    from socsched.runtime.boards.base import Board
    from socsched.runtime.frames import FrameReport
    from socsched.runtime.options import Options
    from socsched.trace.io import RunDocument
    from socsched.trace.trace import Trace

Note = Callable[[str], None]
_MOST_REASONS = 8
"""Reasons for aborted jobs that are told apart in a result."""


@dataclass(frozen=True, slots=True)
class Run(Result):
    """Result of a plan run on this machine or a board; `accounts`: frames of every source by outcome."""

    accounts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def run(  # noqa: PLR0913 - named by callers
    plan: str | Path | Plan,
    *,
    pipeline: str | Path | Pipeline | None = None,
    frames: int | None = None,
    duration: str | int | None = None,
    inputs: Path | Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    pace: bool = True,
    stats: bool = False,
    loop: bool = False,
    seed: int = 0,
    options: Options | None = None,
    board: Board | None = None,
    on_frame: Callable[[FrameReport], None] | None = None,
    warn: Note = warnings.warn,
) -> Run:
    """Execute a plan on this machine or `board`, frame by frame against its deadlines, and return the result.

    `pipeline`: the pipeline, if its name in the plan does not locate it.  `frames`: number of frames of the LiDAR, or
    of the first sensor if there is no LiDAR; alternatively a `duration` (text such as "10 s", or ns); without either,
    all files of `inputs`.  `pace` False releases frames as fast as they complete.  `on_frame` is called at the end of
    every chain.  See `executor.run_native.execute` for the rest.  Raises UsageError for a plan that this machine cannot
    run, MachineError without a C++ compiler.
    """
    from socsched.api.loading import load_plan, pipeline_of
    from socsched.api.simulation import duration_ns
    from socsched.executor.rules import AUTO, NATIVE
    from socsched.executor.run_native import Inputs, execute
    from socsched.planning.residency import refuse_loads
    from socsched.runtime.boards.local import LocalBoard
    from socsched.runtime.options import PLAIN

    loaded = load_plan(plan)
    if not loaded.tasks:
        raise UsageError("nothing to run: a stage has no engine", "see the plan's violations")
    refuse_loads(loaded)
    accounts: dict[str, dict[str, int]] = {}
    place = board or LocalBoard()
    options = replace(options or PLAIN, pace="rate" if pace else "asap", stats=stats)
    files = list_inputs(inputs) if isinstance(inputs, Path) else inputs
    trace = execute(
        loaded,
        pipeline_of(loaded, pipeline, warn),
        Inputs(files, weights, scales, frames, duration_ns(duration), loop, seed),
        options,
        board=place,
        on_frame=on_frame,
        accounts=accounts,
    )
    name = NATIVE if options.executor == AUTO else options.executor
    return _finished(loaded, trace, replace(options, executor=name), place, accounts)


def _finished(plan: Plan, trace: Trace, options: Options, board: Board, accounts: dict[str, dict[str, int]]) -> Run:
    """Return the result of a run with its figures."""
    from socsched.runtime.overheads import overheads
    from socsched.trace.metrics import result

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


def list_inputs(given: Path | None) -> list[Path] | None:
    """Return the scans, images and arrays of a file or folder, None if no path is given."""
    from socsched.runtime.input_files import list_frames

    return None if given is None else list(list_frames(given))


def scans_or_street(given: Path | None, folder: Path, frames: int, seed: int) -> list[Path]:
    """Return the scan files of `given`, or write `frames` shipped ones to `folder`/scans; `seed` chooses the first."""
    from socsched.models.pointpillars.scan import list_scans, write_bin
    from socsched.models.street import scan

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
    from socsched.descriptor.catalog import get_platform
    from socsched.runtime.functional import compute as run

    platform = get_platform(plan.platform)
    return run(
        plan,
        pipeline,
        platform,
        frames=frames,
        scans=scans,
        weights=weights,
        scales=scales,
        seed=seed,
        vendor=vendor,
    )
