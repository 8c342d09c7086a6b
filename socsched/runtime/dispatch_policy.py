"""Dispatch rules, where and when jobs may run: the planned executor and the baselines it is compared with.

event-chained     every job on its planned lanes, in the order of the planned policy; a finished stage starts the next
                  one, and device stages are chained on the device
sequential        one job at a time, frame after frame
stream-per-frame  every frame in flight has a dedicated thread (and device streams) that runs its stages in turn;
                  engines are shared without arbitration, as with one CUDA stream per frame
shared-queue      all ready jobs in one queue, served by threads that can run any of them and wait for each to end
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from socsched.errors import UsageError
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.runtime import policy as policies

if TYPE_CHECKING:
    from socsched.runtime.activation import Activation

Key = tuple[int, ...]
Gates = Mapping[str, Callable[[], bool]]
WorkerKey = tuple[str, tuple[int, ...], str]
"""Identity of a worker thread: engine, lanes, and urgency class if the device has several queues."""

DISORDER = 64
"""Frames by which stages may deliver out of order if several threads serve one stage."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job runs: the seats it holds exclusively and the worker that serves it."""

    seats: tuple[Hashable, ...]
    worker: WorkerKey


@dataclass(frozen=True, slots=True)
class Crew:
    """A worker to start: the tasks it must be able to run, and the lanes whose cores it may use."""

    tasks: tuple[Task, ...]
    lanes: tuple[int, ...]
    engine: str


class Discipline(Protocol):
    """The rules of one executor.

    `blocking`: a lower-priority job on the same lanes counts as blocking.  `chained`: consecutive stages of one device
    are chained there.  `disorder`: the number of frames by which a stage may deliver out of order.
    """

    name: str
    blocking: bool
    chained: bool
    disorder: int

    def key(self, act: Activation) -> Key:
        """Return the sort key of a ready job, least first."""
        ...

    def place(self, act: Activation, taken: Container[Hashable]) -> Place | None:
        """Return the place where a job can start now, None if it must wait."""
        ...

    def crews(self) -> Mapping[WorkerKey, Crew]:
        """Return the workers this discipline needs."""
        ...


class EventChained:
    """The plan as it stands.

    `depths` maps a task to the number of its engine's jobs that may be queued on the device.  `gates` maps a task with
    which frames enter a device to a function that tells whether the device has room for another frame.

    With `steal`, a job whose lanes are taken may run on the same number of idle lanes, on its own engine or an
    identically declared one; the analysis assumes fixed lanes, so its bounds no longer apply.  `keys`: orders by
    policy, in addition to the built-in ones.
    """

    name, blocking, chained = "event-chained", True, True

    def __init__(
        self,
        plan: Plan,
        depths: Mapping[str, int] | None = None,
        steal: bool = False,
        gates: Gates | None = None,
        keys: Mapping[str, policies.Key] | None = None,
    ) -> None:
        self._gates = gates or {}
        known = keys or {}
        self._policies = {e.id: known.get(e.policy) or policies.policy(e.policy) for e in plan.engines}
        self._order = {task.name: index for index, task in enumerate(plan.tasks)}
        self._depths = depths or {}
        self.disorder = DISORDER if steal else 0
        self._plan = plan
        self._homes = {task.name: self._home(task) for task in plan.tasks}
        self._away = {task.name: self._alike(task) if steal else () for task in plan.tasks}
        self._places = {
            name: tuple(place for home in (own, *self._away[name]) for place in self._seats(name, home))
            for name, own in self._homes.items()
        }
        self._orders = {t.name: (self._policies[t.engine], self._order[t.name]) for t in plan.tasks}

    def key(self, act: Activation) -> Key:
        """Return the key of the engine's planned policy."""
        rule, order = self._orders[act.task.name]
        return (*rule(act.job, act.task), order, act.job.frame)

    def place(self, act: Activation, taken: Container[Hashable]) -> Place | None:
        """Return the planned place if it is free; otherwise, with `steal`, an equivalent one."""
        name = act.task.name
        if name in self._gates and not self._gates[name]():
            return None
        for place in self._places[name]:
            for seat in place.seats:
                if seat in taken:
                    break
            else:
                return place
        return None

    def crews(self) -> Mapping[WorkerKey, Crew]:
        """Return one worker per lane set, and one per urgency class on devices with queues."""
        found: dict[WorkerKey, list[Task]] = {}
        for task in self._plan.tasks:
            found.setdefault(self._homes[task.name], []).append(task)
        for task in self._plan.tasks:
            for home in self._away[task.name]:
                found[home].append(replace(task, engine=home[0], lanes=home[1]))
        return {key: Crew(tuple(tasks), key[1], key[0]) for key, tasks in found.items()}

    def _home(self, task: Task) -> WorkerKey:
        return (task.engine, tuple(task.lanes), task.criticality if self._depths.get(task.name, 1) > 1 else "")

    def _seats(self, name: str, home: WorkerKey) -> tuple[Place, ...]:
        engine, lanes, urgency = home
        depth = self._depths.get(name, 1)
        if depth == 1:
            return (Place(tuple((engine, lane) for lane in lanes), home),)
        return tuple(Place(tuple((engine, lane, urgency, n) for lane in lanes), home) for n in range(depth))

    def _alike(self, task: Task) -> tuple[WorkerKey, ...]:
        engines = {engine.id: _declared(engine) for engine in self._plan.engines}
        own = self._home(task)
        homes = dict.fromkeys(self._home(other) for other in self._plan.tasks)
        return tuple(
            home
            for home in homes
            if home != own
            and len(home[1]) == len(own[1])
            and home[2] == own[2]
            and engines[home[0]] == engines[own[0]]
            and not (home[0] == own[0] and set(home[1]) & set(own[1]))
        )


