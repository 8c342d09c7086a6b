"""`socsched plan --planner`: a plan by an algorithm of the literature, or by one that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from socsched import __version__
from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.cli.planning import How
    from socsched.planning.plan import Plan


BEST = "best"
"""Stands for all planners: the plan that simulates best is taken."""


def by_planner(
    name: str, pipeline: str, platform: str, mode: str | None, how: How, settings: Sequence[str] = ()
) -> Plan:
    """Return the plan of the planner `name`, `settings` being OPTION=VALUE; UsageError for what does not exist.

    Where `how` refines, expected times are those of a simulation; nothing is planned again.
    """
    if name == BEST:
        return _best(pipeline, platform, mode, how, settings)
    from socsched.cli.planning import pinned
    from socsched.compiler.analyze import stage_work
    from socsched.cost.profile import load_profile
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.planning.planners import planner
    from socsched.planning.planners.propose import make_plan
    from socsched.planning.workload import Limits

    board = get_platform(platform)
    plan = make_plan(
        planner(name),
        pinned(get_pipeline(pipeline), board, how.pins),
        board,
        mode,
        how.objective,
        how.policy,
        work=stage_work,
        profile=load_profile(how.profile) if how.profile else None,
        options=options_of(settings),
        time_limit=how.time_limit,
        limits=Limits(how.power_cap, how.bandwidth_cap),
    )
    if how.refine and plan.tasks:
        from socsched.sim.refine import refined

        plan = refined(plan)
    return replace(plan, tool={**plan.tool, "version": __version__})


def _best(pipeline: str, platform: str, mode: str | None, how: How, settings: Sequence[str]) -> Plan:
    """Return the plan that simulates best of all planners that cover the pipeline, ours among them."""
    from socsched.cli.planning import planned
    from socsched.study import planners as study

    if settings:
        raise UsageError("--planner best takes no options", "name a planner to set its options")
    outcomes = study.compared(
        study.chosen(()),
        lambda name, _: (
            planned(pipeline, platform, mode, how)
            if name == study.OURS
            else by_planner(name, pipeline, platform, mode, how)
        ),
    )
    found = study.best(outcomes, how.objective)
    assert found.plan is not None
    told = {o.name: o.latency_ns for o in outcomes if o.plan is not None and o.plan.tasks}
    return replace(found.plan, solver={**found.plan.solver, "compared_latency_ns": told})


def options_of(settings: Sequence[str]) -> dict[str, str]:
    """Return OPTION=VALUE pairs as a mapping; UsageError for anything else."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"-O {setting}: expected OPTION=VALUE")
        found[name] = value
    return found
