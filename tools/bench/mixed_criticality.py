"""Acceptance of mixed-criticality tests against utilisation, drawn as in the papers.

Usage: python -m tools.bench.mixed_criticality [--sets 100] [--tasks 20] [--factor 2] [--share 0.5] [--seed 1]

As in Baruah, Burns, Davis, RTSS 2011, section V: `tasks` tasks, UUniFast utilisations at low criticality, periods
log-uniform over a factor of 100, D = T, C(HI) = `factor` C(LO), a task is of high criticality with probability `share`.
Fixed priorities are assigned by Audsley's algorithm.  UB-H&L is the paper's upper bound for AMC: schedulable at each
level by itself; SMC is the static scheme with run-time monitoring, CrMPO criticality-monotonic priorities.  EDF-VD
(Baruah et al., ECRTS 2012) is compared with EDF that reserves every task's own bound.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.planning.schedulability.priority_assignment import assign
from socsched.planning.schedulability.published import amc_max, amc_rtb, edf_vd
from socsched.planning.schedulability.published.model import Problem
from socsched.planning.schedulability.rta_fp import ceil_div
from tools.verify.random_systems import uunifast

LOADS = tuple(x / 100 for x in range(30, 100, 5))
Tasks = Sequence[PeriodicTask]


def draw(count: int, load: float, factor: float, share: float, random: Random) -> list[PeriodicTask]:
    """Return a drawn task set; times in us."""
    tasks = []
    for index, part in enumerate(uunifast(count, load, random)):
        period = round(math.exp(random.uniform(math.log(10_000), math.log(1_000_000))))
        low = max(round(part * period), 1)
        levels = (low, max(round(low * factor), low)) if random.random() < share else (low,)
        tasks.append(
            PeriodicTask(
                index, f"t{index}", period, period, levels[-1], low, 0, 0, 0, None,
                wcets_ns=levels if len(levels) > 1 else (),
            )
        )  # fmt: skip
    return tasks


def _by_deadline(tasks: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    order = sorted(tasks, key=lambda task: task.deadline_ns)
    return all(_plain(task, order[:index], wcet) for index, task in enumerate(order))


def _plain(task: PeriodicTask, above: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    own = wcet(task)
    found = amc_rtb.fixed_point(
        own, lambda length: own + sum(ceil_div(length, o.period_ns) * wcet(o) for o in above), task.deadline_ns
    )
    return found is not None


def upper_bound(tasks: Tasks) -> bool:
    """Return whether each level is schedulable by itself: necessary for every scheme of fixed priorities."""
    high = [task for task in tasks if task.level]
    return _by_deadline(tasks, lambda task: task.wcet_at(0)) and _by_deadline(high, lambda task: task.wcet_ns)


def static(tasks: Tasks) -> bool:
    """Return whether SMC accepts: each task at its own level, no job exceeds the bound of its task's level."""

    def fits(task: PeriodicTask, above: Tasks) -> bool:
        return _plain(task, above, lambda other: other.wcet_at(task.level))

    return assign(tasks, fits) is not None


def monotonic(tasks: Tasks) -> bool:
    """Return whether priorities by criticality, then by deadline, are accepted."""
    order = sorted(tasks, key=lambda task: (-task.level, task.deadline_ns))
    return all(
        _plain(task, order[:index], lambda other, level=task.level: other.wcet_at(level))  # type: ignore[misc]
        for index, task in enumerate(order)
    )


def adaptive(after: amc_rtb.After) -> Callable[[Tasks], bool]:
    """Return the acceptance by an AMC test with the best priorities."""
    return lambda tasks: assign(tasks, lambda task, above: amc_rtb.response(task, above, after) is not None) is not None


def virtual(tasks: Tasks) -> bool:
    """Return whether EDF-VD accepts."""
    return edf_vd.scaling(_problem(tasks)) is not None


def reserved(tasks: Tasks) -> bool:
    """Return whether plain EDF accepts with every task's own bound."""
    return sum(task.utilisation for task in tasks) <= 1


def _problem(tasks: Tasks) -> Problem:
    made = TaskSet("drawn", 1, Policy("edf", "partitioned", True), 1, None, tuple(tasks), ())
    return Problem(made, made.tasks, made.ranks, 1)


SCHEMES: dict[str, Callable[[Tasks], bool]] = {
    "UB-H&L": upper_bound,
    "AMC-max": adaptive(amc_max.after_overrun),
    "AMC-rtb": adaptive(amc_rtb.after_overrun),
    "SMC": static,
    "CrMPO": monotonic,
    "EDF-VD": virtual,
    "EDF, reserved": reserved,
}


def main() -> int:
    """Print the accepted share of task sets at every load; return the exit status, 1 if a dominance is violated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    wrong = 0
    print(f"{'utilisation (LO)':18}" + "".join(f"{name:>15}" for name in SCHEMES))
    for load in LOADS:
        accepted = dict.fromkeys(SCHEMES, 0)
        for number in range(chosen.sets):
            tasks = draw(chosen.tasks, load, chosen.factor, chosen.share, Random(f"{chosen.seed}/{load}/{number}"))
            said = {name: scheme(tasks) for name, scheme in SCHEMES.items()}
            for name, yes in said.items():
                accepted[name] += yes
            order = ("CrMPO", "SMC", "AMC-rtb", "AMC-max", "UB-H&L")
            wrong += any(said[one] and not said[other] for one, other in pairwise(order))
            wrong += said["EDF, reserved"] and not said["EDF-VD"]
        print(f"{load:<18.2f}" + "".join(f"{accepted[name] / chosen.sets:15.2f}" for name in SCHEMES), flush=True)
    print(f"{wrong} of {chosen.sets * len(LOADS)} sets violate a dominance that the papers prove")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
