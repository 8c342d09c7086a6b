"""Fit the cost models of the shipped platforms to published measurements, and put them into platforms/.

Usage: python -m tools.generate.fits PAIRS.csv.gz NETWORKS [--check] [--date YYYY-MM-DD] [--errors FILE.json]

The measurements and the networks are not part of the repository (docs/fitting.md).  With --check nothing is written,
and the exit code is 1 where a section of a platform differs from the one that would be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from socsched.cost.fitting.cells import Choice, Networks, pattern, read_pairs
from socsched.cost.fitting.recipe import FamilyFit, FitRequest, Report, fit_platform, rewritten
from socsched.descriptor.catalog import get_platform
from tools import ROOT

DATE = "2026-11-24"
SOURCE = "boards"
BOARDS = (
    "jetson-agx-orin-64gb", "jetson-agx-orin-32gb", "jetson-agx-xavier", "jetson-orin-nano-8gb", "jetson-orin-nx-16gb",
    "jetson-tx2", "rk3588", "hikey960", "qcs8550", "sa8295p", "qcs6490", "qrb5165",
)  # fmt: skip
EXCLUDED = {
    "bert_large*": "MLPerf's programs compute sequences at their own length",
    "source=Tencent/ncnn,engine=gpu,precision=int8": "ncnn has no int8 on GPUs: these ran on the CPU",
    "source=Tencent/ncnn,engine=c*|a*,network=googlenet": "another network of that name",
    "engine=carmel0,mode=MODE_*W*": "slower than the clocks of these modes explain",
}
"""Rows that are left out, and why."""


def fits(pairs: Path, networks: Path) -> list[Report]:
    """Return the fits of all boards."""
    rows, folder = read_pairs(pairs), Networks(networks)
    choice = Choice(tuple(pattern(text) for text in EXCLUDED))
    known: dict[str, FamilyFit] = {}
    return [fit_platform(FitRequest(get_platform(board), choice=choice), rows, folder, known) for board in BOARDS]


def written(report: Report, date: str) -> tuple[Path, str, str]:
    """Return the file of a platform, its text and the text with the sections of a fit."""
    path = ROOT / "platforms" / f"{report.platform.name}.yaml"
    raw = path.read_bytes()
    return path, raw.decode(), rewritten(raw, str(path), report.sections, SOURCE, date)


def errors(reports: Sequence[Report]) -> list[dict[str, object]]:
    """Return the errors of every cell, each once, with those of its family."""
    found: dict[str, dict[str, object]] = {}
    for report in reports:
        for family in report.families:
            for row in family.rows:
                found[row.name] = {
                    "cell": row.name,
                    "family": family.family.name,
                    "networks": len(row.networks),
                    "fit": round(row.fitted, 4),
                    "network": round(row.network, 4),
                    "design": round(row.design, 4),
                    "board": round(row.board, 4),
                    "inside": round(row.inside, 4),
                    "interval": round(row.interval, 4),
                }
    return list(found.values())


def main() -> int:
    """Write or check the sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("networks", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a section differs")
    parser.add_argument("--date", default=DATE, help="day to state")
    parser.add_argument("--errors", type=Path, help="write the cross-validated errors of every cell")
    given = parser.parse_args()
    reports = fits(given.pairs, given.networks)
    rows = errors(reports)
    for row in rows:
        names = ("fit", "network", "design", "board")
        shown = "  ".join(f"{name} {100 * float(str(row[name])):5.1f}" for name in names)
        print(f"{row['cell']:75} {row['networks']:>3}  {shown}  inside {float(str(row['inside'])):4.0%}")
    count = np.array([int(str(row["networks"])) for row in rows])
    share, width = (np.array([float(str(row[name])) for row in rows]) for name in ("inside", "interval"))
    median = np.median(np.repeat(width, count))
    print(f"networks left out: {np.average(share, weights=count):.1%} of {count.sum()} inside, median ± {median:.0%}")
    if given.errors:
        given.errors.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    wrong = []
    for report in reports:
        path, before, after = written(report, given.date)
        if before != after:
            wrong.append(path.name)
            if not given.check:
                path.write_text(after, encoding="utf-8")
    print(f"{'differ' if given.check else 'written'}: {', '.join(wrong) or 'none'}")
    return int(given.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
