"""Compare every bound of small random systems with the true worst case that exhaustive exploration finds.

Usage: python -m tools.verify.exhaustive [--systems 20000] [--seed 1] [--states 400] [--workers 2] [--family NAME]

Systems have at most 5 tasks and periods that divide 60 ticks (1 tick = 1 ns).  Published tests are checked on task sets
of one and of several processors; the plan's own analyses, chains included, on plans with gangs, joins, sampling,
conversions, switch costs and shared bandwidth.  Prints, per analysis, the number of bounds and a histogram of bound
over truth, for systems whose reachable states from the tried phases were all visited; exit code 1 if a bound is below
an observed response.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random

from tools.verify.explorer import System, explore
from tools.verify.small_plans import plan_bounds, plan_system
from tools.verify.small_sets import FAMILIES as SETS
from tools.verify.small_sets import set_bounds, set_system

EDGES = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Upper edges of the histogram's classes; the last class is open."""
PLANS = {
    f"plan, {policy}, {kind}": (policy, kind) for policy in ("fp", "edf") for kind in ("pipeline", "gangs", "chain")
}
Rows = list[tuple[str, int, int]]
"""Analysis, bound, truth."""


@dataclass
class Tally:
    """Systems explored, those completely, states visited, classes of bound over truth by analysis, violations."""

    systems: int = 0
    complete: int = 0
    states: int = 0
    classes: dict[str, Counter[int]] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.systems += other.systems
        self.complete += other.complete
        self.states += other.states
        self.below += other.below
        for name, classes in other.classes.items():
            self.classes.setdefault(name, Counter()).update(classes)


def check(family: str, seed: str, states: int) -> Tally:
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
    return compare(family, seed, system, phases, bounds, states)


def compare(
    family: str,
    seed: str,
    system: System,
    phases: list[list[int]],
    bounds: list[tuple[str, int | str, int]],
    states: int,
) -> Tally:
    """Return the tally of bounds (analysis, task number or ``reaction`` or ``age``, ticks) against the true values."""
    truth = explore(system, phases, states)
    tally = Tally(1, int(truth.complete), truth.states)
    measures = {"reaction": truth.reaction, "age": truth.age}
    for analysis, of, bound in bounds:
        worst = measures[of] if isinstance(of, str) else truth.responses[of]
        if worst > bound:
            tally.below.append(f"{family} {seed}: {analysis}: {of} reaches {worst}, bound {bound}: {system} {phases}")
        elif worst and truth.complete:
            ratio = bound / worst
            place = next((index for index, edge in enumerate(EDGES) if ratio <= edge), len(EDGES))
            tally.classes.setdefault(analysis, Counter())[place] += 1
    return tally


def search(job: tuple[str, int, int, int, int]) -> Tally:
    """Check systems `first` to `last` of a family."""
    family, first, last, seed, states = job
    tally = Tally()
    for number in range(first, last):
        tally.add(check(family, f"{family}/{seed}/{number}", states))
    return tally


def table(tally: Tally) -> str:
    """Return the histogram as text, a line per analysis."""
    heads = ["= 1", *(f"<= {edge:g}" for edge in EDGES[1:]), f"> {EDGES[-1]:g}"]
    lines = [f"{'bound / truth':48}" + "".join(f"{head:>9}" for head in heads) + f"{'bounds':>9}"]
    for name in sorted(tally.classes):
        row = tally.classes[name]
        lines.append(f"{name:48}" + "".join(f"{row[i]:9}" for i in range(len(heads))) + f"{sum(row.values()):9}")
    return "\n".join(lines)


def main() -> int:
    """Run the check and print its results; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--states", type=int, default=400, help="states visited per system at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--family", choices=[*SETS, *PLANS], action="append")
    chosen = parser.parse_args()
    families = chosen.family or [*SETS, *PLANS]
    each, more = divmod(chosen.systems, len(families))
    jobs = []
    for index, family in enumerate(families):
        count = each + (index < more)
        jobs += [(family, at, min(at + 100, count), chosen.seed, chosen.states) for at in range(0, count, 100)]
    total, began = Tally(), time.perf_counter()
    with ProcessPoolExecutor(chosen.workers) as pool:
        by_family: dict[str, Tally] = {family: Tally() for family in families}
        for job, tally in zip(jobs, pool.map(search, jobs), strict=True):
            by_family[job[0]].add(tally)
            total.add(tally)
            if job[2] == each + (families.index(job[0]) < more):
                done = by_family[job[0]]
                print(
                    f"{job[0]:48} {done.systems:6} systems, {done.complete:6} complete, {done.states:9} states, "
                    f"{len(done.below)} bounds below truth",
                    flush=True,
                )
    print(f"\n{table(total)}\n")
    print(f"{total.systems} systems, {total.complete} explored completely, {total.states} states, ", end="")
    print(f"{len(total.below)} bounds below truth ({time.perf_counter() - began:.0f} s)")
    for line in total.below[:10]:
        print(line)
    return 1 if total.below else 0


if __name__ == "__main__":
    sys.exit(main())
