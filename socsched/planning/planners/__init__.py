"""Planners: who proposes where the stages of a pipeline run, our own search left aside.

A planner is one `Planner` in a file of its own, after one paper.  What it proposes becomes an ordinary plan
(`propose.make_plan`): the same bounds judge it, the same simulator runs it.  Third parties register a `Planner` under
the entry-point group ``socsched.planners``; docs/planning.md shows one being written.
"""

from __future__ import annotations

from socsched import plugins
from socsched.planning.planners.base import Ask, Option, Planner, Proposal

__all__ = ["GROUP", "Ask", "Option", "Planner", "Proposal", "descriptions", "known", "planner"]

GROUP = "socsched.planners"


def known() -> list[str]:
    """Return the names of all planners, built in and installed."""
    return plugins.names(GROUP)


def planner(name: str) -> Planner:
    """Return the planner of this name, built in or installed; UsageError naming the known ones when there is none."""
    found: Planner = plugins.load(GROUP, name, Planner)
    return found


def descriptions() -> dict[str, str]:
    """Return what every known planner does, in a line, by name."""
    return {name: planner(name).summary for name in known()}
