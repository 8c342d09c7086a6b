"""Markup of pages and drawings: escaped elements, tables, text that fits, and the page around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files


class Markup(str):
    """Markup, which is not escaped again; what is added to it is."""

    __slots__ = ()

    def __add__(self, other: object) -> Markup:
        return markup(self, other)

    def __radd__(self, other: object) -> Markup:
        return markup(other, self)


def markup(*content: object) -> Markup:
    """Return content as markup: text escaped, markup as it is, the parts of a collection in order, None as nothing."""
    return Markup("".join(map(_written, content)))


def _written(content: object) -> str:
    if isinstance(content, Markup):
        return content
    if content is None:
        return ""
    if isinstance(content, Iterable) and not isinstance(content, str):
        return "".join(map(_written, content))
    return escape(str(content))


def element(name: str, *content: object, **attributes: object) -> Markup:
    """Return one XML element with the content of `markup`; attribute values are escaped, `class_` means class."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = markup(*content)
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside or name not in _VOID else f"<{name}{written}/>")


_VOID = {"line", "rect", "path", "circle", "img", "polyline"}


def _number(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text(content: object, x: float, y: float, **attributes: object) -> Markup:
    """Return an SVG text element."""
    return element("text", str(content), x=float(x), y=float(y), **attributes)


def svg(title: str, *body: object, width: float, height: float, **attributes: object) -> Markup:
    """Return a complete SVG."""
    return element(
        "svg", element("title", title), *body, viewBox=f"0 0 {width:g} {height:g}", width=width, height=height,
        xmlns="http://www.w3.org/2000/svg", **attributes,
    )  # fmt: skip


def picture(body: object, width: float, height: float, label: str, kind: str = "") -> Markup:
    """Return a complete SVG in a box that scrolls on narrow screens; `label` describes it."""
    drawing = svg(label, body, width=width, height=height, role="img")
    return element("div", drawing, class_=f"figure {kind}".strip(), tabindex=0, role="group", aria_label=label)


def figure(title: str, body: object, width: float, height: float, notes: Sequence[str]) -> str:
    """Return a drawing of the pages as an SVG of its own, in their style, with its title above and notes below."""
    high = height + 34 + 18 * len(notes)
    lines = (text(note, 8, height + 44 + 18 * row, class_="axis") for row, note in enumerate(notes))
    return svg(
        title, element("style", _asset("report.css")), element("rect", width=width, height=high, fill="var(--bg)"),
        text(title, 8, 18, class_="name"), element("g", body, transform="translate(0 26)"), lines, width=width,
        height=high,
    )  # fmt: skip


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


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], numeric: Iterable[int] = (), firm: Iterable[int] = ()
) -> Markup:
    """Return an HTML table in a box that scrolls; columns in `numeric` align right, those in `firm` do not wrap."""
    right, fixed = set(numeric), set(firm)

    def line(cells: Sequence[object], tag: str, scope: str | None = None) -> Markup:
        return element(
            "tr",
            (element(tag, cell, class_="num" if i in right else None, scope=scope) for i, cell in enumerate(cells)),
        )

    lines = ([element("span", cell, class_="firm") if i in fixed else cell for i, cell in enumerate(r)] for r in rows)
    head, body = element("thead", line(header, "th", "col")), element("tbody", (line(cells, "td") for cells in lines))
    return element("div", element("table", head, body), class_="scroll", tabindex=0, role="group")


def listed(lines: Iterable[object]) -> Markup:
    """Return a list of lines, nothing without any."""
    items = [element("li", line) for line in lines]
    return element("ul", items) if items else Markup()


def section(title: object, *content: object, note: str = "") -> Markup:
    """Return a heading, a note on how to read what follows, and that; nothing without it."""
    inside = markup(*content)
    return (
        markup(element("h2", title), element("p", note, class_="dim") if note else None, inside) if inside else inside
    )


def facts(values: Mapping[str, object]) -> Markup:
    """Return commands, versions and digests as a table."""
    return table(["what", "value"], [[key, element("code", value)] for key, value in values.items()])


def tiles(figures: Iterable[tuple[str, str]]) -> Markup:
    """Return key figures, each a name and a value, as tiles."""
    cells = (element("div", element("b", value), element("span", name), class_="tile") for name, value in figures)
    return element("div", cells, class_="tiles")


def verdict_box(good: bool, head: object, *content: object) -> Markup:
    """Return the box with a page's answer, and what it rests on."""
    return element("div", element("strong", head), *content, class_=f"verdict {'good' if good else 'no'}")


def page(title: str, *content: object, script: str = "") -> str:
    """Return a self-contained HTML page in the report's style, with the script of that name among the assets."""
    head = markup(
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        Markup('<link rel="icon" href="data:,">'),
        element("title", title),
        element("style", _asset("report.css")),
    )
    scripts = element("script", _asset(script)) if script else None
    body = element("body", element("main", *content), scripts)
    return f'<!doctype html>\n<html lang="en">{element("head", head)}{body}</html>\n'


def _asset(name: str) -> Markup:
    return Markup((files("socsched.reporting") / "assets" / name).read_text(encoding="utf-8"))
