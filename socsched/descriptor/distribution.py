"""Distributions of one number, in integer and decimal arithmetic, so that every machine draws the same values.

Math libraries may differ in the last bit of a logarithm or error function; `decimal` rounds correctly everywhere (IEEE
854), and the normal distribution is summed here with more digits than are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from random import Random

_BITS = 62
STEPS = 256
"""Equal steps of probability between neighbouring quantiles of a table."""
FARTHEST = 8
"""Standard deviations beyond which the table stops: a probability of 6e-16."""

_CONTEXT = Context(prec=40)
_PI = Decimal("3.14159265358979323846264338327950288419717")
_CLOSE = Decimal("1e-18")


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


def nearest_rank(ordered: Sequence[int], share: int, of: int = 100) -> int:
    """Return the smallest of ascending values that `share` of `of` of them do not exceed."""
    return ordered[max(-(-len(ordered) * share // of) - 1, 0)]


def normal(mean: Decimal, sd: Decimal, least: Decimal, most: Decimal) -> tuple[int, ...]:
    """Return the `STEPS` + 1 quantiles, rounded, of a normal distribution cut off at `least` and `most`."""
    with localcontext(_CONTEXT):
        return _table((least - mean) / sd, (most - mean) / sd, lambda z: mean + sd * z, least, most)


def lognormal(mean: Decimal, sd: Decimal, least: Decimal, most: Decimal) -> tuple[int, ...]:
    """Return the `STEPS` + 1 quantiles, rounded, of a lognormal distribution with this mean and standard deviation."""
    with localcontext(_CONTEXT):
        place, spread = _logarithmic(mean, sd)
        low = (least.ln() - place) / spread if least > 0 else Decimal(-FARTHEST)
        return _table(low, (most.ln() - place) / spread, lambda z: (place + spread * z).exp(), least, most)


def deviations(mean: Decimal, sd: Decimal, value: Decimal, logarithmic: bool) -> Decimal:
    """Return a value's distance above the mean in standard deviations, of the logarithm where `logarithmic`."""
    with localcontext(_CONTEXT):
        if not logarithmic:
            return (value - mean) / sd
        place, spread = _logarithmic(mean, sd)
        return (value.ln() - place) / spread


def _logarithmic(mean: Decimal, sd: Decimal) -> tuple[Decimal, Decimal]:
    variance = (1 + (sd / mean) ** 2).ln()
    return mean.ln() - variance / 2, variance.sqrt()


def _table(
    low: Decimal, high: Decimal, value: Callable[[Decimal], Decimal], least: Decimal, most: Decimal
) -> tuple[int, ...]:
    low, high = max(low, Decimal(-FARTHEST)), min(high, Decimal(FARTHEST))
    first, last = _below(low), _below(high)
    table, at = [], low
    for step in range(STEPS + 1):
        at = low if step == 0 else high if step == STEPS else _inverse(first + (last - first) * step / STEPS, at, high)
        table.append(int(min(max(value(at), least), most).to_integral_value()))
    return tuple(table)


def _inverse(share: Decimal, low: Decimal, high: Decimal) -> Decimal:
    """Return the point at which the normal distribution reaches a share, by Newton's method within a bracket."""
    at = (low + high) / 2
    while True:
        excess = _below(at) - share
        low, high = (low, at) if excess > 0 else (at, high)
        step = excess / _density(at)
        following = at - step if low < at - step < high else (low + high) / 2
        if abs(following - at) < _CLOSE:
            return following
        at = following


def _density(z: Decimal) -> Decimal:
    return (-z * z / 2).exp() / (2 * _PI).sqrt()


def _below(z: Decimal) -> Decimal:
    """Return the share of the standard normal distribution below `z` (Marsaglia, J. Stat. Soft. 11(4) 2004)."""
    term = total = z
    count = 1
    while abs(term) > _CLOSE * _CLOSE:
        count += 2
        term *= z * z / count
        total += term
    return Decimal("0.5") + _density(z) * total
