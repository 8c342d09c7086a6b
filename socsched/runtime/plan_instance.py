"""A plan that can control a run: its rules, its chains on devices, and its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from socsched.errors import MachineError, SocschedError
from socsched.planning.plan import Plan, Task
from socsched.runtime import realtime
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import Instances, gate, is_queueable, prepare, title_of
from socsched.runtime.boards.base import Board
from socsched.runtime.dispatch_policy import Discipline, Sequential, WorkerKey, discipline
from socsched.runtime.options import Options
from socsched.runtime.worker import Habits, Worker

WARMUP_FRAMES = 2


@dataclass(slots=True)
class Version:
    """A plan with its rules and workers.

    `chained` names the successors of each task on its own device, `behind` all its successors; `titles` are display
    names.
    """

    plan: Plan
    setting: Setting
    rules: Discipline
    chained: Mapping[str, frozenset[str]]
    behind: Mapping[str, frozenset[str]]
    titles: Mapping[str, str]
    workers: dict[WorkerKey, Worker] = field(default_factory=dict)

    def awaited(self, name: str) -> bool:
        """Return whether anything but the task's own device waits for its end."""
        return not self.behind[name] or bool(self.behind[name] - self.chained[name])


def make_version(plan: Plan, setting: Setting, options: Options, backends: Instances, alone: bool) -> Version:
    """Return a plan with the rules of `options`; with `alone`, one job runs at a time, right after its producer."""
    setting = replace(setting, plan=plan)
    on_device = {task.name: is_queueable(task, setting, backends) for task in plan.tasks}
    frames = max(options.in_flight, WARMUP_FRAMES)
    count = {engine.id: sum(t.engine == engine.id for t in plan.tasks) for engine in plan.engines}
    depths = {task.name: frames * count[task.engine] for task in plan.tasks if on_device[task.name]}
    gates = {
        task.name: room
        for task in plan.tasks
        if on_device[task.name]
        and not any(on_device.get(name) for name in task.after)
        and (room := gate(task, setting, backends)) is not None
    }
    rules: Discipline = (
        Sequential(plan, straight=True)
        if alone
        else discipline(options.executor, plan, frames, depths, options.steal, gates)
    )
    behind = {
        task.name: tuple(other for other in plan.tasks if not other.timer and task.name in other.after)
        for task in plan.tasks
    }
    chained = {
        task.name: frozenset(
            other.name
            for other in behind[task.name]
            if rules.chained and on_device[task.name] and on_device[other.name] and other.engine == task.engine
        )
        for task in plan.tasks
    }
    titles = {task.name: title_of(task, setting) for task in plan.tasks}
    names = {name: frozenset(other.name for other in others) for name, others in behind.items()}
    return Version(plan, setting, rules, chained, names, titles)


def start_workers(
    version: Version, board: Board, options: Options, backends: Instances, habits: Habits, note: Callable[[str], None]
) -> str:
    """Start the workers of a plan and return their scheduling class (`realtime.chosen_class`).

    `habits` are those of the run; `note` receives notices for the user.
    """
    plan = version.plan
    crews = version.rules.crews()
    cpus = {key: _cpus(version, board, crew.engine, crew.lanes) for key, crew in crews.items()}
    kind, notice = realtime.choose_class(options.realtime, len(set().union(*cpus.values())))
    if notice:
        note(notice)

    def enter(tasks: Sequence[Task]) -> str:
        realtime.fine_timers()
        return realtime.set_fifo(realtime.fifo_priority(tasks, plan.tasks)) if kind == "fifo" else ""

    def settle(tasks: Sequence[Task]) -> str:
        return realtime.set_deadline(realtime.reservation(tasks)) if kind == "deadline" else ""

    own = replace(habits, awaited=version.awaited, enter=enter, settle=settle)
    if not version.rules.chained:
        own = replace(own, launched=None)
    for key, crew in crews.items():
        name = f"{key[0]}[{','.join(map(str, key[1]))}]{key[2] and ' ' + key[2]}"

        def prepared(task: Task, setting: Setting = version.setting) -> Any:
            return prepare(task, setting, backends)

        version.workers[key] = Worker(name, crew.tasks, cpus[key], prepared, own)
        version.workers[key].thread.start()
    return kind


def await_workers(workers: Sequence[Worker], interrupted: Callable[[], bool], note: Callable[[str], None]) -> None:
    """Wait until all stages are prepared; reraise a stage's SocschedError, other errors as MachineError."""
    for worker in workers:
        while not worker.ready.wait(0.1):
            if interrupted():
                raise KeyboardInterrupt
        for notice in worker.notices:
            note(notice)
        if isinstance(worker.failure, SocschedError):
            raise worker.failure
        if worker.failure is not None:
            error = worker.failure
            text = f"stage {worker.failed_task!r} could not be prepared: {type(error).__name__}: {error}"
            raise MachineError(text, "see `socsched doctor`") from error


def stop_workers(workers: Sequence[Worker], freed: threading.Event) -> None:
    """End all threads after the jobs in progress; `freed` releases injected hangs."""
    freed.set()
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(timeout=10)


def _cpus(version: Version, board: Board, engine: str, lanes: tuple[int, ...]) -> set[int]:
    if engine in {e.id for e in version.plan.engines}:
        return board.cpus(engine, lanes)
    # a thread that serves all engines may use the cores of all of them
    found: set[int] = set()
    for task in version.plan.tasks:
        found |= board.cpus(task.engine, tuple(task.lanes))
    return found
