"""All tests applied to a task set: the tightest bound of each task and chain, and why other tests do not apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from socsched import plugins
from socsched.descriptor.limits import Verdict
from socsched.descriptor.taskset import TaskSet
from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test on a task set: its answer, or the reason it applies to no part of it.

    `cpus` are the processors (of a partitioned set) it was run for; empty if it was run for all at once.
    """

    test: SchedulabilityTest
    answer: Answer | None
    reason: str
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Best:
    """The tightest bound and its test; None if there is none."""

    bound: Bound | None
    test: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """Results of all tests of a task set; `verdict` feasible | infeasible | undecided, as that of a plan.

    `decided_by`: the tests that the verdict rests on, empty where it is undecided.  `outcomes`: every test by rank,
    with its answer or the reason why it does not apply.  `tasks`, `chain`: the tightest bound of each task and measure.
    """

    taskset: TaskSet
    verdict: Verdict
    decided_by: str
    outcomes: tuple[Outcome, ...]
    tasks: Mapping[str, Best]
    chain: Mapping[str, Best]


def tests() -> list[SchedulabilityTest]:
    """Return every test, built in or installed, by rank."""
    group = "socsched.schedulability"
    return sorted((plugins.load(group, name) for name in plugins.names(group)), key=lambda test: test.rank)


def problems(taskset: TaskSet) -> list[tuple[int, Problem]]:
    """Return the groups of tasks that share processors, with the processor number for a partitioned set."""
    ranks = taskset.ranks
    if taskset.policy.scheme == "global":
        return [(0, Problem(taskset, taskset.tasks, ranks, taskset.processors))]
    result = []
    for cpu in sorted({task.cpu or 0 for task in taskset.tasks}):
        here = [index for index, task in enumerate(taskset.tasks) if (task.cpu or 0) == cpu]
        tasks = tuple(taskset.tasks[index] for index in here)
        result.append((cpu, Problem(taskset, tasks, tuple(ranks[index] for index in here), 1)))
    return result


def analyse(taskset: TaskSet) -> Analysis:
    """Return the answers of all applicable tests, chain tests last, as they depend on the bounds of tasks."""
    parts, outcomes = problems(taskset), []
    known = tests()
    for test in known:
        if test.kind != "chain":
            outcomes.append(_run(test, parts, taskset.policy.scheme == "partitioned"))
    tasks = {task.name: _best(outcomes, task.name) for task in taskset.tasks}
    if taskset.chain:
        responses = {name: best.bound.value for name, best in tasks.items() if best.bound}
        whole = Problem(taskset, taskset.tasks, taskset.ranks, taskset.processors, responses)
        outcomes += [_run(test, [(0, whole)], False) for test in known if test.kind == "chain"]
    verdict, by = _verdict(taskset, outcomes, tasks)
    return Analysis(taskset, verdict, by, tuple(outcomes), tasks, _best_of_chain(outcomes))


def _run(test: SchedulabilityTest, parts: list[tuple[int, Problem]], partitioned: bool) -> Outcome:
    answers: list[tuple[int, Answer]] = []
    reasons: dict[str, None] = {}
    for cpu, problem in parts:
        reason = test.unmet(problem)
        if reason:
            reasons[reason] = None
        else:
            answers.append((cpu, test.run(problem)))
    if not answers:
        return Outcome(test, None, "; ".join(reasons))
    return Outcome(
        test, _merged(answers, len(parts)), "; ".join(reasons), tuple(c for c, _ in answers) if partitioned else ()
    )


def _merged(answers: list[tuple[int, Answer]], parts: int) -> Answer:
    if parts == 1:
        return answers[0][1]
    bounds = {name: bound for _, answer in answers for name, bound in answer.bounds.items()}
    verdicts = [answer.schedulable for _, answer in answers]
    all_met = len(verdicts) == parts and all(verdicts)
    notes = dict.fromkeys(f"cpu {cpu}: {answer.note}" for cpu, answer in answers if answer.note)
    terms = tuple((f"cpu {cpu}: {name}", value) for cpu, answer in answers for name, value in answer.terms)
    return Answer(False if False in verdicts else True if all_met else None, bounds, terms=terms, note="; ".join(notes))


def _best(outcomes: list[Outcome], name: str) -> Best:
    found = [(o.answer.bounds[name], o.test) for o in outcomes if o.answer and name in o.answer.bounds]
    if not found:
        return Best(None, "")
    bound, test = min(found, key=lambda pair: pair[0].value)  # the first on ties, which is the simplest test
    return Best(bound, test.name)


def _best_of_chain(outcomes: list[Outcome]) -> dict[str, Best]:
    best: dict[str, Best] = {}
    for outcome in outcomes:
        for measure, bound in (outcome.answer.chain if outcome.answer else {}).items():
            so_far = best.get(measure)
            if so_far is None or so_far.bound is None or bound.value < so_far.bound.value:
                best[measure] = Best(bound, outcome.test.name)
    return best


def _verdict(taskset: TaskSet, outcomes: list[Outcome], tasks: Mapping[str, Best]) -> tuple[Verdict, str]:
    for outcome in outcomes:
        if outcome.answer and outcome.answer.schedulable is False:
            return "infeasible", outcome.test.name
    bounds = [(task, tasks[task.name]) for task in taskset.tasks]
    if all(best.bound is not None and best.bound.value <= task.deadline_ns for task, best in bounds):
        return "feasible", ", ".join(dict.fromkeys(best.test for _, best in bounds))
    return "undecided", ""
