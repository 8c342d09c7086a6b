"""Task sets analysed a second: the batch call, a loop of single calls, and plain functions as textbooks print them.

Usage: python -m tools.bench.many_sets [--sets 3000] [--tasks 5] [--load 0.8] [--seed 1]

Processor time of one core, best of three.  The plain functions decide one question each: response times under rate
monotonic priorities (Joseph & Pandya, The Computer Journal 29(5) 1986), and the processor demand under EDF with
constrained deadlines (Baruah, Mok, Rosier, RTSS 1990; QPA: Zhang & Burns, IEEE TC 58(9) 2009), on tuples of integers,
in the style of SchedCAT's and of lecture notes.  The calls decide by all tests that apply, give the tightest bound of
every task, and agree with the plain functions on every set, or this ends with exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np

import socsched as ss
from socsched_literature.studies.acceptance import uunifast

Row = tuple[int, int, int]
"""Period, execution time, deadline."""
PERIODS = (5_000, 10_000, 20_000, 25_000, 40_000, 50_000, 100_000)


def rate_monotonic(rows: Sequence[Row]) -> bool:
    """Return whether every response time is at most the deadline (deadlines within periods)."""
    above: list[Row] = []
    for period, wcet, deadline in sorted(rows, key=lambda row: row[0]):
        response, before = wcet, 0
        while response != before and response <= deadline:
            before = response
            response = wcet + sum(-(-before // other) * cost for other, cost, _ in above)
        if response > deadline:
            return False
        above.append((period, wcet, deadline))
    return True


def earliest_deadline(rows: Sequence[Row]) -> bool:
    """Return whether the demand of every interval up to the busy period fits it (utilisation below 1)."""
    if sum(wcet / period for period, wcet, _ in rows) >= 1:
        return False
    busy, before = sum(wcet for _, wcet, _ in rows), 0
    while busy != before:
        before, busy = busy, sum(-(-busy // period) * wcet for period, wcet, _ in rows)

    def last(before: int) -> int:
        return max((d + (before - 1 - d) // period * period for period, _, d in rows if d < before), default=0)

    interval, first = last(busy + 1), min(deadline for _, _, deadline in rows)
    while interval >= first:
        demand = sum(((interval - d) // period + 1) * wcet for period, wcet, d in rows if interval >= d)
        if demand > interval:
            return False
        interval = last(interval) if demand == interval else last(demand + 1)
    return True


def draw(sets: int, tasks: int, load: float, seed: int) -> list[list[Row]]:
    """Return task sets in us: UUniFast utilisations, deadlines in the upper half of [C, T]."""
    random, drawn = Random(seed), []
    for _ in range(sets):
        rows = []
        for share in uunifast(tasks, load, random):
            period = random.choice(PERIODS)
            wcet = max(1, int(share * period))
            rows.append((period, wcet, random.randint(wcet + (period - wcet) // 2, period)))
        drawn.append(rows)
    return drawn


def decide_all(decide: Callable[[Any], Any], sets: Sequence[Any]) -> list[Any]:
    """Return the answer to every set, one call each."""
    return [decide(one) for one in sets]


def seconds(work: Callable[[], Any], sets: int, times: int = 3) -> tuple[float, Any]:
    """Return the sets a second of processor time, best of some runs, and what the work gave."""
    best, given = 0.0, None
    for _ in range(times):
        start = time.process_time()
        given = work()
        best = max(best, sets / max(time.process_time() - start, 1e-9))
    return best, given


def main() -> int:
    """Print sets a second for each way and policy; return the exit status, 1 if any two disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=3000)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    drawn = draw(chosen.sets, chosen.tasks, chosen.load, chosen.seed)
    columns = {
        name: np.array([[row[at] for row in rows] for rows in drawn])
        for at, name in enumerate(("period", "wcet", "deadline"))
    }
    wrong = 0
    print(f"{chosen.sets} sets of {chosen.tasks} tasks, utilisation {chosen.load}; sets a second of processor time")
    heads = ("textbook", "single", "batch, sets", "batch, arrays", "over single", "accepted")
    print(" " * 6 + "".join(f"{head:>15}" for head in heads))
    for policy, plain in (("RM", rate_monotonic), ("EDF", earliest_deadline)):
        loaded = [
            ss.load_taskset(
                {"time_unit": "us", "policy": policy, "tasks": [dict(zip(columns, row, strict=True)) for row in rows]}
            )
            for rows in drawn
        ]
        ss.analyze_many(loaded[:1])  # compiled on first use
        ways: list[Callable[[], Any]] = [
            partial(decide_all, plain, drawn),
            partial(decide_all, ss.analyze, loaded),
            partial(ss.analyze_many, loaded),
            partial(ss.analyze_many, columns, policy=policy, time_unit="us"),
        ]
        (textbook, expected), (single, analyses), (listed, first), (arrays, table) = (
            seconds(way, chosen.sets) for way in ways
        )
        alone = [analysis.verdict for analysis in analyses]
        same = table["verdict"].tolist() == alone == first["verdict"].tolist()
        wrong += not same or [verdict == "feasible" for verdict in alone] != expected
        figures = f"{textbook:15,.0f}{single:15,.0f}{listed:15,.0f}{arrays:15,.0f}{arrays / single:14,.0f}x"
        print(f"{policy:6}{figures}{sum(expected) / chosen.sets:15.2f}")
    if wrong:
        print(f"{wrong} policies with different answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
