"""Chains of tasks: reaction time and data age, from responses of tasks or from the jobs of a repeating schedule."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import lcm

from socsched.descriptor.taskset import PeriodicTask
from socsched.schedulability.published.model import PLAIN, Answer, Bound, Problem, Scope, published
from socsched.schedulability.tasks import Terms, ceil_div

REACTION, AGE, REDUCED = "reaction_time", "data_age", "reduced_data_age"
REDUCED_REACTION = "reduced_reaction_time"  # from the read itself, not from just after the previous read
_ANY = Scope(("edf", "fp", "rm", "dm", "fifo"), preemption=("full", "limited", "none"), processors="any", takes=PLAIN)


def _chain(problem: Problem) -> list[PeriodicTask]:
    return [problem.taskset.tasks[index] for index in problem.taskset.chain]


def _bounds(by_measure: dict[str, Terms]) -> Answer:
    return Answer(None, chain={name: Bound(sum(v for _, v in terms), terms) for name, terms in by_measure.items()})


def _not_implicit(problem: Problem) -> str:
    if problem.taskset.communication != "implicit":
        return "it applies to data that move at the start and end of jobs, here they move at arrival and deadline (let)"
    missing = [task.name for task in _chain(problem) if task.name not in problem.responses]
    return f"there is no response-time bound for {', '.join(dict.fromkeys(missing))}" if missing else ""


def _not_in_time(problem: Problem) -> str:
    late = [task.name for task in _chain(problem) if problem.responses.get(task.name, 0) > task.period_ns]
    names = ", ".join(dict.fromkeys(late))
    return _not_implicit(problem) or (f"the response of {names} is longer than its period" if late else "")


def _not_logical(problem: Problem) -> str:
    if problem.taskset.communication != "let":
        return "it applies to logical execution times (communication: let), here data move at the start and end of jobs"
    late = [t.name for t in _chain(problem) if problem.responses.get(t.name, t.deadline_ns + 1) > t.deadline_ns]
    return f"no bound proves that {', '.join(dict.fromkeys(late))} ends by its deadline, when it writes" if late else ""


@published("chain: Davare", "Davare et al., DAC 2007", _ANY, kind="chain", also=_not_implicit, rank=30)
def chain_davare(problem: Problem) -> Answer:
    """Tasks that sample each other: the sum of T + R over the chain, for reaction time and data age.

    Davare, Zhu, Di Natale, Pinello, Kanajan, Sangiovanni-Vincentelli, "Period optimization for hard real-time
    distributed automotive systems", DAC 2007.
    """
    terms: list[tuple[str, int]] = []
    for task in _chain(problem):
        terms += [(f"{task.name}: period", task.period_ns), (f"{task.name}: response", problem.responses[task.name])]
    return _bounds({REACTION: tuple(terms), AGE: tuple(terms)})


def _overtaken(problem: Problem, producer: PeriodicTask, consumer: PeriodicTask) -> bool:
    """Return whether a job of `consumer` released with one of `producer` may start before the producer has written.

    It cannot where both share a processor and the producer has the higher fixed priority.
    """
    rank = dict(zip((task.name for task in problem.taskset.tasks), problem.taskset.ranks, strict=True))
    together = problem.taskset.processors == 1 or (producer.cpu is not None and producer.cpu == consumer.cpu)
    fixed = problem.policy.rule in ("fp", "rm", "dm")
    plain = not problem.features - {"jitter"} and producer.jitter_ns == consumer.jitter_ns == 0
    return not (together and fixed and plain) or rank[consumer.name] < rank[producer.name]


@published(
    "chain: Dürr",
    "Dürr et al., ACM TECS 18(5s) 2019, theorems 5.4 and 5.10",
    _ANY,
    kind="chain",
    also=_not_in_time,
    rank=31,
)
def chain_duerr(problem: Problem) -> Answer:
    """T_1 + R_n + sum of max(R_i, T_(i+1) + x R_i), and for the reduced age R_n + sum of (T_i + x R_i).

    Dürr, von der Brüggen, Chen, Chen, "End-to-end timing analysis of sporadic cause-effect chains in distributed
    systems", ACM TECS 18(5s) 2019, theorems 5.4 (reaction) and 5.10 (reduced data age): x is 0 where a reader of lower
    priority shares the producer's processor.
    """
    tasks, response = _chain(problem), problem.responses
    last = (f"{tasks[-1].name}: response", response[tasks[-1].name])
    reaction = [(f"{tasks[0].name}: period", tasks[0].period_ns)]
    age: list[tuple[str, int]] = []
    for producer, consumer in itertools.pairwise(tasks):
        own = response[producer.name]
        late = own if _overtaken(problem, producer, consumer) else 0
        step = max(own, consumer.period_ns + late)
        reaction.append((f"{producer.name} to {consumer.name}: until the next job reads", step))
        age.append((f"{producer.name} to {consumer.name}: until the next output", producer.period_ns + late))
    return _bounds({REACTION: (*reaction, last), REDUCED: (*age, last)})


MOST_JOBS = 200_000
_Events = tuple[list[int], list[int]]
"""Instants at which a task's jobs read and write, in order."""


