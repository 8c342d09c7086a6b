"""Plans from an algorithm of the literature, or from an installed planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.api.planning import PlanOptions
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.planning.plan import Plan


BEST = "best"
"""Selects all planners: the plan with the best simulation is returned."""


def by_planner(pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions) -> Plan:
    """Return the plan of the planner `options.planner`; UsageError for an unknown planner or setting.

    With `options.refine`, expected times are those of a simulation, without replanning.
    """
    if options.planner == BEST:
        return _best(pipeline, platform, mode, options)
    from socsched.api.planning import pin_stages, profile_of
    from socsched.models.work import stage_work
    from socsched.planning.clock import Clock
    from socsched.planning.plan_writer import cut_off
    from socsched.planning.planners import planner
    from socsched.planning.planners.propose import make_plan
    from socsched.planning.workload import Limits

    clock = Clock.of(options.evaluations, options.time_limit)
    plan = make_plan(
        planner(options.planner),
        pin_stages(pipeline, platform, options.pins),
        platform,
        mode,
        options.objective,
        "edf" if options.policy == "auto" else options.policy,
        work=stage_work,
        profile=profile_of(options),
        options=options.settings,
        clock=clock,
        limits=Limits(options.power_cap, options.bandwidth_cap),
    )
    if options.refine and plan.tasks:
        from socsched.api.refinement import refine

        plan = refine(plan)
    return cut_off(plan, clock)


def _best(pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions) -> Plan:
    """Return the plan with the best simulation over all planners that cover the pipeline and the built-in search."""
    from socsched.api import comparison
    from socsched.api.planning import plan_with

    if options.settings:
        raise UsageError("--planner best takes no options", "name a planner to set its options")
    outcomes = comparison.compare_planners(
        comparison.select_planners(()),
        lambda name, _: plan_with(
            pipeline, platform, mode, replace(options, planner="" if name == comparison.OURS else name)
        ),
    )
    found = comparison.best(outcomes, options.objective)
    assert found.plan is not None
    latencies = {o.name: o.latency_ns for o in outcomes if o.plan is not None and o.plan.tasks}
    return replace(found.plan, solver=replace(found.plan.solver, compared_latency_ns=latencies))


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """Return OPTION=VALUE texts as a mapping; UsageError for anything else."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"-O {text}: expected OPTION=VALUE")
        settings[name] = value
    return settings
