"""Comparison of planners, as a table, as data and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.api.comparison import Outcome
from socsched.planning.planners import planner, planner_names
from socsched.reporting import view_model
from socsched.reporting.terminal import table
from socsched.units import format_duration, format_power


def view(outcomes: Sequence[Outcome]) -> RenderableType:
    """Return the table, followed by the limitations of planners."""
    columns = [
        "front",
        "planner",
        "verdict",
        "latency",
        "longest",
        "bound",
        "lost",
        "power",
        "energy",
        "tasks",
        "planned in",
    ]
    rows = [
        [
            "●" if o.on_front else "",
            o.name,
            o.plan.verdict,
            format_duration(o.latency_ns) if o.plan.tasks else "–",
            format_duration(o.last_ns) if o.plan.tasks else "–",
            format_duration(o.bound_ns) if o.bound_ns is not None else "none",
            f"{o.lost} of {o.frames}",
            format_power(o.power_mw),
            view_model.energy(o.energy_mj),
            str(len(o.plan.tasks)),
            f"{o.seconds:.2f} s",
        ]
        for o in outcomes
        if o.plan is not None
    ]
    first = next((o.plan for o in outcomes if o.plan is not None), None)
    title = f"{first.pipeline} on {first.platform}: planners" if first else "no planner covers the pipeline"
    period = next((format_duration(o.round_ns) for o in outcomes if o.round_ns), "")
    notes = [
        "latency: mean as simulated, all chains summed; longest of them; bound: of all; lost: frames late or dropped; "
        f"energy: of {period}, the whole module",
        *(f"{o.name}: {o.refusal}" for o in outcomes if o.refusal),
    ]
    return Group(table(title, columns, rows, range(3, 11)), Text(""), *(Text(note, "dim") for note in notes))


def listing() -> RenderableType:
    """Return every planner with its summary, its paper, and its options with their defaults."""
    rows = []
    for name in planner_names():
        found = planner(name)
        options = "; ".join(f"{key}={option.default}: {option.help}" for key, option in found.options.items())
        rows.append([name, found.summary, found.source, options])
    return table("Planners", ["planner", "summary", "paper", "options"], rows)


def listing_document() -> dict[str, Any]:
    """Return the content of `listing` as plain data."""
    return {
        name: {
            "summary": planner(name).summary,
            "source": planner(name).source,
            "options": {
                key: {"default": option.default, "help": option.help} for key, option in planner(name).options.items()
            },
        }
        for name in planner_names()
    }


def document(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the outcomes as plain data, without the plans."""
    return {
        "planners": [
            {
                "planner": o.planner,
                "options": dict(o.options),
                "seconds": round(o.seconds, 3),
                "refusal": o.refusal or None,
                "verdict": o.plan.verdict if o.plan else None,
                "mode": o.plan.mode if o.plan else None,
                "on_front": o.on_front,
                "latency_ns": o.latency_ns,
                "longest_ns": o.last_ns,
                "bound_ns": o.bound_ns,
                "worst_ns": dict(o.worst_ns),
                "lost": o.lost,
                "frames": o.frames,
                "power_mw": o.power_mw,
                "energy_mj": round(o.energy_mj, 3),
                "round_ns": o.round_ns,
                "facts": dict(o.plan.solver.facts or {}) if o.plan else {},
            }
            for o in outcomes
        ]
    }
