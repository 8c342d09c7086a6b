"""How far a network is from those that an engine family was fitted to, by the kinds of its layers and its size.

Errors of a fit grow with this distance: networks beside a measured one get narrow intervals, strange ones wide ones.
`measured.json` holds the places of the networks behind the shipped fits (`python -m tools.generate.fits`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import Pass

FILE = Path(__file__).with_name("measured.json")
BALANCE = 100
"""Multiply-adds that weigh as much as an element moved, on a machine of no vendor: places hold for every engine."""
SIZE = 0.03
"""Distance of two networks of the same layers whose work differs by a factor of e."""
FARTHEST = 1.0
"""Distance of networks without a layer in common; a greater one says nothing more."""

Place = Mapping[str, float]
"""Share of a network's work by class of passes, and the logarithm of the work as `size`."""


def place(passes: Iterable[Pass]) -> dict[str, float]:
    """Return the place of a network."""
    work: dict[str, float] = {}
    for one in passes:
        kind = pass_class(one)
        work[kind] = work.get(kind, 0.0) + max(one.macs / BALANCE, one.read + one.written + one.weights)
    total = sum(work.values()) or 1.0
    return {**{kind: share / total for kind, share in work.items()}, "size": math.log(total)}


def distance(one: Place, others: Iterable[Place]) -> float:
    """Return the distance to the nearest of other places, `FARTHEST` without any: half the difference in shares, and
    that in size."""
    return min((_between(one, other) for other in others), default=FARTHEST)


def _between(one: Place, other: Place) -> float:
    kinds = (one.keys() | other.keys()) - {"size"}
    apart = sum(abs(one.get(kind, 0.0) - other.get(kind, 0.0)) for kind in kinds) / 2
    return min(apart + SIZE * abs(one["size"] - other["size"]), FARTHEST)


@lru_cache(maxsize=1)
def measured() -> Mapping[str, Sequence[Place]]:
    """Return the places of the networks that every engine family was fitted to."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    return {family: [known["networks"][name] for name in names] for family, names in known["families"].items()}
