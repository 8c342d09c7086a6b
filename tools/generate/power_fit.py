"""Print base power and factors on dynamic power that measured power asks for, cross-validated by network.

Usage: python -m tools.generate.power_fit POWER.csv --networks DIR [-p PLATFORM.yaml ...]

Cells are those of `socsched validate POWER.csv`.  Module power follows from the wall by the platform's supply.  What
the descriptor states of idle engines and of DRAM traffic is taken off; for the rest, a factor is fitted per platform on
the base power of each power mode and on the dynamic power of each kind of engine, held near 1 by the error that the
figure states.  Large deviations count linearly.  The error is that of cells whose network is left out of the fit.
Figures are printed, not written: a descriptor keeps the source of each of its figures.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from socsched.descriptor.catalog import find_platform, get_platform
from socsched.descriptor.platform import Platform
from socsched.validation.power import PowerCell, validate_power

ROUNDS = 50
NOISE = 0.1
"""Relative error of a measurement that a figure within its own error is weighed against."""
Asked = tuple[float, dict[str, tuple[float, float]], float]
"""Power asked for (W), figures with power (W) and relative error, measured power (W)."""
Factors = np.ndarray[tuple[int], np.dtype[np.float64]]


def terms(cell: PowerCell, platform: Platform) -> tuple[float, dict[str, tuple[float, float]]]:
    """Return the power (W) that figures in question have to add up to, and each with its power and relative error."""
    row, module = cell.row, cell.measured
    if row.meter == "wall":
        assert platform.supply is not None
        module = module * platform.supply.efficiency.value - platform.supply.carrier_mw.value / 1e3
    wanted: dict[str, tuple[float, float]] = {}
    for part in cell.prediction.parts:
        engine = next((one for one in platform.engines if one.id == part.load), None)
        if part.name == "base":
            wanted[f"base {row.mode}"] = part.mw / 1e3, part.figure.error
        elif part.idle or engine is None:
            module -= part.mw / 1e3
        elif part.mw:
            name = f"dynamic {engine.kind}"
            wanted[name] = wanted.get(name, (0.0, 0.0))[0] + part.mw / 1e3, part.figure.error
    return module, wanted


def fit(rows: list[Asked], names: list[str]) -> Factors:
    """Return the factors on the descriptor's figures: least relative deviations, held near 1 by the figures' errors."""
    design = (
        np.array([[wanted.get(name, (0.0, 0.0))[0] / scale for name in names] for _, wanted, scale in rows]) / NOISE
    )
    left = np.array([power / scale for power, _, scale in rows]) / NOISE
    spread = np.array([max([one[name][1] for _, one, _ in rows if name in one], default=0.0) or 0.3 for name in names])
    weights = np.ones(len(rows))
    found = np.ones(len(names))
    for _ in range(ROUNDS):
        held = np.vstack([design * weights[:, None], np.diag(1 / spread)])
        found = np.linalg.lstsq(held, np.concatenate([left * weights, 1 / spread]), rcond=None)[0]
        weights = 1 / np.sqrt(np.maximum(np.abs(design @ found - left), 1.0))
    return found


def main() -> None:
    """Print the figures of every platform with enough cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("power", type=Path)
    parser.add_argument("--networks", type=Path, required=True)
    parser.add_argument("-p", "--platform", action="append", default=[])
    given = parser.parse_args()
    own = {one.name: one for one in map(get_platform, given.platform)}
    found = validate_power(given.power, given.networks, own_platforms=tuple(given.platform))
    cells: dict[str, list[PowerCell]] = defaultdict(list)
    for cell in found.cells:
        if not cell.row.rail:
            cells[cell.row.platform].append(cell)
    for name, own_cells in sorted(cells.items()):
        platform = own.get(name) or find_platform(name)
        assert platform is not None
        rows = [(*terms(cell, platform), cell.measured) for cell in own_cells]
        names = sorted({key for _, wanted, _ in rows for key in wanted})
        whole = fit(rows, names)
        error = []
        for network in {cell.row.network for cell in own_cells}:
            kept = [row for row, cell in zip(rows, own_cells, strict=True) if cell.row.network != network]
            part = fit(kept, names) if kept else np.ones(len(names))
            for row, cell in zip(rows, own_cells, strict=True):
                if cell.row.network == network:
                    asked = sum(row[1].get(key, (0.0, 0.0))[0] * value for key, value in zip(names, part, strict=True))
                    error.append(abs(asked - row[0]) / cell.measured)
        print(
            f"{name}: {len(rows)} cells, networks left out: mean error {np.mean(error):.1%} of the measured power, "
            f"88 % within {np.quantile(error, 0.88):.1%}"
        )
        for key, value in zip(names, whole, strict=True):
            stated = next(wanted[key] for _, wanted, _ in rows if key in wanted)
            base = f" = {stated[0] * value:.3g} W" if key.startswith("base") else ""
            print(f"  {key}: x {value:.3f}{base} (error stated: {stated[1]:g})")


if __name__ == "__main__":
    main()
