"""Compare every bound of small random systems with the true worst case that exhaustive exploration finds.

Usage: python -m tools.verify.exhaustive [--systems 20000] [--seed 1] [--states 400] [--workers 2] [--family NAME]

Systems have at most 5 tasks and periods that divide 60 ticks (1 tick = 1 ns).  Published tests are checked on task sets
of one and of several processors; the plan's own analyses, chains included, on plans with gangs, joins, sampling,
conversions, switch costs and shared bandwidth.  Prints, per analysis, the number of bounds and a histogram of bound
over truth, for systems whose reachable states from the tried phases were all visited; exit code 1 if a bound is below
an observed response.
"""

from __future__ import annotations

import sys
from functools import partial
from random import Random

from tools.verify.cases import Tally, divided, parser_of, spread
from tools.verify.explorer import System, explore
from tools.verify.small_plans import plan_bounds, plan_system
from tools.verify.small_sets import FAMILIES as SETS
from tools.verify.small_sets import set_bounds, set_system

EDGES = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Upper edges of the histogram's classes; the last class is open."""
PLANS = {
    f"plan, {policy}, {kind}": (policy, kind) for policy in ("fp", "edf") for kind in ("pipeline", "gangs", "chain")
}


def check(states: int, family: str, seed: str) -> Tally:
    """Return the result of exploring one system of a family and comparing every bound with it."""
    draw = Random(seed)
    if family in SETS:
        taskset = SETS[family](draw)
        system, phases = set_system(taskset, draw)
        bounds = set_bounds(taskset)
    else:
        plan = plan_system(*PLANS[family], draw)
        system, phases = plan.system, plan.phases
        bounds = plan_bounds(plan)
    return compare(f"{family} {seed}", system, phases, bounds, states)


def compare(
    name: str, system: System, phases: list[list[int]], bounds: list[tuple[str, int | str, int]], states: int
) -> Tally:
    """Return the tally of bounds (analysis, task number or ``reaction`` or ``age``, ticks) against the true values."""
    truth = explore(system, phases, states)
    tally = Tally()
    tally.count("states", "", truth.states)
    tally.count("explored completely", "", int(truth.complete))
    measures = {"reaction": truth.reaction, "age": truth.age}
    for analysis, of, bound in bounds:
        worst = measures[of] if isinstance(of, str) else truth.responses[of]
        if worst > bound:
            tally.faults.append(f"{name}: {analysis}: {of} reaches {worst}, bound {bound}: {system} {phases}")
        elif worst and truth.complete:
            ratio = bound / worst
            place = next((index for index, edge in enumerate(EDGES) if ratio <= edge), len(EDGES))
            tally.count("bounds", (analysis, place))
    return tally


def table(tally: Tally) -> str:
    """Return the histogram as text, a line per analysis."""
    classes = tally.counts["bounds"]
    heads = ["= 1", *(f"<= {edge:g}" for edge in EDGES[1:]), f"> {EDGES[-1]:g}"]
    lines = [f"{'bound / truth':48}" + "".join(f"{head:>9}" for head in heads) + f"{'bounds':>9}"]
    for name in sorted({name for name, _ in classes}):
        row = [classes[name, place] for place in range(len(heads))]
        lines.append(f"{name:48}" + "".join(f"{count:9}" for count in (*row, sum(row))))
    return "\n".join(lines)


def main() -> int:
    """Run the check and print its results; return the exit status."""
    parser = parser_of(__doc__, 20_000, [*SETS, *PLANS])
    parser.add_argument("--states", type=int, default=400, help="states visited per system at most")
    chosen = parser.parse_args()
    amounts = divided(chosen.systems, chosen.family or [*SETS, *PLANS])
    total = spread(partial(check, chosen.states), chosen.seed, amounts, chosen.workers)
    print(f"\n{table(total)}")
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
