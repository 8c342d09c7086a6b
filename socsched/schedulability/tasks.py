"""Input and output of the schedulability tests: recurrent tasks on fixed lanes, and responses."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from socsched.cost.cost import launched_ahead
from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.planning.plan import Plan, PlannedEngine, PlannedSensor, Task

Lane = tuple[str, int]
"""Engine id and lane number."""
Terms = tuple[tuple[str, int], ...]
"""What a bound (ns) is the sum of."""


KEPT = 4
"""Graphs of triggers of which results are kept: those of long chains are large."""


class Triggered(Protocol):
    """A task with the names of those that trigger it."""

    @property
    def after(self) -> tuple[str, ...]: ...


def ceil_div(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A source whose frames arrive from `offset` on, at most `jitter` late (ns); `timer`: releases count as nominal."""

    source: str
    offset: int
    jitter: int
    timer: bool = False


@dataclass(frozen=True, slots=True)
class RtTask:
    """A recurrent task; all times in ns.

    Frame k is nominally released at `offset` + k `period`, at most `release_jitter` late; the job is activated once the
    tasks in `after` have finished that frame.  `deadline` is relative to the release, `priority` 0 highest.  `wcet`
    holds under the worst co-running traffic, `segment` is its longest non-preemptive part (0 with full preemption),
    `switch` the cost of resuming after a preemption.  `sporadic`: frames may come later than a period after the last.
    `arrivals`: sensors that trigger the task, or its own timer; empty: one source that follows from the offset and the
    jitter.  `due_later`: how much later than `deadline` a job is due from its oldest release, nominal at a timer.
    """

    name: str
    lanes: frozenset[Lane]
    wcet: int
    period: int
    deadline: int
    priority: int = 0
    offset: int = 0
    release_jitter: int = 0
    segment: int = 0
    switch: int = 0
    preemption: str = "full"
    after: tuple[str, ...] = ()
    sporadic: bool = False
    arrivals: tuple[Arrival, ...] = ()
    due_later: int = 0

    @property
    def utilisation(self) -> float:
        """Return the fraction of each of its lanes that the task uses."""
        return self.wcet / self.period


@dataclass(frozen=True, slots=True)
class Response:
    """Response of one task: finished at most `value` ns after the nominal release, if `bounded`.

    `terms` break down the time after the activation and add up to `value` minus the value of the task `via`, whose
    completion activates it latest (empty: the release itself).  Unbounded: `value` is where the iteration stopped.
    `since`: sources with shorter bounds from the frame's release there, actual at a sensor and nominal at a timer.
    """

    value: int
    bounded: bool
    terms: tuple[tuple[str, int], ...]
    via: str = ""
    since: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Activation:
    """Latest activation of a job (`jitter` ns after the nominal release), and the task whose completion causes it."""

    jitter: int
    via: str = ""
    terms: tuple[tuple[str, int], ...] = field(default=())


def activation(task: RtTask, tasks: Mapping[str, RtTask], finish: Mapping[str, int]) -> Activation:
    """Return the latest activation of `task`, given each predecessor's finish after its own nominal release."""
    latest = Activation(
        task.release_jitter, "", (("release jitter", task.release_jitter),) if task.release_jitter else ()
    )
    for name in task.after:
        if name in tasks:
            later = tasks[name].offset - task.offset
            if finish[name] + later > latest.jitter or not latest.via:
                terms = ((f"offset of {name}", later),) if later else ()
                candidate = Activation(finish[name] + later, name, terms)
                latest = candidate if candidate.jitter >= latest.jitter else latest
    return latest


def latest_ns(task: RtTask, tasks: Mapping[str, RtTask], finish: Mapping[str, int]) -> int:
    """Return the latest activation (ns) of `task`, as `activation`."""
    latest = task.release_jitter
    for name in task.after:
        if name in tasks:
            latest = max(latest, finish[name] + tasks[name].offset - task.offset)
    return latest


def components(tasks: Iterable[RtTask]) -> list[list[RtTask]]:
    """Group tasks whose lanes overlap, directly or through others."""
    tasks = list(tasks)
    alike: dict[frozenset[Lane], list[RtTask]] = {}
    for task in tasks:  # the usual case, sets of lanes that are equal or apart, in the order of the general one
        members = alike.pop(task.lanes, [])
        members.append(task)
        alike[task.lanes] = members
    if sum(map(len, alike)) == len(frozenset().union(*alike)) and frozenset() not in alike:
        return list(alike.values())
    groups: list[tuple[set[Lane], list[RtTask]]] = []
    for task in tasks:
        lanes, members = set(task.lanes), [task]
        kept = []
        for other, rest in groups:
            if other & lanes:
                lanes |= other
                members = rest + members
            else:
                kept.append((other, rest))
        groups = [*kept, (lanes, members)]
    return [members for _, members in groups]


