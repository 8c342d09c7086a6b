"""Measurement of stages on this machine, for plans that start from measured costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.cost.profile import Profile
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.planning.plan import Plan

Note = Callable[[str], None]


def profile(
    pipeline: str | Path | Pipeline,
    platform: str | Path | Platform = "host",
    *,
    repeat: int = 5,
    inputs: Sequence[Path] | None = None,
    weights: Path | None = None,
    seed: int = 0,
    until: float | None = None,
    contention: bool = False,
    conversions: bool = False,
    note: Note = lambda _: None,
) -> Profile:
    """Measure every stage of a pipeline alone on this machine and return the times.

    `repeat`: measurements of each stage; with `until`, as many as its median needs to reach that relative interval.
    `inputs`: scans, images and arrays.  `contention` adds the pairwise slowdowns of stages, `conversions` the costs of
    changing formats.
    """
    from socsched.api.loading import load_pipeline, load_platform
    from socsched.api.planning import PlanOptions, plan_with
    from socsched.executor.run_native import execute_where_possible
    from socsched.runtime.profile import measure

    chosen, board = load_pipeline(pipeline), load_platform(platform)
    plan = _spread(plan_with(chosen, board, options=PlanOptions(refine=False, explain=False)), chosen)
    profile_of_stages = measure(
        plan,
        chosen,
        repeat=repeat,
        interval=until,
        scans=inputs,
        weights=weights,
        seed=seed,
        note=note,
        run=execute_where_possible,
    )
    if contention or conversions:
        profile_of_stages = _together(profile_of_stages, chosen, inputs, weights, repeat, note, contention, conversions)
    return profile_of_stages


def expect(
    pipeline: str | Path | Pipeline,
    platform: str | Path | Platform,
    *,
    weights: Path | None = None,
    note: Note = lambda _: None,
) -> Profile:
    """Return the times that vendors' compilers expect of a pipeline's networks, as costs of kind "vendor model".

    A time is the sum of the cycles in the compiler's table of layers over the engine's clock in the first mode.  Raises
    UsageError where no engine has such a compiler, MachineError where it is not installed.
    """
    from socsched.api.loading import load_pipeline, load_platform
    from socsched.api.vendor_costs import expected_costs
    from socsched.models.weights import load_weights

    arrays = load_weights(weights) if weights else None
    return expected_costs(load_pipeline(pipeline), load_platform(platform), arrays, note)


def _together(
    profile: Profile,
    pipeline: Pipeline,
    inputs: Sequence[Path] | None,
    weights: Path | None,
    repeat: int,
    note: Note,
    contention: bool,
    conversions: bool,
) -> Profile:
    """Return a profile with the co-run matrix and the conversions of a pipeline's stages on this machine."""
    from socsched.descriptor.catalog import get_platform
    from socsched.models.registry import bindings
    from socsched.models.work import stage_work
    from socsched.planning.search import make_plan
    from socsched.runtime import corun
    from socsched.runtime.backends.base import Setting

    host = get_platform("host")
    plan = make_plan(pipeline, host, work=stage_work, profile=profile)
    tasks = (replace(t, lanes=(number % 2,)) for number, t in enumerate(plan.tasks))  # pairs need distinct lanes
    plan = replace(plan, tasks=tuple(tasks))
    heard = corun.record(plan, pipeline, host, inputs, weights)
    setting = Setting(plan, pipeline, host, bindings(pipeline), weights)
    return replace(
        profile,
        contention=corun.contention(plan, setting, heard, repeat=repeat, note=note) if contention else (),
        conversions=corun.conversions(heard, host, repeat=repeat, note=note) if conversions else (),
    )


def _spread(plan: Plan, pipeline: Pipeline) -> Plan:
    """Return the plan with every divisible stage on all lanes, so that both extremes are measured."""
    from socsched.models.registry import get_model

    lanes = {engine.id: engine.lanes for engine in plan.engines}
    networks = {
        stage.name
        for stage in pipeline.stages
        if stage.model and stage.share == 0 and get_model(stage.model, stage.params).network is not None
    }
    tasks = (replace(t, lanes=tuple(range(lanes[t.engine]))) if t.name in networks else t for t in plan.tasks)
    return replace(plan, tasks=tuple(tasks))
