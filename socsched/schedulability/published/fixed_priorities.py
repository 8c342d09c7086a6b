"""Fixed priorities on one processor: the longest response among the jobs of a busy period."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from socsched.descriptor.taskset import PeriodicTask
from socsched.schedulability import response_times
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    Row,
    Scope,
    endless,
    fixed_point,
    is_sporadic,
    published,
    responses,
    rt_task,
    with_jitter,
)
from socsched.schedulability.tasks import Terms, ceil_div

_SYSTEM = Scope(preemption=("full", "limited"), deadlines="constrained", takes=frozenset({"jitter", "blocking"}))
_FAR = 64
"""Multiple of the longest period or deadline after which the end of a busy period is no longer looked for."""


def _blocking(task: PeriodicTask, lower: list[PeriodicTask]) -> tuple[str, int]:
    """Return what of lower priority blocks longest: a region just begun, or the stated value."""
    regions = [(f"a region of {other.name}", other.region_ns - 1) for other in lower if other.region_ns]
    return max([*regions, ("a shared resource", task.blocking_ns)], key=lambda pair: pair[1])


def busy_window(problem: Problem, whole: bool) -> Iterator[Row]:
    """Yield the response of every task; over the `whole` busy period, or of its first job alone."""
    longest = max(max(task.period_ns, task.deadline_ns) for task in problem.tasks)
    ranked, jitter = problem.by_rank(), {task.name: task.jitter_ns for task in problem.tasks}
    every = response_times.Classic([rt_task(task) for task, _, _ in ranked], jitter)
    regions = any(task.region_ns for task in problem.tasks)
    for task, higher, lower in ranked:
        inside = every.first(len(higher))
        blocked = _blocking(task, lower if regions else [])
        if whole and endless(task, higher, blocked[1]):
            yield task, None, ()
            continue
        limit = _FAR * longest if whole else max(task.period_ns - task.jitter_ns, 0)
        value, bounded, terms = response_times.preemptive(rt_task(task), inside, blocked, task.jitter_ns, limit)
        yield task, value if bounded else None, with_jitter(task, terms)


@published("response-time analysis", "Joseph & Pandya 1986; Audsley et al., SEJ 8(5) 1993", _SYSTEM, exact=True, rank=3)
def rta(problem: Problem) -> Answer:
    """Deadlines within periods: w = C + B + sum of ceil((w + J_j) / T_j) C_j, and R = w + J.

    Joseph & Pandya, The Computer Journal 29(5) 1986; Audsley et al., "Applying new scheduling theory to static priority
    pre-emptive scheduling", Software Engineering Journal 8(5) 1993 (blocking and jitter).
    """
    exact = "blocking" not in problem.features and problem.preemption == "full"
    return responses(busy_window(problem, whole=False), exact, none_is_late=True)


@published(
    "busy-period analysis",
    "Lehoczky, RTSS 1990; Tindell, Burns, Wellings, RTS 6(2) 1994",
    replace(_SYSTEM, deadlines="arbitrary"),
    exact=True,
    rank=4,
)
def lehoczky(problem: Problem) -> Answer:
    """Any deadlines: every job of the level-i busy period, since a job may delay its successor.

    Lehoczky, "Fixed priority scheduling of periodic task sets with arbitrary deadlines", RTSS 1990; jitter as in
    Tindell, Burns, Wellings, "An extendible approach for analysing fixed priority hard real-time tasks", RTS 6(2) 1994.
    """
    exact = "blocking" not in problem.features and problem.preemption == "full"
    return responses(busy_window(problem, whole=True), exact)


def _until_start(problem: Problem, fixed_points: bool) -> Iterator[Row]:
    """Yield the response of every task, up to the start of its last region (`fixed_points`) or of the whole job."""
    longest = max(max(task.period_ns, task.deadline_ns) for task in problem.tasks)
    for task, higher, lower in problem.by_rank():
        if fixed_points:
            blocked, last = _blocking(task, lower), task.regions_ns[-1] if task.regions_ns else 1
        else:
            name, begun = max(((o.name, o.wcet_ns - 1) for o in lower), key=lambda pair: pair[1], default=("", 0))
            blocked = (name, begun) if begun >= task.blocking_ns else ("a shared resource", task.blocking_ns)
            last = task.wcet_ns
        if endless(task, higher, blocked[1]):
            yield task, None, ()
            continue
        jitter = {other.name: other.jitter_ns for other in (*higher, task)}
        above = [rt_task(other) for other in higher]
        value, bounded, terms = response_times.until_start(rt_task(task), above, jitter, blocked, _FAR * longest, last)
        yield task, value if bounded else None, with_jitter(task, terms)


@published(
    "non-preemptive fixed priorities",
    "Davis, Burns, Bril, Lukkien, RTS 35 2007",
    Scope(preemption=("none",), takes=frozenset({"jitter", "blocking"})),
    rank=5,
)
def np_fp(problem: Problem) -> Answer:
    """Without preemption: every job of the level-i busy period, as a job can delay its successor (self-pushing).

    Davis, Burns, Bril, Lukkien, "Controller Area Network (CAN) schedulability analysis: refuted, revisited and
    revised", RTS 35 2007; Bril, Lukkien, Verhaegh, "Worst-case response time analysis of real-time tasks under
    fixed-priority scheduling with deferred preemption", RTS 42 2009.
    """
    # Exact if the longest job of lower priority can have just begun: if all are sporadic.
    exact = is_sporadic(problem.tasks) and not any(task.blocking_ns for task in problem.tasks)
    return responses(_until_start(problem, fixed_points=False), exact)


def _no_points(problem: Problem) -> str:
    return "" if any(task.regions_ns for task in problem.tasks) else "no task has fixed preemption points (regions)"


@published(
    "fixed preemption points",
    "Buttazzo, Bertogna, Yao, IEEE TII 9(1) 2013, fixed preemption points",
    Scope(preemption=("limited",), takes=frozenset({"jitter", "blocking"})),
    also=_no_points,
    rank=6,
)
def limited_preemption(problem: Problem) -> Answer:
    """Fixed preemption points: the last region, once begun, is not delayed.

    Buttazzo, Bertogna, Yao, "Limited preemptive scheduling for real-time systems: a survey", IEEE TII 9(1) 2013 (after
    Bril, Lukkien, Verhaegh, RTS 42 2009): every job of the busy period, up to the start of its last region.
    """
    return responses(_until_start(problem, fixed_points=True))


_ACTIVATIONS = 10_000
"""Activations in a busy window after which the search is abandoned."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Events every `period`, each up to `jitter` late, never closer than `distance` (ns)."""

    period: int
    jitter: int = 0
    distance: int = 0

    def most(self, window: int) -> int:
        """Return the largest number of events in a window."""
        if window <= 0:
            return 0
        many = ceil_div(window + self.jitter, self.period)
        return min(many, ceil_div(window, self.distance)) if self.distance else many

    def closest(self, count: int) -> int:
        """Return the shortest time span of `count` events."""
        return max((count - 1) * self.period - self.jitter, (count - 1) * self.distance, 0)


