"""A pipeline's compiled stages in one folder, with a manifest that says what is what."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compile.analyze import stage_work
from socsched.compile.artifact import Artifact
from socsched.compile.builder import PRECISIONS, compile_stage, compiles
from socsched.compile.quantize.scales import Scales
from socsched.compile.store import write_json
from socsched.compile.versions import PINNED
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import UsageError
from socsched.graph.rules import check_operators
from socsched.models.registry import get_model

SCHEMA_VERSION = "1"
MANIFEST = "manifest.json"

Placement = Mapping[str, tuple[str, str]]
"""Stage name -> (engine id, precision), as a plan decides it."""


def compile_pipeline(
    pipeline: Pipeline,
    platform: Platform,
    placement: Placement | str | None,
    out_dir: Path,
    stage: str | None = None,
    engine: str | None = None,
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    note: Callable[[str], None] = lambda message: None,
    scales: Mapping[str, Scales] | None = None,
) -> dict[str, Any]:
    """Compile network stages into `out_dir`, one folder per stage and engine, and return the manifest written there.

    `placement` is a plan's choice, an engine id, or None for every engine that can compute the stage; `stage` and
    `engine` narrow it down.  `note` is told of each artefact; `scales` are those of int8 stages by stage name.  Raises
    UsageError for unknown names, and what `compile_stage` raises.
    """
    if isinstance(placement, str):
        placement, engine = None, engine or placement
    entries = []
    for chosen, target, precision in _choices(pipeline, platform, placement, stage, engine):
        artifact = compile_stage(chosen, target, precision, weights, scales=(scales or {}).get(chosen.name))
        note(f"{chosen.name} for {target.id} in {precision}")
        entries.append(_place(artifact, out_dir))
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "pipeline": pipeline.name,
        "platform": platform.name,
        "versions": dict(PINNED),
        "host_stages": [s.name for s in pipeline.stages if s.model and not _is_network(s)],
        "artifacts": entries,
    }
    write_json(out_dir / MANIFEST, manifest)
    return manifest


def planned(tasks: Any) -> dict[str, tuple[str, str]]:
    """Return the placement of a plan's tasks (anything with kind, name, engine and precision)."""
    return {task.name: (task.engine, task.precision) for task in tasks if task.kind == "stage"}


def _place(artifact: Artifact, out_dir: Path) -> dict[str, Any]:
    folder = out_dir / artifact.stage / f"{artifact.engine}-{artifact.precision}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in artifact.files:
        shutil.copyfile(artifact.folder / name, folder / name)
    paths = [(folder / name).relative_to(out_dir).as_posix() for name in artifact.files]
    return {**artifact.to_json(), "files": paths}


def _is_network(stage: Stage) -> bool:
    return stage.model is not None and get_model(stage.model, stage.params).network is not None


def _choices(
    pipeline: Pipeline, platform: Platform, placement: Placement | None, stage: str | None, engine: str | None
) -> Iterator[tuple[Stage, Engine, str]]:
    stages = [s for s in pipeline.stages if stage in (None, s.name)]
    if not stages:
        names = ", ".join(s.name for s in pipeline.stages)
        raise UsageError(f"pipeline {pipeline.name} has no stage {stage!r}", f"its stages: {names}")
    engines = [e for e in platform.engines if engine in (None, e.id)]
    if not engines:
        raise UsageError(
            f"platform {platform.name} has no engine {engine!r}",
            f"its engines: {', '.join(e.id for e in platform.engines)}",
        )
    for chosen in filter(_is_network, stages):
        if placement is not None and chosen.name in placement and engine is None:
            target, precision = placement[chosen.name]
            yield chosen, platform.engine(target), precision
        elif placement is None or engine is not None:
            yield from _able(chosen, engines, explicit=engine is not None)


def _able(stage: Stage, engines: list[Engine], explicit: bool) -> Iterator[tuple[Stage, Engine, str]]:
    """The engines that take the stage, each in the best precision the stage accepts; a named engine is not filtered."""
    for engine in engines:
        fitting = [p for p in stage.precisions if p in engine.precisions and compiles(engine, p)]
        for precision in fitting[:1]:
            if explicit or not check_operators(stage_work(stage, precision), engine):
                yield stage, engine, precision
        if explicit and not fitting:
            raise UsageError(
                f"stage {stage.name!r} has no precision in common with {engine.id} that can be compiled",
                f"stage: {', '.join(stage.precisions)}; engine: {', '.join(engine.precisions)}; "
                f"compiler: {', '.join(p for p in PRECISIONS if compiles(engine, p))}",
            )
