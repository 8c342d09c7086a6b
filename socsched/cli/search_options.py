"""The options that decide which plan a pipeline gets, for every verb that plans one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from socsched.cli.names import PIN
from socsched.cli.options import Number, Quantity, planning_options
from socsched.planning.clock import EVALUATIONS, LEAST

F = TypeVar("F", bound=Callable[..., Any])

_SEARCH = (
    click.option(
        "--solver",
        type=click.Choice(["portfolio", "auto", "heft", "restarts", "cpsat"]),
        default="portfolio",
        show_default=True,
        help="heft: list schedule and local search; restarts: local searches from many mappings; cpsat: OR-Tools, for "
        "a proof or a better mapping; auto: cpsat if installed; portfolio: heft, then the others until a plan is "
        "feasible.",
    ),
    click.option(
        "--planner",
        metavar="NAME",
        help="Planner of the literature or of an installed package, instead of the built-in search; best: the planner "
        "whose plan simulates best, the built-in search included.",
    ),
    click.option("-O", "settings", multiple=True, metavar="OPTION=VALUE", help="Option of the --planner."),
    click.option(
        "--pin",
        "pins",
        type=PIN,
        multiple=True,
        metavar="STAGE=ENGINE",
        help="Run a stage on this engine (or kind) only, without cutting it.",
    ),
    click.option(
        "--prefer",
        "prefers",
        type=PIN,
        multiple=True,
        metavar="STAGE=ENGINE[,ENGINE]",
        help="Run the layers of a stage on this engine as far as it supports them, the others elsewhere.",
    ),
    click.option(
        "--deadline",
        "deadlines",
        type=PIN,
        multiple=True,
        metavar="CHAIN=TIME",
        help="Another deadline for a chain, such as lidar-to-command=150ms.",
    ),
    click.option(
        "--runtime",
        "runtimes",
        multiple=True,
        metavar="[ENGINE=]NAME",
        help="Program that computes networks where an engine has several, such as tvm for this project's kernels.  "
        "[default: the fastest]",
    ),
    click.option(
        "--robust",
        is_flag=True,
        help="Plan for the upper ends of all costs' intervals: a feasible plan holds for every cost within them.",
    ),
    click.option(
        "--cuts/--no-cuts",
        default=True,
        show_default=True,
        help="Cut networks between engines where this improves the plan.",
    ),
    click.option(
        "--refine/--no-refine",
        default=True,
        show_default=True,
        help="Simulate the plan and plan again with the simulated times, until nothing changes.",
    ),
    click.option(
        "--power-cap", type=Quantity("power"), help="Limit on mean power, such as 20W, in addition to the mode's cap."
    ),
    click.option("--bandwidth-cap", type=Quantity("bandwidth"), help="Limit on DRAM traffic, such as 50GB/s."),
    click.option(
        "--evaluations",
        type=click.IntRange(LEAST),
        default=EVALUATIONS,
        show_default=True,
        help="Budget of all searches, in mappings analysed: the same plan on every machine.",
    ),
    click.option(
        "--time-limit",
        type=Number(0.1),
        help="Guard rail in seconds: a plan whose search it cut off says so, since another run may give another.  "
        "[default: none]",
    ),
)


def search_options(function: F) -> F:
    """Add every option of planning; the command takes them as `options` (a `PlanOptions`)."""

    def pack(planner: str | None, settings: tuple[str, ...], profile_file: Any, **values: Any) -> Any:
        from socsched.api.planning import PlanOptions, settings_of

        if settings and not planner:
            raise click.UsageError("-O sets options of a planner: add --planner")
        return PlanOptions(planner=planner or "", settings=settings_of(settings), profile=profile_file, **values)

    @wraps(function)
    def command(*args: Any, **values: Any) -> Any:
        return function(*args, options=pack(**{name: values.pop(name) for name in NAMES}), **values)

    wrapped: Any = command
    for decorator in reversed(_SEARCH):
        wrapped = decorator(wrapped)
    return planning_options(wrapped)  # type: ignore[no-any-return]


def _names() -> tuple[str, ...]:
    @planning_options
    def every() -> None:
        pass

    wrapped: Any = every
    for decorator in _SEARCH:
        wrapped = decorator(wrapped)
    return tuple(parameter.name for parameter in wrapped.__click_params__)


NAMES = _names()
"""The parameters that `search_options` packs into one."""


def refuse_with_plan(ctx: click.Context, plan: str) -> None:
    """Raise UsageError for an option of planning on the command line where the argument is a plan already."""
    for parameter in ctx.command.params:
        planning = parameter.name in (*NAMES, "platform", "mode") and parameter.name not in ("objective", "policy")
        if planning and ctx.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE:
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} is a planning option, but {plan} is a plan already: omit {option}")
