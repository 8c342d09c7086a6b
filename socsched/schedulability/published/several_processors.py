"""Global EDF and fixed priorities: tasks that share several processors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from socsched.descriptor.taskset import PeriodicTask
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[Any]


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
        room = task.deadline_ns - task.wcet_ns + 1
        if problem.policy.rule == "edf":
            work = [(o, due_within(o, task.deadline_ns, 0)) for o in (*higher, *lower)]
        else:
            work = [(o, carry_in(o, task.deadline_ns, o.deadline_ns)) for o in higher]
        # A job is delayed only while all m processors are busy, by at most S if it is to meet its deadline: what one
        # task does beyond S + 1 is done while another task has the job's processor.
        terms = tuple((f"interference by {other.name}", min(value, room)) for other, value in work)
        total = sum(value for _, value in terms)
        if room < 1 or total >= problem.processors * room:
            return Answer(None, terms=terms, note=f"{task.name}: {total} ns may fill {problem.processors} x {room} ns")
    return deadlines_met(problem, note="no task can be delayed beyond its slack")


_ROUNDS = 40
"""Rounds over the slacks; later ones gain only a few ns."""
_Work = Callable[[int], "Whole"]
"""Window (ns) -> the execution of every other task in it."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Times (ns) of tasks as arrays: of 64 bits, or of any size where sums over all might not fit these."""

    wcet: Whole
    period: Whole

    @staticmethod
    def of(tasks: Sequence[PeriodicTask]) -> _Columns:
        """Return the columns of tasks."""
        import numpy as np

        jobs = max((task.wcet_ns // task.period_ns + 1 for task in tasks), default=1)
        longest = max((max(t.period_ns, t.deadline_ns, t.wcet_ns, t.jitter_ns) for t in tasks), default=1)
        kind = np.int64 if 8 * len(tasks) * jobs * longest < 1 << 62 else object
        columns = ([task.wcet_ns for task in tasks], [task.period_ns for task in tasks])
        return _Columns(*(np.array(column, kind) for column in columns))

    def like(self, values: Iterable[int]) -> Whole:
        """Return other times of the same tasks."""
        import numpy as np

        return np.array(list(values), self.wcet.dtype)

    def carried(self, responses: Whole, most: Whole | None = None) -> _Work:
        """Return the work of `carry_in` of tasks that end by their `responses` (ns), `most` at most."""
        import numpy as np

        ahead = responses - self.wcet

        def work(length: int) -> Whole:
            reach = ahead + length
            jobs = reach // self.period
            found = jobs * self.wcet + np.minimum(self.wcet, reach - jobs * self.period)
            least: Whole = found if most is None else np.minimum(found, most)
            return least

        return work

    def due(self, window: int, slacks: Whole) -> Whole:
        """Return the work of `due_within`."""
        import numpy as np

        jobs = window // self.period
        rest = np.maximum(window - jobs * self.period - slacks, 0)
        work: Whole = jobs * self.wcet + np.minimum(self.wcet, rest)
        return work


def _respond(task: PeriodicTask, work: _Work, processors: int) -> tuple[int | None, Whole | None]:
    """Return the response of a job from its arrival, None if it exceeds the period or deadline, and what delays it.

    The other tasks fill all m processors only while the job waits.
    """
    import numpy as np

    def rows(length: int) -> Whole:
        least: Whole = np.minimum(work(length), length - task.wcet_ns + 1)
        return least

    room = min(task.deadline_ns, task.period_ns) - task.jitter_ns
    length = settle(lambda x: task.wcet_ns + int(rows(x).sum()) // processors, task.wcet_ns, room)
    return (None, None) if length is None else (task.jitter_ns + length, rows(length))


def _carried(others: Sequence[PeriodicTask], responses: Mapping[str, int]) -> _Work:
    columns = _Columns.of(others)
    return columns.carried(columns.like(responses[other.name] for other in others))


def _row(task: PeriodicTask, others: Sequence[PeriodicTask], value: int | None, delays: Whole | None) -> Row:
    """Return a response with terms: the wait is split among the tasks that cause it, so that they add up to it."""
    if value is None or delays is None:
        return task, None, ()
    shares, wait = [int(delay) for delay in delays], value - task.jitter_ns - task.wcet_ns
    whole, terms, before, until = sum(shares), [("wcet", task.wcet_ns)], 0, 0
    for other, share in zip(others, shares, strict=True):
        until += share
        upto = wait * until // whole if whole else 0
        if upto > before:
            terms.append((f"interference by {other.name}, its share", upto - before))
        before = upto
    return task, value, with_jitter(task, tuple(terms))


def _edf_rows(problem: Problem) -> list[Row]:
    import numpy as np

    tasks, columns = problem.tasks, _Columns.of(problem.tasks)
    deadlines, slacks = columns.like(task.deadline_ns for task in tasks), columns.like(0 for _ in tasks)
    for turn in range(_ROUNDS):
        found = []
        for number, task in enumerate(tasks):
            most = columns.due(task.deadline_ns, slacks)
            most[number] = 0  # a job does not delay itself
            found.append(_respond(task, columns.carried(deadlines - slacks, most), problem.processors))
        # The slack found for one task tightens the others; only the last round decides that no task misses.
        ends = columns.like(
            task.deadline_ns if end is None else end for task, (end, _) in zip(tasks, found, strict=True)
        )
        better = np.maximum(deadlines - ends, slacks)
        if (better == slacks).all() or turn == _ROUNDS - 1:
            break
        slacks = better
    if all(value for value, _ in found):
        return [_row(task, tasks, value, delays) for task, (value, delays) in zip(tasks, found, strict=True)]
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
    return responses(
        highest_first(
            problem,
            lambda task, higher, _, known: _row(
                task,
                higher,
                *_respond(task, _carried(higher, known), problem.processors),
            )[1:],
        )
    )


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

    def respond(
        task: PeriodicTask, higher: list[PeriodicTask], _: object, known: Mapping[str, int]
    ) -> tuple[int | None, Terms]:
        def need(length: int) -> int:
            room = length - task.wcet_ns + 1
            without = [min(no_carry_in(other, length), room) for other in higher]
            carried = [min(carry_in(other, length, known[other.name]), room) for other in higher]
            more = sorted((max(a - b, 0) for a, b in zip(carried, without, strict=True)), reverse=True)
            return task.wcet_ns + (sum(without) + sum(more[: m - 1])) // m

        length = settle(need, task.wcet_ns, min(task.deadline_ns, task.period_ns))
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
        begun = sorted((other.wcet_ns - 1 for other in lower), reverse=True)[:m]

        def busy(wait: int) -> int:
            """Return how long others occupy all processors if the job has not started up to and including `wait`."""
            inside = wait + 1
            work = sum(min(carry_in(other, inside, known[other.name]), inside) for other in higher)
            return (work + sum(min(rest, inside) for rest in begun)) // m

        wait = settle(busy, 0, min(task.deadline_ns, task.period_ns) - task.jitter_ns - task.wcet_ns)
        if wait is None:
            return None, ()
        blocked = min(sum(begun) // m, wait)
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
