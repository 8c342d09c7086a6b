"""The argument that is a finished plan.json, or a pipeline to plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from socsched.planning.plan import Plan


def plan_from(
    ctx: click.Context,
    plan: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
) -> Plan:
    """Return the plan in a file, or plan a pipeline; options that only affect planning exclude a plan file."""
    from socsched.api.loading import load_plan
    from socsched.api.planning import PlanOptions, plan_with

    if not plan.endswith(".json"):
        if platform is None:
            raise click.UsageError(
                f"a pipeline needs a platform: {click.get_current_context().command_path} {plan} -p PLATFORM"
            )
        return plan_with(plan, platform, mode, PlanOptions(objective, policy, profile_file))
    options = {"--platform": platform, "--mode": mode, "--profile": profile_file}
    for name in (name for name, value in options.items() if value is not None):
        if ctx.get_parameter_source(name.lstrip("-")) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} is a planning option, but {plan} is a plan already: omit {name}")
    return load_plan(plan)
