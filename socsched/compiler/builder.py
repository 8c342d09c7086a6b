"""Builds artefacts from stages.

Meaning of each precision, by target:
    fp32   computed as is.
    fp16   llvm for a processor with half-precision arithmetic (Armv8.2, `llvm.processor`): all activations and
           weights are fp16, convolutions multiply in fp16 and accumulate totals in fp32 (`llvm.half`).
           llvm otherwise, and simulated: the stage's inputs, weights and outputs are rounded to IEEE half precision
           (their dtype is fp16), all intermediate values are fp32.  Rounding of storage and transfers is thus modelled;
           half-precision rounding and overflow of intermediate activations and the accumulators' width are not.
           opencl: all tensors are fp16, sums of convolutions and of the Pillar Feature Net fp32.
    int8   llvm and simulated: integers from the stage's input to its output, where tensors are fp32; see `quantize`.
           cuda: the same integers, bit by bit, on tensor cores; operators without an int8 form by general schedules.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from socsched.cache import cache_dir
from socsched.compiler.apart import Ended, apart
from socsched.compiler.artifact import Artifact, find, store, weights_digest
from socsched.compiler.layouts import native_layout
from socsched.compiler.passes.link import tools
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import UNCALIBRATED, Scales, key_of, read_pipeline_scales
from socsched.compiler.store import PINNED, digest, rule_sources
from socsched.compiler.target import Build, Compilation, FunctionBuild, Target, target_of
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, SocschedError, UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.operators import StageWork
from socsched.graph.partition import Cut, Part, prefixes, take
from socsched.graph.rules import as_a_whole, check_operators, named, uncompiled_operators
from socsched.models.model import Model
from socsched.models.registry import bindings, get_model
from socsched.models.weights import check_weights, draw_weights
from socsched.models.work import stage_work

Array = np.ndarray[Any, Any]

SEED = 0
_FUNCTION_SPACE = 1 << 22
"""Most bytes that a function's files take."""


def compile_stage(
    stage: Stage,
    engine: Engine,
    precision: str = "fp32",
    weights: Mapping[str, Array] | None = None,
    threads: int = 0,
    part: Part | None = None,
    share: int = 0,
    scales: Scales | None = None,
) -> Artifact:
    """Return the artefact of `stage` (or of `part` of it) for `engine`, from the cache if it was built before.

    `weights` are the whole network's parameters (others are ignored); None selects the weights shipped with socsched
    for the network, or random weights of seed 0.  `share` is the number of the engine's units (cores, SMs) the stage
    may occupy, 0 for all; `threads` is the number of threads the loaded stage will use, 0 for the share, or all the
    process may use.  `scales` are the int8 scales of the network's values (`quantize.calibrate`); None selects those
    shipped with the weights, or scales calibrated on seeded normal inputs.

    A function with an implementation for the engine is built without weights.

    Raises UsageError for a stage that is not a network or a part or share that does not exist, InputError for weights
    that do not fit, CompileError for anything the engine or target does not support, MachineError for a missing tool or
    a full disk.
    """
    if stage.model is not None and is_device_function(stage, engine):
        return compile_function(stage, engine, precision)
    model, network = network_of(stage)
    if scales is None and weights is None and precision == "int8":
        scales = shipped_scales(model)
    target = target_of(engine.target, engine.id)
    spec = target.resolve(engine.target, engine.id)
    check_share(engine, share)
    if precision not in precisions(engine):
        raise CompileError(f"{stage.name}: no compilation in {precision} for {spec.kind}", "plan it in fp16 or fp32")
    work = stage_work(stage, precision, part)
    if target.simulated and (violated := check_operators(work, engine)):
        raise CompileError(
            f"stage {work.stage!r} cannot run on {engine.id}: {'; '.join(violated)}",
            "place the stage on another engine, or cut it where the operators end",
        )
    require_kernels(work, engine)
    if not target.simulated and (against := as_a_whole(work, engine)):
        raise UsageError(f"stage {stage.name!r} cannot run on {engine.id}: {'; '.join(against)}")
    chosen, provenance = weights_for(model, network, weights)
    within = (share if target.tuned_to_share else 0, _layout(engine, precision) if target.simulated else "")
    code = (spec.kind, dict(spec.tvm), precision, tools(spec), PINNED, rule_sources(), within)
    key = digest(
        repr(network),
        provenance,
        *code,
        *((scales.digest if scales else UNCALIBRATED,) if precision == "int8" else ()),
        dict(target.options(spec, precision)),
        *([str(part)] if part else []),
    )
    folder = cache_dir() / "artifacts" / key
    artifact = find(folder)
    if artifact is None:
        names = port_names(model, network)
        if part:
            network = take(network, part, layer_types(network))
        asked = Build(folder, network, chosen, spec, precision, scales, share)
        layout = _layout(engine, precision) if target.simulated else ""
        about = {"stage": stage.name, "model": model.name, "key": key, "weights": provenance}
        about |= {"engine": engine.id, "engine_kind": engine.kind}
        ways = (target, about, names, layout)
        artifact = store(folder, _space(asked), lambda entry: _apart(replace(asked, folder=entry), *ways))
    # the cache is by content, so one entry serves several stages
    return replace(
        artifact,
        stage=stage.name,
        engine=engine.id,
        engine_kind=engine.kind,
        threads=threads or share,
        part=str(part) if part else "",
        share=share,
    )


