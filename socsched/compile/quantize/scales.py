"""The scales of a network's values as data: what calibration gives, what an artefact stores, what users may write.

The file is JSON: `source` in words, for every value `step` (what one unit is worth) and `signed`, and optionally
`means`: a channel's mean before and after rounding to eight bits.  Values are called as in the compiler's graph: a
layer's name with dots as underscores, of layers fused together the last one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from socsched.compile.quantize.fixed_point import Scale
from socsched.compile.store import digest, read_json, write_json
from socsched.errors import InputError

FILE = "scales.json"
"""Name of the scales' file in an artefact's folder."""


@dataclass(frozen=True, slots=True)
class Means:
    """Mean of each channel of a value over the calibration data: as it is, and as its eight bits say."""

    real: tuple[float, ...]
    stored: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Scales:
    """The scale of every value of one network, and means where known; `source` says where they come from."""

    values: Mapping[str, Scale]
    source: str = "given"
    means: Mapping[str, Means] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The sha256 of the scales, whatever their source."""
        scales = sorted((name, scale.step, scale.signed) for name, scale in self.values.items())
        return digest(scales, sorted((name, means.real, means.stored) for name, means in self.means.items()))


def write_scales(path: Path, scales: Scales) -> None:
    """Write `scales` as JSON."""
    values = {name: {"step": scale.step, "signed": scale.signed} for name, scale in scales.values.items()}
    means = {name: {"real": list(m.real), "stored": list(m.stored)} for name, m in scales.means.items()}
    write_json(path, {"source": scales.source, "values": values, "means": means})


def read_scales(path: Path) -> Scales:
    """Return the scales in a JSON file; InputError when it is none or a step is no positive number."""
    data: Any = read_json(path)
    try:
        values = {str(name): Scale(float(v["step"]), bool(v["signed"])) for name, v in data["values"].items()}
        numbers = {
            str(name): Means(tuple(map(float, m["real"])), tuple(map(float, m["stored"])))
            for name, m in data.get("means", {}).items()
        }
        source = str(data["source"])
    except (TypeError, KeyError, ValueError, AttributeError):
        raise InputError(f"{path}: not a file of scales", 'expected {"source": ..., "values": {name: {...}}}') from None
    wrong = [name for name, scale in values.items() if not (isfinite(scale.step) and scale.step > 0)]
    if wrong:
        raise InputError(f"{path}: {wrong[0]}: a step must be a positive number", "calibrate the network again")
    return Scales(values, source, numbers)
