"""Compilation of plans: artefacts of every stage for its planned engine, in one folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan


def compile(
    plan: str | Path | Plan,
    folder: str | Path,
    *,
    pipeline: str | Path | Pipeline | None = None,
    weights: str | Path | None = None,
    scales: str | Path | None = None,
    stage: str | None = None,
    engine: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Compile the stages of a plan for their planned engines into `folder` and return the manifest.

    `pipeline`: the pipeline, if its name in the plan does not locate it; `stage` and `engine` restrict the selection;
    `scales`: the file of int8 scales that `socsched calibrate` wrote.  Raises CompileError if an engine's compiler
    rejects a stage.
    """
    from socsched.api.loading import load_plan, load_platform, pipeline_of, plan_document
    from socsched.compiler.packaging.deploy import (
        Request,
        compile_bundle,
        placement,
        runtimes_by_stage,
        shares_by_stage,
    )
    from socsched.compiler.quantize.scales import read_pipeline_scales
    from socsched.executor.application import write_application
    from socsched.models.weights import load_weights

    plan_to_compile = load_plan(plan)
    cut = pipeline_of(plan_to_compile, pipeline, warnings.warn)
    whole = stage is None and engine is None
    platform = load_platform(plan_to_compile.platform)
    files = (Path(weights) if weights else None, Path(scales) if scales else None)
    request = Request(
        placement(plan_to_compile.tasks),
        shares=shares_by_stage(plan_to_compile.tasks),
        runtimes=runtimes_by_stage(plan_to_compile.tasks),
        plan=plan_document(plan_to_compile),
        stage=stage,
        engine=engine,
        scales=read_pipeline_scales(Path(scales)) if scales else {},
        application=(lambda folder: write_application(plan_to_compile, cut, folder, note, platform, *files))
        if whole
        else None,
    )
    arrays = load_weights(Path(weights)) if weights else None
    return compile_bundle(cut, platform, request, Path(folder), arrays, note)
