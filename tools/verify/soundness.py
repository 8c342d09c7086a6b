"""Search for an observed response above a bound: random task sets and random plans, worst-case phasing search.

Usage: python -m tools.verify.soundness [--systems 10000] [--plans 2000] [--seed 1] [--phasings 8] [--workers 2]
       python -m tools.verify.soundness --case NUMBER

Task sets are drawn family by family (random_systems.py), analysed by every test that applies, and run by a second
simulator from many phases with execution times at their worst and at random.  Plans are made the plain way, from the
text of a platform and a pipeline (random_plans.py), and simulated (plan_runs.py): reactions, ages, responses, queues
and the verdict, at both levels of criticality.  Exit code 1 when anything contradicts a test or a plan; of each kind
of fault in plans, the smallest case found is printed.  `--case`: one plan by its number, shrunk.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from functools import partial
from random import Random

from socsched.descriptor.taskset import TaskSet
from socsched.schedulability.published.choose import Analysis, analyse
from tools.verify.cases import Tally, divided, parser_of, spread
from tools.verify.plan_runs import check_case, minimal
from tools.verify.random_systems import FAMILIES, from_any_phase
from tools.verify.reference_simulator import Seen, observed, phasings, simulate

LONGEST_RUN = 700


def responses_seen(taskset: TaskSet, runs: int, seed: int) -> dict[str, int]:
    """Return the longest response of every task over several phases (the only place that simulates for it)."""
    draw = Random(seed)
    until = min(sum(2 * task.period_ns for task in taskset.tasks) * 3, LONGEST_RUN)
    found: dict[str, int] = {}
    for number, offsets in enumerate(phasings(taskset, runs, draw)):
        found = observed(found, simulate(taskset, offsets, until, seed + number, True).responses)
        if number % 2:
            found = observed(found, simulate(taskset, offsets, until, seed + number, False).responses)
    return found


def chains_seen(taskset: TaskSet, seed: int) -> dict[str, int]:
    """Return the longest reaction, age and reduced age of the chain in the phases the task set gives."""
    offsets = [task.offset_ns for task in taskset.tasks]
    found: dict[str, int] = {}
    for number in range(3):
        seen = simulate(taskset, offsets, 500, seed + number, number == 0)
        for measure, value in _chain(taskset, seen).items():
            found[measure] = max(found.get(measure, 0), value)
    return found


def _chain(taskset: TaskSet, seen: Seen) -> dict[str, int]:
    steps = []
    for index in taskset.chain:
        task = taskset.tasks[index]
        if taskset.communication == "let":
            reads = [task.offset_ns + k * task.period_ns for k in range(400 // task.period_ns)]
            steps.append((reads, [read + task.deadline_ns for read in reads]))
        else:
            rows = seen.jobs[task.name]
            steps.append(([start for start, _ in rows], [end for _, end in rows]))
    found = dict.fromkeys(("reaction_time", "reduced_reaction_time", "data_age", "reduced_data_age"), 0)
    starts = steps[0][0]
    for number, written in enumerate(steps[0][1]):
        at: int | None = written
        for reads, writes in steps[1:]:
            job = bisect_left(reads, at or 0)
            at = writes[job] if at is not None and job < len(writes) else None
        if at is not None:
            found["reduced_reaction_time"] = max(found["reduced_reaction_time"], at - starts[number])
        if at is not None and number:
            found["reaction_time"] = max(found["reaction_time"], at - starts[number - 1])
    for start, end, following in zip(steps[-1][0], steps[-1][1], steps[-1][1][1:], strict=False):
        source: int | None = start
        for reads, writes in reversed(steps[:-1]):
            job = bisect_right(writes, source) - 1 if source is not None else -1
            source = reads[job] if job >= 0 else None
        if source is not None:
            found["data_age"] = max(found["data_age"], following - source)
            found["reduced_data_age"] = max(found["reduced_data_age"], end - source)
    return found


def check(taskset: TaskSet, runs: int, seed: int) -> Tally:
    """Return the result of checking simulations of a task set against the bounds of every applicable test."""
    analysis, tally = analyse(from_any_phase(taskset)), Tally()
    seen = responses_seen(taskset, runs, seed)
    chain = chains_seen(taskset, seed) if taskset.chain else {}
    for outcome in analysis.outcomes:
        if outcome.answer is None:
            continue
        test = outcome.test.name
        rows = [(name, bound.value, seen.get(name, 0)) for name, bound in outcome.answer.bounds.items()]
        rows += [(name, bound.value, chain.get(name, 0)) for name, bound in outcome.answer.chain.items()]
        for name, bound, value in rows:
            tally.count("bounds", test)
            tally.count("reached", test, value == bound)
            if value > bound:
                tally.faults.append(f"{test}: {name} observed {value} above {bound}: {taskset}")
        for bound_of in (*outcome.answer.bounds.values(), *outcome.answer.chain.values()):
            if sum(value for _, value in bound_of.terms) != bound_of.value:
                tally.faults.append(f"{test}: terms {bound_of.terms} do not add up to {bound_of.value}: {taskset}")
    _check_miss(taskset, analysis, seed, tally)
    return tally


def _check_miss(taskset: TaskSet, analysis: Analysis, seed: int, tally: Tally) -> None:
    """A negative answer of an exact test must be correct for the unmodified set."""
    said = [o.test.name for o in analysis.outcomes if o.test.exact and o.answer and o.answer.schedulable is False]
    if not said or any(task.jitter_ns for task in taskset.tasks):
        return
    offsets = [task.offset_ns for task in taskset.tasks]
    seen = simulate(taskset, offsets, 4000, seed, True).responses
    for test in said:
        tally.count("bounds", f"{test} (a miss)")
        if all(seen.get(task.name, task.deadline_ns + 1) <= task.deadline_ns for task in taskset.tasks):
            tally.faults.append(f"{test}: predicts a miss that does not happen: {taskset}")


def check_set(runs: int, family: str, name: str) -> Tally:
    """Check a drawn system of a family."""
    draw = Random(name)
    return check(FAMILIES[family](draw), runs, draw.randrange(2**31))


def check_plan(runs: int, family: str, name: str) -> Tally:
    """Check the plan of a number, which follows from seed and number in the name."""
    _, seed, number = name.split("/")
    return check_case(int(seed) * 10**6 + int(number), runs)


def search_plans(chosen: argparse.Namespace) -> Tally:
    """Check random plans, print what was checked and the smallest case of each kind of fault."""
    total = spread(partial(check_plan, chosen.phasings), chosen.seed, {"plans": chosen.plans}, chosen.workers, 50)
    for table in ("verdicts", "kinds"):
        for what, count in total.counts.get(table, Counter()).most_common():
            print(f"{count:6} {what}")
    by_label: dict[str, list[tuple[int, str]]] = {}
    for number in sorted(total.counts.get("cases", ()))[: chosen.shrink]:
        label, text = minimal(number, chosen.phasings)
        by_label.setdefault(label, []).append((number, text))
    for label, cases in sorted(by_label.items(), key=lambda item: -len(item[1])):
        number, text = min(cases, key=lambda case: len(case[1]))
        print(f"\n{len(cases)} x {label}; shortest, of --case {number}:\n{text}")
    return total


def search_sets(chosen: argparse.Namespace) -> Tally:
    """Check random task sets and print what was checked."""
    amounts = divided(chosen.systems, chosen.family or list(FAMILIES))
    total = spread(partial(check_set, chosen.phasings), chosen.seed, amounts, chosen.workers)
    print(f"\n{'test':45} {'bounds':>8} {'reached':>8}")
    for test, count in sorted(total.counts["bounds"].items()):
        print(f"{test:45} {count:8} {total.counts['reached'][test]:8}")
    return total


def main() -> int:
    """Run the search and print what was checked; return the exit status."""
    parser = parser_of(__doc__, 10_000, sorted(FAMILIES))
    parser.add_argument("--phasings", type=int, default=8)
    parser.add_argument("--plans", type=int, default=2_000)
    parser.add_argument("--shrink", type=int, default=20, help="plans with faults that are shrunk")
    parser.add_argument("--case", type=int, help="number of a plan")
    chosen = parser.parse_args()
    if chosen.case is not None:
        label, text = minimal(chosen.case, chosen.phasings)
        print(f"{label}\n{text}")
        return 1
    broken = bool(chosen.plans and search_plans(chosen).faults)
    return int(bool(chosen.systems and search_sets(chosen).faults) or broken)


if __name__ == "__main__":
    sys.exit(main())
