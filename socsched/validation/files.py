"""The folder of a validation: rows.csv, summary.json and index.html."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from socsched.errors import unwritable
from socsched.files import write_file
from socsched.validation.document import ADDED
from socsched.validation.page import page
from socsched.validation.scores import is_inside
from socsched.validation.validate import Validation

ROWS, SUMMARY, PAGE = "rows.csv", "summary.json", "index.html"


def save(found: Validation, folder: Path) -> None:
    """Write the files of a validation into a folder, which is created; UsageError or MachineError if that fails."""
    summary = json.dumps(found.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((ROWS, rows_csv(found)), (SUMMARY, summary), (PAGE, page(found))):
            write_file(folder / name, content)
    except OSError as error:
        raise unwritable(folder, error) from None


def rows_csv(found: Validation) -> str:
    """Return the input's columns and rows, each with its prediction; cells of the input are passed on unchanged."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*found.measurements.columns, *ADDED))
    for row, prediction in zip(found.measurements.rows, found.predictions, strict=True):
        if prediction.refused:
            added = ["", "", "", "", "", prediction.refused]
        else:
            times = (f"{ms:.6f}" for ms in (prediction.predicted_ms, prediction.lo_ms, prediction.hi_ms))
            added = [*times, str(is_inside(row, prediction)).lower(), prediction.provenance, ""]
        writer.writerow((*row.cells, *added))
    return out.getvalue()
