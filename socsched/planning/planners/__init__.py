"""Planners that propose where the stages of a pipeline run, as alternatives to socsched's own search.

A planner is one `Planner` in a file of its own, after one paper.  Its proposal becomes an ordinary plan
(`propose.make_plan`): the same bounds judge it, the same simulator runs it.  Third parties register a `Planner` under
the entry-point group ``socsched.planners``; docs/planning.md shows how to write one.
"""

from __future__ import annotations

from socsched import plugins
from socsched.planning.planners.base import Ask, Option, Planner, Proposal

__all__ = ["GROUP", "Ask", "Option", "Planner", "Proposal", "descriptions", "planner", "planner_names"]

GROUP = "socsched.planners"


def planner_names() -> list[str]:
    """Return the names of all planners, built in and installed."""
    return plugins.names(GROUP)


def planner(name: str) -> Planner:
    """Return the planner of this name, built in or installed; UsageError naming the known ones if there is none."""
    found: Planner = plugins.load(GROUP, name, Planner)
    return found


def descriptions() -> dict[str, str]:
    """Return a one-line summary of every known planner, by name."""
    return {name: planner(name).summary for name in planner_names()}
