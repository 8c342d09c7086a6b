"""Fit a contention model to measurements and print it as the `contention` of a platform file.

    python -m tools.generate.contention corun.csv               pairwise factors
    python -m tools.generate.contention --matrix dla matrix.json    a PCCS curve of an engine
    python -m tools.generate.contention --shipped [--write]     the sections of the shipped platforms

corun.csv has the header ``run,engine,beside,alone_ms,together_ms``: engine kinds, several in `beside` joined by ``+``
(``GPU and both DLAs,gpu,dla+dla,45,59``).  matrix.json holds ``standalone_GBps`` and ``external_demand_GBps``,
ascending, and ``achieved_GBps``, a row for every standalone bandwidth.  The error printed is over the rows fitted: keep
some aside to try it on.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from statistics import mean

from tools import ROOT
from tools.generate.contention_fits import Row, fit_pairwise, fit_pccs, predict, refine_pccs
from tools.generate.contention_sections import sections, text, write


def factors(file: Path) -> str:
    """Return the section for pairwise factors."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = [
            Row(
                board="",
                run=line["run"],
                engine=line["engine"],
                beside=tuple(line["beside"].split("+")),
                alone_ns=round(float(line["alone_ms"]) * 1e6),
                together_ns=round(float(line["together_ms"]) * 1e6),
            )
            for line in csv.DictReader(lines)
        ]
    found = fit_pairwise(rows)
    error = mean(abs(predict(found, row) / row.slowdown - 1) for row in rows)
    text = f"  contention:\n    model: pairwise\n    source: KEY\n    parameters:\n      error: {error:.3f}\n"
    for kind, co_runners in sorted(found.items()):
        listed = ", ".join(f"{other}: {factor:.4g}" for other, factor in sorted(co_runners.items()))
        text += f"      {kind}: {{{listed}}}\n"
    return text


def curve(engine: str, file: Path) -> str:
    """Return the section for the PCCS curve of one engine."""
    data = json.loads(file.read_text(encoding="utf-8"))
    data = data.get("measured_matrix", data)
    own, other = ([v * 1e9 for v in data[name]] for name in ("standalone_GBps", "external_demand_GBps"))
    achieved = [[v * 1e9 for v in row] for row in data["achieved_GBps"]]
    fit = refine_pccs(fit_pccs(own, other, achieved), own, other, achieved)
    text = f"  contention:\n    model: pccs\n    source: KEY\n    parameters:\n      {engine}:\n"
    for name in ("normal", "intensive", "tbwdc", "cbp", "peak"):
        text += f"        {name}: {getattr(fit, name) / 1e9:.4g} GB/s\n"
    return text + "".join(f"        {name}: {getattr(fit, name):.4g}\n" for name in ("mrmc", "rate", "error"))


def main() -> None:
    """Print the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--matrix", metavar="ENGINE", help="the file is a bandwidth matrix of this engine (id or kind)")
    parser.add_argument("--shipped", action="store_true", help="from published co-runs (contention_sections)")
    parser.add_argument("--write", action="store_true", help="into the files of platforms/")
    args = parser.parse_args()
    if args.shipped:
        for section in sections():
            print(f"{section.platform}:\n{text(section)}", end="")
        if args.write:
            write(ROOT / "platforms")
        return
    if args.file is None:
        parser.error("expected a file, or --shipped")
    print(curve(args.matrix, args.file) if args.matrix else factors(args.file), end="")


if __name__ == "__main__":
    main()
