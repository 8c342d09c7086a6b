"""Objects registered under the entry-point groups of socsched, by this package and by others alike.

A package registers in its pyproject.toml: ``calm = "my_package.calm:POLICY"`` in the table
``[project.entry-points."socsched.policies"]``.  The name is available once the package is installed.  Objects are
imported on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from socsched.errors import MachineError, UsageError
from socsched.resources import nearest

GROUPS = {
    "socsched.policies": "scheduling policy",
    "socsched.planners": "planner",
    "socsched.schedulability": "schedulability test",
    "socsched.contention": "contention model",
    "socsched.costs": "source of costs",
    "socsched.models": "model",
    "socsched.targets": "compile target",
    "socsched.toolchains": "vendor toolchain",
    "socsched.backends": "run backend",
    "socsched.renderers": "renderer",
    "socsched.commands": "command",
}
"""Group -> description of the objects registered there."""


SCANNED = {"socsched.schedulability": "socsched.schedulability.published"}
"""Groups whose built-in objects a package finds in its own modules; entry points are for other packages only."""


@cache
def _registered() -> Mapping[str, dict[str, EntryPoint]]:
    found: dict[str, dict[str, EntryPoint]] = {group: {} for group in GROUPS}
    installed = entry_points()
    for group, known in found.items():
        for entry in installed.select(group=group):
            if group in SCANNED and is_own(entry):
                continue
            if entry.name not in known or is_own(entry):
                known[entry.name] = entry
    if not found["socsched.models"]:
        raise MachineError(
            "socsched is not installed: its entry points are not on Python's path",
            "pip install it, or pip install --no-deps -e PATH for a checkout",
        )
    return found


def is_own(entry: EntryPoint) -> bool:
    """Return whether an entry is of this project; these take precedence over others of the same name."""
    return entry.value.partition(".")[0] in ("socsched", "socsched_literature")


def literature_hint(group: str) -> str:
    """Return how to get the policies, planners and studies of published systems; empty where they are installed."""
    about = {"socsched.policies": "policies", "socsched.planners": "planners", "socsched.commands": "studies"}
    if group not in about or "study" in entries("socsched.commands"):
        return ""
    return (
        f"; {about[group]} of published systems come with a distribution of their own: "
        "pip install '/path/to/socsched/socsched_literature'"
    )


def entries(group: str) -> dict[str, EntryPoint]:
    """Return name -> entry of a group."""
    if group in SCANNED:
        _scan(group)
    return _registered()[group]


@cache
def _scan(group: str) -> None:
    for name, value in import_module(SCANNED[group]).built_in():
        _registered()[group][name] = EntryPoint(name, value, group)


def names(group: str, own: bool = False) -> list[str]:
    """Return the names registered in a group, sorted; with `own` only the built-in ones."""
    return sorted(name for name, entry in entries(group).items() if not own or is_own(entry))


def load(group: str, name: str, kind: type | None = None) -> Any:
    """Return the object registered as `name`, an instance of `kind` where one is given.

    Raises UsageError for an unknown name, listing the known ones, and for an object of another kind; MachineError if
    the import fails.
    """
    if name not in entries(group):
        near = nearest(name, names(group))
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        known = ", ".join(names(group)) or "none"
        raise UsageError(f"no {GROUPS[group]} {name!r}", f"{meant}known: {known}{literature_hint(group)}")
    entry = entries(group)[name]
    try:
        found = entry.load()
    except (ImportError, AttributeError) as error:
        problem = f"{GROUPS[group]} {name!r}, registered as {entry.value}, cannot be loaded: {error}"
        raise MachineError(problem, "repair or uninstall the package that registers it") from None
    if kind is not None and not isinstance(found, kind):
        problem = f"{GROUPS[group]} {name!r} is registered as {entry.value}, which is not a {kind.__name__}"
        raise UsageError(problem, f"register a {kind.__name__}")
    return found


def module_of(group: str, name: str) -> ModuleType:
    """Return the module that contains an entry."""
    return import_module(entries(group)[name].module)


def provide(group: str, name: str, value: str) -> None:
    """Register "module:object" in this process, as an installed package would."""
    entries(group)[name] = EntryPoint(name, value, group)
