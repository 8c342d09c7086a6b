"""Trust in numbers: combine the provenance and the uncertainty of the figures a result rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from socsched.descriptor.platform import PROVENANCE, Figure

UNSTATED_ERROR = {"measured": 0.05, "published": 0.10, "derived": 0.30, "assumed": 0.50}
"""Relative uncertainty taken for a figure whose file states none, by kind (our convention, not a measured spread)."""


def weakest(kinds: Iterable[str]) -> str:
    """Return the least trusted of some provenance kinds."""
    return max(kinds, key=PROVENANCE.index)


def error_of(figure: Figure) -> float:
    """Return the relative uncertainty of a figure, the convention for its kind where none is stated."""
    return figure.error or UNSTATED_ERROR[figure.kind]


CARRIES = 0.1
"""Share of a time from which on a part of it decides what the whole rests on."""


def trust(parts: Iterable[tuple[float, Sequence[Figure]]]) -> tuple[str, float]:
    """Return (provenance, relative error) of a time made of `parts`: a duration and the figures it was worked out from.

    The provenance is the weakest kind behind any part that carries at least a tenth of the time; the error is that of
    each part (its least certain figure's) weighted by duration, as if all parts erred the same way.
    """
    held = [(duration, figures) for duration, figures in parts if duration > 0]
    total = sum(duration for duration, _ in held)
    carrying = [figure.kind for duration, figures in held if duration >= CARRIES * total for figure in figures]
    error = sum(duration * max(map(error_of, figures)) for duration, figures in held) / total if held else 0.0
    return weakest(["derived", *carrying]), error


def sources_of(figures: Iterable[Figure]) -> str:
    """Name the sources of some figures once each, for people."""
    return ", ".join(dict.fromkeys(figure.source for figure in figures if figure.source))
