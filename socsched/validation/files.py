"""The folder of a validation: rows.csv, summary.json and index.html."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path

from socsched.cost.measurements import Row
from socsched.errors import unwritable
from socsched.files import write_file
from socsched.validation.document import ADDED
from socsched.validation.page import page
from socsched.validation.power import PowerPrediction, PowerValidation
from socsched.validation.power import is_inside as power_is_inside
from socsched.validation.power_page import power_page
from socsched.validation.power_rows import ADDED as POWER_ADDED
from socsched.validation.power_rows import PowerRow
from socsched.validation.predict import Prediction
from socsched.validation.scores import is_inside
from socsched.validation.validate import Validation

ROWS, SUMMARY, PAGE = "rows.csv", "summary.json", "index.html"


def save(found: Validation | PowerValidation, folder: Path) -> None:
    """Write the files of a validation into a folder, which is created; UsageError or MachineError if that fails."""
    summary = json.dumps(found.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    whole = page(found) if isinstance(found, Validation) else power_page(found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((ROWS, rows_csv(found)), (SUMMARY, summary), (PAGE, whole)):
            write_file(folder / name, content)
    except OSError as error:
        raise unwritable(folder, error) from None


def rows_csv(found: Validation | PowerValidation) -> str:
    """Return the input's columns and rows, each with its prediction; cells of the input are passed on unchanged."""
    if isinstance(found, Validation):
        rows = zip(found.measurements.rows, found.predictions, strict=True)
        return _csv((*found.measurements.columns, *ADDED), ((*row.cells, *_time(row, one)) for row, one in rows))
    powers = zip(found.table.rows, found.predictions, strict=True)
    return _csv((*found.table.columns, *POWER_ADDED), ((*row.cells, *_power(row, one)) for row, one in powers))


def _csv(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def _time(row: Row, prediction: Prediction) -> list[str]:
    if prediction.refused:
        return ["", "", "", "", "", prediction.refused]
    times = (f"{ms:.6f}" for ms in (prediction.predicted_ms, prediction.lo_ms, prediction.hi_ms))
    return [*times, str(is_inside(row, prediction)).lower(), prediction.provenance, ""]


def _power(row: PowerRow, prediction: PowerPrediction) -> list[str]:
    if prediction.refused:
        return ["", "", "", "", prediction.refused]
    powers = (f"{watts:.4f}" for watts in (prediction.predicted_w, prediction.lo_w, prediction.hi_w))
    return [*powers, str(power_is_inside(row, prediction)).lower(), ""]
