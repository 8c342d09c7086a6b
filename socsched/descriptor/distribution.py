"""Distributions of one number, drawn in whole numbers so that every machine draws the same."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_BITS = 62


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles at equal steps of probability, ascending integers; between two of them values are drawn alike.

    `what` is how the file says it, for people.
    """

    quantiles: tuple[int, ...]
    what: str = ""

    @classmethod
    def constant(cls, value: int, what: str = "") -> Distribution:
        """Return the distribution that always gives `value`."""
        return cls((value,), what)

    def draw(self, rng: Random) -> int:
        """Return a value; uses up the same bits of `rng` whatever the distribution."""
        return self.at(rng.getrandbits(_BITS), 1 << _BITS)

    def at(self, numerator: int, denominator: int) -> int:
        """Return the quantile of `numerator` / `denominator`, a probability below 1."""
        steps = len(self.quantiles) - 1
        if not steps:
            return self.quantiles[0]
        place, rest = divmod(numerator * steps, denominator)
        low, high = self.quantiles[place], self.quantiles[place + 1]
        return low + (high - low) * rest // denominator