def _hyperperiods(tasks: Sequence[PeriodicTask], every: Sequence[PeriodicTask]) -> tuple[int, int] | None:
    """Return (hyperperiod of `every`, horizon by which the chain has settled), None if that is too long."""
    whole = lcm(*(task.period_ns for task in every))
    offset = max(task.offset_ns for task in every)
    fill = sum(2 * task.period_ns + task.deadline_ns for task in tasks)
    until = offset + 2 * whole + -(-2 * fill // whole) * whole
    jobs = sum(until // task.period_ns for task in every)
    return (whole, until) if jobs <= MOST_JOBS else None


def _span(problem: Problem, every: Sequence[PeriodicTask]) -> tuple[int, int]:
    span = _hyperperiods(_chain(problem), every)
    assert span is not None  # else the test does not apply
    return span


def _not_together(problem: Problem) -> str:
    tasks = _chain(problem)
    if any(task.offset_ns or task.jitter_ns for task in tasks):
        return "it applies to tasks released together without jitter"
    return _not_in_time(problem) or ("" if _hyperperiods(tasks, tasks) else "the hyperperiod has too many jobs")


@published("chain: Kloda", "Kloda, Bertout, Sorel, ETFA 2018", _ANY, kind="chain", also=_not_together, rank=32)
def chain_kloda(problem: Problem) -> Answer:
    """Released together: the longest path of reading releases over a hyperperiod, after one period of the head.

    Kloda, Bertout, Sorel, "Latency analysis for data chains of real-time periodic tasks", ETFA 2018.
    """
    tasks = _chain(problem)
    waits = [
        problem.responses[producer.name] if _overtaken(problem, producer, consumer) else 0
        for producer, consumer in itertools.pairwise(tasks)
    ]
    worst: tuple[int, list[tuple[str, int]]] = (-1, [])
    for first in range(0, _span(problem, tasks)[0], tasks[0].period_ns):
        release, terms = first, []
        for wait, consumer in zip(waits, tasks[1:], strict=True):
            following = ceil_div(release + wait, consumer.period_ns) * consumer.period_ns
            terms.append((f"until {consumer.name} is released", following - release))
            release = following
        if release - first > worst[0]:
            worst = (release - first, terms)
    last = (f"{tasks[-1].name}: response", problem.responses[tasks[-1].name])
    return _bounds({REACTION: ((f"{tasks[0].name}: period", tasks[0].period_ns), *worst[1], last)})


def _not_phased(problem: Problem) -> str:
    tasks = _chain(problem)
    if any(task.jitter_ns for task in tasks):
        return "it applies to tasks without release jitter"
    if not _hyperperiods(tasks, tasks):
        return f"the hyperperiod has more than {MOST_JOBS} jobs"
    return _not_in_time(problem)


@published(
    "chain: Becker, response times",
    "Becker et al., Journal of Systems Architecture 2017, intervals from response times",
    _ANY,
    kind="chain",
    also=_not_phased,
    rank=33,
)
def chain_becker(problem: Problem) -> Answer:
    """Known phases: the longest reduced age, from a release of the head to the end of the last job its data reach.

    Becker, Dasari, Mubeen, Behnam, Nolte, "End-to-end timing analysis of cause-effect chains in automotive embedded
    systems", Journal of Systems Architecture 2017 (read and data intervals from response times).
    """
    tasks = _chain(problem)
    head, last = tasks[0], tasks[-1]
    worst = (-1, 0, 0)
    for job in range(_span(problem, tasks)[0] // head.period_ns):
        begin = release = head.offset_ns + job * head.period_ns
        for producer, consumer in itertools.pairwise(tasks):
            # Data of a job are available from its earliest end until the latest end of the next; later jobs hold them
            # longer, so the search follows the latest reader of each step.
            expiry = release + producer.period_ns + problem.responses[producer.name]
            jobs = ceil_div(expiry - consumer.offset_ns, consumer.period_ns) - 1
            release = consumer.offset_ns + jobs * consumer.period_ns
        end = release + problem.responses[last.name]
        worst = max(worst, (end - begin, begin, end))
    text = f"from the release at {worst[1]} ns to the end at {worst[2]} ns at the latest"
    return _bounds({REDUCED: ((text, worst[0]),)})


def _longest(events: Sequence[_Events]) -> Answer:
    """Return the longest reaction and age, full and reduced, of chains over `events`.

    Günzel et al., RTAS 2021: augmented job chains, maximum reaction time and maximum data age, with and without their
    first or last gap.  The first chains count too: until every task has been released once, a schedule differs from its
    steady state.
    """
    longest: dict[str, tuple[int, int, int]] = {}

    def keep(measure: str, begin: int, end: int) -> None:
        if measure not in longest or end - begin > longest[measure][0]:
            longest[measure] = (end - begin, begin, end)

    reads, writes = events[0]
    for job in range(len(writes)):
        end = _forward(events, writes[job])
        if end is not None:
            keep(REDUCED_REACTION, reads[job], end)
        if end is not None and job:
            keep(REACTION, reads[job - 1], end)  # the cause occurs just after the previous job has read
    outputs = events[-1][1]
    for job in range(len(outputs) - 1):
        begin = _backward(events, events[-1][0][job])
        if begin is not None:
            keep(AGE, begin, outputs[job + 1])
            keep(REDUCED, begin, outputs[job])
    return _bounds(
        {name: ((f"from {a} ns to {b} ns of the schedule", value),) for name, (value, a, b) in longest.items()}
    )


def _forward(events: Sequence[_Events], written: int) -> int | None:
    for reads, writes in events[1:]:
        job = bisect_left(reads, written)
        if job >= len(writes):
            return None
        written = writes[job]
    return written


def _backward(events: Sequence[_Events], read: int) -> int | None:
    for reads, writes in reversed(events[:-1]):
        job = bisect_right(writes, read) - 1
        if job < 0:
            return None
        read = reads[job]
    return read


def schedule(tasks: Sequence[PeriodicTask], ranks: Sequence[int], until: int) -> list[_Events]:
    """Return the start and end of every job released before `until` under preemptive fixed priorities."""
    releases = sorted(
        (at, ranks[i], i) for i, task in enumerate(tasks) for at in range(task.offset_ns, until, task.period_ns)
    )
    events: list[_Events] = [([], []) for _ in tasks]
    ready: list[tuple[int, int, int, int]] = []  # rank, release, task, remaining work
    now, position = 0, 0
    while ready or position < len(releases):
        if not ready:
            now = max(now, releases[position][0])
        while position < len(releases) and releases[position][0] <= now:
            at, rank, index = releases[position]
            heappush(ready, (rank, at, index, tasks[index].wcet_ns))
            position += 1
        rank, at, index, left = heappop(ready)
        if left == tasks[index].wcet_ns:
            events[index][0].append(now)
        next_release = releases[position][0] if position < len(releases) else now + left
        ran = min(left, next_release - now)
        now += ran
        if ran == left:
            events[index][1].append(now)
        else:
            heappush(ready, (rank, at, index, left - ran))
    return events


def _not_constant(problem: Problem) -> str:
    policy, tasks = problem.policy, problem.taskset.tasks
    if problem.taskset.processors > 1 or policy.rule not in ("fp", "rm", "dm") or problem.preemption != "full":
        return "it applies to preemptive fixed priorities on one processor"
    if problem.features or any(task.bcet_ns != task.wcet_ns for task in tasks):
        return "it applies to plain tasks with constant execution times"
    if problem.utilisation > 1:
        return "the processor is overloaded"
    few = _hyperperiods(_chain(problem), tasks)
    return _not_implicit(problem) or ("" if few else "the hyperperiod has too many jobs")


@published(
    "chain: Günzel, local",
    "Günzel et al., RTAS 2021, analysis of one ECU; ACM TECS 2023",
    replace(_ANY, takes=frozenset()),
    exact=True,
    kind="chain",
    also=_not_constant,
    rank=34,
)
def chain_guenzel_local(problem: Problem) -> Answer:
    """One processor, known phases and constant execution times: the actual schedule, job by job.

    Günzel, Chen, Ueter, von der Brüggen, Dürr, Chen, "Timing analysis of asynchronized distributed cause-effect
    chains", RTAS 2021, analysis of one ECU, exact for fixed execution times; extended in "Compositional timing analysis
    of asynchronized distributed cause-effect chains", ACM TECS 2023.
    """
    tasks = problem.taskset.tasks
    events = schedule(tasks, problem.taskset.ranks, _span(problem, tasks)[1])
    return _longest([events[index] for index in problem.taskset.chain])


@published("chain: LET, any phase", "Hamann et al., ECRTS 2017", _ANY, kind="chain", also=_not_logical, rank=35)
def chain_let_sum(problem: Problem) -> Answer:
    """Logical execution times, any phases: the sum of T + D over the chain, for reaction time and data age.

    Hamann, Dasari, Kramer, Pressler, Wurst, "Communication centric design in complex automotive embedded systems",
    ECRTS 2017.
    """
    terms: list[tuple[str, int]] = []
    for task in _chain(problem):
        terms += [(f"{task.name}: period", task.period_ns), (f"{task.name}: deadline", task.deadline_ns)]
    return _bounds({REACTION: tuple(terms), AGE: tuple(terms)})


def _not_phased_logical(problem: Problem) -> str:
    tasks = _chain(problem)
    if any(task.jitter_ns or task.deadline_ns > task.period_ns for task in tasks):
        return "it applies to deadlines within periods, without jitter"
    return _not_logical(problem) or ("" if _hyperperiods(tasks, tasks) else "the hyperperiod has too many jobs")


@published(
    "chain: LET, known phases",
    "Günzel et al., ACM TECS 2023; Becker et al., Journal of Systems Architecture 2017",
    _ANY,
    exact=True,
    kind="chain",
    also=_not_phased_logical,
    rank=36,
)
def chain_let(problem: Problem) -> Answer:
    """Logical execution times, known phases: job by job, exactly; jobs read at arrival and write at their deadline.

    Günzel, Chen, Ueter, von der Brüggen, Dürr, Chen, ACM TECS 2023 (forward and backward job chains under LET); the
    reduced data age also by Becker et al., Journal of Systems Architecture 2017.
    """
    tasks = _chain(problem)
    until = _span(problem, tasks)[1]
    reads = [list(range(task.offset_ns, until, task.period_ns)) for task in tasks]
    return _longest([(at, [read + t.deadline_ns for read in at]) for t, at in zip(tasks, reads, strict=True)])
