"""A pipeline's compiled stages in one folder that can be started on the board, with a manifest of its contents.

manifest.json           stages in order with their inputs, artefacts and hand-overs, versions, the digest of every file
STAGE/ENGINE-PRECISION/ the code of a stage, or the inputs a vendor's toolchain needs to build it; on request
                        quantised.onnx, the network of int8 code with Q/DQ
plan.json               the plan, if it was compiled for one
README.txt, start.sh, build.sh, run.json, native/, SHA256SUMS   of a plan: its application (see `executor.application`)
"""

from __future__ import annotations

import json
import platform as machine
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact, weights_digest
from socsched.compiler.builder import (
    border_precision,
    compile_stage,
    drawn_scales,
    is_device_function,
    network_of,
    precisions,
    shipped_scales,
    weights_for,
)
from socsched.compiler.quantize.network import quantise
from socsched.compiler.quantize.scales import FILE, Scales, of_stage, read_scales
from socsched.compiler.store import PINNED
from socsched.compiler.target import target_of
from socsched.compiler.toolchains import hand_over as vendor
from socsched.compiler.toolchains.hand_over import require_all
from socsched.compiler.toolchains.package import QUANTISED
from socsched.compiler.toolchains.qdq import to_qdq
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import OWN, Engine, Platform
from socsched.errors import CompileError, MachineError, UsageError
from socsched.files import digests, file_digest, put_in_place, scratch
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.partition import Part, take
from socsched.graph.rules import check_operators, offered, uncompiled_operators
from socsched.graph.taskgraph import task_graph
from socsched.models.registry import bindings, get_model
from socsched.models.work import stage_work
from socsched.progress import tell

SCHEMA_VERSION = "1"
MANIFEST, APPLICATION = "manifest.json", "native"
"""File of the manifest, and the folder that an application needs as a whole."""

Given = Mapping[str, np.ndarray[Any, Any]] | None
"""Weights that a user gives."""
Placement = Mapping[str, tuple[str, str]]
"""Stage name -> (engine id, precision), as assigned by a plan."""


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """What to compile of a pipeline: `placement` is a plan's choice, an engine id, or None for every capable engine.

    `stage` and `engine` restrict the selection, `part` cuts the one stage.  `shares`: engine units assigned to each
    stage.  `scales`: scales of int8 stages, by stage name.  `plan`: the plan's document, kept with the code.
    `application` adds files to the finished bundle before their digests are taken, and says what.  `runtimes`: the
    program that a plan chose for a stage.  `qdq` adds int8 stages that are compiled here as ONNX files with Q/DQ.
    """

    placement: Placement | str | None = None
    stage: str | None = None
    engine: str | None = None
    part: Part | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    scales: Mapping[str, Scales] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    application: Callable[[Path], Mapping[str, Any]] | None = None
    runtimes: Mapping[str, str] = field(default_factory=dict)
    qdq: bool = False

    def runtime_of(self, stage: Stage, engine: Engine, precision: str) -> str:
        """Return the runtime that the plan chose for a stage, empty for the engine's own.

        On another engine than the planned one it is the first that has what our code lacks.
        """
        if isinstance(self.placement, Mapping) and self.placement.get(stage.name, ("",))[0] == engine.id:
            return self.runtimes.get(stage.name, "")
        if not engine.runtimes or not _is_network(stage):
            return ""
        work = stage_work(stage, precision, self.part)
        others = [runtime.name for runtime in offered(engine, work) if runtime.name != OWN]
        return others[0] if others and uncompiled_operators(work, engine) else ""


