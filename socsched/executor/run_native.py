"""A plan on this machine: its stages, frame after frame, against their deadlines.

Python prepares (what stages are, frames, settings), starts the native executor, serves what only this process can do
(`callbacks`), and reads what it wrote.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError, SocschedError, UsageError
from socsched.executor.build import require_executor
from socsched.executor.callbacks import Callbacks
from socsched.executor.frames import INPUTS, Written, fed, message, most_rows, write_inputs
from socsched.executor.outcome import DETECTIONS, Details, Executed, read_executed, read_outcome
from socsched.executor.settings import EXECUTED, JOURNAL, SETTINGS, Rules, RunSettings, rules_of, write_settings
from socsched.executor.stages import Served, describe_stages, fixed_ports, sensor_ports
from socsched.faults.model import RUN, Faults, check_faults
from socsched.models.registry import bindings
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.backends import Backend, Instances, Setting, replaced_runtimes
from socsched.runtime.boards import Board
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.collect import detecting_stages
from socsched.runtime.errors import StageFailed, on_first_interrupt, warn
from socsched.runtime.frames import Arrivals, FrameReport, FrameSource
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import PLAIN, PLAIN_INPUTS, Inputs, Options, Policies
from socsched.trace.trace import Trace

_LOOK_S, _LOOK_LIVE_S = 0.25, 0.02
"""Intervals at which the journal is read: of a run that is recorded, and of one that is fed from outside."""
_KEPT = 4096
"""Jobs of a stage whose sampled frames are remembered, to find the oldest data of later ones."""


def execute(
    plan: Plan,
    pipeline: Pipeline,
    inputs: Inputs = PLAIN_INPUTS,
    options: Options = PLAIN,
    *,
    board: Board | None = None,
    backends: Mapping[str, Backend] | None = None,
    on_frame: Callable[[FrameReport], None] | None = None,
    accounts: dict[str, dict[str, int]] | None = None,
) -> Trace:
    """Run `plan` on this machine and return its trace, in the simulator's vocabulary.

    `on_frame` is called in this thread for every chain end.  An interrupt (SIGINT) ends the run after the jobs in
    progress.  `board` provides platform, lanes and meters, by default this machine.  `backends`, by sort of stage, run
    stages in this process in place of what would.  `accounts` receives, for every sensor and timer, the number of
    frames released, completed, dropped and aborted.

    Raises UsageError for a plan this machine cannot run, MachineError where the executor cannot be built or ends
    unexpectedly, and StageFailed (with the trace so far) if a stage raises and no plan can take over.
    """
    if options.pace not in ("rate", "asap"):
        raise UsageError(f"unknown pace {options.pace!r}", "use 'rate' or 'asap'")
    place = board or LocalBoard()
    platform, bound = place.platform_for(plan), bindings(pipeline)
    setting = Setting(plan, pipeline, platform, bound, inputs.weights, inputs.seed, inputs.scales)
    rules = rules_of(plan, options)
    if options.faults is not None:
        check_faults(options.faults, RUN)
    executor = require_executor()
    feeds, horizon = prepare_inputs(setting, inputs, options.topics)
    for notice in replaced_runtimes(setting):
        warn(notice)
    with ExitStack() as stack:
        kept = options.journal if options.arrivals is None else None
        folder = kept.parent if kept else Path(stack.enter_context(TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        stack.callback(_clean, folder)
        if options.results is not None:
            stack.enter_context(options.results)
        details = Details(pipeline, options)
        callbacks = stack.enter_context(Callbacks())
        run = _Run(setting, options, rules, place, folder, callbacks, details)
        file = run.write(feeds, horizon, backends or {})
        stack.enter_context(place.prepared(plan))
        meters = [stack.enter_context(meter) for meter in place.meters()]
        executed = run.start(executor, file, on_frame)
        trace = Trace("measured", executed.duration_ns, inputs.seed)
        if options.arrivals is None:
            trace, _ = read_outcome(folder)
            for meter in meters:
                for name, steps in meter.counters(executed.origin_ns).items():
                    trace.counters.setdefault(name, []).extend(steps)
            details.collect(trace, folder, {sensor: written.facts for sensor, written in run.inputs.items()})
    trace.seed = inputs.seed
    for name in timetable.names(plan):
        trace.releases.setdefault(name, [])
    for notice in executed.notices:
        warn(notice)
    if accounts is not None:
        accounts.update(accounts_of(executed))
    if executed.failure:
        stage, frame = executed.failed_stage, executed.failed_frame
        error = callbacks.raised.get((stage, frame)) or MachineError(executed.failure)
        raise StageFailed(stage, frame, error, trace) from error
    return trace


def alone(pipeline: Pipeline, inputs: Inputs = PLAIN_INPUTS) -> Callable[[Plan, int, Callable[..., None]], Trace]:
    """Return a function that runs a number of frames of a plan as fast as possible, one job at a time."""
    options = Options(pace="asap", alone=True)

    def run(plan: Plan, frames: int, on_frame: Callable[[FrameReport], None]) -> Trace:
        return execute(plan, pipeline, replace(inputs, frames=frames), options, on_frame=on_frame)

    return run


@dataclass(slots=True)
class _Run:
    """One run: its settings, and what this process does meanwhile."""

    setting: Setting
    options: Options
    rules: Rules
    board: Board
    folder: Path
    callbacks: Callbacks
    details: Details
    inputs: dict[str, Written] = field(default_factory=dict)

    def write(self, feeds: Mapping[str, FrameSource], horizon_ns: int, backends: Mapping[str, Backend]) -> Path:
        """Write the settings and frames of the run; return the file."""
        setting, options, plan = self.setting, self.options, self.setting.plan
        policies = options.policies or Policies()
        ports = sensor_ports(setting)
        live = options.arrivals is not None
        self.inputs = write_inputs(plan, feeds, ports, horizon_ns, self.folder, live, fixed_ports(setting))
        documents = {sensor: self._input(sensor, ports[sensor]) for sensor in self.inputs}
        kinds = {sensor: written.types for sensor, written in self.inputs.items()}
        rooms = {sensor: most_rows(written.document) for sensor, written in self.inputs.items()}
        detecting = detecting_stages(setting.pipeline)
        served = Served(
            self.callbacks,
            Instances(backends),
            frozenset(backends),
            self.board.cpus,
            policies.cheaper,
            options.observe or (self.details.see if options.stats or options.results is not None else None),
            (lambda task: True) if options.stats or options.observe else detecting.__contains__,
            self.rules.threads if self.rules.shares_lanes else len(_lane_sets(plan)) if options.steal else 1,
        )
        versions = [replace(setting, plan=one) for one in (plan, *options.limp_home)]
        described = [describe_stages(one, kinds, rooms, served) for one in versions]
        settings = RunSettings(
            plan,
            horizon_ns,
            needs={stage: set(bound.values()) for stage, bound in setting.bound.items()},
            stages=described[0],
            limp_home_stages=tuple(described[1:]),
            inputs=documents,
            processors={} if self.rules.shares_lanes else _processors(plan, self.board),
            policies=policies,
            faults=options.faults or Faults(),
            limp_home=options.limp_home,
            shield=options.shield,
            hang_ns=options.hang_ns,
            awake_ns=options.awake_ns,
            realtime=options.realtime,
            seed=setting.seed,
            in_flight=0 if options.pace == "rate" else max(options.in_flight, 1),
            rules=self.rules,
        )
        return write_settings(settings, self.folder)

    def _input(self, sensor: str, ports: Sequence[str]) -> dict[str, Any]:
        """Return a sensor's entry in the settings, with a feed where its frames come during the run."""
        written, arrivals, over = self.inputs[sensor], self.options.arrivals, self.callbacks.over.is_set
        if written.coming is None:
            return written.document
        frames = fed(written, ports, over) if arrivals is None else _arriving(arrivals, sensor, ports, written, over)
        return {**written.document, "feed": self.callbacks.feed(frames), "live": arrivals is not None}

    def start(self, executor: Path, file: Path, on_frame: Callable[[FrameReport], None] | None) -> Executed:
        """Run the executor to its end and report frames meanwhile; return what it says of the run.

        The first SIGINT is passed on, so that the run ends in order; a second one ends it at once.
        """
        live = self.options.arrivals is not None
        if live:
            os.mkfifo(self.folder / JOURNAL)  # read and forgotten: a run without an end must not fill the disk
        journal = _Journal(self.folder / JOURNAL, self.setting.plan)
        command = [str(executor), str(file), "-o", str(self.folder), "--end-with-parent"]
        with (
            journal,
            _processors_of(self._shared()),
            subprocess.Popen(
                command,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                pass_fds=self.callbacks.descriptors,
            ) as process,
        ):
            self.callbacks.started()
            try:
                with on_first_interrupt(lambda: process.send_signal(signal.SIGINT)):
                    running = True
                    while running:
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(_LOOK_LIVE_S if live else _LOOK_S)
                        running = process.poll() is None
                        for report in journal.reports():
                            if on_frame is not None:
                                on_frame(report)
            except BaseException:
                process.kill()
                raise
            assert process.stderr is not None
            problem = process.stderr.read().strip()
        if problem or process.returncode not in (0, SocschedError.exit_code):
            self._refuse(problem.removeprefix("error: "), process.returncode)
        return read_executed(self.folder)

    def _refuse(self, problem: str, code: int) -> None:
        """Raise what ended the run before it began, or the executor itself."""
        for (stage, frame), error in self.callbacks.raised.items():
            if frame >= 0:
                raise StageFailed(stage, frame, error, Trace("measured", 0, self.setting.seed)) from error
            if isinstance(error, SocschedError):
                raise error
            text = f"stage {stage!r} could not be prepared: {type(error).__name__}: {error}"
            raise MachineError(text, "see `socsched doctor`") from error
        kind = UsageError if code == UsageError.exit_code else MachineError
        said, _, hint = problem.partition("\nhint: ")
        raise kind(f"the native executor ended with {code}: {said}", hint)

    def _shared(self) -> frozenset[int]:
        """Return the processors of threads that run jobs on all lanes of the plan."""
        sets = _lane_sets(self.setting.plan) if self.rules.shares_lanes else ()
        return frozenset[int]().union(*(self.board.cpus(engine, lanes) for engine, lanes in sets))


