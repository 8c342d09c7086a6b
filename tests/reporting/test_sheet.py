"""Tables on narrow terminals: no content is lost, no word is split needlessly, no line is wider than the screen."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from socsched.reporting.terminal import Sheet

COLUMNS = ["stage", "time", "WCET", "engine", "why"]
ROWS = [
    ["voxelise", "3.705 ms", "4.1 ms", "cpu0", "the fastest of three candidates that take it"],
    ["camera-preprocess", "120.5 us", "121 us", "gpu", ""],
]


def shown(sheet: Sheet, width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(sheet)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_columns_that_fit_are_side_by_side() -> None:
    lines = shown(Sheet(COLUMNS, ROWS, (1, 2), (4,)), 120)
    assert len(lines) == 3
    assert lines[1] == "voxelise           3.705 ms  4.1 ms  cpu0    the fastest of three candidates that take it"


def test_columns_that_do_not_fit_go_below_their_row() -> None:
    lines = shown(Sheet(COLUMNS, ROWS, (1, 2), (4,)), 50)
    assert lines == [
        "stage                  time    WCET  engine",
        "voxelise           3.705 ms  4.1 ms  cpu0",
        "    the fastest of three candidates that take it",
        "camera-preprocess  120.5 us  121 us  gpu",
    ]


def test_figures_below_keep_their_names() -> None:
    assert shown(Sheet(COLUMNS[:4], ROWS[1:] and [row[:4] for row in ROWS], (1, 2), (1, 2, 3)), 30) == [
        "stage",
        "voxelise",
        "    time 3.705 ms",
        "    WCET 4.1 ms   engine cpu0",
        "camera-preprocess",
        "    time 120.5 us",
        "    WCET 121 us   engine gpu",
    ]


def test_empty_columns_give_way_first_and_a_list_is_the_last_resort() -> None:
    sheet = Sheet(["stage", "a long head", "time"], [["voxelise", "", "3 ms"]], (2,))
    assert shown(sheet, 40)[0].split() == ["stage", "a", "long", "head", "time"]
    assert shown(sheet, 14) == ["stage     time", "voxelise  3 ms"]
    assert shown(sheet, 12) == ["stage voxelise", "  time    3 ms"] or shown(sheet, 12)[-1].endswith("3 ms")


words = st.text("abcdefgh", min_size=1, max_size=12)
cells = st.lists(words, max_size=6).map(" ".join)


@given(st.integers(30, 100), st.data())
def test_nothing_is_lost_and_nothing_is_wider_than_the_screen(width: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    heads = data.draw(st.lists(words, min_size=count, max_size=count))
    rows = data.draw(st.lists(st.lists(cells, min_size=count, max_size=count), max_size=4))
    below = data.draw(st.sets(st.integers(1, count - 1))) if count > 1 else set()
    lines = shown(Sheet(heads, rows, (), sorted(below)), width)
    assert max(map(len, lines), default=0) <= width
    # every word of every cell is there; none is longer than what may be broken
    reported = " ".join(lines).split()
    for row in rows:
        for cell in row:
            assert all(word in reported for word in cell.split())
