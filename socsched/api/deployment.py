"""Compilation of plans: artefacts of every stage for its planned engine, in one folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.loading import load_pipeline, load_plan, load_platform, pipeline_of, plan_document
from socsched.api.options import CompileOptions
from socsched.api.planning import options_of, plan_with
from socsched.api.stamp import options_in
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import MachineError
from socsched.graph.partition import parse_part
from socsched.models.weights import load_weights
from socsched.planning.plan import Plan
from socsched.planning.residency import refuse_loads
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.executor.check_bundle import Point

Note = Callable[[str], None]


def compile(
    plan: str | Path | Plan,
    folder: str | Path,
    *,
    pipeline: str | Path | Pipeline | None = None,
    weights: str | Path | None = None,
    scales: str | Path | None = None,
    stage: str | None = None,
    engine: str | None = None,
    note: Note = lambda _: None,
) -> dict[str, Any]:
    """Compile the stages of a plan for their planned engines into `folder` and return the manifest.

    `pipeline`: the pipeline, if its name in the plan does not locate it; `stage` and `engine` restrict the selection;
    `scales`: the file of int8 scales that `socsched calibrate` wrote.  Raises CompileError if an engine's compiler
    rejects a stage.
    """
    loaded = load_plan(plan)
    refuse_loads(loaded)
    options = CompileOptions(
        stage=stage,
        engine=engine,
        weights=Path(weights) if weights else None,
        scales=Path(scales) if scales else None,
    )
    return compile_plan(loaded, pipeline_of(loaded, pipeline, warnings.warn), Path(folder), options, note)


def check(folder: str | Path) -> list[Point]:
    """Return what was checked of a bundle, and what its board must build or have; InputError if it cannot be read."""
    from socsched.executor.check_bundle import check_bundle

    return check_bundle(Path(folder))


def compile_plan(
    plan: Plan, pipeline: Pipeline, folder: Path, options: CompileOptions, note: Note = lambda _: None
) -> dict[str, Any]:
    """Compile the stages of a plan, and where all are, the application that runs them, and return the manifest.

    Raises MachineError where a tool is missing, UsageError for stages that the executor does not run: a bundle of a
    whole plan starts on its board, or there is none.
    """
    from socsched.compiler.packaging.deploy import placement, runtimes_by_stage, shares_by_stage
    from socsched.executor.application import require_compilers, write_application

    platform = load_platform(plan.platform)
    whole = options.stage is None and options.engine is None and options.part is None
    if whole:
        require_compilers(platform)
        plan, pipeline = _shippable(plan, pipeline, platform, note)
    how: dict[str, Any] = {
        "placement": placement(plan.tasks),
        "shares": shares_by_stage(plan.tasks),
        "runtimes": runtimes_by_stage(plan.tasks),
        "plan": plan_document(plan),
    }
    if whole:
        how["application"] = lambda made: write_application(
            plan, pipeline, made, note, platform, options.weights, options.scales
        )
    return compile_pipeline(pipeline, platform, folder, options, note, how)


def _shippable(plan: Plan, pipeline: Pipeline, platform: Platform, note: Note) -> tuple[Plan, Pipeline]:
    """Return a plan whose runtimes a bundle has, with its pipeline: the one given, or one made anew, which is noted.

    MachineError where the new one misses what the given one meets.
    """
    from socsched.executor.vendor_stages import lacks_runtime

    lacking = {task.name: why for task in plan.tasks if (why := lacks_runtime(task, pipeline, platform))}
    if not lacking:
        return plan, pipeline
    lost = {task.engine for task in plan.tasks if task.name in lacking}
    modes = tuple(
        replace(mode, engines={e: replace(at, units=0) if e in lost else at for e, at in mode.engines.items()})
        for mode in platform.modes
    )
    for name, why in lacking.items():
        note(f"{name}: {why}")
    origin, options = load_pipeline(pipeline.file or plan.pipeline), {"policy": plan.policy, **options_in(plan)}
    options["pins"] = tuple(pin for pin in options.get("pins", ()) if pin.rpartition("=")[2] not in lost)
    made = plan_with(origin, replace(platform, modes=modes), plan.mode, options_of(**options))
    note(f"planned anew without {', '.join(sorted(lost))}: {made.verdict}, was {plan.verdict}")
    before, after = ({chain.name: chain for chain in one.chains} for one in (plan, made))
    for name, chain in after.items():
        bounds = [format_duration(one.bound_ns) if one.bound_ns else "none" for one in (before[name], chain)]
        note(f"{name}: bound {bounds[0]} -> {bounds[1]}, deadline {format_duration(chain.deadline_ns)}")
    if plan.verdict == "feasible" and made.verdict != "feasible":
        raise MachineError(
            f"{pipeline.name} on {platform.name} cannot ship as planned, and is {made.verdict} without "
            f"{', '.join(sorted(lost))}",
            "plan with other precisions, a lower rate or a later deadline, then compile that plan",
        )
    return made, pipeline_of(made, origin, note)


def compile_pipeline(
    pipeline: Pipeline,
    platform: Platform,
    folder: Path,
    options: CompileOptions,
    note: Note = lambda _: None,
    planned: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Compile the stages of a pipeline for every engine that takes them, or as `planned`, and return the manifest."""
    from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle
    from socsched.compiler.quantize.scales import read_pipeline_scales

    request = BundleRequest(
        stage=options.stage,
        engine=options.engine,
        part=parse_part(options.part) if options.part else None,
        scales=read_pipeline_scales(options.scales) if options.scales else {},
        qdq=options.qdq,
        **(planned or {}),
    )
    arrays = load_weights(options.weights) if options.weights else None
    return compile_bundle(pipeline, platform, request, folder, arrays, note)
