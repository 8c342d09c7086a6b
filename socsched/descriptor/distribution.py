"""Distributions of one number, drawn in integer arithmetic so that every machine draws the same values."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_BITS = 62


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles at equal probability steps, ascending integers; draws are uniform between neighbours.

    `what` is the file's wording, for display.
    """

    quantiles: tuple[int, ...]
    what: str = ""

    @classmethod
    def constant(cls, value: int, what: str = "") -> Distribution:
        """Return the distribution that always gives `value`."""
        return cls((value,), what)

    def draw(self, rng: Random) -> int:
        """Return a random value; consumes the same bits of `rng` whatever the distribution."""
        return self.at(rng.getrandbits(_BITS), 1 << _BITS)

    def at(self, numerator: int, denominator: int) -> int:
        """Return the quantile of `numerator` / `denominator`, a probability below 1."""
        steps = len(self.quantiles) - 1
        if not steps:
            return self.quantiles[0]
        place, rest = divmod(numerator * steps, denominator)
        low, high = self.quantiles[place], self.quantiles[place + 1]
        return low + (high - low) * rest // denominator
