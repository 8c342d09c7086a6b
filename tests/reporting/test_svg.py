"""Drawing primitives: escaping, round ticks, downsampling that keeps area and peaks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.reporting.markup import element, fit, text, ticks


def test_attributes_and_text_are_escaped() -> None:
    assert element("g", "x", class_='a"b') == '<g class="a&quot;b">x</g>'
    assert text("<b>", 1, 2) == '<text x="1" y="2">&lt;b&gt;</text>'
    assert element("rect", x=1.50, stroke_width=2, fill=None) == '<rect x="1.5" stroke-width="2"/>'


@given(st.floats(0, 1e6), st.floats(1e-3, 1e6), st.integers(2, 12))
def test_ticks_are_evenly_spaced_and_inside(low: float, span: float, count: int) -> None:
    found = ticks(low, low + span, count)
    tolerance = 1e-6 * (low + span)
    assert all(low - tolerance <= tick <= low + span + tolerance for tick in found)
    assert len(found) <= count + 1
    gaps = {round(b - a, 9) for a, b in itertools.pairwise(found)}
    assert not gaps or max(gaps) - min(gaps) <= tolerance


def test_ticks_of_nothing() -> None:
    assert ticks(3, 3) == [3]


@pytest.mark.parametrize(("width", "expected"), [(100, "backbone"), (40, "backb…"), (5, "")])
def test_labels_are_shortened_to_fit(width: float, expected: str) -> None:
    assert fit("backbone", width, 10.5) == expected
