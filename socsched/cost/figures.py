"""Trust in numbers: combined provenance and uncertainty of the figures behind a result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from socsched.descriptor.platform import PROVENANCE, Figure

UNSTATED_ERROR = {
    "measured": 0.05,
    "published": 0.10,
    "fitted": 0.20,
    "vendor model": 0.30,
    "derived": 0.30,
    "assumed": 0.50,
}
"""Relative uncertainty assumed for a figure that states none, by kind (a convention, not a measured spread)."""

TRANSFER_ERROR = 0.15
"""Relative error added when a time is scaled to another mode or share; doubled from other hardware (a convention).
"""


def weakest(kinds: Iterable[str]) -> str:
    """Return the least trusted of some provenance kinds."""
    return max(kinds, key=PROVENANCE.index)


def error_of(figure: Figure) -> float:
    """Return the relative uncertainty of a figure, the convention for its kind where none is stated."""
    return figure.error or UNSTATED_ERROR[figure.kind]


CARRIES = 0.1
"""Least share of a time for a part to count towards the provenance of the whole."""


def trust(parts: Iterable[tuple[float, Sequence[Figure]]]) -> tuple[str, float]:
    """Return (provenance, relative error) of a time made of `parts`: durations, each with its source figures.

    The provenance is the weakest kind behind at least a tenth of the time, all parts that rest on it together; the
    error is that of each part (its least certain figure's) weighted by duration, as if all parts erred the same way.
    """
    held = [(duration, figures) for duration, figures in parts if duration > 0]
    total, behind = sum(duration for duration, _ in held), dict[str, float]()
    for duration, figures in held:
        for kind in {figure.kind for figure in figures}:
            behind[kind] = behind.get(kind, 0.0) + duration
    carrying = [kind for kind, duration in behind.items() if duration >= CARRIES * total]
    error = sum(duration * max(map(error_of, figures)) for duration, figures in held) / total if held else 0.0
    return weakest(["derived", *carrying]), error


def sources_of(figures: Iterable[Figure]) -> str:
    """Return the distinct sources of some figures as display text."""
    return ", ".join(dict.fromkeys(figure.source for figure in figures if figure.source))
