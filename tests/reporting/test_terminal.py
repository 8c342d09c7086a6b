"""Tables on a terminal, wide and narrow."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from socsched.cli.results import outcome_code
from socsched.planning.plan import ExecutionTimes, Plan, Power
from socsched.reporting import terminal, view_model
from socsched.reporting.terminal import Sheet


def shown(item: Any, width: int = 160) -> str:
    """Render to plain text."""
    screen = Console(file=io.StringIO(), width=width)
    screen.print(item)
    return screen.file.getvalue()


def test_the_plan_view_names_every_stage_and_chain(plan: Plan) -> None:
    view = shown(terminal.plan_view(plan))
    assert view.startswith("✓ feasible  toy on board, mode MAXN, policy edf")
    for task in plan.tasks:
        assert task.name in view
    assert "lidar → voxelise → pfn" in view
    assert "59 ms" in view
    assert "14 W of 60 W cap" in view


def test_a_violation_shows_terms_and_levers(infeasible: Plan) -> None:
    view = shown(terminal.plan_view(infeasible))
    assert "✗ infeasible" in view
    lines = [" ".join(line.split()) for line in view.splitlines()]
    assert {"90 ms execution", "30 ms interference on <cpu>", "= 120 ms sum"} <= set(lines)
    assert "lever: drop fp32" in view


def test_markup_in_names_is_printed_literally(plan: Plan) -> None:
    odd = replace(plan, tasks=(replace(plan.tasks[0], name="[red]x[/red]"),))
    assert "[red]x[/red]" in shown(terminal.stages(odd))


def test_outcome_shows_misses_and_percentiles(result: dict[str, Any]) -> None:
    view = shown(terminal.outcome(result))
    assert "102.7 ms" in view
    assert "p99.9" in view


def test_power_is_set_against_the_cap(plan: Plan, result: dict[str, Any]) -> None:
    assert terminal.power_line(plan, result) == "Power mean 13.2 W of 60 W cap, peak 21 W"
    uncapped = replace(plan, power=Power(1))
    assert "no cap stated" in terminal.power_line(uncapped, result)
    assert "not observed" in terminal.power_line(plan, {"kind": "measured", "power_mw": {"mean": None}})


def test_predicted_percentiles_stand_next_to_measured_ones_of_the_same_kind(plan: Plan, result: dict[str, Any]) -> None:
    """A profile plans with the p99; what is held against the measured median is the profile's median."""
    name, times = plan.tasks[0].name, tuple(range(1_000_000, 101_000_000, 1_000_000))
    known = replace(plan.tasks[0], cost_ns=99_000_000, times=ExecutionTimes(times))
    profiled = replace(plan, tasks=(known, *plan.tasks[1:]))
    measured = {**result, "stages": {name: {"exec_ns": {"p50": 55_000_000, "p99": 108_900_000, "max": 110_000_000}}}}
    row, other = view_model.predicted_against_measured(profiled, measured)[:2]
    assert (row.predicted_p50_ns, row.predicted_p99_ns, row.ratio) == (50_000_000, 99_000_000, 1.1)
    assert (other.predicted_p50_ns, other.predicted_p99_ns) == (plan.tasks[1].cost_ns, None)
    table = shown(terminal.predicted_against_measured(profiled, measured))
    line = next(line for line in table.splitlines() if name in line)
    assert [word for word in line.split() if word.replace(".", "").isdigit()] == ["50", "55", "1.10", "99", "108.9"]


def test_a_run_that_no_sensor_paces_shows_frames_a_second_and_nothing_late(result: dict[str, Any]) -> None:
    entry = {"released": 50, "completed": 48, "missed": 7, "dropped": 2, "response_time_ns": {}}
    free = {"kind": "measured", "duration_ns": 2_000_000_000, "chains": {"detection": entry}}
    view = shown(terminal.outcome(free, paced=False))
    assert "frames/s" in view and "late" not in view and "24.0" in view
    assert "late" in shown(terminal.outcome(free)) and "frames/s" not in shown(terminal.outcome(free))
    assert outcome_code(free) == outcome_code(free, paced=False) == 1
    none_dropped = {**free, "chains": {"detection": {**entry, "dropped": 0}}}
    assert (outcome_code(none_dropped), outcome_code(none_dropped, paced=False)) == (1, 0)


COLUMNS = ["stage", "time", "WCET", "engine", "why"]
ROWS = [
    ["voxelise", "3.705 ms", "4.1 ms", "cpu0", "the fastest of three candidates that take it"],
    ["camera-preprocess", "120.5 us", "121 us", "gpu", ""],
]


def laid_out(sheet: Sheet, width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(sheet)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_columns_that_fit_are_side_by_side() -> None:
    lines = laid_out(Sheet(COLUMNS, ROWS, (1, 2), (4,)), 120)
    assert len(lines) == 3
    assert lines[1] == "voxelise           3.705 ms  4.1 ms  cpu0    the fastest of three candidates that take it"


def test_columns_that_do_not_fit_go_below_their_row() -> None:
    lines = laid_out(Sheet(COLUMNS, ROWS, (1, 2), (4,)), 50)
    assert lines == [
        "stage                  time    WCET  engine",
        "voxelise           3.705 ms  4.1 ms  cpu0",
        "    the fastest of three candidates that take it",
        "camera-preprocess  120.5 us  121 us  gpu",
    ]


def test_figures_below_keep_their_names() -> None:
    assert laid_out(Sheet(COLUMNS[:4], ROWS[1:] and [row[:4] for row in ROWS], (1, 2), (1, 2, 3)), 30) == [
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
    assert laid_out(sheet, 40)[0].split() == ["stage", "a", "long", "head", "time"]
    assert laid_out(sheet, 14) == ["stage     time", "voxelise  3 ms"]
    assert laid_out(sheet, 12) == ["stage voxelise", "  time    3 ms"] or laid_out(sheet, 12)[-1].endswith("3 ms")


words = st.text("abcdefgh", min_size=1, max_size=12)
cells = st.lists(words, max_size=6).map(" ".join)


@given(st.integers(30, 100), st.data())
def test_nothing_is_lost_and_nothing_is_wider_than_the_screen(width: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    heads = data.draw(st.lists(words, min_size=count, max_size=count))
    rows = data.draw(st.lists(st.lists(cells, min_size=count, max_size=count), max_size=4))
    below = data.draw(st.sets(st.integers(1, count - 1))) if count > 1 else set()
    lines = laid_out(Sheet(heads, rows, (), sorted(below)), width)
    assert max(map(len, lines), default=0) <= width
    # every word of every cell is there; none is longer than what may be broken
    reported = " ".join(lines).split()
    for row in rows:
        for cell in row:
            assert all(word in reported for word in cell.split())
