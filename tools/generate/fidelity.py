"""Write docs/fidelity.md from the summary.json of `socsched validate`, and README's table of what was left out of fits.

Usage: python -m tools.generate.fidelity [SUMMARY.json] [--data TEXT] [--date YYYY-MM-DD]

The measurements and networks of the page are in tests/data/boards (`COMMANDS`); without --data the page keeps its
words for them.  Without a summary only README's table is written: from the table that `tools.generate.fits` puts into
docs/fitting.md, and of CPUs from what the shipped descriptors state.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from socsched.cost.fitting.families import get_family
from socsched.descriptor.catalog import get_platform
from tools import ROOT
from tools.generate import fits

COMMANDS = (
    "socsched validate tests/data/boards/pairs.csv.gz --networks tests/data/boards/networks -o validated",
    "python -m tools.generate.fidelity validated/summary.json",
)
"""What makes the page and README's table, in the checkout."""
PAGE = ROOT / "docs" / "fidelity.md"
HEAD = (
    "platform", "engine", "precision", "cells", "refused", "apart", "median ratio", "MAPE", "P90", "Spearman", "inside",
)  # fmt: skip
README, MARK = ROOT / "README.md", "<!-- fidelity -->"
README_HEAD = ("engines", "boards", "cells", "network left out", "board left out", "inside the stated interval")
FIGURES = ("median_ratio", "mape", "p90", "spearman", "inside")


def cell(text: object) -> str:
    """Return text as a cell of a Markdown table."""
    return " ".join(str(text).replace("|", "\\|").replace("<", "&lt;").split())


def rows(head: tuple[str, ...], found: list[tuple[object, ...]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(cell, row)) + " |" for row in found)]) + "\n"


def page(summary: Mapping[str, Any], data: str, date: str) -> str:
    """Return the page of a summary of measurements described by `data`, made on `date`."""
    overall, apart = summary["overall"], sum(item["cells"] for item in summary["apart"])
    found: list[tuple[object, ...]] = [
        (group["platform"], group["engine"], group["precision"], *_scores(group)) for group in summary["groups"]
    ]
    found.append(("**all**", "", "", *_scores({**overall, "apart": apart})))
    if apart:
        found.append(("**with cells apart**", "", "", *_scores(summary["everything"])))
    lines = [
        "# How far off predictions are",
        "",
        "Generated from the summary of `socsched validate`; change the code, not this page. What the columns mean:",
        "[validation.md](validation.md#scores).",
        "",
        "```sh no-run",
        *COMMANDS,
        "```",
        "",
        f"- Measurements: {cell(data or summary['measurements'])}",
        f"- File: `{cell(summary['measurements'])}`, sha256 `{cell(summary['sha256'])}`",
        f"- socsched {cell(summary['socsched'])}, {date}",
        f"- {summary['rows']:,} rows, {summary['flagged']:,} of them flagged and not scored, "
        f"{summary['refused_rows']:,} refused; {overall['cells']:,} cells scored, "
        f"{overall['refused']:,} refused, {apart:,} apart",
        "",
        rows(HEAD, found),
    ]
    if apart:
        kinds: Counter[str] = Counter()
        for item in summary["apart"]:
            kinds[item["reason"].partition(": ")[0]] += item["cells"]
        why = "; ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        lines += ["", f"Cells apart are scored in the last line only: {cell(why)}."]
    return "\n".join(lines).rstrip() + "\n"


def engines_table() -> str:
    """Return README's table by family of engines: errors of what was left out of the fits.

    Of accelerators the table in docs/fitting.md, of CPUs what the shipped descriptors state.
    """
    head, _, *body = fits.PAGE.read_text(encoding="utf-8").split(fits.MARK)[1].strip().splitlines()
    columns = [text.strip() for text in head.strip("|").split("|")]
    lines: list[tuple[int, tuple[object, ...]]] = []
    for line in body:
        row = dict(zip(columns, (text.strip() for text in line.strip("|").split("|")), strict=True))
        error, inside, _ = row["network"].split(", ")
        outside = row["board"].partition(", ")[0] or "–"
        shown = (_whole(one) for one in (error, outside, inside))
        lines.append((int(row["cells"]), (get_family(row["family"]).title, row["boards"], row["cells"], *shown)))
    cores = [
        (board, fit.networks, fit.error)
        for board in fits.BOARDS
        for core in get_platform(board).engines
        if core.kind == "cpu"
        for precision in core.precisions.values()
        for fit in precision.fitted
        if fit.networks
    ]
    total = sum(count for _, count, _ in cores)
    mean = sum(count * error for _, count, error in cores) / total
    lines.append((total, ("CPU cores", len({board for board, *_ in cores}), total, f"{mean:.0%}", "–", "–")))
    return rows(README_HEAD, [line for _, line in sorted(lines, key=lambda one: -one[0])]).rstrip() + "\n"


def _whole(percent: str) -> str:
    return f"{float(percent.rstrip('%')):.0f}%" if percent != "–" else percent


def _scores(scores: Mapping[str, Any]) -> tuple[str, ...]:
    shown = (_figure(name, scores[name]) for name in FIGURES)
    return (str(scores["cells"]), str(scores["refused"] or ""), str(scores.get("apart") or ""), *shown)


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if name in ("median_ratio", "spearman") else f"{value:.0%}"


def main() -> None:
    """Write the page and README's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("summary", type=Path, nargs="?")
    parser.add_argument("--data", default="", help="what the measurements are, in one line")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    if given.summary:
        summary = json.loads(given.summary.read_text(encoding="utf-8"))
        words = given.data or PAGE.read_text(encoding="utf-8").partition("- Measurements: ")[2].partition("\n")[0]
        PAGE.write_text(page(summary, words, given.date), encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(MARK)
    _, _, after = rest.partition(MARK)
    README.write_text(f"{before}{MARK}\n{engines_table()}{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
