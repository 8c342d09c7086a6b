"""Print how far bounds of chains lie above the longest reaction times that simulation finds.

    python -m tools.bench.tightness [--plans 1000] [--runs 60] [--only shipped|drawn] [--board NAME]

Plans: every shipped pipeline on every power mode of every Orin, and pipelines drawn with platforms of their own
(verify.random_plans: jitter, joins, sampling, traffic), under EDF and fixed priorities. A plan is simulated from random
phases of its sources, half of the runs with the stated execution times and half with random ones below them; the phases
that gave the longest reaction of a chain are then varied. The longest reaction found is a lower bound of the true worst
case, so the ratio is at least the looseness of the bound. `before`: the same plans without the windows of paths. Exit
code 1 if a reaction exceeds its bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.descriptor.catalog import get_platform
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.planning.recheck import recheck
from socsched.schedulability.plan_analysis import Corunning, chain_bounds, respond
from socsched.schedulability.tasks import rt_tasks
from tools.verify.plan_runs import shifted, sources
from tools.verify.random_plans import draw_case, make_plan

BOARDS = ("jetson-agx-orin-64gb", "jetson-agx-orin-32gb", "jetson-orin-nx-16gb", "jetson-orin-nano-8gb")
PIPELINES = (
    "perception-stack", "autoware-reference", "camera-detection", "centerpoint-pillar", "pointpillars-s",
    "pointpillars", "waters2019",
)  # fmt: skip
STEPS = 20
"""Quantiles of the random execution times, which are equally likely between nothing and the stated time."""


OPTIONS = PlanOptions(solver="heft", evaluations=None, explain=False, refine=False)


@dataclass(frozen=True, slots=True)
class Row:
    """A chain of a plan: bounds before and now (None: no bound), and the longest simulated reaction (ns)."""

    plan: str
    pipeline: str
    chain: str
    policy: str
    before: int | None
    now: int | None
    seen: int


def longest_reactions(plan: Plan, runs: int, draw: Random, bounds: Mapping[str, int]) -> dict[str, int]:
    """Return the longest simulated reaction (ns) of every chain over `runs` phases and variations of the worst ones.

    Phases in which a chain's bound is above that of `bounds`, because its sources start later, are left out.
    """
    groups = sources(plan)
    free = replace(plan, tasks=tuple(_random_times(task) for task in plan.tasks))
    length = 6 * max(task.period_ns for task in plan.tasks)
    worst: dict[str, tuple[int, list[int], Plan]] = {}

    def run(phases: list[int], base: Plan, moved: Plan) -> None:
        document = simulate_plan(moved, length, seed=draw.randrange(10**6)).figures
        for name, chain in document["chains"].items():
            value = (chain["response_time_ns"] or {}).get("max") or 0
            if (name not in worst or value > worst[name][0]) and (
                value <= bounds[name] or value > (reaction_bounds(moved)[1][name] or 0)
            ):
                worst[name] = value, phases, base

    run([0] * len(groups), plan, plan)
    for number in range(runs):
        base, phases = free if number % 2 else plan, [draw.randrange(period) for period, _ in groups]
        run(phases, base, shifted(base, groups, phases))
    for _ in range(runs // 2):  # vary one group of sources of a worst case, by much or little
        for _, phases, base in list(worst.values()):
            place = draw.randrange(len(groups))
            period = groups[place][0]
            step = round(draw.gauss(0, period / draw.choice((4, 40, 400))))
            moved = [*phases[:place], (phases[place] + step) % period, *phases[place + 1 :]]
            run(moved, base, shifted(base, groups, moved))
    return {name: value for name, (value, _, _) in worst.items()}


def _random_times(task: Task) -> Task:
    values = tuple(max(task.cost_ns * step // STEPS, 1) for step in range(1, STEPS + 1))
    return replace(task, times=ExecutionTimes(values))


def shipped(boards: Sequence[str]) -> Iterator[tuple[str, str, Plan]]:
    """Yield a name, the pipeline's name and the plan of every pipeline on every mode under both policies."""
    for board in boards:
        for mode in get_platform(board).modes:
            for pipeline in PIPELINES:
                for policy in ("edf", "fp"):
                    plan = plan_with(pipeline, board, mode.name, replace(OPTIONS, policy=policy))
                    yield f"{pipeline} {board} {mode.name} {policy}", pipeline, plan


