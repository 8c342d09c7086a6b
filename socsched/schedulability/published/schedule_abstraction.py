"""Finite sets of non-preemptive jobs under priorities: all their schedules at once, as a graph of states.

`decide` judges a set of jobs; the published test judges the jobs of a hyperperiod of tasks.

Nasri & Brandenburg, "An exact and sustainable analysis of non-preemptive scheduling", RTSS 2017 (one processor, exact);
Nasri, Nelissen, Brandenburg, "A response-time analysis for non-preemptive job sets under global scheduling", ECRTS
2018, and "Response-time analysis of limited-preemptive parallel DAG tasks under global scheduling", ECRTS 2019
(identical processors, precedence; safe).  A state is the set of jobs that have been dispatched, and the interval in
which each processor becomes free; states of one set whose intervals meet are merged.  The scheduler is work-conserving;
ties go to the lower task, then the lower job.  Times are integers: a job can start in the unit before a more urgent one
is ready.

On several processors an interval may hold times that no schedule has.  Then a miss is looked for in single schedules,
and the widest interval of a release or a cost is halved until every part is proved or one holds a miss: both answers
are exact, and only the number of states leaves a set undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm
from random import Random

from socsched.schedulability.published.model import Answer, Bound, Problem, Scope, published

MOST_STATES = 50_000
MOST_JOBS = 10_000
_STEPS = 100
"""Jobs looked at for each state of the limit."""
_RUNS = 24
"""Single schedules tried in every part before it is halved."""
_MERGED = 8
"""States of one set of jobs that are compared before another is added."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job, released from `least_release` to `most_release`, that runs `least_cost` to `most_cost`, ends inclusive.

    `deadline` is absolute.  The lower `priority` goes first.  `before` are the positions of jobs that must be complete.
    """

    task: int
    number: int
    least_release: int
    most_release: int
    least_cost: int
    most_cost: int
    deadline: int
    priority: int
    before: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return the order in which ready jobs start."""
        return self.priority, self.task, self.number


@dataclass(frozen=True, slots=True)
class Verdict:
    """`met`: whether every deadline is met in every schedule; None: undecided, for the reason in `why`.

    `completions` are the earliest and the latest of every job, safe ones if the whole graph was visited, else empty.
    `missed`: the job that misses its deadline where one does, and when it ends.
    """

    met: bool | None
    completions: tuple[tuple[int, int], ...]
    states: int
    missed: tuple[int, int] | None = None
    why: str = ""


@dataclass(slots=True)
class _State:
    """Jobs dispatched (bits), when each processor is free (earliest and latest, ascending), ends of awaited jobs.

    All jobs before `first` in the order of releases are dispatched.
    """

    done: int
    free: tuple[tuple[int, int], ...]
    running: dict[int, tuple[int, int]]
    first: int


class _Exceeded(Exception):
    """The limit on states is reached."""


