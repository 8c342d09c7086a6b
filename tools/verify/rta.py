"""Compare response-time bounds with those of `response-time-analysis`, a library of analyses verified in PROSA.

Usage: pip install response-time-analysis; python -m tools.verify.rta [--systems 10000] [--seed 1] [--family NAME]

Draws task sets of one processor in every model that both cover, and compares every bound of every task.  The library's
responses count from a release, ours from an arrival that the release may follow by the release jitter; they are
converted job by job.  With jitter of a period or more, several jobs may be released at once and the library bounds only
the last of them, so ours has to lie between its bound and that plus the jitter.  Differences are sorted into the
explained kinds of `explain`; small systems with a difference are also explored exhaustively (explorer.py) to see which
side is right.  Exit code 1 for a difference without explanation, or a bound below truth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from response_time_analysis import analysis as library  # type: ignore[import-not-found, import-untyped, unused-ignore]
from response_time_analysis import model as known  # type: ignore[import-not-found, import-untyped, unused-ignore]
from response_time_analysis.analysis import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    edf,
    fifo,
    fp,
)

from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.schedulability.published.choose import analyse
from tools.verify.cases import Tally, divided, parser_of, spread
from tools.verify.explorer import explore
from tools.verify.random_systems import cut, plain, taskset
from tools.verify.small_sets import set_system

HORIZON = 4000
"""Busy windows longer than this count as unbounded on the library's side (ticks)."""
LONGER = 25
"""Factor on both `HORIZON` and `CURVE` for a second try where the library finds no bound."""
CURVE = 400
"""Activations of an event stream that are listed exactly."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One comparison: our test, the task, both bounds in ticks from the arrival (None: unbounded) and its `kind`."""

    test: str
    task: str
    ours: int | None
    theirs: int | None
    kind: str


def _model(rule: str, kind: str, arrivals: str = "periodic") -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        while True:  # the library does not end for more than a full processor
            made = once(draw)
            if sum(task.utilisation for task in made.tasks) <= 1:
                return made

    def once(draw: Random) -> TaskSet:
        small = draw.random() < 0.3  # small enough to be explored
        tasks = plain(
            draw.randint(2, 4 if small else 7), draw.uniform(0.3, 1.0), draw, 3, 12 if small else 60, "arbitrary"
        )
        if arrivals == "jitter":
            tasks = [replace(t, jitter_ns=draw.choice((0, draw.randint(0, 2 * t.period_ns)))) for t in tasks]
        elif arrivals == "curve":
            tasks = [
                replace(t, jitter_ns=draw.randint(0, 3 * t.period_ns), distance_ns=draw.randint(0, t.period_ns))
                for t in tasks
            ]
        if kind == "limited":
            tasks = [cut(task, draw, 3) for task in tasks]
        elif kind == "floating":
            tasks = [replace(task, longest_region_ns=draw.randint(1, task.wcet_ns)) for task in tasks]
        return taskset(tasks, Policy(rule, "partitioned", kind != "none"), 1, draw)  # type: ignore[arg-type]

    return make


MODELS: dict[str, Callable[[Random], TaskSet]] = {
    f"{rule}, {kind}, {arrivals}": _model(rule, kind, arrivals)
    for rule, kind, arrivals in (
        *(("fp", kind, "periodic") for kind in ("full", "none", "limited", "floating")),
        *(("fp", kind, "jitter") for kind in ("full", "none", "limited", "floating")),
        ("fp", "full", "curve"),
        *(("edf", kind, "periodic") for kind in ("full", "none", "limited", "floating")),
        ("fifo", "none", "periodic"),
    )
}  # fmt: skip
"""Rule, preemption (`limited`: fixed preemption points; `floating`: regions anywhere) and arrivals -> a draw."""


