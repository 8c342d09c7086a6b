"""The roofline figure: roofs of engines, memory ceilings, and the stages of a pipeline under them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.cost.roofs import Point, Roof
from socsched.errors import InputError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png")
COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c", "#8c3d5a", "#555555")
DASHES: dict[str, Any] = {"fp32": "-", "fp16": (0, (7, 2)), "int8": (0, (2, 1.5))}
MARKERS = "osD^vPX*<>hp"


def draw(path: Path, roofs: Sequence[Roof], points: Sequence[Point], title: str, footnote: str) -> None:
    """Write the figure to `path`, SVG or PNG by its suffix; the same input gives the same bytes.

    Raises UsageError for another suffix, InputError when the file cannot be written.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: cannot draw a {path.suffix or 'file without suffix'}", "use FILE.svg or FILE.png")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context({"svg.hashsalt": "socsched", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(figsize=(10.5, 6.6))
        try:
            _axes(axes, roofs, points, title)
            figure.text(0.01, 0.012, footnote, fontsize=7, color="#555555")
            figure.tight_layout(rect=(0, 0.03 + 0.015 * footnote.count("\n"), 1, 1))
            figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            problem = f"{path}: cannot be written: {error.strerror}"
            raise InputError(problem, "choose an existing, writable folder") from None
        finally:
            pyplot.close(figure)


def _axes(axes: Axes, roofs: Sequence[Roof], points: Sequence[Point], title: str) -> None:
    low, high = _span(roofs, points)
    colour = {group: COLOURS[i % len(COLOURS)] for i, group in enumerate(dict.fromkeys(r.engines for r in roofs))}
    for roof in roofs:
        xs = [low, min(max(roof.ridge, low), high), high]
        label = f"{_group(roof.engines)} {roof.precision}: {_rate(roof.peak)}op/s, {roof.bandwidth / 1e9:.3g} GB/s"
        style = {"color": colour[roof.engines], "linestyle": DASHES[roof.precision]}
        axes.plot(xs, [roof.attainable(x) for x in xs], linewidth=1.6, label=label, **style)
        flat = [max(roof.reached / roof.bandwidth, low), high]
        axes.plot(flat, [roof.reached] * 2, linewidth=0.7, alpha=0.55, **style)
    owner = {roof.engines[0]: roof.engines for roof in roofs}
    stages = list(dict.fromkeys(point.stage for point in points))
    for point in points:
        marker, tint = MARKERS[stages.index(point.stage) % len(MARKERS)], colour[owner[point.engine]]
        axes.plot([point.intensity] * 2, [point.predicted, point.attainable], color=tint, linewidth=0.6, alpha=0.5)
        fill = {"fp32": tint, "fp16": "white", "int8": "#f3e6c8"}[point.precision]
        axes.plot(point.intensity, point.predicted, marker, color=tint, markerfacecolor=fill, markersize=6)
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    bottom = min([point.predicted for point in points] + [roof.attainable(low) for roof in roofs])
    axes.set_ylim(bottom / 2, max([roof.peak for roof in roofs] + [point.predicted for point in points]) * 2.5)
    axes.set_xlabel("arithmetic intensity [operations / byte of DRAM traffic]")
    axes.set_ylabel("operations / s")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    lines = axes.legend(loc="upper left", fontsize=7, framealpha=0.92, ncols=2 if len(roofs) > 8 else 1)
    if stages:
        axes.add_artist(lines)
        marks = [axes.plot([], [], MARKERS[i % len(MARKERS)], color="#333333")[0] for i, _ in enumerate(stages)]
        axes.legend(marks, stages, loc="lower right", fontsize=7, title="stages, as predicted", title_fontsize=7)


def _span(roofs: Sequence[Roof], points: Sequence[Point]) -> tuple[float, float]:
    """Return the range of intensities that shows all ridges and stages."""
    shown = [roof.ridge for roof in roofs] + [point.intensity for point in points]
    return min([*shown, 1.0]) / 4, max([*shown, 10.0]) * 6


def _group(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"each of {', '.join(ids)}"


def _rate(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value / 1e6:.3g} M"