def drawn(count: int) -> Iterator[tuple[str, str, Plan]]:
    """Yield a number, what a plan has of jitter, joins and traffic, and the plan, of random pipelines and platforms."""
    number = made = 0
    while made < count:
        case, number = draw_case(number), number + 1
        if case.edits:
            continue
        plan = make_plan(case)
        if any(v.requirement.startswith(("queue", "local deadline")) for v in recheck(plan).plan.violations):
            continue  # frames may be lost
        made += 1
        traits = {
            "jitter": any(source.jitter_ns for source in plan.sensors) or any(t.release_jitter_ns for t in plan.tasks),
            "joins": any(len(task.after) > 1 for task in plan.tasks),
            "traffic": any(task.bytes for task in plan.tasks),
        }
        yield str(number - 1), f"drawn, {' and '.join(name for name in traits if traits[name]) or 'plain'}", plan


def rows(name: str, pipeline: str, plan: Plan, runs: int) -> Iterator[Row]:
    """Yield a row for every chain of a plan with a bound."""
    if not plan.tasks:
        return
    before, now = reaction_bounds(plan)
    bounds = {name: bound for name, bound in now.items() if bound is not None}
    if len(bounds) < len(plan.chains):
        return
    seen = longest_reactions(plan, runs, Random(name), bounds)
    for chain in plan.chains:
        if seen.get(chain.name):
            yield Row(name, pipeline, chain.name, plan.policy, before[chain.name], bounds[chain.name], seen[chain.name])


def reaction_bounds(plan: Plan) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return the bounds (ns) of chains without windows of paths, and with them."""
    whole = respond(plan.policy, rt_tasks(plan), None, Corunning.of(plan).without_absent)
    answers = (chain_bounds(plan, responses) for responses in (whole.holistic, whole.tight))
    before, now = ({name: reaction for name, (reaction, _) in found.items()} for found in answers)
    return before, now


def line(label: str, found: list[Row]) -> str:
    """Return a line of the table: plans, chains, median and quantiles of bound over the longest reaction."""
    before = sorted((row.before / row.seen for row in found if row.before), reverse=True)
    now = sorted(((row.now or 0) / row.seen for row in found), reverse=True)
    share = sum(ratio <= 1.15 for ratio in now) / len(now)
    cells = [label, len({row.plan for row in found}), len(found), f"{statistics.median(before):.2f}"]
    cells += [f"{statistics.median(now):.2f}", f"{before[len(before) // 20]:.2f}", f"{now[len(now) // 20]:.2f}"]
    return "| " + " | ".join(map(str, (*cells, f"{share:.0%}"))) + " |"


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", choices=("shipped", "drawn"))
    parser.add_argument("--board", choices=BOARDS, action="append")
    given = parser.parse_args()
    found: list[Row] = []
    kinds: dict[str, Callable[[], Iterator[tuple[str, str, Plan]]]] = {
        "shipped": lambda: shipped(given.board or BOARDS),
        "drawn": lambda: drawn(given.plans),
    }
    for kind, plans in kinds.items():
        if given.only in (None, kind):
            for name, pipeline, plan in plans():
                found += rows(name, pipeline, plan, given.runs)
    print("| plans | number | chains | median before | now | 95 % before | now | at most 1.15 |")
    print("|---|---|---|---|---|---|---|---|")
    for pipeline in dict.fromkeys(row.pipeline for row in found):
        for policy in ("edf", "fp"):
            some = [row for row in found if (row.pipeline, row.policy) == (pipeline, policy)]
            if some:
                print(line(f"{pipeline}, {policy}", some))
    print(line("all", found))
    low = [row for row in found if (row.now or 0) < row.seen]
    print(f"\n{len(low)} bounds below a simulated reaction")
    for row in sorted(found, key=lambda row: -(row.now or 0) / row.seen)[:10] + low[:5]:
        print(row)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
