"""Validation of the cost model: predictions of measurements, their scores, and the bar they have to reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from socsched import __version__
from socsched.cost.fitting.cells import Networks, Pattern, pattern
from socsched.cost.measurements import Row, Table, read_measurements
from socsched.descriptor.catalog import find_platform, get_platform
from socsched.descriptor.platform import Platform
from socsched.descriptor.small_files import load_bar
from socsched.errors import UsageError
from socsched.validation.document import ADDED, ValidationDocument
from socsched.validation.left_out import left_out
from socsched.validation.predict import Prediction, predict
from socsched.validation.scores import TimeCell, cells_of, comparable, failures, groups, scores, unit_scores


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
