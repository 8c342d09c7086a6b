"""Give every loader mutated files: nothing may end in a traceback, a crash, more than 10 s or more than 1 GiB.

Usage: python -m tools.verify.fuzz [--formats plan,onnx] [--count 1000 | --minutes 60] [--seed 1] [--workers 2]
    [--keep DIR]

Mutations are numbered, the same for the same seed and format; --keep writes the file of every finding.  Exit code 1
when there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.verify.fuzz.formats import Format, formats
from tools.verify.fuzz.run import Tally, batch, mutation

BATCH = 500


def main() -> int:
    """Run the batches, print a line for each format, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="", help="comma-separated; all without")
    parser.add_argument("--count", type=int, default=1000, help="mutations of each format")
    parser.add_argument("--minutes", type=float, help="as many as fit, instead of --count")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wanted = asked.formats.split(",") if asked.formats else None
        return report(asked, [form for form in formats(Path(folder)) if not wanted or form.name in wanted])


def report(asked: argparse.Namespace, chosen: list[Format]) -> int:
    """Run all batches of the chosen formats and print what came of them."""
    until = time.monotonic() + 60 * asked.minutes if asked.minutes else float("inf")
    total = {form.name: Tally() for form in chosen}
    known = {form.name: form for form in chosen}
    for form in chosen:
        mutation(form, asked.seed, 0)  # what all mutations start from is read once

    def one(job: tuple[str, range]) -> None:
        name, numbers = job
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory() as folder:
            found = batch(known[name], asked.seed, numbers, Path(folder), until)
        total[name].counts += found.counts
        for outcome, number in found.findings.items():
            total[name].findings.setdefault(outcome, number)

    def jobs() -> list[tuple[str, range]]:
        rounds = range(0, 10**7 if asked.minutes else asked.count, BATCH)
        most = 10**8 if asked.minutes else asked.count
        return [(form.name, range(start, min(start + BATCH, most))) for start in rounds for form in chosen]

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(one, jobs()))
    for name, tally in total.items():
        counts = " ".join(f"{outcome} {count}" for outcome, count in sorted(tally.counts.items()))
        print(f"{name:10} {sum(tally.counts.values()):8}  {counts}")
        for outcome, number in sorted(tally.findings.items()):
            print(f"  {outcome}: --formats {name} --seed {asked.seed}, number {number}")
            if asked.keep:
                asked.keep.mkdir(parents=True, exist_ok=True)
                file = asked.keep / f"{name}-{asked.seed}-{number}{known[name].suffix}"
                file.write_bytes(mutation(known[name], asked.seed, number))
    return int(any(tally.findings for tally in total.values()))


if __name__ == "__main__":
    sys.exit(main())
