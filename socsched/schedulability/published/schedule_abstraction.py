"""Fixed priorities or EDF without preemption: the jobs of a hyperperiod in all their schedules at once.

Nasri & Brandenburg, RTSS 2017; Nasri, Nelissen, Brandenburg, ECRTS 2018 and 2019; see the module of that name above.
Jobs of equal urgency start in the order of the tasks.
"""

from __future__ import annotations

from itertools import accumulate
from math import lcm

from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest, Scope
from socsched.schedulability.schedule_abstraction import Job, decide

MOST_JOBS = 2000
MOST_STATES = 10_000


def run(problem: Problem) -> Answer:
    """Return whether a deadline is missed; met ones count if the jobs before an instant are always complete by then.

    If that holds at an instant after the last offset and again a hyperperiod later, the schedules between them repeat.
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
    verdict = decide(jobs, problem.processors, MOST_STATES)
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


def _window(problem: Problem) -> tuple[int, int, int]:
    """Return the hyperperiod, the last offset, and the end of the window examined."""
    every = lcm(*(task.period_ns for task in problem.tasks))
    begin = max(task.offset_ns for task in problem.tasks)
    same = len({task.offset_ns for task in problem.tasks}) == 1
    return every, begin, begin + every if same else begin + 2 * every


def _listed(problem: Problem) -> str:
    """Return why the jobs cannot be listed, empty if they can."""
    if any(task.sporadic for task in problem.tasks):
        return "it applies to periodic tasks, whose jobs are known"
    _, _, until = _window(problem)
    if sum(until // task.period_ns + 1 for task in problem.tasks) > MOST_JOBS:
        return f"the hyperperiod has more than {MOST_JOBS} jobs"
    return ""


TEST = SchedulabilityTest(
    "schedule abstraction",
    "Nasri & Brandenburg, RTSS 2017; Nasri, Nelissen, Brandenburg, ECRTS 2019",
    Scope(rules=("fp", "rm", "dm", "edf"), preemption=("none",), processors="any", takes=frozenset({"jitter"})),
    run,
    exact=True,
    also=_listed,
    rank=20,
)