def single_resource(group: Sequence[RtTask]) -> bool:
    """Return whether all tasks occupy the same lanes, so that the group is one processor."""
    first = group[0].lanes
    return all(task.lanes == first for task in group)


Triggers = tuple[tuple[str, tuple[str, ...]], ...]
"""Tasks with what triggers them.  What follows from these alone is kept: mappings of one pipeline share it."""


def _triggers(tasks: Mapping[str, Triggered]) -> Triggers:
    return tuple((name, tuple(task.after)) for name, task in tasks.items())


def topological(tasks: Mapping[str, Triggered]) -> Sequence[str]:
    """Return the names with predecessors first (ties in the given order)."""
    return _topological(_triggers(tasks))


@lru_cache(maxsize=KEPT)
def _topological(triggers: Triggers) -> Sequence[str]:
    tasks = dict(triggers)
    done: dict[str, None] = {}
    entered: set[str] = set()
    for root in tasks:
        waiting = [] if root in done else [(root, iter(tasks[root]))]
        while waiting:  # not by recursion: a chain may be longer than the stack
            name, before = waiting[-1]
            entered.add(name)
            other = next((one for one in before if one in tasks and one not in entered), None)
            if other is not None:
                waiting.append((other, iter(tasks[other])))
            else:
                done[name] = None
                waiting.pop()
    return tuple(done)


def upstream(name: str, before: Callable[[str], Iterable[str]], known: Container[str]) -> list[str]:
    """Return a name and all before it that are not known, predecessors first, without recursion: chains may be long."""
    found: dict[str, None] = {}
    entered = {name}
    waiting = [] if name in known else [(name, iter(before(name)))]
    while waiting:
        last, rest = waiting[-1]
        other = next((one for one in rest if one not in known and one not in entered), None)
        if other is not None:
            entered.add(other)
            waiting.append((other, iter(before(other))))
        else:
            found[last] = None
            waiting.pop()
    return list(found)


def rt_tasks(plan: Plan) -> dict[str, RtTask]:
    """Return a plan's tasks as inputs of the tests, by name."""
    return convert(plan.tasks, plan.engines, plan.sensors)


def convert(
    tasks: Sequence[Task], engines: Sequence[PlannedEngine], sensors: Sequence[PlannedSensor]
) -> dict[str, RtTask]:
    """Return planned tasks as inputs of the tests, by name; each task's largest segment is stretched like its WCET."""
    by_engine = {engine.id: engine for engine in engines}
    by_name = {sensor.name: sensor for sensor in sensors}
    starts = {s.name: (s.offset_ns, s.offset_ns + s.jitter_ns) for s in sensors}
    # sporadic frames arrive at least a period apart, which the whole analysis allows for
    loose = {s.name for s in sensors if s.gap_ns} | {t.name for t in tasks if t.timer and (t.gap_ns or t.closed_by)}
    result: dict[str, RtTask] = {}
    late = timer_jitter(tasks)
    members: dict[str, list[Task]] = {engine.id: [] for engine in engines}
    for task in tasks:
        members[task.engine].append(task)
    costs = {engine.id: switch_cost(engine, members[engine.id]) for engine in engines}
    known = {task.name: task for task in tasks}
    for name in topological(known):
        task = known[name]
        first = task.offset_ns if task.timer else min(starts[other][0] for other in task.after)
        last = first + task.release_jitter_ns if task.timer else max(starts[other][1] for other in task.after)
        starts[name] = (first, last)
        if not loose.isdisjoint(task.after):
            loose.add(name)
        lateness = late[name], name in loose, _arrivals(task, by_name)
        result[name] = _convert(task, by_engine[task.engine], (first, last - first), costs[task.engine], *lateness)
    return {task.name: result[task.name] for task in tasks}


def _arrivals(task: Task, sensors: Mapping[str, PlannedSensor]) -> tuple[Arrival, ...]:
    if task.timer:
        return (Arrival(task.name, task.offset_ns, task.release_jitter_ns, True),)
    found = (sensors[name] for name in task.after if name in sensors)
    return tuple(Arrival(sensor.name, sensor.offset_ns, sensor.jitter_ns) for sensor in found)