def compile_bundle(
    pipeline: Pipeline,
    platform: Platform,
    request: BundleRequest,
    out_dir: Path,
    weights: Given = None,
    note: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Compile stages into `out_dir`, one folder per stage and engine, and return the manifest written there.

    Functions are compiled where a plan places them on an engine with code for them (`Target.functions`).

    Stages of engines with a vendor's toolchain are handed over to it (`toolchains.hand_over`).  `note` is called for
    each stage and for every engine that rejects one.  Raises UsageError for unknown names, MachineError when
    `out_dir` cannot be written, and the errors of `compile_stage` and `hand_over`.
    """
    if request.part and not request.stage:
        raise UsageError("--part needs the name of its stage", "add --stage")
    chosen = _Choices(pipeline, platform, request, weights, note)
    choices = list(chosen)
    if refused := chosen.unplaced(choices):
        raise UsageError("\n".join(refused), "socsched plan and lint say why, and for which engines")
    _require_takers(choices, request)
    _require_functions(pipeline, platform, request)
    if request.qdq and not any(_compiled_in_int8(choice, request) for choice in choices):
        raise UsageError("--qdq: no stage is compiled in int8", "choose stages, engines or a plan with int8")
    try:
        with scratch(out_dir) as folder:
            manifest = _make(folder, pipeline, platform, request, choices, weights, note)
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")
            put_in_place(folder, out_dir, MANIFEST, whole=APPLICATION if (folder / APPLICATION).is_dir() else "")
    except OSError as error:
        raise MachineError(
            f"{out_dir}: cannot write: {error.strerror or error}", "free space or name another folder"
        ) from error
    return manifest


def _make(
    target_folder: Path,
    pipeline: Pipeline,
    platform: Platform,
    request: BundleRequest,
    choices: Sequence[tuple[Stage, Engine, str]],
    weights: Given,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Write a bundle except its manifest into `made`, and return the manifest."""
    artifacts: list[dict[str, Any]] = []
    handovers: list[dict[str, Any]] = []
    for number, (chosen, target, precision) in enumerate(choices):
        tell("compiling", number, len(choices), "stages", chosen.name)
        folder = placed_in(chosen, target, precision, request.part)
        runtime = request.runtime_of(chosen, target, precision)
        if vendor.has_toolchain(target, runtime):
            known = of_stage(request.scales, chosen) or _shipped(chosen, weights)
            if known is None and weights is None and precision == "int8":
                known = drawn_scales(chosen)
            document = vendor.hand_over(
                chosen, target, precision, target_folder / folder, weights, request.part, known, runtime
            )
            handovers.append(
                {**document, "folder": folder.as_posix(), "runtime": runtime or document["toolchain"].lower()}
            )
            note(f"{chosen.name} for {target.id} in {precision}, {_outcome(document)}")
            continue
        share = request.shares.get(chosen.name, 0) if target.shares == "unit" else 0
        scales = of_stage(request.scales, chosen)
        artifact = compile_stage(chosen, target, precision, weights, 0, request.part, share, scales)
        note(f"{chosen.name} for {target.id} in {precision}")
        artifacts.append({**_place(artifact, target_folder, folder), "runtime": runtime or OWN})
        if request.qdq and precision == "int8":
            model = _with_qdq(chosen, artifact, weights, request.part)
            (target_folder / folder / QUANTISED).write_bytes(model.SerializeToString())
            artifacts[-1]["qdq"] = (folder / QUANTISED).as_posix()
    if request.plan is not None:
        (target_folder / "plan.json").write_text(json.dumps(request.plan, indent=1, sort_keys=True), encoding="utf-8")
    manifest: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "pipeline": pipeline.name,
        "platform": platform.name,
        "versions": dict(PINNED),
        "host_stages": [s.name for s in pipeline.stages if s.model and not _is_network(s)],
        "artifacts": artifacts,
        "handovers": handovers,
        "stages": stages_of(pipeline, artifacts, handovers),
        "weights": {"sha256": weights_digest(weights)} if weights else {"seed": 0},
        "plan": "plan.json" if request.plan is not None else None,
    }
    if request.application is not None:
        manifest["application"] = request.application(target_folder)
    return {**manifest, "files": digests(target_folder)}


def _with_qdq(stage: Stage, artifact: Artifact, weights: Given, part: Part | None) -> Any:
    """Return an int8 artefact's network as an ONNX model with Q/DQ: the integers of the compiled code.

    Inputs and outputs are fp32 and have the network's names.  Bytes are int8: with uint8, ONNX Runtime adds pairs of
    products in 16 bits on x86 processors without VNNI, which saturate.  CompileError for a layer without ONNX operator,
    MachineError when the package onnx is missing.
    """
    model, network = network_of(stage)
    if part:
        network = take(network, part, layer_types(network))
    chosen, _ = weights_for(model, network, weights)
    integers = quantise(fuse_network(network), chosen, read_scales(artifact.folder / FILE))
    return to_qdq(integers, chosen, signed=True)


def _shipped(stage: Stage, weights: Given) -> Scales | None:
    """Return the int8 scales shipped with a stage's weights, None if other weights are given."""
    return shipped_scales(network_of(stage)[0]) if weights is None else None


