"""Give every loader mutated files: nothing may end in a traceback, a crash, more than 10 s or more than 1 GiB.

Usage: python -m tools.verify.fuzz [--formats plan,onnx] [--count 1000] [--minutes 60] [--seed 1] [--workers 2]
    [--keep DIR]

Mutations are numbered, the same for the same seed and format; a finding is printed at once, --keep writes its file.
With --minutes alone as many as fit, with --count too at most that many.  Exit code 1 when there is a finding.
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

BATCH = 250


def main() -> int:
    """Run the batches, print a line for each format, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default="", help="comma-separated; all without")
    parser.add_argument("--count", type=int, help="mutations of each format, 1000 without --minutes")
    parser.add_argument("--minutes", type=float, help="no more than fit")
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
    with tempfile.TemporaryDirectory() as folder:
        for form in chosen:  # what all mutations start from is read once, and what reads them is imported once
            mutation(form, asked.seed, 0)
            form.warm(Path(folder) / f"{form.name}{form.suffix}")

    def one(job: tuple[str, range]) -> None:
        name, numbers = job
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory() as folder:
            found = batch(known[name], asked.seed, numbers, Path(folder), until)
        total[name].counts += found.counts
        for outcome, number in found.findings.items():
            if outcome not in total[name].findings:
                total[name].findings[outcome] = number
                _found(known[name], asked, outcome, number)

    most = asked.count or (10**7 if asked.minutes else 1000)
    rounds = range(0, most, BATCH)
    jobs = [(form.name, range(start, min(start + BATCH, most))) for start in rounds for form in chosen]

    with ThreadPoolExecutor(asked.workers) as pool:
        list(pool.map(one, jobs))
    for name, tally in total.items():
        counts = " ".join(f"{outcome} {count}" for outcome, count in sorted(tally.counts.items()))
        print(f"{name:10} {sum(tally.counts.values()):8}  {counts}")
    return int(any(tally.findings for tally in total.values()))


def _found(form: Format, asked: argparse.Namespace, outcome: str, number: int) -> None:
    print(f"{outcome}: --formats {form.name} --seed {asked.seed}, number {number}", flush=True)
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
        file = asked.keep / f"{form.name}-{asked.seed}-{number}{form.suffix}"
        file.write_bytes(mutation(form, asked.seed, number))


if __name__ == "__main__":
    sys.exit(main())
