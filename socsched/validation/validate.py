"""Validation of the cost model: predictions of measurements, their scores, and the bar they have to reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from socsched import __version__
from socsched.cost.fitting.cells import Choice, Networks, Pattern, make_cells, pattern
from socsched.cost.fitting.families import Family, families, get_family
from socsched.cost.fitting.least import Cell, Errors, Score, cross_validate, fit, judged, learned, relative, scores_of
from socsched.cost.fitting.table import Array
from socsched.cost.measurements import Row, Table, read_measurements
from socsched.descriptor.catalog import find_platform, get_platform
from socsched.descriptor.platform import Platform
from socsched.descriptor.small_files import load_bar
from socsched.errors import UsageError
from socsched.progress import tell
from socsched.validation.document import ADDED, LeftOutDocument, ValidationDocument
from socsched.validation.predict import Platforms, Prediction, predict
from socsched.validation.scores import TimeCell, cells_of, comparable, failures, groups, scores, unit_scores

# Scores of what a fit has not seen: networks, designs or boards left out of an engine family's measurements, boards
# and designs at once, and boards of which a few networks were measured.
#
# Every fit is made anew without what it is judged by, and every interval from the errors of others that were left out
# in the same way: of other networks, or, where boards are, of other boards.

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


@dataclass(frozen=True, slots=True)
class Validation:
    """Measurements with their predictions in the same order, the scored cells, and the summary."""

    measurements: Table[Row]
    predictions: tuple[Prediction, ...]
    cells: tuple[TimeCell, ...]
    document: ValidationDocument


class KnownPlatforms:
    """Platforms by name, each looked up once; descriptor files take the place of shipped ones of the same name."""

    def __init__(self, networks: Path, own: tuple[str, ...]) -> None:
        if not networks.is_dir():
            raise UsageError(f"{networks}: is no folder", "give the folder of the ONNX files with --networks")
        self.known: dict[str, Platform | None] = {}
        self._own = {platform.name: platform for platform in map(get_platform, own)}

    def __call__(self, name: str) -> Platform | None:
        """Return the platform of a name, None for an unknown one."""
        if name not in self.known:
            self.known[name] = self._own.get(name) or find_platform(name)
        return self.known[name]


def _kept_apart(row: Row, prediction: Prediction, patterns: Sequence[Pattern]) -> Prediction:
    held = next((one.text for one in patterns if one.holds(row)), None)
    return prediction if held is None else replace(prediction, apart=f"excluded by {held}")


def validate(
    pairs: Path,
    networks: Path,
    bar: Path | None = None,
    own_platforms: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    leave_out: tuple[str, ...] = (),
) -> Validation:
    """Return the predictions for a table of measurements, scored, and held against a bar if one is given.

    `networks`: folder of NAME.onnx or NAME.onnx.xz.  `own_platforms`: descriptor files that take the place of shipped
    platforms of the same name, or add to them.  `exclude`: patterns of rows to keep apart.  `leave_out`:
    engine families that are fitted anew without what they are judged by, "all" for all.  Raises UsageError for unusable
    files, MachineError without the package onnx.
    """
    limits = load_bar(bar) if bar else None
    platforms = KnownPlatforms(networks, own_platforms)
    found = read_measurements(pairs, reserved=ADDED)
    patterns = [pattern(text) for text in exclude]
    predictions = [
        _kept_apart(row, prediction, patterns)
        for row, prediction in zip(found.rows, predict(found.rows, networks, platforms), strict=True)
    ]
    scored, refused = cells_of(found.rows, predictions)
    engines = {(name, engine.id) for name, one in platforms.known.items() if one is not None for engine in one.engines}
    overall, parts = scores(comparable(scored), len(refused)), groups(scored, refused, engines)
    apart = Counter(cell.prediction.apart for cell in scored if cell.prediction.apart)
    unflagged = [p.refused for row, p in zip(found.rows, predictions, strict=True) if not row.flag and p.refused]
    failed = failures(limits, overall, parts) if limits else []
    document: ValidationDocument = {
        "schema_version": "1",
        "measurements": found.file,
        "sha256": found.sha256,
        "socsched": __version__,
        "rows": len(found.rows),
        "flagged": sum(bool(row.flag) for row in found.rows),
        "refused_rows": sum(bool(prediction.refused) for prediction in predictions),
        "overall": overall,
        "everything": scores(scored, len(refused)),
        "groups": parts,
        "refusals": [{"reason": reason, "rows": count} for reason, count in Counter(unflagged).most_common()],
        "apart": [{"reason": reason, "cells": count} for reason, count in apart.most_common()],
        "units": unit_scores(found.rows, predictions),
        "left_out": left_out(found.rows, Networks(networks), platforms, exclude, leave_out) if leave_out else [],
        "bar": {"file": bar.name, "held": not failed, "failures": failed} if bar else None,
    }
    return Validation(found, tuple(predictions), tuple(scored), document)