def theirs_of(made: TaskSet) -> dict[str, tuple[int, int] | None]:
    """Return the library's bounds from the arrival by task, as (least, most) possible values; None: unbounded."""
    found: dict[str, tuple[int, int] | None] = {}
    full = sum(task.utilisation for task in made.tasks) == 1
    for task in made.tasks:
        answer, mine = _solution(made, task, 1)
        if not answer.bound_found() and not full:
            answer, mine = _solution(made, task, LONGER)
        found[task.name] = _from_arrival(task, answer, mine)
    return found


def _solution(made: TaskSet, task: PeriodicTask, times: int) -> tuple[library.Solution, known.Task]:
    rows = {t.name: _translated(t, made, rank, times) for t, rank in zip(made.tasks, made.ranks, strict=True)}
    everything, supply, mine = known.TaskSet(tuple(rows.values())), known.IdealProcessor(), rows[task.name]
    if made.policy.rule == "fifo":
        return fifo.rta(everything, supply, HORIZON * times), mine
    rule = edf if made.policy.rule == "edf" else fp
    return rule.rta(everything, mine, supply, HORIZON * times), mine


def _translated(task: PeriodicTask, made: TaskSet, rank: int, times: int) -> known.Task:
    cost = known.WCET(task.wcet_ns)
    if not made.policy.preemptive:
        execution = known.FullyNonPreemptive(cost)
    elif task.regions_ns:
        execution = known.LimitedPreemptive(cost, max(task.regions_ns), task.regions_ns[-1])
    elif task.longest_region_ns:
        execution = known.FloatingNonPreemptive(cost, task.longest_region_ns)
    else:
        execution = known.FullyPreemptive(cost)
    if task.distance_ns or task.jitter_ns >= task.period_ns:
        gaps = (max(n * task.period_ns - task.jitter_ns, n * task.distance_ns, 0) for n in range(1, CURVE * times))
        arrivals = known.MinimumSeparationVector(list(gaps))
    elif task.jitter_ns:
        arrivals = known.PeriodicWithJitter(task.period_ns, task.jitter_ns)
    else:
        arrivals = known.Periodic(task.period_ns)
    priority = known.Priority(len(made.tasks) - 1 - rank)
    return known.Task(arrivals, execution, known.Deadline(task.deadline_ns), priority)


def _from_arrival(task: PeriodicTask, answer: library.Solution, mine: known.Task) -> tuple[int, int] | None:
    if not answer.bound_found() or answer.search_space is None:
        return None
    bound = answer.response_time_bound
    if not task.jitter_ns:
        return bound, bound
    if task.jitter_ns >= task.period_ns or task.distance_ns:
        return bound, bound + task.jitter_ns
    worst = 0
    for released, _, response in answer.search_space:
        arrival = (mine.arrivals(released + 1) - 1) * task.period_ns - task.jitter_ns
        worst = max(worst, released + response - arrival)
    return worst, worst


def differences(made: TaskSet) -> Iterator[Difference]:
    """Yield every comparison of one task set."""
    theirs = theirs_of(made)
    due = {task.name: task.deadline_ns for task in made.tasks}
    fits = all(pair is not None and pair[0] <= due[name] for name, pair in theirs.items())
    for outcome in analyse(made).outcomes:
        test, answer = outcome.test.name, outcome.answer
        if answer is None:
            continue
        if outcome.test.run.__name__ in ("qpa", "np_edf_demand") and not any(t.jitter_ns for t in made.tasks):
            proved = answer.schedulable is True
            found = "equal" if proved == fits else "only ours" if proved else "only theirs"
            yield Difference(f"{test} (verdict)", "", None, None, found)
        elif test in TESTS:
            for name, pair in theirs.items():
                bound = answer.bounds.get(name)
                mine = None if bound is None else bound.value
                yield Difference(test, name, mine, None if pair is None else pair[1], _kind(mine, pair))


TESTS = (
    "response-time analysis", "busy-period analysis", "non-preemptive fixed priorities", "fixed preemption points",
    "event streams", "EDF response times", "FIFO response times",
)  # fmt: skip
"""Our tests whose bounds of single tasks are compared; those of EDF demand are compared by verdict."""


