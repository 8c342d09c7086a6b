"""Random walks through a book: every switch within its bounds, every frame accounted for.

Usage: python -m tools.verify.books BOOK [--walks 100] [--changes 40] [--seconds 60]

Every other walk has injected faults of all kinds, 6 a minute.  Exit code 1 if a figure exceeds its bound or a frame has
no fate.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from fractions import Fraction

from socsched.faults.random_faults import random_faults
from socsched.modebook.book import load_book
from socsched.modebook.drive import random_drive
from socsched.modebook.simulate import simulate_book

SECOND = 10**9


def main() -> int:
    """Simulate the walks and print sums, and the largest share of each bound that a walk without faults used."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("book")
    arguments.add_argument("--walks", type=int, default=100)
    arguments.add_argument("--changes", type=int, default=40)
    arguments.add_argument("--seconds", type=int, default=60)
    asked = arguments.parse_args()
    book, length = load_book(asked.book), asked.seconds * SECOND
    fates, used = Counter[str](), Counter[str]()
    switches = outside = unaccounted = 0
    for seed in range(asked.walks):
        drive = random_drive(book, asked.changes, length, seed)
        faults = random_faults(book.plan(drive.start), seed, Fraction(6), length) if seed % 2 else None
        done = simulate_book(book, drive, length, seed, faults)
        switches += len(done.switches)
        outside += sum(not one.within for one in done.switches)
        unaccounted += done.unaccounted
        for count in done.frames.values():
            fates.update(count)
        for one in done.switches if faults is None else ():
            if one.drain_bound_ns:
                used["drain"] = max(used["drain"], round(1000 * one.drain_ns / one.drain_bound_ns))
            for chain, first in one.first_ns.items():
                used[chain] = max(used[chain], round(1000 * first / (one.first_bound_ns[chain] or 1)))
    print(f"{switches} switches, {outside} outside their bounds; {fates.total()} frames, {unaccounted} unaccounted for")
    print(", ".join(f"{fate} {count}" for fate, count in fates.most_common()))
    print("largest share of a bound: " + ", ".join(f"{name} {share / 10:.1f} %" for name, share in used.items()))
    return int(bool(outside or unaccounted))


if __name__ == "__main__":
    sys.exit(main())