def _lane_sets(plan: Plan) -> set[tuple[str, tuple[int, ...]]]:
    return {(task.engine, tuple(task.lanes)) for task in plan.tasks}


def _arriving(
    arrivals: Arrivals, sensor: str, ports: Sequence[str], written: Written, over: Callable[[], bool]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the frames of a sensor as messages as they arrive, until there are no more."""
    while not arrivals.closed and not over():
        if (arrival := arrivals.next(sensor, _LOOK_S)) is not None:
            time_ns, frame = arrival
            yield message(frame, ports, written.types, time_ns)


@contextmanager
def _processors_of(processors: frozenset[int]) -> Iterator[None]:
    """Return a context in which a new process has these processors, if there are any."""
    if not processors:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _clean(folder: Path) -> None:
    """Delete the files that only a run itself needs."""
    for pattern in (SETTINGS, EXECUTED, DETECTIONS, "limp-home-*.json", INPUTS.format("*")):
        for file in folder.glob(pattern):
            file.unlink()


def _processors(plan: Plan, board: Board) -> dict[str, list[int]]:
    """Return the processor of every lane of the CPUs, -1 where the board knows none."""
    return {
        engine.id: [min(board.cpus(engine.id, (lane,)), default=-1) for lane in range(engine.lanes)]
        for engine in plan.engines
        if engine.kind == "cpu"
    }


class _Journal:
    """The journal of a run while it grows: the ends of chains since the last look; a context manager around it."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path, self._rest = path, b""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.is_fifo() else -1
        self._deadline = {task.name: task.deadline_ns for task in plan.tasks}
        self._after = {task.name: () if task.timer else task.after for task in plan.tasks}
        self._ends: dict[str, list[Any]] = {}
        for chain in plan.chains:
            self._ends.setdefault(chain.path[-1], []).append(chain)
        self._sampled: dict[str, dict[int, Mapping[str, int]]] = {task.name: {} for task in plan.tasks if task.reads}
        self._releases: dict[str, dict[int, int]] = {chain.path[0]: {} for chain in plan.chains}
        self._released: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._position = 0

    def __enter__(self) -> _Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def reports(self) -> list[FrameReport]:
        """Return the chains that have ended since the last call."""
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        found: list[FrameReport] = []
        for line in lines:
            entry = json.loads(line)
            for name, times in entry.get("releases", {}).items():
                for time_ns in times:
                    number = self._released.get(name, 0)
                    self._released[name] = number + 1
                    if name in self._releases:
                        _remember(self._releases[name], number, time_ns)
            for _, task, frame, _, due, _, finish, _, _, status, sampled in entry.get("jobs", ()):
                if task in self._sampled:
                    _remember(self._sampled[task], frame, sampled)
                if status == "done":
                    found += self._ended(task, frame, due, finish)
        return found

    def _read(self) -> bytes:
        if self._descriptor >= 0:
            parts: list[bytes] = []
            with suppress(BlockingIOError):
                while part := os.read(self._descriptor, 1 << 16):
                    parts.append(part)
            return b"".join(parts)
        if not self._path.is_file():
            return b""
        with self._path.open("rb") as file:
            file.seek(self._position)
            content = file.read()
            self._position = file.tell()
        return content

    def _ended(self, task: str, frame: int, due: int, finish: int) -> Iterator[FrameReport]:
        """Yield the chains that end with a job and have reached a frame of their source not yet reported."""
        for chain in self._ends.get(task, ()):
            source = self._oldest(task, frame, chain.path[0], set())
            if source is None or source <= self._reported.get(chain.name, -1):
                continue
            self._reported[chain.name] = source
            release = self._releases[chain.path[0]].get(source, due - self._deadline[task])
            yield FrameReport(chain.name, source, release, finish, chain.deadline_ns)

    def _oldest(self, name: str, frame: int, source: str, passed: set[tuple[str, int]]) -> int | None:
        """Return the oldest frame of a source in the data of a job or frame, None if it has none."""
        if name == source:
            return frame
        if (name, frame) in passed or name not in self._after:
            return None  # stages may read each other's latest data
        passed.add((name, frame))
        sampled = self._sampled.get(name, {}).get(frame, {})
        before = [(one, frame) for one in self._after[name]] + [*sampled.items()]
        found = [self._oldest(one, number, source, passed) for one, number in before]
        return min((number for number in found if number is not None), default=None)


def _remember(of: dict[int, Any], number: int, value: Any) -> None:
    of[number] = value
    if len(of) > _KEPT:
        del of[next(iter(of))]


def accounts_of(executed: Executed) -> Mapping[str, dict[str, int]]:
    """Return the accounts as plain data."""
    names = ("released", "completed", "dropped", "aborted")
    return {source: {name: getattr(account, name) for name in names} for source, account in executed.accounts.items()}
