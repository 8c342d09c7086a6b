"""Compilation of plans: artefacts of every stage for its planned engine, in one folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.api.options import CompileOptions

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.planning.plan import Plan

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
    from socsched.api.loading import load_plan, pipeline_of

    loaded = load_plan(plan)
    options = CompileOptions(
        stage=stage,
        engine=engine,
        weights=Path(weights) if weights else None,
        scales=Path(scales) if scales else None,
    )
    return compile_plan(loaded, pipeline_of(loaded, pipeline, warnings.warn), Path(folder), options, note)


def compile_plan(
    plan: Plan, pipeline: Pipeline, folder: Path, options: CompileOptions, note: Note = lambda _: None
) -> dict[str, Any]:
    """Compile the stages of a plan, and where all are, the executor that runs them, and return the manifest."""
    from socsched.api.loading import load_platform, plan_document
    from socsched.compiler.packaging.deploy import placement, runtimes_by_stage, shares_by_stage
    from socsched.executor.application import write_application

    platform = load_platform(plan.platform)
    how: dict[str, Any] = {
        "placement": placement(plan.tasks),
        "shares": shares_by_stage(plan.tasks),
        "runtimes": runtimes_by_stage(plan.tasks),
        "plan": plan_document(plan),
    }
    if options.stage is None and options.engine is None and options.part is None:
        how["application"] = lambda made: write_application(
            plan, pipeline, made, note, platform, options.weights, options.scales
        )
    return compile_pipeline(pipeline, platform, folder, options, note, how)


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
    from socsched.graph.partition import parse_part
    from socsched.models.weights import load_weights

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