def check_share(engine: Engine, share: int) -> None:
    """Raise UsageError unless `engine` can assign `share` of its units to one stage (0: all of them)."""
    if not share:
        return
    if not 0 < share <= engine.units:
        raise UsageError(
            f"{engine.id} has {engine.units} {engine.unit}s, not {share}", "give at most that many, or 0 for all"
        )
    if share != engine.units and engine.shares == "whole":
        raise UsageError(
            f"{engine.id} is occupied as a whole: no stage can have {share} of its {engine.units} {engine.unit}s",
            "omit the share",
        )


def precisions(engine: Engine) -> tuple[str, ...]:
    """Return the precisions that code for `engine` can be compiled in, regardless of the stage."""
    return target_of(engine.target, engine.id).precisions(engine.target)


def network_of(stage: Stage) -> tuple[Model, Network]:
    """Return the model and the network of a stage; UsageError if it has none."""
    if stage.model is None:
        raise UsageError(f"stage {stage.name!r} has no model: nothing to compile", "only its execution times are known")
    model = get_model(stage.model, stage.params)
    if model.network is None:
        raise UsageError(
            f"stage {stage.name!r} ({stage.model}) is host code: nothing to compile", "it runs without compilation"
        )
    return model, model.network()


def port_names(model: Model, network: Network) -> dict[str, str]:
    """Map network inputs and outputs to the model's ports; tensors between parts have no port and keep their names."""
    sides = ((network.inputs, model.inputs), (network.outputs, model.outputs))
    return {value: port.name for values, ports in sides for value, port in zip(values, ports, strict=True)}


def shipped_scales(model: Model) -> Scales | None:
    """Return the int8 scales in a model's file or shipped with its weights, None without them."""
    if model.quantised is not None:
        stated = model.quantised()
        values = {key_of(name): Scale.about(*scale) for name, scale in stated.values.items()}
        return Scales(values, "stated in the network's file", weights=stated.weights, partial=True)
    if not model.scales:
        return None
    return read_pipeline_scales(Path(model.scales)).get(model.name.partition("[")[0].rpartition(".")[2])


def drawn_scales(stage: Stage) -> Scales | None:
    """Return scales of a network whose weights are drawn, as its own code has them; None for one with real weights.

    Real weights want real frames (`socsched calibrate`); drawn ones detect nothing by either.
    """
    model, network = network_of(stage)
    if model.weights is not None or model.trained is not None:
        return None
    weights, _ = weights_for(model, network, None)
    return calibrate(network, weights, seeded_samples(network))


def weights_for(model: Model, network: Network, weights: Mapping[str, Array] | None) -> tuple[Mapping[str, Array], str]:
    """Return a stage's weights and their source: its own file, `weights`, shipped with socsched, or seeded."""
    if model.weights is not None:  # a network from a file has its own weights
        own = model.weights()
        return own, f"sha256 {weights_digest(own)}"
    if weights is None and model.trained is not None:
        weights = model.trained()
    if weights is None:
        drawn = draw_weights(model.whole() if model.whole else network, SEED)
        return {name: drawn[name] for name in network.params}, f"seed {SEED}"
    own = {name: np.asarray(weights[name], np.float32) for name in network.params if name in weights}
    check_weights(network, own)
    return own, f"sha256 {weights_digest(own)}"


def require_kernels(work: StageWork, engine: Engine) -> None:
    """Raise UsageError naming every operator of a stage that our compiler has no kernel for on an engine.

    A runtime that reads ONNX may have one.
    """
    if lacking := uncompiled_operators(work, engine):
        raise UsageError(
            f"stage {work.stage!r} cannot be compiled for {engine.id}: {named(lacking)}",
            "place it on an engine whose runtime computes them, or cut the network where they begin",
        )


def _space(asked: Build) -> int:
    """Return the most bytes a build writes: Winograd turns 9 weights into 36, kept in object, library and constants."""
    return 3 * 4 * 4 * sum(map(prod, asked.network.params.values())) + (1 << 20)


