"""Run a plan on this machine: the planned stages, frame after frame, against their deadlines.

`execute` is the only entry point; `session.py` owns the threads.  The executor never preempts running jobs, and warns
of engines where the plan does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.backends.base import Backend, Setting
from socsched.runtime.backends.choose import sort_of
from socsched.runtime.boards.base import Board
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.executor_state import FrameReport
from socsched.runtime.frames import FrameSource
from socsched.runtime.input_files import InputFiles
from socsched.runtime.inputs import sources
from socsched.runtime.options import PLAIN, Options
from socsched.runtime.plan_instance import WARMUP_FRAMES
from socsched.runtime.run_to_completion import unpreempted
from socsched.runtime.session import Session
from socsched.runtime.worker import warn
from socsched.trace.trace import Trace
from socsched.units import format_duration

__all__ = ["WARMUP_FRAMES", "FrameReport", "execute"]


def execute(
    plan: Plan,
    pipeline: Pipeline,
    *,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    frames: int | None = None,
    duration_ns: int | None = None,
    seed: int = 0,
    pace: str = "rate",
    on_frame: Callable[[FrameReport], None] | None = None,
    stats: bool = False,
    alone: bool = False,
    loop: bool = False,
    platform: Platform | None = None,
    backends: Mapping[str, Backend] | None = None,
    options: Options = PLAIN,
    board: Board | None = None,
    accounts: dict[str, dict[str, int]] | None = None,
) -> Trace:
    """Run `plan` on this machine and return its trace, in the simulator's vocabulary.

    `scans` are files that feed the matching sensors in turn (`input_files`); they repeat only with `loop` or if
    `frames` asks for more. Other sensors get synthetic data. `scales` is the file written by `socsched calibrate`, for
    stages in int8. `frames` counts frames of the LiDAR, or of the first sensor if there is none. `pace` "rate"
    releases at the planned rates, "asap" as soon as fewer than `options.in_flight` frames are in progress. `on_frame`
    is called in this thread for every chain end. `stats` adds figures of all intermediate tensors to `Trace.details`,
    which costs CPU time. `alone` lets only one job run at a time, whatever its lanes. An interrupt (SIGINT) ends the
    run after the jobs in progress. `board` provides the lanes and meters, by default this machine; `platform` and
    `backends` replace its platform and its backends.
    `accounts` receives, for every sensor and timer, the number of frames released, completed, dropped and aborted.

    Raises UsageError for a plan this machine cannot run, and StageFailed (with the trace so far) if a stage raises and
    no plan can take over.
    """
    if pace not in ("rate", "asap"):
        raise UsageError(f"unknown pace {pace!r}", "use 'rate' or 'asap'")
    place = board or LocalBoard(platform)
    here = platform or place.platform_for(plan)
    bound = bindings(pipeline)
    setting = Setting(plan, pipeline, here, bound, weights, seed, scales)
    feeds, horizon = prepare_inputs(setting, scans, frames, duration_ns, loop, options.topics)
    for text in unpreempted(plan):
        warn(text)
    session = Session(setting, feeds, backends or {}, place, on_frame, options, alone)
    with place.prepared(plan):
        try:
            return session.trace_of(horizon, pace == "asap", seed, stats)
        finally:
            if accounts is not None:
                accounts.update(session.accounts)


def prepare_inputs(
    setting: Setting,
    scans: Sequence[Path] | None,
    frames: int | None,
    duration_ns: int | None,
    loop: bool,
    topics: Mapping[str, str] | None = None,
) -> tuple[dict[str, FrameSource], int]:
    """Return the frame sources of a run and its horizon in ns; arguments as those of `execute`.

    Warns of a run that is shorter than asked for, and of stages without weights or scales.
    """
    plan, pipeline = setting.plan, setting.pipeline
    feeds = sources(pipeline, setting.bound, scans, setting.seed, topics)
    fed = next((name for name, feed in feeds.items() if isinstance(feed, InputFiles)), None)
    lidar = fed or next((sensor.name for sensor in pipeline.sensors if sensor.kind == "lidar"), None)
    lead = timetable.lead_source(plan, lidar)
    files = 0 if fed is None or loop else feeds[fed].count
    horizon = timetable.horizon_ns(plan, lead, files, frames, duration_ns)
    if files and not frames and duration_ns and horizon < duration_ns:
        length = f"{format_duration(horizon)} of {format_duration(duration_ns)}"
        warn(f"the input has {files} frames of {fed}: the run ends after {length}; --loop repeats them")
    networks = [
        task for task in plan.tasks if sort_of(task, setting) in ("network", "cuda", "dla") and task.kind == "stage"
    ]
    unready = [task for task in networks if not _ready(pipeline, task.name)]
    if setting.weights is None and unready:
        warn("no weights given: the networks run with seeded random weights, so their outputs are meaningless")
    if setting.scales is None and any(
        task.precision == "int8" for task in (unready if setting.weights is None else networks)
    ):
        warn("no int8 scales given: scales from seeded inputs are used, so outputs of the networks may be inaccurate")
    for name in timetable.names(plan):
        if name in feeds:
            feeds[name].preload(timetable.frames_of(plan, name, horizon))
    return feeds, horizon


def _ready(pipeline: Pipeline, stage: str) -> bool:
    """Return whether a stage's network includes its weights, so that no weights file is needed."""
    chosen = next((one for one in pipeline.stages if one.name == stage), None)
    return bool(chosen and chosen.model and get_model(chosen.model, chosen.params).ready)
