"""Plans of pipelines by name: what steers planning, and the loop of planning and simulating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched import __version__
from socsched.errors import UsageError
from socsched.resources import nearest

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform, PowerMode
    from socsched.planning.known import Known
    from socsched.planning.plan import Plan


def get_mode(platform: Platform, name: str | None) -> PowerMode:
    """Return a power mode by name or alias, the default one for None; UsageError with the names there are."""
    try:
        return platform.mode(name)
    except KeyError:
        names = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"{platform.name} has no power mode {name!r}", f"its modes: {names}") from None


@dataclass(frozen=True, slots=True)
class How:
    """What steers planning; `cuts`: networks may be cut between engines, `refine`: with times as simulated.

    `pins`: STAGE=ENGINE, engines that stages must run on; `prefers`: engines that take the layers they can.  Caps of
    mean power (mW) and DRAM traffic (bytes/s) hold beside those of the mode.
    """

    objective: str = "latency"
    policy: str = "edf"
    profile: Path | None = None
    solver: str = "heft"
    time_limit: float = 20.0
    cuts: bool = True
    refine: bool = True
    power_cap: int | None = None
    bandwidth_cap: int | None = None
    pins: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    explain: bool = True


FIRST = 0.7
"""Share of the time limit for the first plan, where others follow with what its simulation shows."""
QUICK = How(refine=False)
"""For a plan that is simulated or run anyway."""


def planned(
    pipeline: str, platform: str, mode: str | None = None, how: How = QUICK, known: Known | None = None
) -> Plan:
    """Plan a pipeline on a platform, both by name or path, in `mode` or the best one, within `how.time_limit`.

    `known` keeps costs from one plan of them to the next.
    """
    from socsched.compiler.analyze import stage_work
    from socsched.cost.profile import load_profile
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.planning.clock import Clock
    from socsched.planning.known import Known
    from socsched.planning.observed import NOTHING, Observed
    from socsched.planning.planner import make_plan
    from socsched.planning.workload import Limits

    clock, board = Clock.of(how.time_limit), get_platform(platform)
    profile = load_profile(how.profile) if how.profile else None
    workload = pinned(get_pipeline(pipeline), board, how.pins)
    known = Known(board, stage_work, profile) if known is None else known
    if how.prefers:
        from socsched.planning.cutting.prefer import with_preferences

        chosen = get_mode(board, None if mode == "auto" else mode)
        wishes = dict(stage_and_engines("--prefer", text, workload, board) for text in how.prefers)
        workload = with_preferences(workload, known.model(chosen), wishes)
    options: dict[str, Any] = {
        "work": stage_work,
        "profile": profile,
        "solver": how.solver,
        "limits": Limits(how.power_cap, how.bandwidth_cap),
        "known": known,
    }

    def make(
        mode: str | None, cuts: bool, observed: Observed = NOTHING, explain: bool = False, share: float = 1.0
    ) -> Plan:
        found: Plan = make_plan(
            workload,
            board,
            mode,
            how.objective,
            how.policy,
            cuts=cuts,
            observed=observed,
            explain=explain,
            time_limit=clock.left() * share,
            **options,
        )
        return found

    made = make(mode, how.cuts, explain=how.explain, share=FIRST if how.refine and how.solver != "cpsat" else 1.0)
    if how.refine and made.tasks:
        from socsched.models.parts import PART
        from socsched.sim.refine import refined

        cut = any(PART in task.params for task in made.tasks)
        first = made
        tried: list[tuple[Observed, Plan]] = []

        def again(seen: Observed) -> Plan:
            tried.append((seen, make(first.mode, cut, seen)))
            return tried[-1][1]

        made = refined(first, None if how.solver == "cpsat" else again, clock)
        better = [seen for seen, plan in tried if plan.tasks == made.tasks]
        if how.explain and better and made.tasks != first.tasks and not clock.over():
            made = replace(made, uncertainty=make(first.mode, cut, better[0], explain=True).uncertainty)
    return replace(made, tool={**made.tool, "version": __version__})


def pinned(pipeline: Pipeline, platform: Platform, pins: Sequence[str]) -> Pipeline:
    """Return a pipeline whose stages run on the engines they are pinned to; UsageError for names there are not."""
    wanted: dict[str, tuple[str, ...]] = {}
    for pin in pins:
        stage, engines = stage_and_engines("--pin", pin, pipeline, platform)
        wanted[stage] = (*wanted.get(stage, ()), *engines)
    stages = tuple(replace(s, engines=wanted.get(s.name, s.engines)) for s in pipeline.stages)
    return replace(pipeline, stages=stages)


def stage_and_engines(option: str, text: str, pipeline: Pipeline, platform: Platform) -> tuple[str, tuple[str, ...]]:
    """Return what STAGE=ENGINE[,ENGINE...] says, engines by id or kind; UsageError for names there are not."""
    stage, _, names = text.partition("=")
    engines = tuple(names.split(","))
    stages = [s.name for s in pipeline.stages]
    if stage not in stages:
        raise UsageError(f"{option} {text}: {pipeline.name} has no stage {stage!r}", _meant(stage, stages))
    known = list(dict.fromkeys(name for e in platform.engines for name in (e.id, e.kind)))
    for engine in engines:
        if engine not in known:
            raise UsageError(f"{option} {text}: {platform.name} has no engine {engine!r}", _meant(engine, known))
    return stage, engines


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    listed = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
    return f"{listed} (expected STAGE=ENGINE)"


def plan_from(
    ctx: click.Context,
    plan: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
) -> Plan:
    """Return the plan in a file, or make one of a pipeline; options that only steer planning exclude a plan file."""
    if not plan.endswith(".json"):
        if platform is None:
            raise click.UsageError(
                f"a pipeline needs a platform: {click.get_current_context().command_path} {plan} -p PLATFORM"
            )
        return planned(plan, platform, mode, How(objective, policy, profile_file, refine=False))
    given = {"--platform": platform, "--mode": mode, "--profile": profile_file}
    for name in (name for name, value in given.items() if value is not None):
        if ctx.get_parameter_source(name.lstrip("-")) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} steers planning, but {plan} is a finished plan")
    from socsched.cli.line import load_plan

    return load_plan(Path(plan))