def _outcome(document: Mapping[str, Any]) -> str:
    if "compiled" not in document:
        return f"to be built by {document['toolchain']}"
    compiled = document["compiled"]
    listed = ", ".join(f"{name} {version}" for name, version in compiled["versions"].items())
    return f"compiled by {listed}, {compiled['bytes'] / 1e6:.2f} MB"


def placement(tasks: Any) -> dict[str, tuple[str, str]]:
    """Return the placement of a plan's tasks (anything with kind, name, engine and precision)."""
    return {task.name: (task.engine, task.precision) for task in tasks if task.kind == "stage"}


def runtimes_by_stage(tasks: Any) -> dict[str, str]:
    """Return the runtime a plan chose for each stage (tasks with kind, name and runtime), where it names one."""
    return {task.name: task.runtime for task in tasks if task.kind == "stage" and task.runtime}


def shares_by_stage(tasks: Any) -> dict[str, int]:
    """Return the number of lanes a plan assigns to each stage (tasks with kind, name and lanes)."""
    return {task.name: len(task.lanes) for task in tasks if task.kind == "stage"}


def _require_takers(choices: list[tuple[Stage, Engine, str]], request: BundleRequest) -> None:
    """Raise UsageError naming the fallback operators of all stages, before the first file is written."""
    refused = []
    for stage, engine, precision in choices:
        if vendor.has_toolchain(engine, request.runtime_of(stage, engine, precision)):
            try:
                require_all(stage_work(stage, precision, request.part), engine)
            except UsageError as error:
                refused.append(error)
    if refused:
        raise UsageError("\n".join(map(str, refused)), refused[0].hint)


def _require_functions(pipeline: Pipeline, platform: Platform, request: BundleRequest) -> None:
    """Raise CompileError naming the functions placed on an engine for whose target they have no device code."""
    if not isinstance(request.placement, Mapping):
        return
    missing = []
    for stage in pipeline.stages:
        engine = platform.engine(request.placement.get(stage.name, (platform.engines[0].id,))[0])
        if stage.model is None or request.stage not in (None, stage.name) or engine.operators.host_code:
            continue
        device = get_model(stage.model, stage.params).device
        if device and device not in target_of(engine.target, engine.id).functions:
            missing.append(
                (stage.name, f"{stage.name} is planned on {engine.id}: no code of {device!r} for that target")
            )
    if missing:
        pins = " ".join(f"--pin {name}=cpu" for name, _ in missing)
        raise CompileError("\n".join(text for _, text in missing), f"plan with {pins}")


def _compiled_in_int8(choice: tuple[Stage, Engine, str], request: BundleRequest) -> bool:
    stage, engine, precision = choice
    here = not vendor.has_toolchain(engine, request.runtime_of(stage, engine, precision))
    return here and precision == "int8" and _is_network(stage)


def placed_in(stage: Stage, engine: Engine, precision: str, part: Part | None = None) -> Path:
    """Return the folder of a stage's code, relative to the bundle."""
    cut = "-" + "".join(c if c.isalnum() or c in "._+" else "_" for c in str(part)) if part else ""
    return Path(stage.name) / f"{engine.id}-{precision}{cut}"


def _place(artifact: Artifact, out_dir: Path, folder: Path) -> dict[str, Any]:
    (out_dir / folder).mkdir(parents=True, exist_ok=True)
    paths = [(folder / name).as_posix() for name in artifact.files]
    for name, path in zip(artifact.files, paths, strict=True):
        shutil.copyfile(artifact.folder / name, out_dir / path)
    return {
        **artifact.to_json(),
        "files": paths,
        "sha256": {path: file_digest(out_dir / path) for path in paths},
        "machine": artifact.triple.split("-")[0] or machine.machine(),
    }


def _is_network(stage: Stage) -> bool:
    return sort_of(stage.model, stage.params) == "network"