@dataclass(frozen=True, slots=True)
class Activated:
    """A task on one processor: shortest and longest execution time (ns) and what activates it."""

    bcet: int
    wcet: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class Local:
    """Response from activation (shortest, longest), busy windows of 0, 1, ... activations, and the output stream."""

    best: int
    worst: int
    windows: tuple[int, ...]
    out: Stream


def local_analysis(task: Activated, higher: Sequence[Activated]) -> Local | None:
    """Return the local result of a task under preemptive static priorities, None if its busy window does not end."""
    windows, worst = [0], 0
    for count in range(1, _ACTIVATIONS + 1):

        def longer(window: int, count: int = count) -> int:
            return count * task.wcet + sum(other.stream.most(window) * other.wcet for other in higher)

        window = fixed_point(max(windows[-1], count * task.wcet), longer, _ACTIVATIONS * task.stream.period)
        if window is None:
            return None
        windows.append(window)
        worst = max(worst, window - task.stream.closest(count))
        if window <= task.stream.closest(count + 1):
            # Responses differ by worst - best, so outputs may come that much later than inputs.
            jitter = task.stream.jitter + worst - task.bcet
            return Local(task.bcet, worst, tuple(windows), Stream(task.stream.period, jitter, task.bcet))
    return None


def _activated(task: PeriodicTask) -> Activated:
    return Activated(task.bcet_ns, task.wcet_ns, Stream(task.period_ns, task.jitter_ns, task.distance_ns))


def _no_distance(problem: Problem) -> str:
    return "" if any(task.distance_ns for task in problem.tasks) else "no task has a least distance of releases"


@published(
    "event streams",
    "Henia et al., IEE Proceedings - Computers and Digital Techniques 2005, local analysis",
    Scope(takes=frozenset({"jitter"})),
    also=_no_distance,
    rank=7,
)
def event_models(problem: Problem) -> Answer:
    """Event streams: releases with jitter, but never closer than a minimum distance.

    Henia et al., "System level performance analysis - the SymTA/S approach", IEE Proceedings - Computers and Digital
    Techniques 2005: local busy windows under static priorities, and streams whose jitter grows by the spread of
    responses from task to task.
    """
    rows: list[Row] = []
    for task, higher, _ in problem.by_rank():
        others = [_activated(other) for other in higher]
        local = None if endless(task, higher, 0) else local_analysis(_activated(task), others)
        if local is None:
            rows.append((task, None, ()))
            continue
        late = [window - index * task.period_ns for index, window in enumerate(local.windows[1:])]
        worst = late.index(max(late))
        window = local.windows[worst + 1]
        terms: Terms = (
            ("wcet", task.wcet_ns),
            ("earlier frames of its own, less their periods", late[worst] - window + worst * task.wcet_ns),
            *(
                (f"interference by {other.name}", stream.stream.most(window) * stream.wcet)
                for other, stream in zip(higher, others, strict=True)
            ),
        )
        rows.append((task, task.jitter_ns + late[worst], with_jitter(task, tuple(term for term in terms if term[1]))))
    return responses(rows)
