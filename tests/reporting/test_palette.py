"""Colours of the page, in light and dark: contrast by WCAG 2.1 (4.5 for text, 3 for graphics), computed here."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = (files("socsched.reporting") / "assets" / "report.css").read_text(encoding="utf-8")
PALER, DIMMED = 0.85, 0.35
"""Opacity of odd frames, and of jobs that the selected one has nothing to do with."""


def schemes() -> dict[str, dict[str, str]]:
    """Return the variables of both schemes: the second :root, for dark screens, overrides the first."""
    light, dark = (
        dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", block)) for block in re.findall(r":root\{([^}]*)\}", CSS)[:2]
    )
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    """Contrast ratio, WCAG 2.1."""
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, below: str, share: float) -> str:
    """Return the colour of `colour` drawn with an opacity on another."""
    pairs = ((int(colour[at : at + 2], 16), int(below[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


def test_black_on_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_the_schemes_differ() -> None:
    found = schemes()
    assert luminance(found["light"]["bg"]) > 0.9 > 0.1 > luminance(found["dark"]["bg"])
    assert len(found["dark"]) == len(found["light"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    colours = schemes()[scheme]
    for ground in ("bg", "soft"):
        for ink in ("fg", "dim", "ok", "bad", "warn", *(f"c{i}" for i in range(8))):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (scheme, ink, ground)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_on_bars_can_be_read_on_even_and_odd_frames(scheme: str) -> None:
    assert "opacity:.85" in CSS and "opacity:.35" in CSS
    colours = schemes()[scheme]
    for bar in (colours[f"c{i}"] for i in range(8)):
        assert contrast(colours["ink"], bar) >= 4.5
        assert contrast(colours["ink"], mixed(bar, colours["bg"], PALER)) >= 4.5
        assert contrast(colours["fg"], mixed(bar, colours["bg"], DIMMED)) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_borders_of_controls_can_be_seen(scheme: str) -> None:
    colours = schemes()[scheme]
    for ground in ("bg", "soft"):
        assert contrast(colours["edge"], colours[ground]) >= 3
        assert contrast(colours["bad"], colours[ground]) >= 3
