"""`socsched run --executor native`: check what a plan needs, start the native executor, read what it wrote."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError, SocschedError, UsageError
from socsched.executor.build import find_executor
from socsched.executor.details import DETECTIONS, collect
from socsched.executor.frames import INPUTS, most_rows, write_inputs
from socsched.executor.outcome import Executed, read_outcome
from socsched.executor.settings import EXECUTED, JOURNAL, SETTINGS, RunSettings, write_settings
from socsched.executor.stages import describe_stages, sensor_ports, unsupported_stages
from socsched.faults.model import Faults
from socsched.models.registry import bindings
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.backends.base import Setting
from socsched.runtime.boards.base import Board
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.errors import StageFailed
from socsched.runtime.executor import execute, prepare_inputs
from socsched.runtime.executor_state import FrameReport
from socsched.runtime.interrupts import on_first_interrupt
from socsched.runtime.options import PLAIN, Options
from socsched.runtime.overload import Policies
from socsched.runtime.worker import warn
from socsched.trace.trace import Trace

NAME = "native"
_LOOK_S = 0.25
"""Interval at which the journal is read for finished frames."""
_INSTEAD = "run with --executor event-chained"


class NoExecutor(MachineError):
    """The native executor cannot be built on this machine."""


def unsupported(setting: Setting, options: Options, stats: bool) -> list[str]:
    """Return what a run needs and the native executor lacks, in words; empty if it can run it."""
    needs = {
        "--stats": stats,
        "--steal": options.steal,
    }
    return unsupported_stages(setting) + [what for what, needed in needs.items() if needed]


def execute_natively(
    plan: Plan,
    pipeline: Pipeline,
    *,
    board: Board,
    options: Options,
    frames: int | None = None,
    duration_ns: int | None = None,
    seed: int = 0,
    pace: str = "rate",
    alone: bool = False,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    loop: bool = False,
    stats: bool = False,
    on_frame: Callable[[FrameReport], None] | None = None,
    accounts: dict[str, dict[str, int]] | None = None,
) -> Trace:
    """Run `plan` with the native executor and return its trace; arguments as those of `runtime.executor.execute`.

    Raises UsageError for a run that it cannot do, MachineError where it cannot be built or ends unexpectedly, and
    StageFailed (with the trace so far) if a stage fails and no plan can take over.
    """
    platform = board.platform_for(plan)
    bound = bindings(pipeline)
    setting = Setting(plan, pipeline, platform, bound, weights, seed, scales)
    versions = [setting, *(replace(setting, plan=spare) for spare in options.limp_home)]
    if lacking := [what for one in versions for what in unsupported(one, options, stats)]:
        raise UsageError(f"the native executor cannot run this plan yet: {'; '.join(lacking[:5])}", _INSTEAD)
    try:
        executor = find_executor()
    except MachineError as failed:
        warn(str(failed))
        raise NoExecutor(str(failed), failed.hint) from failed
    if executor is None:
        raise NoExecutor("the native executor needs a C++ compiler", f"install g++ or clang++, or {_INSTEAD}")
    feeds, horizon = prepare_inputs(setting, scans, frames, duration_ns, loop, options.topics)
    with ExitStack() as stack:
        folder = options.journal.parent if options.journal else Path(stack.enter_context(TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        stack.callback(_clean, folder)
        given = write_inputs(plan, feeds, sensor_ports(setting), horizon, folder)
        kinds = {sensor: written.types for sensor, written in given.items()}
        rooms = {sensor: most_rows(written.document) for sensor, written in given.items()}
        described = [describe_stages(one, kinds, rooms) for one in versions]
        settings = RunSettings(
            plan,
            horizon,
            needs={stage: set(ports.values()) for stage, ports in bound.items()},
            stages=described[0],
            limp_home_stages=tuple(described[1:]),
            inputs={sensor: written.document for sensor, written in given.items()},
            processors=_processors(plan, board),
            policies=options.policies or Policies(),
            faults=options.faults or Faults(),
            limp_home=options.limp_home,
            shield=options.shield,
            hang_ns=options.hang_ns,
            awake_ns=options.awake_ns,
            realtime=options.realtime,
            seed=seed,
            in_flight=0 if pace == "rate" else max(options.in_flight, 1),
            alone=alone,
        )
        stack.enter_context(board.prepared(plan))
        meters = [stack.enter_context(meter) for meter in board.meters()]
        _run(executor, write_settings(settings, folder), folder, plan, on_frame)
        trace, executed = read_outcome(folder)
        for meter in meters:
            for name, steps in meter.counters(executed.origin_ns).items():
                trace.counters.setdefault(name, []).extend(steps)
        facts = {sensor: written.facts for sensor, written in given.items()}
        collect(trace, pipeline, folder, facts, options.frames)
    trace.seed = seed
    for name in timetable.names(plan):
        trace.releases.setdefault(name, [])
    _report(executed, accounts)
    if executed.failure:
        error = MachineError(executed.failure)
        raise StageFailed(executed.failed_stage, executed.failed_frame, error, trace)
    return trace


def execute_where_possible(plan: Plan, pipeline: Pipeline, **how: Any) -> Trace:
    """Run `plan` on this machine natively, or in Python if the native executor cannot; arguments as `execute`."""
    try:
        return execute_natively(plan, pipeline, board=LocalBoard(), options=PLAIN, **how)
    except (UsageError, NoExecutor):
        return execute(plan, pipeline, **how)


def _clean(folder: Path) -> None:
    """Delete the files that only a run itself needs."""
    for pattern in (SETTINGS, EXECUTED, DETECTIONS, "limp-home-*.json", INPUTS.format("*")):
        for file in folder.glob(pattern):
            file.unlink()


def _processors(plan: Plan, board: Board) -> dict[str, list[int]]:
    """Return the processor of every lane, -1 where the board knows none."""
    return {
        engine.id: [min(board.cpus(engine.id, (lane,)), default=-1) for lane in range(engine.lanes)]
        for engine in plan.engines
    }


def _run(executor: Path, file: Path, folder: Path, plan: Plan, on_frame: Callable[[FrameReport], None] | None) -> None:
    """Run the executor to its end and report frames meanwhile.

    The first SIGINT is passed on, so that the run ends in order; a second one ends it at once.
    """
    command = [str(executor), str(file), "-o", str(folder), "--end-with-parent"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        reports = _reports(folder / JOURNAL, plan)
        try:
            with on_first_interrupt(lambda: process.send_signal(signal.SIGINT)):
                running = True
                while running:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_S)
                    running = process.poll() is None
                    for report in next(reports):
                        if on_frame is not None:
                            on_frame(report)
        except BaseException:
            process.kill()
            raise
        assert process.stderr is not None
        problem = process.stderr.read().strip()
    if problem or process.returncode not in (0, SocschedError.exit_code):
        kind = UsageError if process.returncode == UsageError.exit_code else MachineError
        raise kind(f"the native executor ended with {process.returncode}: {problem.removeprefix('error: ')}", _INSTEAD)


def _reports(journal: Path, plan: Plan) -> Iterator[Sequence[FrameReport]]:
    """Yield, every time it is asked, the chains that the journal shows to have ended since, by the frame that did."""
    ends: dict[str, list[Any]] = {}
    for chain in plan.chains:
        ends.setdefault(chain.path[-1], []).append(chain)
    deadline = {task.name: task.deadline_ns for task in plan.tasks}
    position, rest = 0, b""
    while True:
        found: list[FrameReport] = []
        if journal.is_file():
            with journal.open("rb") as file:
                file.seek(position)
                *lines, rest = (rest + file.read()).split(b"\n")
                position = file.tell()
            for line in lines:
                for _, task, frame, _, due, _, finish, _, _, status, _ in json.loads(line).get("jobs", ()):
                    for chain in ends.get(task, ()) if status == "done" else ():
                        release = due - deadline[task]
                        found.append(FrameReport(chain.name, frame, release, finish, chain.deadline_ns))
        yield found


def _report(executed: Executed, accounts: dict[str, dict[str, int]] | None) -> None:
    for notice in executed.notices:
        warn(notice)
    if accounts is not None:
        accounts.update(accounts_of(executed))


def accounts_of(executed: Executed) -> Mapping[str, dict[str, int]]:
    """Return the accounts as plain data, as those of `runtime.executor.execute`."""
    names = ("released", "completed", "dropped", "aborted")
    return {source: {name: getattr(account, name) for name in names} for source, account in executed.accounts.items()}
