"""Stages to artefacts.

What a precision means on a target that this machine executes:
    fp32   computed as is.
    fp16   llvm and simulated: the stage's inputs, weights and outputs are rounded to IEEE half precision (their dtype
           is fp16), everything between is fp32.  So storage and hand-over rounding are modelled; half-precision
           rounding and overflow of intermediate activations and the accumulators' width are not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compile.analyze import stage_work
from socsched.compile.artifact import META, Artifact, description, find, weights_digest
from socsched.compile.link import tools, write_library
from socsched.compile.store import cache_dir, digest, write_json
from socsched.compile.targets import TargetSpec, resolve
from socsched.compile.versions import PINNED, rule_sources
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, MachineError, UsageError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.graph.rules import check_operators
from socsched.models.registry import Model, get_model
from socsched.models.weights import check_weights, seeded_weights

Array = np.ndarray[Any, Any]

SEED = 0
PRECISIONS = ("fp32", "fp16")


def compile_stage(
    stage: Stage,
    engine: Engine,
    precision: str = "fp32",
    weights: Mapping[str, Array] | None = None,
    threads: int = 0,
) -> Artifact:
    """Return the artefact of `stage` for `engine`, from the cache if it was built before.

    `weights` are the network's parameters (others are ignored); None means random ones of seed 0.  `threads` is how
    many threads the loaded stage will use, 0 for all the process may.  Raises UsageError for a stage that is no
    network, InputError for weights that do not fit, CompileError for what the engine or target cannot do, MachineError
    for a missing tool.
    """
    model, network = _network(stage)
    spec = resolve(engine.target, engine.id)
    if precision not in PRECISIONS:
        raise CompileError(f"{stage.name}: no compilation in {precision}: weights carry no quantisation parameters")
    chosen, provenance = _weights(model, network, weights)
    build = (spec.kind, dict(spec.tvm), precision, tools(spec), PINNED, rule_sources())
    key = digest(repr(network), provenance, *build)
    folder = cache_dir() / "artifacts" / key
    artifact = find(folder)
    if artifact is None:
        _check_rules(stage, engine, precision, spec)
        artifact = _store(folder, _Request(stage, engine, model, network, spec, precision, chosen, provenance, key))
    return _relabel(artifact, stage, engine, threads)


@dataclass(frozen=True, slots=True)
class _Request:
    """Everything a back end needs to build one artefact."""

    stage: Stage
    engine: Engine
    model: Model
    network: Network
    spec: TargetSpec
    precision: str
    weights: Mapping[str, Array]
    provenance: str
    key: str


def _network(stage: Stage) -> tuple[Model, Network]:
    if stage.model is None:
        raise UsageError(
            f"stage {stage.name!r} has no model: nothing to compile", "it is known by its execution times only"
        )
    model = get_model(stage.model, stage.params)
    if model.network is None:
        raise UsageError(f"stage {stage.name!r} ({stage.model}) is host code: nothing to compile", "it runs as it is")
    return model, model.network()


def _weights(model: Model, network: Network, weights: Mapping[str, Array] | None) -> tuple[Mapping[str, Array], str]:
    if model.weights is not None:  # a network from a file comes with its own
        own = model.weights()
        return own, f"sha256 {weights_digest(own)}"
    if weights is None:
        return seeded_weights(network, SEED), f"seed {SEED}"
    own = {name: np.asarray(weights[name], np.float32) for name in network.params if name in weights}
    check_weights(network, own)
    return own, f"sha256 {weights_digest(own)}"


def _check_rules(stage: Stage, engine: Engine, precision: str, spec: TargetSpec) -> None:
    if spec.kind != "simulated":
        return
    violated = check_operators(stage_work(stage, precision), engine)
    if violated:
        raise CompileError(
            f"stage {stage.name!r} cannot run on {engine.id}: " + "; ".join(violated),
            "place the stage on another engine, or cut it where the operators end",
        )


def _relabel(artifact: Artifact, stage: Stage, engine: Engine, threads: int) -> Artifact:
    """The cache is by content: the same code may serve several stages and engines."""
    return replace(artifact, stage=stage.name, engine=engine.id, engine_kind=engine.kind, threads=threads)


def _store(folder: Path, request: _Request) -> Artifact:
    """Build aside, then move the whole folder into the cache; whoever comes second keeps the first one's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        aside = Path(scratch) / "entry"
        aside.mkdir()
        artifact = _build(aside, request)
        write_json(aside / META, description(artifact, aside))
        try:
            os.rename(aside, folder)
        except OSError:
            if find(folder) is None:  # a damaged entry is in the way
                shutil.rmtree(folder, ignore_errors=True)
                os.rename(aside, folder)
    stored = find(folder)
    if stored is None:
        raise MachineError(
            f"{folder}: the artefact just written cannot be read back", "check the disk, or set SOCSCHED_CACHE"
        )
    return stored


def _build(folder: Path, request: _Request) -> Artifact:
    if request.spec.kind == "cuda":
        from socsched.compile.cuda import build_cuda

        inputs, outputs, files, notes = build_cuda(
            folder, request.network, request.weights, request.spec, request.precision
        )
    elif request.spec.kind == "opencl":
        from socsched.compile.opencl.lower import build_opencl

        inputs, outputs, files, notes = build_opencl(
            folder, request.network, request.weights, request.spec, request.precision
        )
    else:
        inputs, outputs, files, notes = _build_cpu(folder, request)
    if request.spec.kind == "hexagon":
        from socsched.compile.hexagon import check_objects

        notes += check_objects(folder, files)
    return Artifact(
        stage=request.stage.name,
        model=request.model.name,
        engine=request.engine.id,
        engine_kind=request.engine.kind,
        target=request.spec.kind,
        triple=request.spec.triple,
        precision=request.precision,
        threads=0,
        key=request.key,
        folder=folder,
        files=files,
        input_names=tuple(port.name for port in request.model.inputs),
        inputs=inputs,
        output_names=tuple(port.name for port in request.model.outputs),
        outputs=outputs,
        weights=request.provenance,
        loadable=request.spec.native and files[0].endswith(".so"),
        notes=notes,
    )


Built = tuple[tuple[TensorType, ...], tuple[TensorType, ...], tuple[str, ...], tuple[str, ...]]


def _build_cpu(folder: Path, request: _Request) -> Built:
    from socsched.compile.cpu.lower import lower
    from socsched.compile.environment import relax, tvm
    from socsched.compile.fusion import read
    from socsched.compile.relax_import import import_network
    from socsched.compile.targets import vector_unit

    half, weights = request.precision == "fp16", request.weights
    if half:
        weights = {name: array.astype(np.float16).astype(np.float32) for name, array in weights.items()}
    graph = read(import_network(request.network), request.network)
    lowered = lower(graph, weights, vector_unit(request.spec))
    executable = relax.build(lowered.module, target=tvm.target.Target(dict(request.spec.tvm)))
    files, notes = write_library(executable, folder, request.spec)
    if lowered.general:
        notes += (f"general schedules, which are slow, for: {', '.join(lowered.general)}",)
    if half:
        notes += ("fp16: stage inputs, weights and outputs rounded to half precision, arithmetic in fp32",)
    return _border(lowered.inputs, half), _border(lowered.outputs, half), files, notes


def _border(tensors: tuple[TensorType, ...], half: bool) -> tuple[TensorType, ...]:
    return tuple(TensorType(t.shape, "fp16" if half and t.dtype == "fp32" else t.dtype, t.layout) for t in tensors)
