"""What checks of random cases share: a tally that adds up, and cases of several families in worker processes."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any


@dataclass
class Tally:
    """Counts by table and what is counted, and the faults found."""

    counts: dict[str, Counter[Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def count(self, table: str, what: Any, number: int = 1) -> None:
        """Add to a count."""
        self.counts.setdefault(table, Counter())[what] += number

    def add(self, other: Tally) -> None:
        """Add another tally to this one."""
        for table, counts in other.counts.items():
            self.counts.setdefault(table, Counter()).update(counts)
        self.faults += other.faults

    def total(self, table: str) -> int:
        """Return the sum of a table's counts."""
        return sum(self.counts.get(table, Counter()).values())


def parser_of(usage: str | None, amount: int, families: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of the options that such checks share."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=amount)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--family", choices=list(families), action="append")
    return parser


def divided(amount: int, families: Sequence[str]) -> dict[str, int]:
    """Return how many cases of each family to check, as equal as can be."""
    each, more = divmod(amount, len(families))
    return {family: each + (index < more) for index, family in enumerate(families)}


def _checked(check: Callable[[str, str], Tally], seed: int, family: str, numbers: range) -> Tally:
    tally = Tally()
    for number in numbers:
        tally.add(check(family, f"{family}/{seed}/{number}"))
    return tally


def spread(
    check: Callable[[str, str], Tally], seed: int, amounts: Mapping[str, int], workers: int, step: int = 100
) -> Tally:
    """Return the tally of `check(family, name)` of all cases, `step` of them at a time; print a line for each family.

    A name is that of the family, the seed and a number: all that is drawn follows from it.
    """
    jobs = [(name, range(at, min(at + step, most))) for name, most in amounts.items() for at in range(0, most, step)]
    total, families, began = Tally(), {name: Tally() for name in amounts}, time.perf_counter()
    work = partial(_checked, check, seed)
    with ProcessPoolExecutor(workers) as pool:
        for (name, numbers), tally in zip(jobs, pool.map(work, *zip(*jobs, strict=True)), strict=True):
            families[name].add(tally)
            total.add(tally)
            if numbers.stop == amounts[name]:
                sums = ", ".join(f"{sum(row.values())} {table}" for table, row in families[name].counts.items())
                print(f"{name:48} {numbers.stop:6} cases: {sums}; {len(families[name].faults)} faults", flush=True)
    print(f"{sum(amounts.values())} cases, {len(total.faults)} faults ({time.perf_counter() - began:.0f} s)")
    for line in total.faults[:10]:
        print(line)
    return total
