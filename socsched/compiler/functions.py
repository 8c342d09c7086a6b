"""Artefacts of functions: stages that are no networks, but have an implementation for an engine's target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from socsched.cache import cache_dir
from socsched.compiler.artifact import META, Artifact, description, find
from socsched.compiler.store import digest, publish, require_space, scratch, write_json
from socsched.compiler.target import FunctionBuild, Target, target_of
from socsched.compiler.versions import rule_sources
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, MachineError
from socsched.models.model import Port
from socsched.models.registry import bindings, get_model

_SPACE = 1 << 22
"""Most bytes that a function's files take."""


def is_device_function(stage: Stage, engine: Engine) -> bool:
    """Return whether `stage` is a function that can be built for the target of `engine`."""
    model = get_model(stage.model or "", stage.params)
    return model.network is None and model.device in target_of(engine.target, engine.id).functions


def border_precision(stage: Stage, pipeline: Pipeline, engine: Engine, placed: Mapping[str, tuple[str, str]]) -> str:
    """Return the precision of the tensors that a function on `engine` exchanges with the networks around it.

    `placed` holds engine and precision of every stage by name.  An engine converts nothing for a function that takes
    the networks' data type (`FunctionCost.dtypes`), so that is what the code reads and writes; where networks differ,
    and for other functions, it is the stage's own precision.
    """
    own, model = placed[stage.name][1], get_model(stage.model or "", stage.params)
    cost = engine.functions.get(model.device)
    bound = bindings(pipeline)
    numbers = {port.name for port in (*model.inputs, *model.outputs) if port.type.dtype in ("fp32", "fp16")}
    around = {name for port, name in bound[stage.name].items() if port in numbers}
    around |= {name for name, ports in bound.items() if any(ports.get(port) == stage.name for port in numbers)}
    networks = [s for s in pipeline.stages if s.name in around and s.model and get_model(s.model, s.params).network]
    found = {"fp16" if placed[s.name][1] == "fp16" else "fp32" for s in networks if s.name in placed}
    return next(iter(found)) if cost and len(found) == 1 and found <= set(cost.dtypes) else own


def compile_function(stage: Stage, engine: Engine, precision: str) -> Artifact:
    """Return the artefact of a function for `engine`, from the cache if it was built before.

    Raises CompileError for a model without an implementation and for anything it does not support, MachineError for a
    missing tool or a full disk.
    """
    model, target = get_model(stage.model or "", stage.params), target_of(engine.target, engine.id)
    spec = target.resolve(engine.target, engine.id)
    if precision not in target.precisions(engine.target):
        raise CompileError(f"{stage.name}: no compilation in {precision} for {spec.kind}", "plan it in fp16 or fp32")
    key = digest("function", model.name, sorted(stage.params.items()), spec.kind, dict(spec.tvm), precision, _sources())
    folder = cache_dir() / "artifacts" / key
    artifact = find(folder) or _store(folder, FunctionBuild(folder, model, spec, precision), target, key)
    return replace(artifact, stage=stage.name, engine=engine.id, engine_kind=engine.kind)


def _sources() -> str:
    """Return what code depends on besides the model: the compiler's sources and the kernels'."""
    kernels = Path(__file__).parent / "targets" / "gpu_functions" / "kernels"
    files = sorted(kernels.iterdir()) if kernels.is_dir() else []
    return rule_sources() + digest(*(file.read_text() for file in files if file.suffix in (".c", ".h")))


def _store(folder: Path, asked: FunctionBuild, target: Target, key: str) -> Artifact:
    with scratch(folder.parent) as space:
        entry = space / "entry"
        entry.mkdir()
        require_space(entry, _SPACE)
        write_json(entry / META, description(_build(replace(asked, folder=entry), target, key), entry))
        publish(entry, folder, lambda place: find(place) is not None)
    stored = find(folder)
    if stored is None:
        raise MachineError(
            f"{folder}: the artefact just written cannot be read back", "check the disk, or set SOCSCHED_CACHE"
        )
    return stored


def _build(asked: FunctionBuild, target: Target, key: str) -> Artifact:
    model = asked.model
    built = target.functions[model.device](asked)
    return Artifact(
        stage=model.name,
        model=model.name,
        engine="",
        engine_kind="",
        target=asked.spec.kind,
        triple=asked.spec.triple,
        precision=asked.precision,
        threads=0,
        key=key,
        folder=asked.folder,
        files=built.files,
        input_names=_names(model.inputs),
        inputs=built.inputs,
        output_names=_names(model.outputs),
        outputs=built.outputs,
        weights="",
        loadable=False,
        notes=built.notes,
    )


def _names(ports: tuple[Port, ...]) -> tuple[str, ...]:
    return tuple(port.name for port in ports)
