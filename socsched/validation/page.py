"""The page of a validation, and its folder."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, cast

from socsched.cost.measurements import Row
from socsched.errors import unwritable
from socsched.files import write_file
from socsched.reporting.charts import Dot, draw_scatter
from socsched.reporting.markup import element, table, wrap_page
from socsched.text import one_line
from socsched.validation.document import (
    ADDED,
    BarDocument,
    PowerDocument,
    RefusalDocument,
    ScoresDocument,
    ValidationDocument,
)
from socsched.validation.power import ADDED as POWER_ADDED
from socsched.validation.power import PowerCell, PowerPrediction, PowerRow, PowerValidation
from socsched.validation.power import is_inside as power_is_inside
from socsched.validation.predict import Prediction
from socsched.validation.scores import Cell, is_inside
from socsched.validation.validate import Validation

MOST_WORST, MOST_REFUSALS, LONGEST = 40, 40, 200
_COLOURS = {"fp32": 1, "fp16": 2, "int8": 3}
SCORES = ("cells", "refused", "median ratio", "MAPE", "P90", "Spearman", "inside")


def page(found: Validation) -> str:
    """Return the whole page."""
    document = found.document
    title = f"Predictions against {document['measurements']}"
    blocks = [
        element("h1", text_of(title)),
        element("p", text_of(headline(document)), class_="lead"),
        bar_block(document["bar"]),
        _scores(found),
        _plots(found.cells),
        _worst(found.cells),
        refusal_table(document["refusals"]),
        _apart(found),
        origin(document),
    ]
    return wrap_page(one_line(title), "".join(blocks))


def origin(document: ValidationDocument | PowerDocument) -> str:
    """Return how a page was made."""
    rows = [
        ["socsched", code_of(document["socsched"])],
        [text_of(f"sha256 of {document['measurements']}"), code_of(document["sha256"])],
    ]
    return element("h2", "How this was made") + table(["what", "value"], rows)


def headline(document: ValidationDocument | PowerDocument) -> str:
    """Return the counts of rows and cells in one sentence."""
    overall, fields = document["overall"], cast("Mapping[str, Any]", document)
    apart = sum(item["cells"] for item in fields.get("apart", ()))
    return (
        f"{document['rows']:,} rows, {document['flagged']:,} of them flagged and not scored, "
        f"{document['refused_rows']:,} refused; {overall['cells']:,} cells scored, {overall['refused']:,} refused"
        + (f", {apart:,} apart" if "apart" in fields else "")
    )


def score_cells(scores: ScoresDocument) -> list[str]:
    """Return scores as text, in the order of `SCORES`; "–" for an unknown one."""
    ratio, rank = scores["median_ratio"], scores["spearman"]
    return [
        str(scores["cells"]),
        str(scores["refused"] or ""),
        "–" if ratio is None else f"{ratio:.2f}",
        *(_percent(value) for value in (scores["mape"], scores["p90"])),
        "–" if rank is None else f"{rank:.2f}",
        _percent(scores["inside"]),
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def bar_block(bar: BarDocument | None) -> str:
    """Return whether the bar is kept and what fails it, nothing without one."""
    if bar is None:
        return ""
    head = element("strong", text_of(f"{bar['file']}: {'kept' if bar['held'] else 'not kept'}"))
    items = "".join(element("li", text_of(failure)) for failure in bar["failures"])
    lines = element("ul", items) if items else ""
    return element("div", head + lines, class_=f"verdict {'good' if bar['held'] else 'no'}")


def _scores(found: Validation) -> str:
    rows = [["overall", "", "", *score_cells(found.document["overall"])]]
    if found.document["apart"]:
        rows.append(["with cells apart", "", "", *score_cells(found.document["everything"])])
    rows += [
        [text_of(group["platform"]), text_of(group["engine"]), text_of(group["precision"]), *score_cells(group)]
        for group in found.document["groups"]
    ]
    note = (
        "A cell is a platform, engine, precision, mode, share and network; its measurement is the fastest unflagged "
        "row. Ratio: predicted to measured. MAPE: mean of |ratio - 1|; P90: what 90 % of the cells keep within. "
        "Inside: share of the cells measured inside the predicted interval, time × (1 ± stated error)."
    )
    table_ = table(["platform", "engine", "precision", *SCORES], rows, range(3, 10))
    return element("h2", "Scores") + element("p", note, class_="dim") + table_


def _plots(cells: Sequence[Cell]) -> str:
    engines: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        engines.setdefault(cell.group[:2], []).append(cell)
    drawn = "".join(
        element("figure", element("figcaption", text_of(f"{name} {engine}, {len(own)} cells")) + _plot(own))
        for (name, engine), own in sorted(engines.items())
    )
    keys = "".join(
        element("li", element("strong", "● ", class_=f"c{colour}") + precision)
        for precision, colour in _COLOURS.items()
    )
    note = "Each dot is a cell; on the full line the prediction is exact, on the dashed ones half or double."
    key = element("ul", keys, class_="key")
    head = element("h2", "Predicted against measured") + element("p", note, class_="dim") + key
    return head + element("div", drawn, class_="pair") if drawn else ""


def _plot(cells: Sequence[Cell]) -> str:
    points = [
        Dot(cell.row.measured_ms, cell.prediction.predicted_ms, _COLOURS[cell.row.precision], _label(cell))
        for cell in cells
    ]
    row = cells[0].row
    name = f"{row.platform} {row.engine}: predicted against measured times of {len(cells)} cells"
    return draw_scatter(points, "measured [ms]", "predicted [ms]", name)


def _label(cell: Cell) -> str:
    row, prediction = cell.row, cell.prediction
    where = f"{row.network} {row.precision}, {prediction.mode}, {prediction.share} units"
    return f"{where}: measured {row.measured_ms:.4g} ms, predicted {prediction.predicted_ms:.4g} ms"


def _worst(cells: Sequence[Cell]) -> str:
    worst = sorted(cells, key=lambda cell: (-abs(math.log(cell.ratio)), cell.row.line))[:MOST_WORST]
    rows = [
        [
            text_of(cell.row.id),
            *(text_of(text) for text in cell.group),
            text_of(cell.prediction.mode),
            str(cell.prediction.share),
            text_of(cell.row.network),
            f"{cell.row.measured_ms:.4g}",
            f"{cell.prediction.predicted_ms:.4g}",
            f"{cell.ratio:.2f}",
            "yes" if cell.inside else "no",
            text_of(cell.prediction.provenance),
            text_of(cell.row.source),
        ]
        for cell in worst
    ]
    columns = ["id", "platform", "engine", "precision", "mode", "share", "network", "measured ms", "predicted ms"]
    columns += ["ratio", "inside", "provenance", "source"]
    return element("h2", "The worst cells") + table(columns, rows, (5, 7, 8, 9)) if rows else ""


def refusal_table(refusals: Sequence[RefusalDocument]) -> str:
    """Return the reasons for refused rows, most frequent first; nothing without any."""
    if not refusals:
        return ""
    rows = [[str(item["rows"]), text_of(item["reason"])] for item in refusals[:MOST_REFUSALS]]
    more = len(refusals) - len(rows)
    rest = element("p", f"{more} more reasons are in rows.csv.", class_="dim") if more else ""
    return element("h2", "Refused rows") + table(["rows", "reason"], rows, (0,)) + rest


def _apart(found: Validation) -> str:
    apart = found.document["apart"]
    if not apart:
        return ""
    note = "These cells are predicted and, in the scores above, only part of the line “with cells apart”."
    rows = [[str(item["cells"]), text_of(item["reason"])] for item in apart[:MOST_REFUSALS]]
    return element("h2", "Cells apart") + element("p", note, class_="dim") + table(["cells", "reason"], rows, (0,))


def text_of(text: str) -> str:
    """Return a text in one line, bounded and escaped."""
    return escape(one_line(text if len(text) <= LONGEST else f"{text[:LONGEST]}…"))


def code_of(text: str) -> str:
    """Return a text as code."""
    return element("code", text_of(text))


_NOTE = (
    "A cell is a platform, engines, precision, mode, clocks, share, network and meter; its measurement is the power of "
    "its fastest unflagged run, or the median power where times are not stated. Inside: share of the cells measured "
    "inside the predicted interval."
)


def power_page(found: PowerValidation) -> str:
    """Return the whole page."""
    document = found.document
    title = f"Predicted power against {document['measurements']}"
    rows = [["overall", "", "", *score_cells(document["overall"])]]
    rows += [
        [text_of(group["platform"]), text_of(group["meter"]), text_of(group["engine"]), *score_cells(group)]
        for group in document["groups"]
    ]
    blocks = [
        element("h1", text_of(title)),
        element("p", text_of(headline(document)), class_="lead"),
        bar_block(document["bar"]),
        element("h2", "Scores") + element("p", _NOTE, class_="dim"),
        table(["platform", "meter", "engines", *SCORES], rows, range(3, 10)),
        _plots_power(found.cells),
        _worst_power(found.cells),
        refusal_table(document["refusals"]),
        origin(document),
    ]
    return wrap_page(one_line(title), "".join(blocks))


def _plots_power(cells: Sequence[PowerCell]) -> str:
    places: dict[tuple[str, str], list[PowerCell]] = {}
    for cell in cells:
        places.setdefault((cell.row.platform, cell.row.meter), []).append(cell)
    drawn = "".join(
        element("figure", element("figcaption", text_of(f"{name}, {meter}, {len(own)} cells")) + _plot_power(own))
        for (name, meter), own in sorted(places.items())
    )
    return element("h2", "Predicted against measured") + element("div", drawn, class_="pair") if drawn else ""


def _plot_power(cells: Sequence[PowerCell]) -> str:
    engines = sorted({cell.row.engine for cell in cells})
    points = [
        Dot(cell.measured, cell.predicted, 1 + engines.index(cell.row.engine) % 3, _label_power(cell)) for cell in cells
    ]
    name = f"{cells[0].row.platform}: predicted against measured power of {len(cells)} cells"
    return draw_scatter(points, "measured [W]", "predicted [W]", name)


def _label_power(cell: PowerCell) -> str:
    row = cell.row
    where = f"{row.network} {row.precision} on {row.engine}, {row.mode}"
    return f"{where}: measured {cell.measured:.4g} W, predicted {cell.predicted:.4g} W"


def _worst_power(cells: Sequence[PowerCell]) -> str:
    worst = sorted(cells, key=lambda cell: (-abs(math.log(cell.predicted / cell.measured)), cell.row.line))
    rows = [
        [
            *(text_of(text) for text in (cell.row.id, cell.row.platform, cell.row.meter, cell.row.engine)),
            *(text_of(text) for text in (cell.row.precision, f"{cell.row.mode} {cell.row.clocks}", cell.row.network)),
            f"{cell.measured:.4g}",
            f"{cell.predicted:.4g}",
            "yes" if cell.inside else "no",
        ]
        for cell in worst[:MOST_WORST]
    ]
    columns = [
        "id",
        "platform",
        "meter",
        "engines",
        "precision",
        "mode",
        "network",
        "measured W",
        "predicted W",
        "inside",
    ]
    return element("h2", "The worst cells") + table(columns, rows, (7, 8)) if rows else ""


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
