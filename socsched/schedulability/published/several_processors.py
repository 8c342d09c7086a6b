"""Global EDF and fixed priorities: tasks that share several processors."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil

from socsched.descriptor.taskset import PeriodicTask
from socsched.schedulability.native_windows import ROOM, as_tables, call, library
from socsched.schedulability.published.model import (
    Answer,
    Bound,
    Problem,
    Row,
    Scope,
    deadlines_met,
    highest_first,
    published,
    responses,
    with_jitter,
)
from socsched.schedulability.tasks import Terms


def carry_in(task: PeriodicTask, window: int, response: int) -> int:
    """Return the most a task executes in a window, possibly with a carry-in job.

    Its first job ends exactly `response` after its arrival, the others run as early as possible (Bertogna & Cirinei,
    RTSS 2007, equation 4, and 8 where `response` is below the deadline).
    """
    jobs = (window + response - task.wcet_ns) // task.period_ns
    rest = window + response - task.wcet_ns - jobs * task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, rest)


def no_carry_in(task: PeriodicTask, window: int) -> int:
    """Return the most a task executes in a window with no job of it unfinished at the start.

    Guan, Stigge, Yi, Yu, RTSS 2009, equation 5.
    """
    return window // task.period_ns * task.wcet_ns + min(task.wcet_ns, window % task.period_ns)


def due_within(task: PeriodicTask, window: int, slack: int) -> int:
    """Return the most a task executes in a window at whose end a job of it is due, under EDF.

    `slack` is the least time before its deadline at which each job is known to end (Bertogna & Cirinei, RTSS 2007,
    equations 5 and 9).
    """
    jobs = window // task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, max(window - jobs * task.period_ns - slack, 0))


_PLAIN = 40
"""Steps before `settle` leaps, and steps back afterwards."""


def settle(need: Callable[[int], int], start: int, limit: int) -> int | None:
    """Return a window (ns) with need(window) <= window, as small as can be found; None if none is within `limit`.

    `need` must not decrease as windows grow.  Steps towards the least such window can be as short as 1 ns, so after
    `_PLAIN` steps the search leaps ahead and comes back: if need(x) <= x, need(x) is such a window as well.
    """
    window, steps = start, 0
    while (longer := need(window)) > window:
        steps += 1
        window = longer if steps < _PLAIN else max(longer, window + (window - start) // 100)
        if window > limit:
            if longer > limit or need(limit) > limit:
                return None
            window = limit
    for _ in range(_PLAIN if steps >= _PLAIN else 0):
        if (shorter := need(window)) >= window:
            break
        window = max(shorter, start)
    return window if window <= limit else None


@published(
    "global interference (BCL)",
    "Bertogna, Cirinei, Lipari, IEEE TPDS 20(4) 2009, theorems 7 (EDF) and 8 (fixed priorities)",
    Scope(("edf", "fp", "rm", "dm"), processors="many", deadlines="constrained"),
    rank=16,
)
def bcl(problem: Problem) -> Answer:
    """For every task k, the sum of min(W_i, S + 1) is below m (S + 1), with S = D_k - C_k.

    Bertogna, Cirinei, Lipari, "Schedulability analysis of global scheduling algorithms on multiprocessor platforms",
    IEEE TPDS 20(4) 2009, theorems 7 (EDF, equation 9) and 8 (fixed priorities, equation 10), for integer times; for EDF
    first in "Improved schedulability analysis of EDF on multiprocessor platforms", ECRTS 2005, theorem 7.
    """
    for task, higher, lower in problem.by_rank():
        room, edf = task.deadline_ns - task.wcet_ns + 1, problem.policy.rule == "edf"
        # A job is delayed only while all m processors are busy, by at most S if it is to meet its deadline: what one
        # task does beyond S + 1 is done while another task has the job's processor.
        others = [*higher, *lower] if edf else higher
        values = [min(due_within(other, task.deadline_ns, 0) if edf
                      else carry_in(other, task.deadline_ns, other.deadline_ns), room) for other in others]  # fmt: skip
        total = sum(values)
        if room < 1 or total >= problem.processors * room:
            terms = tuple((f"interference by {o.name}", value) for o, value in zip(others, values, strict=True))
            return Answer(None, terms=terms, note=f"{task.name}: {total} ns may fill {problem.processors} x {room} ns")
    return deadlines_met(problem, note="no task can be delayed beyond its slack")


_ROUNDS = 40
"""Rounds over the slacks; later ones gain only a few ns."""


_COLUMNS = ("wcet", "period", "ahead", "slack", "delays")


class Tables(ctypes.Structure):
    """The struct of shared.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _COLUMNS),
        *((name, ctypes.c_int64)
          for name in ("count", "own", "processors", "carriers", "deadline", "itself", "limit", "plain")),
    )  # fmt: skip


