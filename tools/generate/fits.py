"""Fit the cost models of the shipped platforms to published measurements, and put them into platforms/.

Usage: python -m tools.generate.fits CORPUS... [--check] [--date YYYY-MM-DD] [--errors FILE.json]

A corpus is a folder with pairs.csv.gz and networks/; none is part of the repository (docs/fitting.md).  With --check
nothing is written, and the exit code is 1 where a section of a platform differs from the one that would be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from socsched.cost.fitted import FILE
from socsched.cost.fitting.cells import Choice, Networks, pattern, read_pairs
from socsched.cost.fitting.recipe import FamilyFit, FitRequest, Report, fit_platform, rewritten
from socsched.descriptor.catalog import get_platform
from socsched.validation.page import left_out_cells
from socsched.validation.validate import scores_of_family
from tools import ROOT

DATE = "2026-11-26"
SOURCE = "boards"
BOARDS = (
    "jetson-agx-orin-64gb", "jetson-agx-orin-32gb", "jetson-agx-xavier", "jetson-orin-nano-8gb", "jetson-orin-nx-16gb",
    "jetson-tx2", "rk3588", "hikey960", "qcs8550", "sa8295p", "qcs6490", "qrb5165",
    "jetson-agx-thor", "jetson-t4000", "jetson-orin-nx-8gb", "jetson-orin-nano-4gb", "sa8775p", "qcs9075", "qcs8275",
    "sa7255p", "rk3576", "raspberry-pi-5", "hailo-8", "hailo-8l", "tda4vm", "am69a",
)  # fmt: skip
TITLE = """  boards:
    title: "published execution times of networks on this board and others of its engine families (docs/fitting.md)"
    where: "github.com: quic/ai-hub-models, mlcommons/inference_results_v3.0, ...; pypi.org: qai-hub-models 0.65.0"
"""
EXCLUDED = {
    "bert_large*": "MLPerf's programs compute sequences at their own length",
    "source=Tencent/ncnn,engine=gpu,precision=int8": "ncnn has no int8 on GPUs: these ran on the CPU",
    "source=Tencent/ncnn,engine=c*|a*,network=googlenet": "another network of that name",
    "engine=carmel0,mode=MODE_*W*": "slower than the clocks of these modes explain",
}
"""Rows that are left out, and why."""
PAGE, MARK = ROOT / "docs" / "fitting.md", "<!-- unseen -->"
WAYS = (
    "network", "design", "board and design", "board", "board, 1 measured", "board, 5 measured", "board, 20 measured",
)  # fmt: skip
"""What is left out, as `socsched validate --leave-out` names it."""
NEW_SOURCE = '  boards:\n    title: "measured times of networks, fitted with `socsched fit`"\n'


def fits(corpora: Sequence[Path], omitted: Sequence[str] = ()) -> list[Report]:
    """Return the fits of all boards to the measurements in some folders (pairs.csv.gz and networks/)."""
    rows = [row for folder in corpora for row in read_pairs(folder / "pairs.csv.gz")]
    folder = Networks(*(folder / "networks" for folder in corpora))
    choice = Choice(tuple(pattern(text) for text in EXCLUDED))
    known: dict[str, FamilyFit] = {}
    requests = [FitRequest(get_platform(board), choice=choice, omitted=tuple(omitted)) for board in BOARDS]
    return [
        fit_platform(request, rows, folder, known)
        for request in requests
        if any(engine.kind not in omitted for engine in request.platform.engines)
    ]


def written(report: Report, date: str) -> tuple[Path, str, str]:
    """Return the file of a platform, its text and the text with the sections of a fit."""
    path = ROOT / "platforms" / f"{report.platform.name}.yaml"
    raw = path.read_bytes()
    text = rewritten(raw, str(path), report.sections, SOURCE, date)
    return path, raw.decode(), text.replace(NEW_SOURCE, TITLE)


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


def left_out_table(reports: Sequence[Report]) -> str:
    """Return the errors of every family as docs/fitting.md shows them: a column for what is left out."""
    fitted = {one.family.name: one for report in reports for one in report.families if one.cells}
    lines = [f"| family | boards | cells | {' | '.join(WAYS)} |", "|" + "---|" * (3 + len(WAYS))]
    for name, one in fitted.items():
        scores = left_out_cells(list(scores_of_family(one.cells, one.family, one.errors)))
        shown = {way: ", ".join(rest) for _, way, _, _, *rest in scores}
        boards, cells = next((row[2], row[3]) for row in scores if row[1] == WAYS[0])
        lines.append(f"| {name} | {boards} | {cells} | {' | '.join(shown.get(way, '') for way in WAYS)} |")
    return "\n".join(lines) + "\n"


def write_table(table: str) -> None:
    """Put the table into docs/fitting.md, between its marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n{table}{MARK}{rest.partition(MARK)[2]}", encoding="utf-8")


def write_places(reports: Sequence[Report]) -> None:
    """Put the places and residuals of the measured networks into the package; others keep theirs."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"families": {}, "networks": {}}
    known.setdefault("residuals", {})
    for one in (family for report in reports for family in report.families if family.cells):
        own = {name: place for cell in one.cells for name, place in zip(cell.networks, cell.places, strict=True)}
        known["families"][one.family.name] = sorted(own)
        known["networks"] |= {name: {key: round(part, 3) for key, part in own[name]} for name in own}
        known["residuals"][one.family.name] = {
            precision: {name: round(weight, 4) for name, weight in weights.items()}
            for precision, weights in (one.fitted.residuals.weights if one.fitted else {}).items()
        }
    lines = (f"  {json.dumps(name)}: {json.dumps(known['networks'][name])}" for name in sorted(known["networks"]))
    families = ",\n".join(f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(known["families"].items()))
    listed = ",\n".join(lines)
    residuals = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(known["residuals"].items()) if own
    )
    parts = {"families": families, "networks": listed, "residuals": residuals}
    text = ",\n".join(f'"{name}": {{\n{part}}}' for name, part in parts.items())
    FILE.write_text(f"{{{text}}}\n", encoding="utf-8")


def main() -> int:
    """Write or check the sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+", help="folders with pairs.csv.gz and networks/")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a section differs")
    parser.add_argument("--omit", nargs="*", default=[], help="kinds of engines to leave as they are, such as cpu")
    parser.add_argument("--date", default=DATE, help="day to state")
    parser.add_argument("--errors", type=Path, help="write the cross-validated errors of every cell")
    given = parser.parse_args()
    reports = fits(given.corpora, given.omit)
    rows = errors(reports)
    for row in rows:
        names = ("fit", "network", "design", "board")
        shown = "  ".join(f"{name} {100 * float(str(row[name])):5.1f}" for name in names)
        print(f"{row['cell']:75} {row['networks']:>3}  {shown}  inside {float(str(row['inside'])):4.0%}")
    count = np.array([int(str(row["networks"])) for row in rows])
    share, width = (np.array([float(str(row[name])) for row in rows]) for name in ("inside", "interval"))
    median = np.median(np.repeat(width, count))
    print(f"networks left out: {np.average(share, weights=count):.1%} of {count.sum()} inside, median ± {median:.0%}")
    if not given.check:
        write_table(left_out_table(reports))
        write_places(reports)
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
