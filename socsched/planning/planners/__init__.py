"""Planners: who proposes where the stages of a pipeline run, our own search left aside.

A planner is one `Planner` in a file of its own, after one paper.  What it proposes becomes an ordinary plan
(`propose.make_plan`): the same bounds judge it, the same simulator runs it.  Third parties register a `Planner` under
the entry-point group ``socsched.planners``; docs/planning.md shows one being written.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points

from socsched.errors import UsageError
from socsched.planning.planners.base import Ask, Option, Planner, Proposal

__all__ = ["BUILT_IN", "GROUP", "Ask", "Option", "Planner", "Proposal", "descriptions", "known", "planner"]

GROUP = "socsched.planners"
BUILT_IN = (
    "axonn",
    "deepthings",
    "haxconn",
    "h2h",
    "herald",
    "interference",
    "ios",
    "jedi",
    "runtime-aware",
)
"""Names of the built-in planners; the module is called the same, with an underscore for a hyphen."""


def known() -> list[str]:
    """Return the names of all planners, built in and installed."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})


def planner(name: str) -> Planner:
    """Return the planner of this name, built in or installed; UsageError naming the known ones when there is none."""
    if name in BUILT_IN:
        found: Planner = import_module(f"socsched.planning.planners.{name.replace('-', '_')}").PLANNER
        return found
    entry = next((entry for entry in entry_points(group=GROUP) if entry.name == name), None)
    if entry is None:
        near = difflib.get_close_matches(name, known(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no planner {name!r}", f"{hint}known planners: {', '.join(known())}")
    loaded = entry.load()
    if not isinstance(loaded, Planner):
        raise UsageError(f"planner {name!r} is registered as {entry.value}, which is no Planner", "register a Planner")
    return loaded


def descriptions() -> dict[str, str]:
    """Return what every known planner does, in a line, by name."""
    return {name: planner(name).summary for name in known()}