def _kind(ours: int | None, theirs: tuple[int, int] | None) -> str:
    if ours is None or theirs is None:
        return "equal" if ours is None and theirs is None else "only theirs" if ours is None else "only ours"
    if theirs[0] <= ours <= theirs[1]:
        return "equal" if theirs[0] == theirs[1] else "in range"
    return "ours larger" if ours > theirs[1] else "ours smaller"


def explain(made: TaskSet, found: Difference) -> str:
    """Return the verified reason for a difference, empty if there is none.

    Where ours is larger because it leaves out a part of the model, the library's bound without that part has to agree.
    """
    if found.kind in ("equal", "in range"):
        return "none needed"
    if found.kind not in ("ours larger", "only theirs") or not found.task:
        return ""
    if found.test == "response-time analysis" and found.kind == "only theirs":
        return "ours bounds only jobs that end within their period; the busy-period analysis takes the others"
    task = next(task for task in made.tasks if task.name == found.task)
    if found.kind == "only theirs":
        longest = max(max(t.period_ns, t.deadline_ns) for t in made.tasks)
        answer = _solution(made, task, 1)[0]
        if not answer.bound_found():
            answer = _solution(made, task, LONGER)[0]
        if (answer.busy_window_bound or HORIZON * LONGER) > 64 * longest:
            return "ours abandons a busy period of 64 times the longest period or deadline"
        if sum(t.utilisation for t in made.tasks) == 1:
            return "utilisation 1: ours looks for the end of a busy period that begins with blocking, and there is none"
    for reason, weaker in _WEAKER:
        other = replace(made, tasks=tuple(map(weaker, made.tasks)))
        if other == made:
            continue
        same = next(task for task in other.tasks if task.name == found.task)
        for times in (1, LONGER):  # near full load, the busy period holds more than `CURVE` releases
            if _kind(found.ours, _from_arrival(same, *_solution(other, same, times))) in ("equal", "in range"):
                return reason
    return ""


_WEAKER: tuple[tuple[str, Callable[[PeriodicTask], PeriodicTask]], ...] = (
    (
        "ours does not use the least distance of releases; the test for event streams does",
        lambda task: replace(task, distance_ns=0),
    ),
    (
        "ours does not use that the last region, once begun, runs to its end",
        lambda task: replace(task, regions_ns=(), longest_region_ns=task.region_ns),
    ),
)
"""Reasons for larger bounds, and what each of them leaves out of a task."""


def check(model: str, name: str) -> Tally:
    """Compare a drawn system of a model."""
    draw, tally = Random(name), Tally()
    made = MODELS[model](draw)
    found = list(differences(made))
    for row in found:
        reason = explain(made, row)
        kind = row.kind if row.kind in ("equal", "in range") else f"{row.kind}: {reason or 'NOT EXPLAINED'}"
        tally.count("comparisons", (model, row.test, kind))
        if "NOT EXPLAINED" in kind:
            tally.faults.append(f"{kind}: {row} {name} {made}")
    small = len(made.tasks) <= 4 and max(t.period_ns for t in made.tasks) <= 12 and "curve" not in model
    if not small or all(row.kind in ("equal", "in range") for row in found):
        return tally
    tally.count("explored", "")
    truth = explore(*set_system(made, draw), 2000)
    longest = {task.name: value for task, value in zip(made.tasks, truth.responses, strict=True)}
    for row in found:
        for side, value in (("ours", row.ours), ("theirs", row.theirs)):
            if row.task and value is not None and value < longest[row.task]:
                tally.faults.append(f"{side}: {row} below {longest[row.task]}, which occurs: {made}")
    return tally


def main() -> int:
    """Run the comparison and print its table; return the exit status."""
    chosen = parser_of(__doc__, 10_000, list(MODELS)).parse_args()
    total = spread(check, chosen.seed, divided(chosen.systems, chosen.family or list(MODELS)), chosen.workers)
    for (name, test, kind), count in sorted(total.counts["comparisons"].items()):
        print(f"{name:24} {test:40} {count:7}  {kind}")
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
