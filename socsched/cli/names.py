"""Names on the command line that a shell can complete: power modes, engines, stages, pins, policies, chains.

Completion reads the platform or pipeline already on the line; on any error it completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem


class Completed(click.ParamType[str]):
    """A name that is looked up later; `names` returns the available names, given the other words of the line."""

    def __init__(self, name: str, names: Callable[[click.Context], Iterable[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that start with the incomplete word."""
        try:
            found = list(self._names(ctx))
        except Exception:  # completion of an unfinished line must not fail
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _given(ctx: click.Context, *names: str) -> str:
    """Return the value on the line of one of the names; arguments of an unfinished line are in `ctx.args`."""
    left = [word for word in ctx.args if not word.startswith("-")]
    return left[0] if left else str(next((ctx.params[name] for name in names if ctx.params.get(name)), ""))


def _plan(ctx: click.Context) -> dict[str, Any]:
    """Return the plan named on the line, as a file or in a result folder; {} if there is none."""
    from socsched.descriptor.json_file import JsonFile

    given = Path(_given(ctx, "plan", "pipeline", "folder"))
    file = given / "plan.json" if given.is_dir() else given
    if file.suffix != ".json":
        return {}
    document = JsonFile.open(file, "plan").data
    return document if isinstance(document, dict) else {}


def _platform(ctx: click.Context) -> Any:
    from socsched.descriptor.catalog import get_platform

    plan = _plan(ctx)
    return get_platform(str(ctx.params.get("platform") or plan.get("platform") or _given(ctx, "name")))


def _stages(ctx: click.Context) -> list[str]:
    from socsched.descriptor.catalog import get_pipeline

    plan = _plan(ctx)
    if plan:
        return [str(stage["name"]) for stage in plan["stages"]]
    return [stage.name for stage in get_pipeline(_given(ctx, "pipeline")).stages]


def _engines(ctx: click.Context) -> list[str]:
    return [engine.id for engine in _platform(ctx).engines]


class _PolicyName(Completed):
    """A policy by name, or one in a user's file: FILE.py:NAME."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name under which the policy is registered."""
        if ".py:" not in str(value):
            return str(value)
        from socsched.sim.policies.from_file import register_file

        return register_file(str(value))


def _policies(_: click.Context) -> list[str]:
    from socsched.sim.policies import list_policies

    return [*list_policies(), *(f"np-{name}" for name in list_policies())]


MODE = Completed("text", lambda ctx: [*(mode.name for mode in _platform(ctx).modes), "auto"])
ENGINE = Completed("text", _engines)
STAGE = Completed("text", _stages)
PIN = Completed("text", lambda ctx: (f"{stage}={engine}" for stage in _stages(ctx) for engine in _engines(ctx)))
POLICY = _PolicyName("policy", _policies)
CHAIN = Completed("chain", lambda ctx: (str(chain["name"]) for chain in _plan(ctx)["chains"]))