def timer_jitter(tasks: Sequence[Task]) -> dict[str, int]:
    """Return the largest lateness (ns) of the timer that triggers each task.

    A sensor frame counts from its actual arrival, a timer frame from its nominal one: a deadline in the plan is longer
    by this much than the one in the tests, which counts from the latest release.
    """
    late: dict[str, int] = {}
    known = {task.name: task for task in tasks}
    for name in topological(known):
        task = known[name]
        before = (late[other] for other in task.after if other in known)
        late[name] = task.release_jitter_ns if task.timer else max(before, default=0)
    return late


def dispatch_ns(task: Task, engine: PlannedEngine) -> int:
    """Return the cost (ns) that a job may incur at each dispatch: a reset, regrouping lanes, fetching its weights."""
    fetched = task.weights_bytes * 10**9 if engine.memory_bytes else 0
    reset = engine.reset_ns if engine.preemption == "restart" else 0
    return reset + engine.reshape_ns + -(-fetched // max(engine.swap_bandwidth or engine.bandwidth, 1))


def switch_cost(engine: PlannedEngine, tasks: Sequence[Task]) -> int:
    """Return the largest cost (ns) of one preemption on an engine, whichever job is charged.

    A killed job loses its current segment, or as many as are launched ahead.
    """
    if engine.preemption == "none":
        return 0
    found = engine.switch_ns + engine.migration_ns + max((dispatch_ns(task, engine) for task in tasks), default=0)
    if engine.preemption == "restart":
        found += max((longest_segment(task, "segment", engine.in_flight) for task in tasks), default=0)
    return found


def _convert(
    task: Task,
    engine: PlannedEngine,
    begin: tuple[int, int],
    switch: int,
    late: int,
    sporadic: bool,
    arrivals: tuple[Arrival, ...],
) -> RtTask:
    """Return a task as input of the tests; `begin`: its first nominal release, and the jitter of that (ns)."""
    extra = dispatch_ns(task, engine)
    segment = longest_segment(task, engine.preemption, engine.in_flight)
    return RtTask(
        name=task.name,
        lanes=frozenset((task.engine, lane) for lane in task.lanes),
        wcet=task.wcet_ns + extra,
        period=task.period_ns,
        deadline=max(task.deadline_ns - late, 1),
        priority=task.priority,
        offset=begin[0],
        release_jitter=begin[1],
        segment=segment + extra if segment else 0,
        switch=switch,
        preemption="full" if engine.preemption == "restart" else engine.preemption,
        after=() if task.timer else task.after,
        sporadic=sporadic,
        arrivals=arrivals,
        due_later=late,
    )


def longest_segment(task: Task, preemption: str, in_flight: int = 1) -> int:
    """Return the longest non-preemptive stretch (ns) of a job on its lanes, under the worst traffic.

    This is one segment, or `in_flight` segments launched ahead.

    The plan stores only the stretched sum; the stretch of one segment is at most that of the whole job.
    """
    if preemption in ("full", "restart"):
        return 0
    if preemption == "none" or not task.segments:
        return task.wcet_ns
    longest = launched_ahead(task.segments, in_flight)
    stretched = longest + task.wcet_ns - sum(segment.time_ns for segment in task.segments)
    if task.degraded:
        variant = launched_ahead(task.degraded, in_flight)
        stretched = max(stretched, variant + task.wcet_ns - sum(segment.time_ns for segment in task.degraded))
    return min(task.wcet_ns, stretched)


def as_taskset(
    policy: str, group: Sequence[RtTask], jitter: Mapping[str, int], deadlines: Mapping[str, int] | None = None
) -> TaskSet:
    """Return the tasks of one resource, under ``edf`` or ``fp``, in the form of published tests.

    `jitter`: latest activation of each task after its nominal release (ns), so that delay by predecessors is release
    jitter (Tindell & Clark, "Holistic schedulability analysis for distributed hard real-time systems", Microprocessing
    and Microprogramming 40 1994); `deadlines` (ns) override the tasks' own.
    """
    tasks = tuple(
        PeriodicTask(
            id=index,
            name=task.name,
            period_ns=task.period,
            deadline_ns=(deadlines[task.name] if deadlines else task.deadline) + task.release_jitter,
            wcet_ns=task.wcet + task.switch,  # each arrival is charged one preemption, to the preempting task
            bcet_ns=0,
            offset_ns=task.offset,
            jitter_ns=jitter[task.name],
            cpu=0,
            prio=task.priority,
            longest_region_ns=task.segment + task.switch if task.preemption == "segment" else 0,
        )
        for index, task in enumerate(group)
    )
    whole = all(task.preemption == "none" for task in group)
    rule = Policy("edf" if policy == "edf" else "fp", "partitioned", not whole)
    return TaskSet("resource", 1, rule, 1, None, tasks, ())


class Names(Set[str]):
    """A set of names numbered in their order, a bit for each: all pairs of n tasks take n * n / 8 bytes.

    Loops that ask for many names of one set make a frozenset of it first.
    """

    __slots__ = ("bits", "number")

    def __init__(self, number: Mapping[str, int], bits: bytes) -> None:
        self.number, self.bits = number, bits

    @staticmethod
    def of(number: Mapping[str, int], names: Iterable[str]) -> Names:
        """Return the set of some of the numbered names."""
        bits = bytearray((len(number) + 7) // 8)
        for name in names:
            bits[number[name] >> 3] |= 1 << (number[name] & 7)
        return Names(number, bytes(bits))

    def __contains__(self, name: object) -> bool:
        place = self.number.get(name, -1)  # type: ignore[call-overload]
        return place >= 0 and bool(self.bits[place >> 3] >> (place & 7) & 1)

    def __iter__(self) -> Iterator[str]:
        names = list(self.number)
        for place, byte in enumerate(self.bits):
            while byte:
                yield names[8 * place + (byte & -byte).bit_length() - 1]
                byte &= byte - 1

    def __len__(self) -> int:
        return int.from_bytes(self.bits, "little").bit_count()

    def __hash__(self) -> int:
        return hash(self.bits)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names) and other.number is self.number:
            return self.bits == other.bits
        return super().__eq__(other)

    @classmethod
    def _from_iterable(cls, names: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(names)


def packed(sets: Iterable[Set[str]], number: Mapping[str, int]) -> bytes:
    """Return the bits of every set, each in whole 64-bit words, in which a name has the bit of its number."""
    size, alike, rows = max((len(number) + 63) // 64, 1) * 8, dict[int, bool](), list[bytes]()
    for names in sets:
        if isinstance(names, Names):
            same = alike.get(id(names.number))
            if same is None:
                same = alike[id(names.number)] = names.number == number
            rows.append((names.bits if same else Names.of(number, names).bits).ljust(size, b"\0"))
        else:
            rows.append(Names.of(number, names).bits.ljust(size, b"\0"))
    return b"".join(rows)


def relatives(tasks: Mapping[str, RtTask]) -> dict[str, Names]:
    """Return, for every task, its trigger ancestors and descendants.

    They process the same frame one after the other; as long as a frame is finished before the next is released, they
    cannot interfere with or block each other.
    """
    return _relatives(_triggers(tasks))[0]


def descendants(tasks: Mapping[str, RtTask]) -> dict[str, Names]:
    """Return, for every task, those that it triggers, directly or not."""
    return _relatives(_triggers(tasks))[1]


@lru_cache(maxsize=KEPT)
def _relatives(triggers: Triggers) -> tuple[dict[str, Names], dict[str, Names]]:
    number = {name: place for place, (name, _) in enumerate(triggers)}
    size, order = (len(number) + 7) // 8, _topological(triggers)
    direct: dict[str, list[str]] = {name: [] for name in number}
    for name, after in triggers:
        for other in dict.fromkeys(after):
            if other in direct:
                direct[other].append(name)
    before, later, tasks = dict[str, int](), dict[str, int](), dict(triggers)

    def joint(names: Iterable[str], known: Mapping[str, int]) -> int:
        found = 0
        for name in names:
            found |= known[name] | 1 << number[name]
        return found

    for name in order:
        before[name] = joint((other for other in tasks[name] if other in number), before)
    for name in reversed(order):
        later[name] = joint(direct[name], later)

    def names(bits: int) -> Names:
        return Names(number, bits.to_bytes(size, "little"))

    return {n: names(before[n] | later[n]) for n in number}, {n: names(later[n]) for n in order}


def families(tasks: Mapping[str, RtTask]) -> list[frozenset[str]]:
    """Group tasks that trigger each other, directly or not."""
    return list(_families(_triggers(tasks)))


@lru_cache(maxsize=KEPT)
def _families(triggers: Triggers) -> Sequence[frozenset[str]]:
    names = {name for name, _ in triggers}
    return joined((name, *(other for other in after if other in names)) for name, after in triggers)


def joined(sets: Iterable[Iterable[str]]) -> list[frozenset[str]]:
    """Return the unions of sets that share a member, directly or through others."""
    roots: dict[str, str] = {}

    def root(name: str) -> str:
        while roots.setdefault(name, name) != name:
            roots[name] = roots[roots[name]]
            name = roots[name]
        return name

    for names in sets:
        first, *others = dict.fromkeys(names)
        for other in (first, *others):
            roots[root(other)] = root(first)
    groups: dict[str, list[str]] = {}
    for name in roots:
        groups.setdefault(root(name), []).append(name)
    return [frozenset(group) for group in groups.values()]
