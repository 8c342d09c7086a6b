"""Acceptance ratio against utilisation, for the tests that compete for the same systems.

Usage: python -m tools.bench.acceptance [--sets 500] [--seed 1] [-o docs/figures/acceptance.png]

Needs matplotlib, which nothing else does: pip install matplotlib.

Task sets by UUniFast, periods log-uniform from 10 to 100 ms; every test sees the same sets.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.planning.schedulability.published.choose import problems
from socsched.planning.schedulability.published.registry import tests
from tools.verify.random_systems import uunifast

Draw = Callable[[Random, float], list[PeriodicTask]]
SHORTEST, LONGEST, UNIT = 10_000, 100_000, 1_000
RED, ORANGE, GREEN, BLUE, VIOLET, GREY = "#c0392b", "#d68910", "#1e8449", "#1f618d", "#6c3483", "#626567"


@dataclass(frozen=True)
class Curve:
    """A test under a policy, and the style of its line."""

    label: str
    test: str
    policy: Policy
    colour: str
    style: str = "-"


@dataclass(frozen=True)
class Panel:
    """Tests that compete for systems drawn alike."""

    title: str
    processors: int
    loads: Sequence[float]
    draw: Draw
    curves: Sequence[Curve]


def tasks(count: int, constrained: bool = False, suspending: bool = False) -> Draw:
    """Return a draw of `count` tasks with a given total utilisation, no task over 1."""

    def draw(random: Random, total: float) -> list[PeriodicTask]:
        while True:
            shares = uunifast(count, total, random)
            if max(shares) <= 1:
                break
        made = []
        for index, share in enumerate(shares):
            period = round(math.exp(random.uniform(math.log(SHORTEST), math.log(LONGEST)))) * UNIT
            wcet = max(int(share * period), 1)
            due = random.randint(wcet + (period - wcet) // 2, period) if constrained else period
            wait = random.randint(0, (period - wcet) // 10) if suspending else 0
            made.append(PeriodicTask(index, f"t{index}", period, due, wcet, wcet, 0, 0, None, None, suspension_ns=wait))
        return made

    return draw


def _fixed(rule: str, scheme: str = "partitioned", preemptive: bool = True) -> Policy:
    return Policy(rule, scheme, preemptive)  # type: ignore[arg-type]


ONE = tuple(x / 100 for x in range(20, 101, 4))
PANELS = (
    Panel(
        "One processor, 10 tasks, D = T",
        1,
        ONE,
        tasks(10),
        (
            Curve("RM: Liu & Layland", "Liu-Layland bound", _fixed("rm"), RED),
            Curve("RM: hyperbolic", "hyperbolic bound", _fixed("rm"), ORANGE),
            Curve("RM: response times", "response-time analysis", _fixed("rm"), GREEN),
            Curve("EDF: utilisation (exact)", "EDF utilisation", _fixed("edf"), BLUE),
            Curve("EDF, no preemption: Jeffay", "non-preemptive EDF", _fixed("edf", preemptive=False), BLUE, "--"),
            Curve(
                "RM, no preemption: Davis",
                "non-preemptive fixed priorities",
                _fixed("rm", preemptive=False),
                GREEN,
                "--",
            ),
        ),
    ),
    Panel(
        "One processor, 10 tasks, D in the upper half of [C, T]",
        1,
        ONE,
        tasks(10, constrained=True),
        (
            Curve("DM: response times", "response-time analysis", _fixed("dm"), GREEN),
            Curve("EDF: demand bound", "EDF demand bound (QPA)", _fixed("edf"), BLUE),
            Curve("EDF: response times", "EDF response times", _fixed("edf"), VIOLET, ":"),
            Curve(
                "EDF, no preemption: demand",
                "EDF demand bound with blocking",
                _fixed("edf", preemptive=False),
                BLUE,
                "--",
            ),
            Curve(
                "DM, no preemption: Davis",
                "non-preemptive fixed priorities",
                _fixed("dm", preemptive=False),
                GREEN,
                "--",
            ),
        ),
    ),
    Panel(
        "Four processors, global, 20 tasks, D = T",
        4,
        tuple(x / 10 for x in range(8, 41, 2)),
        tasks(20),
        (
            Curve("EDF: density (GFB)", "global EDF density (GFB)", _fixed("edf", "global"), RED),
            Curve("EDF: interference (BCL)", "global interference (BCL)", _fixed("edf", "global"), ORANGE),
            Curve("EDF: response times", "global response times", _fixed("edf", "global"), BLUE),
            Curve("DM: interference (BCL)", "global interference (BCL)", _fixed("dm", "global"), ORANGE, "--"),
            Curve("DM: response times", "global response times", _fixed("dm", "global"), GREEN),
            Curve("DM: limited carry-in", "global response times, limited carry-in", _fixed("dm", "global"), VIOLET),
            Curve(
                "DM, no preemption",
                "global non-preemptive fixed priorities",
                _fixed("dm", "global", preemptive=False),
                GREY,
                "--",
            ),
        ),
    ),
    Panel(
        "One processor, 10 tasks that suspend up to a tenth of their slack",
        1,
        tuple(x / 100 for x in range(10, 101, 5)),
        tasks(10, suspending=True),
        (
            Curve("RM: suspension as computation", "suspension as computation", _fixed("rm"), RED),
            Curve("RM: suspension as jitter R - C", "suspension as jitter R - C", _fixed("rm"), GREEN),
        ),
    ),
)


def ratios(panel: Panel, sets: int, seed: int) -> dict[str, list[float]]:
    """Return the accepted share of `sets` task sets at every load, by curve."""
    known = {test.name: test for test in tests()}
    found: dict[str, list[float]] = {curve.label: [] for curve in panel.curves}
    for load in panel.loads:
        accepted = dict.fromkeys(found, 0)
        for number in range(sets):
            drawn = panel.draw(Random(f"{seed}/{panel.title}/{load}/{number}"), load)
            for curve in panel.curves:
                accepted[curve.label] += _accepts(drawn, curve, panel.processors, known)
        for label, count in accepted.items():
            found[label].append(count / sets)
    return found


def _accepts(drawn: list[PeriodicTask], curve: Curve, processors: int, known: Mapping[str, object]) -> bool:
    placed = [replace(task, cpu=0 if curve.policy.scheme == "partitioned" else None) for task in drawn]
    made = TaskSet("drawn", 1, curve.policy, processors, None, tuple(placed), ())
    ((_, problem),) = problems(made)
    test = known[curve.test]
    reason = test.unmet(problem)  # type: ignore[attr-defined]
    if reason:
        raise SystemExit(f"{curve.test} does not apply to {curve.label}: {reason}")
    return test.run(problem).schedulable is True  # type: ignore[attr-defined]


def plot(found: Sequence[dict[str, list[float]]], sets: int, path: Path) -> None:
    """Draw one panel for each group of competing tests."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 8.4), constrained_layout=True)
    for axis, panel, rows in zip(axes.flat, PANELS, found, strict=True):
        for curve in panel.curves:
            axis.plot(panel.loads, rows[curve.label], curve.style, color=curve.colour, label=curve.label, linewidth=1.7)
        axis.set_title(panel.title, fontsize=11)
        axis.set_xlabel("utilisation" if panel.processors == 1 else f"utilisation, of {panel.processors}")
        axis.set_ylabel(f"accepted, of {sets} task sets")
        axis.set_ylim(-0.02, 1.02)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8.5, loc="lower left" if panel.processors == 1 else "upper right", framealpha=0.9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> int:
    """Draw task sets, print and plot the acceptance ratios; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/figures/acceptance.png"))
    chosen = parser.parse_args()
    found = []
    for panel in PANELS:
        rows = ratios(panel, chosen.sets, chosen.seed)
        found.append(rows)
        print(panel.title)
        shown = panel.loads[:: max(len(panel.loads) // 8, 1)]
        print(f"  {'utilisation':32}" + "".join(f"{load:7.2f}" for load in shown))
        for label, values in rows.items():
            print(f"  {label:32}" + "".join(f"{values[panel.loads.index(load)]:7.2f}" for load in shown))
    plot(found, chosen.sets, chosen.output)
    print(f"drawn in {chosen.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
