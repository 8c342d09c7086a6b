"""Markup of pages and drawings: escaped elements, tables, text that fits, and the page around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Return one XML element; `content` is markup already, attribute values are escaped, `class_` means class."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content or name not in _VOID else f"<{name}{written}/>"


_VOID = {"line", "rect", "path", "circle", "img", "polyline"}


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(content: object, x: float, y: float, **attributes: object) -> str:
    """Return an SVG text element with `content` escaped."""
    return element("text", escape(str(content)), x=float(x), y=float(y), **attributes)


def picture(body: str, width: float, height: float, label: str, kind: str = "") -> str:
    """Return a complete SVG in a box that scrolls on narrow screens; `label` describes it."""
    drawing = element(
        "svg",
        element("title", escape(label)) + body,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )
    return element("div", drawing, class_=f"figure {kind}".strip(), tabindex=0, role="group", aria_label=label)


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Return about `count` round tick positions within [low, high]."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / max(count, 1)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def fit(content: str, width: float, size: float = 11) -> str:
    """Return `content`, shortened with an ellipsis to fit `width` pixels at font `size`; empty if nothing fits."""
    room = int(width / (size * 0.6))
    if len(content) <= room:
        return content
    return content[: room - 1] + "…" if room >= 4 else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numeric: Iterable[int] = ()) -> str:
    """Return an HTML table in a box that scrolls; cells are markup already, columns in `numeric` align right."""
    right = set(numeric)

    def line(cells: Sequence[str], tag: str) -> str:
        return element(
            "tr",
            "".join(
                element(tag, cell, class_="num" if i in right else None, scope="col" if tag == "th" else None)
                for i, cell in enumerate(cells)
            ),
        )

    head = element("thead", line([escape(h) for h in header], "th"))
    body = element("tbody", "".join(line(row, "td") for row in rows))
    return element("div", element("table", head + body), class_="scroll", tabindex=0, role="group")


def wrap_page(title: str, body: str) -> str:
    """Return a page with the report's style around a body."""
    style = (files("socsched.reporting") / "assets" / "report.css").read_text(encoding="utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'