def _compiled(asked: Build, target: Target) -> Compilation:
    from socsched.compiler.pipeline import compile_network  # TVM: an artefact from the cache needs none

    return compile_network(asked, target)


def _apart(asked: Build, target: Target, about: Mapping[str, Any], *border: Any) -> Artifact:
    """Return `build` of a child process; CompileError that names the first layer at which a compiler ends it."""
    from socsched.compiler import environment  # noqa: F401  (TVM, before the fork: children share it)

    data = sum(array.nbytes for array in asked.weights.values())
    try:
        return apart(lambda: build(asked, target, about, *border), data)
    except Ended as error:
        layer = _first_to_end(asked, target, data)
        raise CompileError(
            f"stage {about['stage']!r}: the compiler {error}{f', at {layer}' if layer else ''}",
            "cut the network there, or choose another precision, engine or runtime for the stage",
        ) from None


def _first_to_end(asked: Build, target: Target, data: int) -> str:
    """Return the last layer of the shortest beginning of a network at which a compiler ends its process."""
    network = asked.network
    cuts = list(prefixes(network, layer_types(network)))

    def ends(cut: Cut) -> bool:
        start = take(network, Part((), cut.after), layer_types(network))
        with tempfile.TemporaryDirectory(dir=asked.folder.parent) as folder, suppress(SocschedError):
            try:
                apart(lambda: _compiled(replace(asked, network=start, folder=Path(folder)), target).files, data)
            except Ended:
                return True
        return False

    shortest = bisect_left(cuts, True, key=ends)
    known = cuts[shortest - 1].before if shortest else frozenset[str]()
    ended = cuts[shortest].before if shortest < len(cuts) else {layer.name for layer in network.layers}
    return " or ".join(f"{layer.name} ({layer.op})" for layer in network.layers if layer.name in ended - known)


def build(
    asked: Build, target: Target, about: Mapping[str, Any], names: Mapping[str, str] | None = None, layout: str = ""
) -> Artifact:
    """Build a network, and return it as an artefact; `about`: what an artefact says of its stage.

    `names` are those of ports, by value, `layout` the border's where it is not the code's.
    """
    names = names or {}
    built = _compiled(asked, target)
    inputs, outputs = code = (built.inputs, built.outputs)
    if target.simulated:
        inputs, outputs = (native_layout(side, layout) for side in code)
    return Artifact(
        **about,
        target=asked.spec.kind,
        triple=asked.spec.triple,
        precision=asked.precision,
        threads=0,
        folder=asked.folder,
        files=built.files,
        input_names=tuple(names.get(name, name) for name in asked.network.inputs),
        inputs=inputs,
        output_names=tuple(names.get(name, name) for name in asked.network.outputs),
        outputs=outputs,
        loadable=asked.spec.native and built.files[0].endswith(".so"),
        notes=built.notes,
        code_inputs=code[0] if inputs != code[0] else (),
        code_outputs=code[1] if outputs != code[1] else (),
        computes_half=built.computes_half,
    )


def _layout(engine: Engine, precision: str) -> str:
    return engine.precisions[precision].layout if precision in engine.precisions else ""


# Stages that are no networks, but have an implementation for an engine's target.


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
    key = digest(
        "function", model.name, sorted(stage.params.items()), spec.kind, dict(spec.tvm), precision, _function_sources()
    )
    folder = cache_dir() / "artifacts" / key

    def build(entry: Path) -> Artifact:
        made = target.functions[model.device](FunctionBuild(entry, model, spec, precision))
        return Artifact(
            stage=model.name,
            model=model.name,
            engine="",
            engine_kind="",
            key=key,
            weights="",
            target=spec.kind,
            triple=spec.triple,
            precision=precision,
            threads=0,
            folder=entry,
            files=made.files,
            input_names=tuple(port.name for port in model.inputs),
            inputs=made.inputs,
            output_names=tuple(port.name for port in model.outputs),
            outputs=made.outputs,
            loadable=False,
            notes=made.notes,
        )

    artifact = find(folder) or store(folder, _FUNCTION_SPACE, build)
    return replace(artifact, stage=stage.name, engine=engine.id, engine_kind=engine.kind)


def _function_sources() -> str:
    """Return what code depends on besides the model: the compiler's sources and the kernels'."""
    kernels = Path(__file__).parent / "targets" / "gpu_functions" / "kernels"
    files = sorted(kernels.iterdir()) if kernels.is_dir() else []
    return rule_sources() + digest(*(file.read_text() for file in files if file.suffix in (".c", ".h")))
