"""Scores of what a fit has not seen: networks, designs or boards left out of an engine family's measurements, boards
and designs at once, and boards of which a few networks were measured.

Every fit is made anew without what it is judged by, and every interval from the errors of others that were left out in
the same way: of other networks, or, where boards are, of other boards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from socsched.cost.fitting.cells import Choice, Networks, make_cells, pattern
from socsched.cost.fitting.families import Family, families, get_family
from socsched.cost.fitting.least import Cell, Errors, Score, cross_validate, fit, judged, learned, relative, scores_of
from socsched.cost.fitting.table import Array
from socsched.cost.measurements import Row
from socsched.progress import tell
from socsched.validation.document import LeftOutDocument
from socsched.validation.predict import Platforms

SAMPLES = (0, 1, 5, 20)
"""Networks measured of a board, whose other networks are predicted."""


def left_out(
    rows: Sequence[Row], networks: Networks, platforms: Platforms, exclude: Sequence[str], wanted: Sequence[str]
) -> list[LeftOutDocument]:
    """Return the scores of the `wanted` engine families ("all": of all measured), all boards together; UsageError."""
    choice = Choice(tuple(pattern(text) for text in exclude))
    chosen = list(families().values()) if "all" in wanted else [get_family(name) for name in wanted]
    cells = make_cells([row for row in rows if not row.problem], networks, choice, platforms, chosen).cells
    found: list[LeftOutDocument] = []
    for number, (name, own) in enumerate(cells.items()):
        tell("families", number, len(cells), "", name)
        found += scores_of_family(own, get_family(name))
    return found


def scores_of_family(cells: Sequence[Cell], family: Family, errors: Errors | None = None) -> Iterator[LeftOutDocument]:
    """Yield the scores of a family's cells; `errors`: those of its fit, where they are known."""
    name, errors = family.name, errors or cross_validate(cells, family, fit(cells, family))

    def by_network(score: Score) -> str:
        return score.network

    def by_board(score: Score) -> str:
        return score.cell.split(".")[0]

    yield _scored(name, "network", cells, errors.network, scores_of(cells, errors.network, str), by_network)
    yield _scored(name, "design", cells, errors.design, scores_of(cells, errors.design), by_network)
    boards = sorted({cell.platform for cell in cells})
    if len(boards) < 2:
        return
    yield _scored(name, "board and design", cells, errors.both, scores_of(cells, errors.both), by_board)
    curves = [learned(cells, family, board, SAMPLES) for board in boards]
    for count in SAMPLES:
        predicted = {cell: times for curve in curves for cell, times in curve.get(count, {}).items()}
        own = [cell for cell in cells if cell.name in predicted]
        if own:
            what = f"board, {count} measured" if count else "board"
            yield _scored(name, what, own, predicted, scores_of(own, predicted, None), by_board)


def _scored(
    family: str,
    what: str,
    cells: Sequence[Cell],
    predicted: Mapping[str, Array],
    scores: Sequence[Score],
    part: Callable[[Score], str],
) -> LeftOutDocument:
    off = np.concatenate([np.abs(predicted[cell.name] / cell.measured_us - 1) for cell in cells])
    held = judged(scores, part)
    return {
        "family": family,
        "left_out": what,
        "boards": len({cell.platform for cell in cells}),
        "cells": int(np.isfinite(off).sum()),
        "mape": round(float(np.nanmean(off)), 6),
        "inside": round(float(np.mean([one.value <= width for one, width in held])), 6) if held else None,
        "interval": round(relative(float(np.median([width for _, width in held]))), 6) if held else None,
    }
