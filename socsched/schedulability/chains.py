"""End-to-end latency and data age of a cause-effect chain from the responses of its stretches.

Davare et al., "Period optimization for hard real-time distributed automotive systems", DAC 2007: where a task samples
its predecessor instead of being triggered by it, the data waits at most one period of the task, then its response time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from socsched.planning.plan import Task
from socsched.schedulability.tasks import Response, upstream

Terms = tuple[tuple[str, int], ...]


class Sensor(Protocol):
    """The instants (ns) at which a sensor of a pipeline or a plan releases frames."""

    @property
    def name(self) -> str: ...
    @property
    def period_ns(self) -> int: ...
    @property
    def offset_ns(self) -> int: ...
    @property
    def jitter_ns(self) -> int: ...
    @property
    def gap_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Stretch:
    """A data-triggered part of a chain: from `root`, a sensor, a timer or a task that samples, to the task `last`.

    `last` is empty for a sensor that is sampled.  `period` is the longest time between frames.  Frame k of `root`
    begins at `begin` + k periods or later, `lead` after the nominal release that the response of `last` counts from.
    `jitter`: lateness of the frames of a sensor `root` that is the only source of the stretch.  `paced`: frames follow
    the period rather than a closed loop.  Times in ns.
    """

    period: int
    last: str
    root: str = ""
    begin: int = 0
    lead: int = 0
    jitter: int = 0
    paced: bool = True


@dataclass(frozen=True, slots=True)
class _Origin:
    """The sources of a task, their first and last offset and largest gap (ns), and whether none is a closed loop."""

    names: frozenset[str]
    first: int
    last: int
    gap: int
    paced: bool


@dataclass(slots=True)
class Sources:
    """The sources of the frames of tasks, from which the stretches of chains follow."""

    tasks: Mapping[str, Task]
    sensors: Mapping[str, Sensor]
    _known: dict[str, _Origin] = field(default_factory=dict)
    _stretches: dict[tuple[str, ...], tuple[Stretch, ...]] = field(default_factory=dict)

    @staticmethod
    def of(tasks: Iterable[Task], sensors: Iterable[Sensor]) -> Sources:
        """Return the sources of these tasks."""
        return Sources({task.name: task for task in tasks}, {sensor.name: sensor for sensor in sensors})

    def stretches(self, path: Sequence[str]) -> tuple[Stretch, ...]:
        """Return the data-triggered stretches of a chain; one begins at its head and at every task that samples.

        A stretch whose data are converted before they are sampled ends at the conversion.
        """
        key = tuple(path)
        if key not in self._stretches:
            self._stretches[key] = self._found(key)
        return self._stretches[key]

    def alike(self, tasks: Iterable[Task]) -> Sources:
        """Return the sources of tasks of the same names, activated in the same way: results are shared."""
        return Sources({task.name: task for task in tasks}, self.sensors, self._known, self._stretches)

    def _found(self, path: Sequence[str]) -> tuple[Stretch, ...]:
        parts: list[tuple[str, str]] = []
        for index, name in enumerate(path):
            task = self.tasks.get(name)
            if index and task and not task.timer and {path[index - 1], f"{path[index - 1]}>{name}"} & set(task.after):
                parts[-1] = parts[-1][0], name
                continue
            if index and f"{path[index - 1]}>{name}" in self.tasks:
                parts[-1] = parts[-1][0], f"{path[index - 1]}>{name}"
            parts.append((name, name if task else ""))
        return tuple(self._stretch(*part) for part in parts)

    def room(self, task: Task) -> int:
        """Return the longest response (ns) with which a task drops no frame, `Task.room_ns`, counted as responses are.

        A response counts from the first of the task's sources, but no frame arrives before the last of them.
        """
        origin = self._origin(task.name)
        return task.room_ns() + origin.last - origin.first

    def _stretch(self, root: str, last: str) -> Stretch:
        head, sensor = self._origin(root), self.sensors.get(root)
        if not last:
            assert sensor
            return Stretch(sensor.period_ns + head.gap, "", root, head.last, 0, sensor.jitter_ns)
        end = self._origin(last)
        jitter = sensor.jitter_ns if sensor and end.names == head.names else 0
        period = self.tasks[last].period_ns + end.gap
        return Stretch(period, last, root, head.last, head.last - end.first, jitter, end.paced)

    def _before(self, name: str) -> tuple[str, ...]:
        task = self.tasks.get(name)
        return () if task is None or task.timer else task.after

    def _origin(self, name: str) -> _Origin:
        for each in upstream(name, self._before, self._known):
            self._known[each] = self._origin_of(each)
        return self._known[name]

    def _origin_of(self, name: str) -> _Origin:
        task = self.tasks.get(name)
        if task is None:
            sensor = self.sensors[name]
            found = _Origin(frozenset((name,)), sensor.offset_ns, sensor.offset_ns, sensor.gap_ns, True)
        elif task.timer:
            found = _Origin(frozenset((name,)), task.offset_ns, task.offset_ns, task.gap_ns, not task.closed_by)
        else:
            before = [self._known[other] for other in task.after]
            first, last = min(one.first for one in before), max(one.last for one in before)
            names = frozenset().union(*(one.names for one in before))
            gap, paced = max(one.gap for one in before), all(one.paced for one in before)
            found = _Origin(names, first, last, gap, paced)
        return found


def reaction_time(stretches: Sequence[Stretch], responses: Mapping[str, Response]) -> tuple[int, bool, Terms]:
    """Return the time (ns) from a release at the chain's head to the end of the first output that reflects it.

    R of the first stretch, then T + R of every sampling one, or the time to its first release if that is longer; also
    whether it is a bound, and terms that add up to it.
    """
    terms: list[tuple[str, int]] = []
    total = 0
    for index, stretch in enumerate(stretches):
        if index:
            first = stretch.begin - stretches[0].begin - total
            wait = "one period at most" if first <= stretch.period else "until its first release"
            terms.append((f"{stretch.last}: sampling, {wait}", max(stretch.period, first)))
            total += max(stretch.period, first)
        own = _from_release(stretch, responses) if not index else _from_begin(stretch, responses)
        terms += own
        total += sum(value for _, value in own)
    return _sum(stretches, responses, terms)


def data_age(stretches: Sequence[Stretch], responses: Mapping[str, Response]) -> tuple[int, bool, Terms]:
    """Return the age (ns), at the end of an output, of the oldest head release it depends on.

    T + R of every stretch but the last, as its output is read until the next one is available, then R of the last.
    """
    if len(stretches) == 1:
        return _sum(stretches, responses, _from_release(stretches[0], responses))
    terms: list[tuple[str, int]] = []
    for stretch in stretches[:-1]:
        if not stretch.last:
            terms.append((f"{stretch.root}: jitter", stretch.jitter))
        terms += _from_begin(stretch, responses)
        name = stretch.last or stretch.root
        terms.append((f"{name}: read until the next output, one period at most", stretch.period))
    terms += _from_begin(stretches[-1], responses)
    return _sum(stretches, responses, terms)


def path_terms(
    name: str, responses: Mapping[str, Response], known: dict[str, list[tuple[str, int]]] | None = None
) -> list[tuple[str, int]]:
    """Return the terms of a task's response, predecessors first; they add up to its value.

    `known` keeps the terms of each task for further calls: those of a long chain repeat in all of its tasks.
    """
    parts: list[list[tuple[str, int]]] = []
    known = {} if known is None else known
    while name:
        if name not in known:
            known[name] = [(f"{name}: {term}", value) for term, value in responses[name].terms]
        parts.append(known[name])
        name = responses[name].via
    return [term for part in reversed(parts) for term in part]


def _from_begin(stretch: Stretch, responses: Mapping[str, Response]) -> list[tuple[str, int]]:
    """Return the terms of the time from the earliest begin of a stretch's root to the end of its last task."""
    if not stretch.last:
        return []
    later = [(f"{stretch.last}: counted from the begin of {stretch.root}", -stretch.lead)] if stretch.lead else []
    return [*path_terms(stretch.last, responses), *later]


def _from_release(stretch: Stretch, responses: Mapping[str, Response]) -> list[tuple[str, int]]:
    """Return the terms of the time from the release of a frame at a chain's head to the end of its first stretch."""
    if not stretch.last:
        return []
    terms = path_terms(stretch.last, responses)
    response = responses[stretch.last]
    since = min([response.value - stretch.lead, *(value for name, value in response.since if name == stretch.root)])
    later = since - response.value
    return [*terms, (f"{stretch.last}: counted from the release of {stretch.root}", later)] if later else terms


def _sum(
    stretches: Sequence[Stretch], responses: Mapping[str, Response], terms: list[tuple[str, int]]
) -> tuple[int, bool, Terms]:
    bounded = all(responses[stretch.last].bounded for stretch in stretches if stretch.last)
    paced = len(stretches) == 1 or all(stretch.paced for stretch in stretches)
    kept = tuple(term for term in terms if term[1])
    return sum(value for _, value in kept), bounded and paced, kept
