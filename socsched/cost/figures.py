"""Trust in numbers: combine the provenance and the uncertainty of the figures a result rests on."""

from __future__ import annotations

from collections.abc import Iterable

from socsched.descriptor.platform import PROVENANCE, Figure

UNSTATED_ERROR = {"measured": 0.05, "published": 0.10, "derived": 0.30, "assumed": 0.50}
"""Relative uncertainty taken for a figure whose file states none, by kind (our convention, not a measured spread)."""


def weakest(kinds: Iterable[str]) -> str:
    """Return the least trusted of some provenance kinds."""
    return max(kinds, key=PROVENANCE.index)


def error_of(figure: Figure) -> float:
    """Return the relative uncertainty of a figure, the convention for its kind where none is stated."""
    return figure.error or UNSTATED_ERROR[figure.kind]


def sources_of(figures: Iterable[Figure]) -> str:
    """Name the sources of some figures once each, for people."""
    return ", ".join(dict.fromkeys(figure.source for figure in figures if figure.source))