class Sequential:
    """One job at a time, oldest frame first; with `straight`, the most recently readied job first.

    With `straight`, a stage finds its predecessor's data in the caches, as it would on dedicated lanes.
    """

    name, blocking, chained, disorder = "sequential", False, False, 0

    def __init__(self, plan: Plan, straight: bool = False) -> None:
        self._straight = straight
        self._order = {task.name: index for index, task in enumerate(plan.tasks)}
        self._crews: dict[WorkerKey, Crew] = {}
        for key, tasks in _by_lanes(plan).items():
            self._crews[key] = Crew(tuple(tasks), key[1], key[0])

    def key(self, act: Activation) -> Key:
        """Order by release (with `straight`, most recent activation first), then by stage order in the plan."""
        first = -act.job.activation_ns if self._straight else act.release_ns
        return (first, self._order[act.task.name], act.job.frame)

    def place(self, act: Activation, taken: Container[Hashable]) -> Place | None:
        """Return the planned lanes if no other job runs."""
        return None if "machine" in taken else Place(("machine",), (act.task.engine, tuple(act.task.lanes), ""))

    def crews(self) -> Mapping[WorkerKey, Crew]:
        """Return one worker per lane set."""
        return self._crews


class StreamPerFrame:
    """A thread for each frame in flight."""

    name, blocking, chained, disorder = "stream-per-frame", False, False, DISORDER

    def __init__(self, plan: Plan, streams: int) -> None:
        self._order = {task.name: index for index, task in enumerate(plan.tasks)}
        self._plan, self._streams = plan, streams

    def key(self, act: Activation) -> Key:
        """Order by release, then by the stages' order in the plan."""
        return (act.release_ns, self._order[act.task.name], act.job.frame)

    def place(self, act: Activation, taken: Container[Hashable]) -> Place | None:
        """Return the thread of the job's frame if it is idle."""
        worker: WorkerKey = ("stream", (act.job.frame % self._streams,), "")
        return None if worker in taken else Place((worker,), worker)

    def crews(self) -> Mapping[WorkerKey, Crew]:
        """Return one worker per stream, each able to run every task, on all planned lanes."""
        lanes = _all_lanes(self._plan)
        return {("stream", (n,), ""): Crew(self._plan.tasks, lanes, "stream") for n in range(self._streams)}


class SharedQueue:
    """Threads that take the oldest ready job, whatever its stage."""

    name, blocking, chained, disorder = "shared-queue", False, False, DISORDER

    def __init__(self, plan: Plan, threads: int) -> None:
        self._order = {task.name: index for index, task in enumerate(plan.tasks)}
        self._plan, self._threads = plan, threads

    def key(self, act: Activation) -> Key:
        """Order by activation, then by the stages' order in the plan."""
        return (act.job.activation_ns, self._order[act.task.name], act.job.frame)

    def place(self, act: Activation, taken: Container[Hashable]) -> Place | None:
        """Return the first idle thread."""
        for number in range(self._threads):
            worker: WorkerKey = ("queue", (number,), "")
            if worker not in taken:
                return Place((worker,), worker)
        return None

    def crews(self) -> Mapping[WorkerKey, Crew]:
        """Return the threads, each able to run every task, on all planned lanes."""
        lanes = _all_lanes(self._plan)
        return {("queue", (n,), ""): Crew(self._plan.tasks, lanes, "queue") for n in range(self._threads)}


def _by_lanes(plan: Plan) -> dict[WorkerKey, list[Task]]:
    found: dict[WorkerKey, list[Task]] = {}
    for task in plan.tasks:
        found.setdefault((task.engine, tuple(task.lanes), ""), []).append(task)
    return found


def _all_lanes(plan: Plan) -> tuple[int, ...]:
    return tuple(sorted({lane for task in plan.tasks for lane in task.lanes}))


def _declared(engine: PlannedEngine) -> tuple[object, ...]:
    """Return all declared properties of an engine except its name; engines with equal ones are interchangeable."""
    return tuple(getattr(engine, name) for name in PlannedEngine.__slots__ if name != "id")


EXECUTORS: dict[str, Callable[[Plan, int, Mapping[str, int], bool, Gates], Discipline]] = {
    "event-chained": lambda plan, frames, depths, steal, gates: EventChained(plan, depths, steal, gates),
    "sequential": lambda plan, frames, depths, steal, gates: Sequential(plan),
    "stream-per-frame": lambda plan, frames, depths, steal, gates: StreamPerFrame(plan, frames),
    "shared-queue": lambda plan, frames, depths, steal, gates: SharedQueue(plan, len(_by_lanes(plan))),
}


def discipline(
    name: str,
    plan: Plan,
    in_flight: int,
    depths: Mapping[str, int] | None = None,
    steal: bool = False,
    gates: Gates | None = None,
) -> Discipline:
    """Return an executor's rules for `in_flight` concurrent frames; raise UsageError if `name` is unknown."""
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}", f"executors: {', '.join(EXECUTORS)}")
    return EXECUTORS[name](plan, in_flight, depths or {}, steal, gates or {})


def tasks_by_worker(crews: Mapping[WorkerKey, Crew]) -> dict[WorkerKey, Sequence[str]]:
    """Return the names of the tasks each worker can run."""
    return {key: [task.name for task in crew.tasks] for key, crew in crews.items()}
