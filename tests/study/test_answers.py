"""Fronts, the best rows, effects of parameters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from socsched.study.report import effects
from socsched.study.sweep import front

AXES = ("latency_ns", "tdp_mw")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9) | st.none()), max_size=30))
def test_a_front_is_what_no_other_row_beats(places: list[tuple[int, int | None]]) -> None:
    rows = [{"config": n, "latency_ns": a, "tdp_mw": b} for n, (a, b) in enumerate(places)]
    known = [row for row in rows if row["tdp_mw"] is not None]

    def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
        ends = [(a[axis], b[axis]) for axis in AXES]
        return all(x <= y for x, y in ends) and any(x < y for x, y in ends)

    best = [row for row in known if not any(beats(other, row) for other in known)]
    found = front(rows, AXES)
    assert {tuple(row[a] for a in AXES) for row in best} == {tuple(rows[n][a] for a in AXES) for n in found}
    assert len(found) == len({tuple(row[a] for a in AXES) for row in best}), "one of those alike"


def test_effects_are_means_over_all_else_widest_first() -> None:
    rows = [{"slack": 10 * a + b, "a": a, "b": b, "c": 1} for a in (0, 1) for b in (0, 1, 4)]
    rows.append({"slack": None, "a": 5, "b": 5, "c": 1})
    wide, narrow = effects(rows, ["b", "a", "c"], "slack")
    assert wide == ("a", ((5 / 3, 0), (35 / 3, 1)))
    assert narrow == ("b", ((5.0, 0), (9.0, 4)))