@dataclass(slots=True)
class _Graph:
    """The graph of one set of jobs on `processors`; `ends` widens with every state."""

    jobs: Sequence[Job]
    processors: int
    limit: int
    states: int = 0
    steps: int = 0
    ends: list[tuple[int, int] | None] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    followers: list[int] = field(default_factory=list)

    def explore(self) -> None:
        """Visit every state; raise _Exceeded at the limit, ValueError if precedence is cyclic."""
        self.ends = [None] * len(self.jobs)
        self.first = _earliest(self.jobs)
        self.order = sorted(range(len(self.jobs)), key=lambda i: self.first[i])
        self.needs = [sum(1 << i for i in set(job.before)) for job in self.jobs]
        self.followers = [0] * len(self.jobs)
        for index, job in enumerate(self.jobs):
            for before in job.before:
                self.followers[before] |= 1 << index
        front = [_State(0, ((0, 0),) * self.processors, {}, 0)]
        for _ in self.jobs:
            later: dict[int, list[_State]] = {}
            for state in front:
                self._expand(state, later)
            front = [state for listed in later.values() for state in listed]

    def _expand(self, state: _State, later: dict[int, list[_State]]) -> None:
        done = state.done
        first = state.first
        while first < len(self.order) and done >> self.order[first] & 1:
            first += 1
        least, most = state.free[0]
        ready: list[tuple[tuple[int, int, int], int, int, int]] = []
        certain: int | None = None
        for place in range(first, len(self.order)):
            self._count(1)
            index = self.order[place]
            job = self.jobs[index]
            if certain is not None and self.first[index] > max(certain, most):
                break
            if done >> index & 1 or self.needs[index] & ~done:
                continue
            early, late = self._ready(state, job, ())
            certain = late if certain is None else min(certain, late)
            ready.append((job.rank, index, early, late))
        if certain is None:
            return
        last = max(most, certain)
        ready.sort()
        for number, (_, index, early, late) in enumerate(ready):
            start, until = max(early, least), last
            if state.running and self.jobs[index].before:
                # Where both wait for one job, it has ended by the time this one is ready.
                self._count(number)
                for _, other, _, _ in ready[:number]:
                    shared = self._ready(state, self.jobs[other], self.jobs[index].before)[1]
                    until = min(until, max(shared, early) - 1)
            if start <= until:
                self._dispatch(state, index, start, until, first, later)
            last = min(last, late - 1)

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limit * _STEPS:
            raise _Exceeded

    def _ready(self, state: _State, job: Job, without: Sequence[int]) -> tuple[int, int]:
        """Return when a job is ready at the earliest and the latest, predecessors `without` not counted."""
        early, late = job.least_release, job.most_release
        if self.processors > 1:  # on one processor, what was dispatched is complete when it is free
            for index in job.before:
                if index not in without:
                    end = state.running.get(index) or self.ends[index] or (0, 0)
                    early, late = max(early, end[0]), max(late, end[1])
        return early, late

    def _dispatch(
        self, state: _State, index: int, start: int, last: int, first: int, later: dict[int, list[_State]]
    ) -> None:
        job = self.jobs[index]
        self._count(1 + len(self.jobs) // 500)
        end = (start + job.least_cost, last + job.most_cost)
        before = self.ends[index]
        self.ends[index] = end if before is None else (min(end[0], before[0]), max(end[1], before[1]))
        earliest = [end[0], *(max(start, free[0]) for free in state.free[1:])]
        latest = [end[1], *(max(start, free[1]) for free in state.free[1:])]
        running: dict[int, tuple[int, int]] = {}
        if self.processors > 1 and (state.running or self.followers[index]):
            awaited = ~(state.done | 1 << index)
            running = {i: ends for i, ends in state.running.items() if self.followers[i] & awaited}
            if self.followers[index]:
                running[index] = end
        done = state.done | 1 << index
        free = tuple(zip(sorted(earliest), sorted(latest), strict=True))
        listed = later.setdefault(done, [])
        for other_state in listed[:_MERGED]:
            if all(
                one[0] <= two[1] + 1 and two[0] <= one[1] + 1 for one, two in zip(free, other_state.free, strict=True)
            ):
                other_state.free = tuple(
                    (min(one[0], two[0]), max(one[1], two[1])) for one, two in zip(free, other_state.free, strict=True)
                )
                other_state.running = {
                    i: (min(one[0], two[0]), max(one[1], two[1]))
                    for i, one in running.items()
                    if (two := other_state.running.get(i)) is not None
                }
                return
        self.states += 1
        if self.states > self.limit:
            raise _Exceeded
        listed.append(_State(done, free, running, first))


def _earliest(jobs: Sequence[Job]) -> list[int]:
    """Return when each job may be ready at the earliest, after all it waits for; ValueError if precedence is cyclic."""
    first = [job.least_release for job in jobs]
    awaited = [len(set(job.before)) for job in jobs]
    followers: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        for before in set(job.before):
            followers.setdefault(before, []).append(index)
    pending = [index for index, count in enumerate(awaited) if not count]
    for index in pending:
        for follower in followers.get(index, ()):
            first[follower] = max(first[follower], first[index] + jobs[index].least_cost)
            awaited[follower] -= 1
            if not awaited[follower]:
                pending.append(follower)
    if len(pending) < len(jobs):
        raise ValueError("precedence is cyclic")
    return first


def decide(jobs: Sequence[Job], processors: int = 1, limit: int = MOST_STATES) -> Verdict:
    """Return whether all deadlines are met in every schedule; `limit` bounds the states visited.

    Raises ValueError if precedence is cyclic.
    """
    graph = _Graph(jobs, processors, limit)
    try:
        graph.explore()
    except _Exceeded:
        missed = _witness(jobs, processors, Random(0))
        why = "" if missed else f"more than {limit} states"
        return Verdict(False if missed else None, (), graph.states, missed, why)
    ends = tuple(end for end in graph.ends if end is not None)
    late = _late(jobs, ends)
    if late is None:
        return Verdict(True, ends, graph.states)
    if processors == 1 and all(job.least_cost for job in jobs):
        return Verdict(False, ends, graph.states, (late, ends[late][1]))
    return _halve(jobs, processors, limit, graph.states, ends)


def _late(jobs: Sequence[Job], ends: Sequence[tuple[int, int]]) -> int | None:
    """Return the job that may end the longest after its deadline, None if none does."""
    worst = max(range(len(jobs)), key=lambda i: ends[i][1] - jobs[i].deadline)
    return worst if ends[worst][1] > jobs[worst].deadline else None


def _halve(jobs: Sequence[Job], processors: int, limit: int, states: int, ends: tuple[tuple[int, int], ...]) -> Verdict:
    """Decide a set whose graph may hold more than its schedules do: by single schedules, and by its halves."""
    draw = Random(0)
    pending: list[tuple[Sequence[Job], tuple[tuple[int, int], ...]]] = [(jobs, ends)]
    while pending:
        part, found = pending.pop()
        missed = _witness(part, processors, draw)
        if missed:
            return Verdict(False, ends, states, missed)
        for half in _halves(part, found):
            graph = _Graph(half, processors, limit - states)
            try:
                graph.explore()
            except _Exceeded:
                return Verdict(None, ends, limit, why=f"more than {limit} states")
            states += graph.states
            inside = tuple(end for end in graph.ends if end is not None)
            if _late(half, inside) is not None:
                pending.append((half, inside))
    return Verdict(True, ends, states)


def _halves(jobs: Sequence[Job], ends: Sequence[tuple[int, int]]) -> list[Sequence[Job]]:
    """Return both halves of the widest interval among jobs that may precede the late one; none if all are points."""
    late = _late(jobs, ends)
    latest = ends[late][1] if late is not None else 0
    near = [i for i, job in enumerate(jobs) if job.least_release <= latest and _width(job)]
    wide = max(near or range(len(jobs)), key=lambda i: _width(jobs[i]))
    job = jobs[wide]
    if not _width(job):
        return []
    if job.most_cost - job.least_cost == _width(job):
        middle = (job.least_cost + job.most_cost) // 2
        halves = replace(job, most_cost=middle), replace(job, least_cost=middle + 1)
    else:
        middle = (job.least_release + job.most_release) // 2
        halves = replace(job, most_release=middle), replace(job, least_release=middle + 1)
    return [[*jobs[:wide], half, *jobs[wide + 1 :]] for half in halves]


def _width(job: Job) -> int:
    return max(job.most_cost - job.least_cost, job.most_release - job.least_release)


def _witness(jobs: Sequence[Job], processors: int, draw: Random) -> tuple[int, int] | None:
    """Return a job that misses its deadline in one of several schedules, and when it ends; None if none does."""
    choices = [
        ([job.least_release for job in jobs], [job.most_cost for job in jobs]),
        ([job.most_release for job in jobs], [job.most_cost for job in jobs]),
        ([job.least_release for job in jobs], [job.least_cost for job in jobs]),
    ]
    for number in range(_RUNS):
        pick = draw.choice if number % 2 else lambda ends: draw.randint(*ends)  # ends alone, or any times
        releases = [pick((job.least_release, job.most_release)) for job in jobs]
        choices.append((releases, [pick((job.least_cost, job.most_cost)) for job in jobs]))
    for releases, costs in choices:
        found = simulate(jobs, processors, releases, costs)
        for index, job in enumerate(jobs):
            if found[index] > job.deadline:
                return index, found[index]
    return None


def simulate(jobs: Sequence[Job], processors: int, releases: Sequence[int], costs: Sequence[int]) -> list[int]:
    """Return when each job ends in the schedule of one choice of releases and costs."""
    followers: dict[int, list[int]] = {}
    awaited = [len(set(job.before)) for job in jobs]
    for index, job in enumerate(jobs):
        for before in set(job.before):
            followers.setdefault(before, []).append(index)
    ends, at = [0] * len(jobs), list(releases)
    arrivals: list[tuple[int, int]] = []
    for index, count in enumerate(awaited):
        if not count:
            heappush(arrivals, (at[index], index))
    running, ready = list[tuple[int, int]](), list[tuple[tuple[int, int, int], int]]()
    now, idle = 0, processors
    while arrivals or running or ready:
        while running and running[0][0] <= now:
            index = heappop(running)[1]
            idle += 1
            for follower in followers.get(index, ()):
                awaited[follower] -= 1
                at[follower] = max(at[follower], ends[index])
                if not awaited[follower]:
                    heappush(arrivals, (at[follower], follower))
        while arrivals and arrivals[0][0] <= now:
            index = heappop(arrivals)[1]
            heappush(ready, (jobs[index].rank, index))
        if ready and idle:
            index = heappop(ready)[1]
            ends[index] = now + costs[index]
            heappush(running, (ends[index], index))
            idle -= 1
        else:
            now = min([queue[0][0] for queue in (arrivals, running) if queue], default=now)
    return ends


def by_task(jobs: Sequence[Job], completions: Sequence[tuple[int, int]]) -> Mapping[int, tuple[int, int]]:
    """Return the shortest and the longest response of every task, from the earliest release of a job."""
    found: dict[int, tuple[int, int]] = {}
    for job, (least, most) in zip(jobs, completions, strict=True):
        own = (least - job.least_release, most - job.least_release)
        before = found.get(job.task, own)
        found[job.task] = (min(own[0], before[0]), max(own[1], before[1]))
    return found


_JOBS_OF_TASKS = 2000
_STATES_OF_TASKS = 10_000


def _window(problem: Problem) -> tuple[int, int, int]:
    """Return the hyperperiod, the last offset, and the end of the window examined."""
    every = lcm(*(task.period_ns for task in problem.tasks))
    begin = max(task.offset_ns for task in problem.tasks)
    same = len({task.offset_ns for task in problem.tasks}) == 1
    return every, begin, begin + every if same else begin + 2 * every


def _not_listed(problem: Problem) -> str:
    if any(task.sporadic for task in problem.tasks):
        return "it applies to periodic tasks, whose jobs are known"
    _, _, until = _window(problem)
    if sum(until // task.period_ns + 1 for task in problem.tasks) > _JOBS_OF_TASKS:
        return f"the hyperperiod has more than {_JOBS_OF_TASKS} jobs"
    return ""


@published(
    "schedule abstraction",
    "Nasri & Brandenburg, RTSS 2017; Nasri, Nelissen, Brandenburg, ECRTS 2019",
    Scope(("fp", "rm", "dm", "edf"), preemption=("none",), processors="any", takes=frozenset({"jitter"})),
    exact=True,
    also=_not_listed,
    rank=20,
)
def schedule_abstraction(problem: Problem) -> Answer:
    """The jobs of a hyperperiod in all their schedules at once; jobs of equal urgency start in the order of the tasks.

    Nasri & Brandenburg, RTSS 2017; Nasri, Nelissen, Brandenburg, ECRTS 2018 and 2019.
    """
    tasks, ranks = problem.tasks, problem.ranks
    every, begin, until = _window(problem)
    jobs = []
    for index, task in enumerate(tasks):
        for number in range(max(0, -(-(until - task.offset_ns) // task.period_ns))):
            at = task.offset_ns + number * task.period_ns
            due = at + task.deadline_ns
            urgency = due if problem.policy.rule == "edf" else ranks[index]
            costs = (task.bcet_ns, task.wcet_ns)
            jobs.append(Job(index, number, at, at + task.jitter_ns, *costs, due, urgency))
    verdict = decide(jobs, problem.processors, _STATES_OF_TASKS)
    terms = (("jobs", len(jobs)), ("states", verdict.states))
    if verdict.missed:
        index, end = verdict.missed
        late = jobs[index]
        note = f"job {late.number} of {tasks[late.task].name} ends at {end} ns, due at {late.deadline} ns"
        return Answer(False, terms=terms, note=note)
    if verdict.met is None:
        return Answer(None, terms=terms, note=verdict.why)
    order = sorted(range(len(jobs)), key=lambda i: jobs[i].least_release)
    latest = list(accumulate((verdict.completions[i][1] for i in order), max, initial=0))
    arrivals = [jobs[i].least_release for i in order]
    # Met deadlines count if all jobs before an instant after the last offset are always complete by then, and again a
    # hyperperiod later: the schedules between the two repeat.
    empty = {at for place, at in enumerate(arrivals) if latest[place] <= at and (not place or arrivals[place - 1] < at)}
    empty |= {until} if latest[-1] <= until else set()
    if not any(begin <= at and at + every in empty for at in empty):
        return Answer(None, terms=terms, note="no instant at which all earlier jobs are complete comes again")
    longest: dict[int, int] = {}
    for job, (_, end) in zip(jobs, verdict.completions, strict=True):
        longest[job.task] = max(longest.get(job.task, 0), end - job.least_release)
    bounds = {
        tasks[index].name: Bound(value, (("longest response of its jobs", value),)) for index, value in longest.items()
    }
    return Answer(True, bounds, terms=terms, note="in every schedule of a hyperperiod")