class _Choices:
    """The stages to compile, each with engine and precision."""

    def __init__(
        self,
        pipeline: Pipeline,
        platform: Platform,
        request: BundleRequest,
        weights: Given,
        note: Callable[[str], None],
    ) -> None:
        self.pipeline, self.platform = pipeline, platform
        self.request, self.weights, self.note = request, weights, note
        self.placement = request.placement
        self.engine = request.engine
        if isinstance(self.placement, str):
            self.placement, self.engine = None, self.engine or self.placement
        self.refused: dict[str, list[str]] = {}
        self.stages = [s for s in pipeline.stages if request.stage in (None, s.name)]
        self.engines = [e for e in platform.engines if self.engine in (None, e.id)]
        if not self.stages:
            names = ", ".join(s.name for s in pipeline.stages)
            raise UsageError(f"pipeline {pipeline.name} has no stage {request.stage!r}", f"its stages: {names}")
        if not self.engines:
            raise UsageError(
                f"platform {platform.name} has no engine {self.engine!r}",
                f"its engines: {', '.join(e.id for e in platform.engines)}",
            )

    def __iter__(self) -> Iterator[tuple[Stage, Engine, str]]:
        for stage in self.stages:
            if isinstance(self.placement, Mapping) and stage.name in self.placement and self.engine is None:
                name, precision = self.placement[stage.name]
                target = self.platform.engine(name)
                if _is_network(stage):
                    yield stage, target, precision
                elif stage.model and not target.operators.host_code and is_device_function(stage, target):
                    yield stage, target, border_precision(stage, self.pipeline, target, self.placement)
            elif _is_network(stage) and (self.placement is None or self.engine is not None):
                yield from self.able(stage)

    def unplaced(self, choices: Sequence[tuple[Stage, Engine, str]]) -> list[str]:
        """Return the networks that no engine computes, with the reasons: a bundle without them would not run."""
        placed = {stage.name for stage, _, _ in choices}
        absent = [stage.name for stage in self.stages if _is_network(stage) and stage.name not in placed]
        if choices:
            return []
        if isinstance(self.placement, Mapping) and self.engine is None:
            return [f"the plan has no engine for {name}" for name in absent]
        return [
            f"no engine computes {name}: {'; '.join(self.refused[name])}" for name in absent if name in self.refused
        ]

    def able(self, stage: Stage) -> Iterator[tuple[Stage, Engine, str]]:
        """Yield engines that accept the stage, each in its best accepted precision; a named engine is not filtered."""
        for engine in self.engines:
            buildable = self.precisions(stage, engine)
            fitting = [p for p in stage.precisions if p in engine.precisions and p in buildable]
            for precision in fitting[:1]:
                against = check_operators(stage_work(stage, precision, self.request.part), engine)
                if self.engine is not None or not against:
                    yield stage, engine, precision
                else:
                    self.refused.setdefault(stage.name, []).append(f"{engine.id}: {'; '.join(against)}")
                    self.note(f"{engine.id} cannot run {stage.name}: {'; '.join(against)}")
            if self.engine is not None and not fitting:
                raise UsageError(
                    f"stage {stage.name!r} has no precision in common with {engine.id} that can be compiled",
                    f"stage: {', '.join(stage.precisions)}; engine: {', '.join(engine.precisions)}; "
                    f"compiler: {', '.join(buildable)}",
                )

    def precisions(self, stage: Stage, engine: Engine) -> tuple[str, ...]:
        """Return the precisions that can be built for an engine: a hand-over in int8 needs scales."""
        if not vendor.has_toolchain(engine):
            return precisions(engine)
        scales = of_stage(self.request.scales, stage) or _shipped(stage, self.weights)
        return vendor.PRECISIONS if scales else ("fp16",)


# What a manifest says of a pipeline's stages.


def sort_of(model: str | None, params: Mapping[str, Any]) -> str:
    """Return the kind of a stage for an executor: network, function, or timed (known only by its execution times)."""
    if model is None:
        return "timed"
    return "network" if get_model(model, params).network is not None else "function"


def stages_of(
    pipeline: Pipeline, artifacts: list[dict[str, Any]], handovers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the stages in execution order, each with its inputs and the indices of its artefacts."""
    bound = bindings(pipeline)
    entries = []
    for name in task_graph(pipeline).order:
        stage = pipeline.stage(name)
        sort = sort_of(stage.model, stage.params)
        entries.append(
            {
                "name": name,
                "sort": sort,
                "model": stage.model,
                "params": dict(stage.params) if sort == "function" else {},
                "inputs": bound.get(name, {}),
                "artifacts": [i for i, a in enumerate(artifacts) if a["stage"] == name and not a["part"]],
                "handovers": [i for i, h in enumerate(handovers) if h["stage"] == name],
            }
        )
    return entries
