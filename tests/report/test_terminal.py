"""Tables on the terminal: complete at any width, terms that add up, nothing styled by content."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from socsched.plan.plan import Plan
from socsched.report import terminal


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


def test_markup_in_names_is_printed_as_it_is(plan: Plan) -> None:
    odd = replace(plan, tasks=(replace(plan.tasks[0], name="[red]x[/red]"),))
    assert "[red]x[/red]" in shown(terminal.stages(odd))


def test_outcome_shows_misses_and_percentiles(result: dict[str, Any]) -> None:
    view = shown(terminal.outcome(result))
    assert "102.7 ms" in view
    assert "p99.9" in view


def test_power_is_set_against_the_cap(plan: Plan, result: dict[str, Any]) -> None:
    assert terminal.power_line(plan, result) == "Power mean 13.2 W of 60 W cap, peak 21 W"
    uncapped = replace(plan, power={"expected_mw": 1, "cap_mw": None})
    assert "no cap stated" in terminal.power_line(uncapped, result)
    assert "not observed" in terminal.power_line(plan, {"kind": "measured", "power_mw": {"mean": None}})
