"""The page of a validation, and its folder."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from socsched.errors import writing
from socsched.files import write_file
from socsched.reporting import markup as html
from socsched.reporting.charts import Dot, draw_scatter
from socsched.reporting.markup import Markup, element, facts, listed, section, table, verdict_box
from socsched.text import one_line
from socsched.validation.document import ADDED, LeftOutDocument, PowerDocument, ScoresDocument, ValidationDocument
from socsched.validation.power import ADDED as POWER_ADDED
from socsched.validation.power import PowerCell, PowerValidation
from socsched.validation.predict import Predicted
from socsched.validation.scores import TimeCell
from socsched.validation.validate import Validation

MOST_WORST, MOST_REFUSALS, LONGEST = 40, 40, 200
_COLOURS = {name: place for place, name in enumerate(("fp32", "fp16", "int8", "w8a16", "tf32", "fp8", "fp4"), 1)}
LEFT_OUT = ("family", "left out", "boards", "cells", "MAPE", "inside", "median interval")
SCORES = ("cells", "refused", "median ratio", "MAPE", "P90", "Spearman", "inside")


Document = ValidationDocument | PowerDocument
C = TypeVar("C", TimeCell, PowerCell)


def headline(document: ValidationDocument | PowerDocument) -> str:
    """Return the counts of rows and cells in one sentence."""
    overall, fields = document["overall"], cast("Mapping[str, Any]", document)
    apart = sum(item["cells"] for item in fields.get("apart", ()))
    return (
        f"{document['rows']:,} rows, {document['flagged']:,} of them flagged and not scored, "
        f"{document['refused_rows']:,} refused; {overall['cells']:,} cells scored, {overall['refused']:,} refused"
        + (f", {apart:,} apart" if "apart" in fields else "")
    )


def units_line(document: ValidationDocument | PowerDocument) -> str:
    """Return the scores of what falls back in one sentence, empty where no row names units."""
    units = cast("Mapping[str, Any]", document).get("units")
    if not units:
        return ""
    some = "" if units["some"] is None else f", F1 {units['some']:.2f}"
    return (
        f"Units of {units['rows']:,} rows: the main one right in {units['unit_right']:.1%}, F1 {units['unit']:.2f}; "
        f"some layers elsewhere: {units['hits']} of {units['fallen']} foretold, {units['false']} in error{some}"
    )


def left_out_cells(scores: Iterable[LeftOutDocument]) -> list[list[str]]:
    """Return the errors of what fits have not seen as text, in the order of `LEFT_OUT`."""
    return [
        [
            one["family"], one["left_out"], str(one["boards"]), str(one["cells"]), _percent(one["mape"]),
            _percent(one["inside"]), "–" if one["interval"] is None else f"± {one['interval']:.0%}",
        ]
        for one in scores
    ]  # fmt: skip


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


def page(validation: Validation) -> str:
    """Return the page of predicted and measured times."""
    document, cells = validation.document, validation.cells
    note = (
        "A cell is a platform, engine, precision, mode, share and network; its measurement is the fastest unflagged "
        "row. Ratio: predicted to measured. MAPE: mean of |ratio - 1|; P90: what 90 % of the cells keep within. "
        "Inside: share of the cells measured inside the predicted interval, time / (1 + error) to time × (1 + error)."
    )
    key = (element("li", element("strong", "● ", class_=f"c{colour}"), name) for name, colour in _COLOURS.items())
    legend = "Each dot is a cell; on the full line the prediction is exact, on the dashed ones half or double."
    plots = [
        (f"{name} {engine}", own, _plot_times(own)) for (name, engine), own in _grouped(cells, lambda c: c.group[:2])
    ]
    worst = [
        [
            cell.row.id, *cell.group, cell.prediction.mode, cell.prediction.share, cell.row.network,
            f"{cell.measured:.4g}", f"{cell.predicted:.4g}", f"{cell.ratio:.2f}",
            "yes" if cell.inside else "no", cell.prediction.provenance, cell.row.source,
        ]
        for cell in _farthest(cells)
    ]  # fmt: skip
    columns = ["id", "platform", "engine", "precision", "mode", "share", "network", "measured ms", "predicted ms"]
    columns += ["ratio", "inside", "provenance", "source"]
    unseen = left_out_cells(document["left_out"])
    apart = [[str(item["cells"]), item["reason"]] for item in document["apart"][:MOST_REFUSALS]]
    return _page(
        f"Predictions against {document['measurements']}",
        document,
        _scores(("platform", "engine", "precision"), document, note),
        section("Left out of the fit", _table(LEFT_OUT, unseen, range(2, 7))) if unseen else None,
        _plots(plots, legend, element("ul", key, class_="key")),
        section("The worst cells", _table(columns, worst, (5, 7, 8, 9))) if worst else None,
        _refusals(document),
        section(
            "Cells apart",
            _table(["cells", "reason"], apart, (0,)),
            note="These cells are predicted and, in the scores above, only part of the line “with cells apart”.",
        )
        if apart
        else None,
    )


def power_page(validation: PowerValidation) -> str:
    """Return the page of predicted and measured power."""
    document, cells = validation.document, validation.cells
    note = (
        "A cell is a platform, engines, precision, mode, clocks, share, network and meter; its measurement is the "
        "power of its fastest unflagged run, or the median power where times are not stated. Inside: share of the "
        "cells measured inside the predicted interval."
    )
    plots = [
        (f"{name}, {meter}", own, _plot_power(own)) for (name, meter), own in _grouped(cells, lambda c: c.group[:2])
    ]
    worst = [
        [
            cell.row.id, *cell.group, cell.row.precision,
            f"{cell.row.mode} {cell.row.clocks}", cell.row.network, f"{cell.measured:.4g}", f"{cell.predicted:.4g}",
            "yes" if cell.inside else "no",
        ]
        for cell in _farthest(cells)
    ]  # fmt: skip
    columns = ["id", "platform", "meter", "engines", "precision", "mode", "network", "measured W", "predicted W"]
    return _page(
        f"Predicted power against {document['measurements']}",
        document,
        _scores(("platform", "meter", "engines"), document, note),
        _plots(plots),
        section("The worst cells", _table([*columns, "inside"], worst, (7, 8))) if worst else None,
        _refusals(document),
    )


def _page(title: str, document: Document, *content: Markup | None) -> str:
    bar, box = document["bar"], None
    if bar is not None:
        head = text_of(f"{bar['file']}: {'kept' if bar['held'] else 'not kept'}")
        box = verdict_box(bar["held"], head, listed(map(text_of, bar["failures"])))
    made = {"socsched": document["socsched"], f"sha256 of {document['measurements']}": document["sha256"]}
    return html.page(
        one_line(title),
        element("h1", text_of(title)),
        element("p", text_of(headline(document)), class_="lead"),
        element("p", text_of(line)) if (line := units_line(document)) else None,
        box,
        *content,
        section("How this was made", facts({text_of(name): text_of(value) for name, value in made.items()})),
    )


def _scores(names: tuple[str, ...], document: Document, note: str) -> Markup:
    every = cast("Mapping[str, Any]", document)
    rows = [["overall", "", "", *score_cells(document["overall"])]]
    if every.get("apart"):
        rows.append(["with cells apart", "", "", *score_cells(every["everything"])])
    keys = [name.removesuffix("s") for name in names]
    rows += [[*(group[key] for key in keys), *score_cells(group)] for group in every["groups"]]
    return section("Scores", _table([*names, *SCORES], rows, range(3, 10)), note=note)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]], numeric: Iterable[int]) -> Markup:
    """Return a table of texts from files, which are bounded."""
    return table(columns, [[text_of(str(cell)) for cell in row] for row in rows], numeric)


def _grouped(cells: Iterable[C], name_of: Callable[[C], tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[C]]]:
    groups: dict[tuple[str, ...], list[C]] = {}
    for cell in cells:
        groups.setdefault(name_of(cell), []).append(cell)
    return sorted(groups.items(), key=lambda item: item[0])


def _farthest(cells: Sequence[C]) -> list[C]:
    return sorted(cells, key=lambda cell: (-abs(math.log(cell.predicted / cell.measured)), cell.row.line))[:MOST_WORST]


def _plots(plots: Sequence[tuple[str, Sequence[object], Markup]], note: str = "", key: Markup | None = None) -> Markup:
    drawn = [
        element("figure", element("figcaption", text_of(f"{name}, {len(cells)} cells")), drawing)
        for name, cells, drawing in plots
    ]
    title = "Predicted against measured"
    return section(title, key, element("div", drawn, class_="pair"), note=note) if drawn else Markup()


def _plot_times(cells: Sequence[TimeCell]) -> Markup:
    dots = []
    for cell in cells:
        row, prediction = cell.row, cell.prediction
        where = f"{row.network} {row.precision}, {prediction.mode}, {prediction.share} units"
        label = f"{where}: measured {cell.measured:.4g} ms, predicted {cell.predicted:.4g} ms"
        dots.append(Dot(cell.measured, cell.predicted, _COLOURS.get(row.precision, 0), label))
    row = cells[0].row
    name = f"{row.platform} {row.engine}: predicted against measured times of {len(cells)} cells"
    return draw_scatter(dots, "measured [ms]", "predicted [ms]", name)


def _plot_power(cells: Sequence[PowerCell]) -> Markup:
    engines, dots = sorted({cell.row.engine for cell in cells}), []
    for cell in cells:
        row = cell.row
        where = f"{row.network} {row.precision} on {row.engine}, {row.mode}"
        label = f"{where}: measured {cell.measured:.4g} W, predicted {cell.predicted:.4g} W"
        dots.append(Dot(cell.measured, cell.predicted, 1 + engines.index(row.engine) % 3, label))
    name = f"{cells[0].row.platform}: predicted against measured power of {len(cells)} cells"
    return draw_scatter(dots, "measured [W]", "predicted [W]", name)


def _refusals(document: Document) -> Markup | None:
    """Return the reasons for refused rows, most frequent first; nothing without any."""
    refusals = document["refusals"]
    rows = [[str(item["rows"]), item["reason"]] for item in refusals[:MOST_REFUSALS]]
    more = len(refusals) - len(rows)
    rest = element("p", f"{more} more reasons are in rows.csv.", class_="dim") if more else None
    return section("Refused rows", _table(["rows", "reason"], rows, (0,)), rest) if rows else None


def text_of(text: str) -> str:
    """Return a text in one line, bounded."""
    return one_line(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


ROWS, SUMMARY, PAGE = "rows.csv", "summary.json", "index.html"


def save(found: Validation | PowerValidation, folder: Path) -> None:
    """Write the files of a validation into a folder, which is created; UsageError or MachineError if that fails."""
    summary = json.dumps(found.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    whole = page(found) if isinstance(found, Validation) else power_page(found)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in ((ROWS, rows_csv(found)), (SUMMARY, summary), (PAGE, whole)):
            write_file(folder / name, content)


def rows_csv(found: Validation | PowerValidation) -> str:
    """Return the input's columns and rows, each with its prediction; cells of the input are passed on unchanged."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if isinstance(found, Validation):
        writer.writerow((*found.measurements.columns, *ADDED))
        for row, one in zip(found.measurements.rows, found.predictions, strict=True):
            provenance = "" if one.refused else one.provenance
            writer.writerow((*row.cells, *_figures(one, row.measured_ms, 6), provenance, one.refused))
    else:
        writer.writerow((*found.table.columns, *POWER_ADDED))
        for power, watts in zip(found.table.rows, found.predictions, strict=True):
            writer.writerow((*power.cells, *_figures(watts, power.measured_w, 4), watts.refused))
    return out.getvalue()


def _figures(found: Predicted, measured: float, digits: int) -> list[str]:
    """Return a prediction, the ends of its interval, and whether that holds what was measured."""
    if found.refused:
        return ["", "", "", ""]
    return [
        *(f"{one:.{digits}f}" for one in (found.predicted, found.low, found.high)),
        str(found.holds(measured)).lower(),
    ]
