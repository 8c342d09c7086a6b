"""The page of a validation of power: scores, predicted against measured power per platform, the worst cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from socsched.reporting.page import wrap_page
from socsched.reporting.scatter import Point, draw_scatter
from socsched.reporting.svg import element, table
from socsched.text import one_line
from socsched.validation.page import (
    MOST_WORST,
    SCORES,
    bar_block,
    headline,
    origin,
    refusal_table,
    score_cells,
    text_of,
)
from socsched.validation.power import PowerCell, PowerValidation

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
        _plots(found.cells),
        _worst(found.cells),
        refusal_table(document["refusals"]),
        origin(document),
    ]
    return wrap_page(one_line(title), "".join(blocks))


def _plots(cells: Sequence[PowerCell]) -> str:
    places: dict[tuple[str, str], list[PowerCell]] = {}
    for cell in cells:
        places.setdefault((cell.row.platform, cell.row.meter), []).append(cell)
    drawn = "".join(
        element("figure", element("figcaption", text_of(f"{name}, {meter}, {len(own)} cells")) + _plot(own))
        for (name, meter), own in sorted(places.items())
    )
    return element("h2", "Predicted against measured") + element("div", drawn, class_="pair") if drawn else ""


def _plot(cells: Sequence[PowerCell]) -> str:
    engines = sorted({cell.row.engine for cell in cells})
    points = [
        Point(cell.measured, cell.predicted, 1 + engines.index(cell.row.engine) % 3, _label(cell)) for cell in cells
    ]
    name = f"{cells[0].row.platform}: predicted against measured power of {len(cells)} cells"
    return draw_scatter(points, "measured [W]", "predicted [W]", name)


def _label(cell: PowerCell) -> str:
    row = cell.row
    where = f"{row.network} {row.precision} on {row.engine}, {row.mode}"
    return f"{where}: measured {cell.measured:.4g} W, predicted {cell.predicted:.4g} W"


def _worst(cells: Sequence[PowerCell]) -> str:
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