class Interference:
    """What may delay a job on processors that it shares with the tasks added so far.

    `carriers`: how many of them may have work left when the job arrives, None: all.
    """

    def __init__(self, processors: int, carriers: int | None = None) -> None:
        self._processors, self._carriers = processors, carriers
        self._tasks: list[tuple[PeriodicTask, int, int]] = []
        self._columns = {name: array("q") for name in _COLUMNS}
        self._jobs = self._longest = 1

    def add(self, task: PeriodicTask, end: int, slack: int = 0) -> None:
        """Add a task whose jobs end by `end` (ns) after they arrive and, under EDF, `slack` before their deadlines."""
        self._tasks.append((task, end, slack))
        self._jobs = max(self._jobs, task.wcet_ns // task.period_ns + 1)
        self._longest = max(self._longest, task.period_ns, task.deadline_ns, task.wcet_ns, end)
        if self._longest < ROOM:
            values = (task.wcet_ns, task.period_ns, end - task.wcet_ns, slack, 0)
            for column, value in zip(self._columns.values(), values, strict=True):
                column.append(value)

    def wait(self, own: int, limit: int, deadline: int = -1, itself: int = -1) -> tuple[int | None, Sequence[int]]:
        """Return a window (ns) in which `own` and its delays fit, as small as can be found, and the delay by each task.

        The other tasks fill all m processors only while the job waits.  Under EDF with `deadline` (ns) and place of the
        job among the tasks.
        """
        fits = 8 * len(self._tasks) * self._jobs * max(self._longest, limit) < ROOM
        if self._tasks and fits and library() is not None:
            return self._native(own, limit, deadline, itself)
        tasks = self._tasks
        most = None if deadline < 0 else [due_within(task, deadline, slack) for task, _, slack in tasks]
        if most:
            most[itself] = 0

        def delays(window: int) -> list[int]:
            work = [min(carry_in(task, window, end), window - own + 1) for task, end, _ in tasks]
            return [min(pair) for pair in zip(work, most, strict=True)] if most else work

        def need(window: int) -> int:
            work = delays(window)
            if self._carriers is None:
                return own + sum(work) // self._processors
            without = [min(no_carry_in(task, window), window - own + 1) for task, _, _ in tasks]
            more = sorted((max(a - b, 0) for a, b in zip(work, without, strict=True)), reverse=True)
            return own + (sum(without) + sum(more[: self._carriers])) // self._processors

        window = settle(need, own, limit)
        return (None, ()) if window is None else (window, delays(window))

    def _native(self, own: int, limit: int, deadline: int, itself: int) -> tuple[int | None, Sequence[int]]:
        numbers = {
            "count": len(self._tasks), "own": own, "processors": self._processors, "limit": limit, "plain": _PLAIN,
            "carriers": -1 if self._carriers is None else self._carriers, "deadline": deadline, "itself": itself,
        }  # fmt: skip
        window = call("socsched_settle", ctypes.byref(as_tables(Tables, self._columns, numbers)))
        if window == -2:
            raise MemoryError
        return (None, ()) if window < 0 else (window, self._columns["delays"][: len(self._tasks)])


def _respond(
    task: PeriodicTask, others: Interference, deadline: int = -1, itself: int = -1
) -> tuple[int | None, Sequence[int]]:
    """Return the response of a job from its arrival, None if it exceeds the period or deadline, and what delays it."""
    room = min(task.deadline_ns, task.period_ns) - task.jitter_ns
    length, delays = others.wait(task.wcet_ns, room, deadline, itself)
    return None if length is None else task.jitter_ns + length, delays


def _row(task: PeriodicTask, labels: Sequence[str], value: int | None, delays: Sequence[int]) -> Row:
    """Return a response with terms: the wait is split among the tasks that cause it, so that they add up to it."""
    if value is None:
        return task, None, ()
    wait, whole = value - task.jitter_ns - task.wcet_ns, sum(delays) or 1
    upto = [wait * until // whole for until in accumulate(delays)]
    shares = [(label, b - a) for label, a, b in zip(labels, [0, *upto], upto, strict=False) if b > a]
    return task, value, with_jitter(task, (("wcet", task.wcet_ns), *shares))


def _labels(tasks: Iterable[PeriodicTask]) -> list[str]:
    return [f"interference by {task.name}, its share" for task in tasks]


def _edf_rows(problem: Problem) -> list[Row]:
    tasks = problem.tasks
    slacks = [0] * len(tasks)
    for turn in range(_ROUNDS):
        others = Interference(problem.processors)
        for task, slack in zip(tasks, slacks, strict=True):
            others.add(task, task.deadline_ns - slack, slack)
        found = [_respond(task, others, task.deadline_ns, number) for number, task in enumerate(tasks)]
        # The slack found for one task tightens the others; only the last round decides that no task misses.
        better = [
            max(task.deadline_ns - (task.deadline_ns if end is None else end), slack)
            for task, slack, (end, _) in zip(tasks, slacks, found, strict=True)
        ]
        if better == slacks or turn == _ROUNDS - 1:
            break
        slacks = better
    if all(value for value, _ in found):
        labels = _labels(tasks)
        return [_row(task, labels, value, delays) for task, (value, delays) in zip(tasks, found, strict=True)]
    return [(task, None, ()) for task in tasks]  # the first miss would have no valid premise


def _jittery_edf(problem: Problem) -> str:
    jittery = problem.policy.rule == "edf" and "jitter" in problem.features
    return "under EDF it does not cover release jitter" if jittery else ""


@published(
    "global response times",
    "Bertogna & Cirinei, RTSS 2007, equations 4, 5, 8 and 9",
    Scope(("edf", "fp", "rm", "dm"), processors="many", deadlines="constrained", takes=frozenset({"jitter"})),
    also=_jittery_edf,
    rank=17,
)
def global_rta(problem: Problem) -> Answer:
    """Response times from the workload in the window of a job; under EDF of all or none, as one miss may cause another.

    Bertogna & Cirinei, "Response-time analysis for globally scheduled symmetric multiprocessor platforms", RTSS 2007,
    workload in a window by equations 4 and 8, under EDF by 5 and 9 as well, with their iteration over slacks.
    """
    if problem.policy.rule == "edf":
        return responses(_edf_rows(problem))
    others, labels = Interference(problem.processors), list[str]()

    def respond(
        task: PeriodicTask, higher: list[PeriodicTask], _: object, known: Mapping[str, int]
    ) -> tuple[int | None, Terms]:
        if higher:
            others.add(higher[-1], known[higher[-1].name])
            labels.extend(_labels(higher[-1:]))
        return _row(task, labels, *_respond(task, others))[1:]

    return responses(highest_first(problem, respond))


@published(
    "global response times, limited carry-in",
    "Guan, Stigge, Yi, Yu, RTSS 2009, equations 7-9 and 12",
    Scope(processors="many", deadlines="constrained"),
    rank=18,
)
def global_carry_in(problem: Problem) -> Answer:
    """Fixed priorities: at most m - 1 tasks have carry-in work in the window of a job.

    Guan, Stigge, Yi, Yu, "New response time bounds for fixed priority multiprocessor scheduling", RTSS 2009, equations
    5 and 7-9 (interference) and 12 (iteration), with the carry-in workload of Bertogna & Cirinei, RTSS 2007, equation
    8, instead of equation 6.
    """
    m = problem.processors
    others = Interference(m, carriers=m - 1)

    def respond(
        task: PeriodicTask, higher: list[PeriodicTask], _: object, known: Mapping[str, int]
    ) -> tuple[int | None, Terms]:
        if higher:
            others.add(higher[-1], known[higher[-1].name])
        length, _delays = others.wait(task.wcet_ns, min(task.deadline_ns, task.period_ns))
        if length is None:
            return None, ()
        terms = (("wcet", task.wcet_ns), (f"all {m} processors busy", length - task.wcet_ns))
        return length, terms if terms[1][1] else terms[:1]

    return responses(highest_first(problem, respond))


@published(
    "global non-preemptive fixed priorities",
    "after Guan, Yi, Gu, Deng, Yu, RTSS 2008",
    Scope(preemption=("none",), processors="many", deadlines="constrained", takes=frozenset({"jitter"})),
    rank=19,
)
def global_np_fp(problem: Problem) -> Answer:
    """Without preemption: a job has started within x once less than m x of work can interfere.

    After Guan, Yi, Gu, Deng, Yu, "New schedulability test conditions for non-preemptive scheduling on multiprocessor
    platforms", RTSS 2008, here over the window from release to start and with the workload bound of Bertogna & Cirinei,
    RTSS 2007, equation 8: of lower priority only the m jobs begun before the release can interfere.
    """
    m = problem.processors

    def respond(
        task: PeriodicTask, higher: list[PeriodicTask], lower: list[PeriodicTask], known: Mapping[str, int]
    ) -> tuple[int | None, Terms]:
        room = min(task.deadline_ns, task.period_ns) - task.jitter_ns - task.wcet_ns
        first = sorted(lower, key=lambda other: other.wcet_ns, reverse=True)[:m]
        others = Interference(m)
        for other in higher:
            others.add(other, known[other.name])
        for other in first:
            begun = replace(other, wcet_ns=other.wcet_ns - 1, period_ns=max(room, 0) + 2)
            others.add(begun, begun.wcet_ns)
        # The window goes up to and including the instant at which the job has not started.
        window, _ = others.wait(1, room + 1) if room >= 0 else (None, ())
        if window is None:
            return None, ()
        wait = window - 1
        blocked = min(sum(other.wcet_ns - 1 for other in first) // m, wait)
        terms = (
            ("wcet", task.wcet_ns),
            ("lower priorities on all processors", blocked),
            ("higher priorities on all processors", wait - blocked),
        )
        value = task.jitter_ns + wait + task.wcet_ns
        return value, with_jitter(task, tuple(term for term in terms if term[1]))

    return responses(highest_first(problem, respond))


@published(
    "global EDF tardiness",
    "Devi & Anderson, RTSS 2005 and Real-Time Systems 2008",
    Scope(("edf",), processors="many", deadlines="equal"),
    rank=20,
)
def devi_tardiness(problem: Problem) -> Answer:
    """A job ends by deadline + x + C, x = (m - 1 largest C, less the least C) / (m - the m - 2 largest utilisations).

    Devi & Anderson, "Tardiness bounds under global EDF scheduling on a multiprocessor", RTSS 2005 and Real-Time Systems
    2008, with sums over the largest costs and utilisations as in Devi's thesis, corollary 4.11.
    """
    m = problem.processors
    if problem.utilisation > m or any(task.wcet_ns > task.period_ns for task in problem.tasks):
        note = f"utilisation {float(problem.utilisation):.4f} is over {m}, or that of one task is over 1"
        return Answer(None, note=note)
    costs = sorted((task.wcet_ns for task in problem.tasks), reverse=True)
    shares = sorted((task.utilisation for task in problem.tasks), reverse=True)
    late = ceil(max(sum(costs[: m - 1]) - costs[-1], 0) / (m - sum(shares[: max(m - 2, 0)])))

    def bound(task: PeriodicTask) -> Bound:
        terms = (("deadline", task.deadline_ns), ("wcet", task.wcet_ns), ("tardiness of all, x", late))
        return Bound(task.deadline_ns + task.wcet_ns + late, terms)

    bounds = {task.name: bound(task) for task in problem.tasks}
    return Answer(None, bounds, note="a bound of tardiness, not a proof that deadlines are met")
