"""How far a network is from those that an engine family was fitted to, by the kinds of its layers and its size.

Errors of a fit grow with this distance: networks beside a measured one get narrow intervals, strange ones wide ones.
What the model missed of measured networks is what it will miss of networks near them (`cost.fitting.least`).
`measured.json` holds the places of the networks behind the shipped fits (`python -m tools.generate.fits`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.graph.operators import Place

FILE = Path(__file__).with_name("measured.json")
SIZE = 0.03
"""Distance of two networks of the same layers whose work differs by a factor of e."""
FARTHEST = 1.0
"""Distance of networks without a layer in common; a greater one says nothing more."""
REACH = 0.05
"""Distance over which two networks' errors lose what they have in common, by a factor of e."""


def between(one: Place, other: Place) -> float:
    """Return the distance of two places: half the difference in shares, and that in size."""
    a, b = dict(one), dict(other)
    kinds = sorted((a.keys() | b.keys()) - {"size"})  # a sum in one order, whatever the hash seed
    return sum(abs(a.get(kind, 0.0) - b.get(kind, 0.0)) for kind in kinds) / 2 + SIZE * abs(a["size"] - b["size"])


def distance(one: Place, others: Iterable[Place]) -> float:
    """Return the distance to the nearest of other places, at most `FARTHEST`, and that without any."""
    return min([FARTHEST, *(between(one, other) for other in others)])


def kin(one: str, other: str) -> float:
    """Return how much of an error in a precision another precision has in common with it, over what it has alone."""
    return 2.0 if one == other else 1.0


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    places = {name: tuple(sorted(own.items())) for name, own in known["networks"].items()}
    return {**known, "networks": places}


def measured(family: str) -> Sequence[Place]:
    """Return the places of the networks that an engine family was fitted to."""
    known = _document()
    return [known["networks"][name] for name in known["families"].get(family, ())]


@lru_cache(maxsize=4096)
def correction(family: str, precision: str, where: Place) -> float:
    """Return measured over predicted time of networks at a place, as the family's measured networks near it tell.

    1 far from all of them, and where the family's errors say nothing of one another.
    """
    known = _document()
    logarithm = sum(
        weight * kin(precision, other) * math.exp(-between(where, known["networks"][name]) / REACH)
        for other, weights in known["residuals"].get(family, {}).items()
        for name, weight in weights.items()
    )
    return math.exp(logarithm)
