"""Stages for engines whose code is built by a vendor's toolchain: all its inputs, in one folder.

model.onnx      the network with its weights, static shapes
build.sh        the toolchain's exact lines; for TensorRT build.py does the same through its Python interface
calibration.cache, encodings.json   quantisation scales, in INT8
handover.json   engine, versions, border tensors with dtype and layout, conditions that could not be checked
quantised.onnx  the network with Q/DQ, where the toolchain reads scales from it

Where the vendor's compiler is installed, also what it made, with digests and versions in handover.json; RKNN's table of
layers and expected cycles is layers.json.  Nothing is written unless the engine's rules accept every operator.

Scripts never allow a fallback: the builder on the board fails rather than move a layer, and border tensors have the
engine's own layout, so that no reformatting runs elsewhere.  A DLA's TensorRT 8 takes no Q/DQ: there the scales go
beside the model.  Where a vendor's compiler is installed never decides a plan: its expected cycles enter by a profile,
as asking it while planning would give another plan for the same input on another machine.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.cache import cache_dir, private
from socsched.compiler.builder import network_of, port_names, weights_for
from socsched.compiler.layouts import parse_layout
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import Scales, per_layer, per_tensor
from socsched.compiler.store import digest, publish, scratch
from socsched.compiler.toolchains.environments import Helper, Refused, environment, identity
from socsched.compiler.toolchains.onnx_model import ROW, as_image, to_onnx
from socsched.compiler.toolchains.package import GROUP, MODEL, QUANTISED, Compiler, Package, Toolchain, check_scales
from socsched.compiler.toolchains.qdq import quantised
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import NATIVE, OWN, Engine
from socsched.errors import CompileError, MachineError, UsageError
from socsched.files import file_digest
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.operators import StageWork, TensorType
from socsched.graph.partition import Part, take
from socsched.graph.rules import ASYMMETRIC, SYMMETRICALLY, as_a_whole, decide
from socsched.models.work import stage_work


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stage's operators checked against an engine's rules: fallbacks, and conditions for the rest.

    `fallbacks` are (operator, reason, source); `promoted` lists the operators that run in a precision other than the
    requested one, as (operator, precision).
    """

    fallbacks: tuple[tuple[str, str, str], ...]
    conditions: tuple[tuple[str, str], ...]
    promoted: tuple[tuple[str, str], ...]


def judge(work: StageWork, engine: Engine) -> Verdict:
    """Return the verdict of `engine`'s rules on the operators of `work`."""
    fallbacks, conditions, promoted = [], [], []
    for operator in work.operators:
        decision = decide(operator, engine)
        if not decision.runs:
            fallbacks.append((operator.name, "; ".join(decision.reasons), "; ".join(decision.sources)))
            continue
        conditions += [(operator.name, condition) for condition in decision.conditions]
        if decision.dtype != operator.dtype:
            promoted.append((operator.name, decision.dtype))
    return Verdict(tuple(fallbacks), tuple(conditions), tuple(promoted))


def require_all(work: StageWork, engine: Engine) -> Verdict:
    """Return the verdict on `work`; UsageError naming every operator that would fall back, with reason and source."""
    against, verdict = as_a_whole(work, engine), judge(work, engine)
    if not verdict.fallbacks and not against:
        return verdict
    if not verdict.fallbacks or ASYMMETRIC in against:
        hint = SYMMETRICALLY if ASYMMETRIC in against else "place the stage on another engine, or a part of it"
        raise UsageError(f"stage {work.stage!r} cannot run on {engine.id}: {'; '.join(against)}", hint)
    lines = [f"  {name}: {why}" + (f" [{source}]" if source else "") for name, why, source in verdict.fallbacks]
    count = f"{len(lines)} of {len(work.operators)} operators"
    raise UsageError(
        f"stage {work.stage!r} would not run entirely on {engine.id} in {work.precision}; {count} would fall back:\n"
        + "\n".join(lines),
        "place the stage on another engine, or export a part without them (--part)",
    )


Array = np.ndarray[Any, Any]
DESCRIPTION, LAYERS = "handover.json", "layers.json"
PRECISIONS = ("fp16", "int8")


def has_toolchain(engine: Engine, runtime: str = "") -> bool:
    """Return whether stages for `engine` are handed over to a vendor's toolchain; see `toolchain_of`."""
    return bool(toolchain_of(engine, runtime))


def toolchain_of(engine: Engine, runtime: str = "") -> str:
    """Return the toolchain that stages for `engine` are handed to, empty where they are compiled here.

    `runtime`: the one that a plan chose for the stage, empty for that of the engine's operator rules; UsageError for
    one that is not known.
    """
    wanted = (runtime or engine.operators.runtime).lower()
    toolchain = next((name for name in plugins.names(GROUP) if name.lower() == wanted), "")
    if not toolchain and runtime not in ("", OWN, NATIVE):
        names = ", ".join((OWN, *(name.lower() for name in plugins.names(GROUP))))
        raise UsageError(
            f"{engine.id}: no toolchain for the runtime {runtime!r} of the plan", f"expected one of {names}"
        )
    return toolchain


def vendor_compiler(engine: Engine) -> Compiler | None:
    """Return the part of an engine's toolchain that runs on this machine, installed or not; None if there is none."""
    if not has_toolchain(engine):
        return None
    toolchain: Toolchain = plugins.load(GROUP, engine.operators.runtime, Toolchain)
    return toolchain.compiler


def hand_over(
    stage: Stage,
    engine: Engine,
    precision: str,
    folder: Path,
    weights: Mapping[str, Array] | None = None,
    part: Part | None = None,
    scales: Mapping[str, float] | Scales | None = None,
    runtime: str = "",
) -> dict[str, Any]:
    """Write `stage` (or a part of it) for `engine`'s toolchain into `folder` and return the content of handover.json.

    `scales` are those of every network input and layer, needed in int8; plain numbers are steps of signed values.
    `runtime`: the toolchain that a plan chose, where the engine has several runtimes.  Where the vendor's compiler is
    installed (`environments`) the stage is compiled too.  Nothing is written unless the engine accepts every
    operator: UsageError names each that would fall back, with reason and source.  Raises InputError for weights or
    scales that do not fit, CompileError for a layer without ONNX operator or a model that the vendor's compiler
    refuses, and MachineError when the folder cannot be written.
    """
    prepared = prepare(stage, engine, precision, weights, part, scales, runtime)
    package, toolchain, verdict = prepared.package, prepared.toolchain, prepared.verdict
    texts = toolchain.scripts(package)
    built = built_here(prepared)
    document: dict[str, Any] = {
        "stage": stage.name,
        "model": prepared.model,
        "part": str(part) if part else "",
        "engine": engine.id,
        "engine_kind": engine.kind,
        "precision": precision,
        "toolchain": toolchain_of(engine, runtime),
        "version": package.version,
        "rules": engine.operators.name,
        "weights": prepared.weights,
        "inputs": _tensors(package.inputs, prepared, "input"),
        "outputs": _tensors(package.outputs, prepared, "output"),
        "promoted": [list(entry) for entry in verdict.promoted],
        "conditions": [list(entry) for entry in verdict.conditions],
        "files": [MODEL, *sorted(texts)],
    }
    convert = None if prepared.verbatim else toolchain.convert
    binaries = {MODEL: (convert(package, prepared.onnx) if convert else prepared.onnx).SerializeToString()}
    if toolchain.compiler and precision == "int8" and (built is None or QUANTISED in "".join(texts.values())):
        binaries[QUANTISED] = model_for(toolchain.compiler, package, prepared.onnx)
        document["files"] = [MODEL, QUANTISED, *sorted(texts)]
    if toolchain.needs is not None:
        document["needs"] = dict(toolchain.needs(package))
    if built is not None:
        document["compiled"] = {
            "versions": dict(built.versions),
            "target": dict(built.target),
            "files": dict(built.files),
            "bytes": built.size,
        }
        if built.layers:
            texts[LAYERS] = json.dumps(built.layers, indent=1) + "\n"
        binaries.update((name, (built.folder / name).read_bytes()) for name in built.files)
    _write(folder, binaries, texts, document)
    return document


@dataclass(frozen=True, slots=True)
class Prepared:
    """A stage ready for its engine's toolchain: the ONNX model in fp32, the package, and the rules' verdict.

    `names` maps tensors to the model's ports; `weights` states the origin of the weights.  `verbatim`: the model is the
    network's own file, with the names of that.
    """

    package: Package
    toolchain: Toolchain
    verdict: Verdict
    onnx: Any
    names: Mapping[str, str]
    model: str
    weights: str
    verbatim: bool = False

    def own_names(self, side: str) -> Sequence[str]:
        """Return the names of inputs or outputs in the model where they are others than the network's, else none."""
        if not self.verbatim:
            return ()
        inside = {item.name for item in self.onnx.graph.initializer} if side == "input" else ()
        return [item.name for item in getattr(self.onnx.graph, side) if item.name not in inside]


def prepare(
    stage: Stage,
    engine: Engine,
    precision: str,
    weights: Mapping[str, Array] | None = None,
    part: Part | None = None,
    scales: Mapping[str, float] | Scales | None = None,
    runtime: str = "",
) -> Prepared:
    """Return `stage` prepared for `engine`'s toolchain; parameters and errors are those of `hand_over`."""
    name = toolchain_of(engine, runtime)
    if not name:
        raise UsageError(
            f"{engine.id}: no vendor toolchain is known for it", f"known: {', '.join(plugins.names(GROUP))}"
        )
    declared = next((each.name for each in engine.runtimes if each.name == runtime), "")
    accepted = tuple(engine.precisions) if declared else PRECISIONS
    if precision not in accepted:
        raise UsageError(f"{engine.id} takes {' or '.join(accepted)}, not {precision}")
    toolchain: Toolchain = plugins.load(GROUP, name, Toolchain)
    model, whole = network_of(stage)
    work = stage_work(stage, precision, part)
    verdict = require_all(work, engine)
    chosen, provenance = weights_for(model, whole, weights)
    types, names = layer_types(whole), port_names(model, whole)
    network = take(whole, part, types) if part else whole
    as_it_is = toolchain.verbatim and part is None and model.original is not None
    if as_it_is and precision == "int8":
        as_it_is = model.quantised is not None  # a file in floats is quantised on the way
    scaled = precision == "int8" and not as_it_is
    steps, exact = _known_scales(network, whole, scales) if scaled else ({}, {})
    outputs = _border({name: types[name] for name in network.outputs}, engine, precision, "out", toolchain)
    images = {name: tensor.shape for name, tensor in outputs.items() if tensor.shape != types[name].shape}
    steps |= {name + ROW: steps[name] for name in images if name in steps}
    exact |= {name + ROW: exact[name] for name in images if name in exact}
    package = Package(
        stage.name,
        engine,
        precision,
        network,
        chosen,
        _border(network.inputs, engine, precision, "in", toolchain),
        outputs,
        steps,
        tuple(sorted({dtype for _, dtype in verdict.promoted})),
        exact,
        declared,
    )
    if as_it_is and model.original is not None:
        return Prepared(package, toolchain, verdict, model.original(), names, model.name, provenance, verbatim=True)
    onnx = to_onnx(network, chosen, types)
    for name, shape in images.items():
        as_image(onnx, name, shape)
    return Prepared(package, toolchain, verdict, onnx, names, model.name, provenance)


def _known_scales(
    network: Network, whole: Network, scales: Mapping[str, float] | Scales | None
) -> tuple[dict[str, float], dict[str, Scale]]:
    """Return the step of every value of `network`, and its scale with signed and unsigned values distinguished."""
    if isinstance(scales, Scales):
        layers = per_layer(whole, scales)
        return check_scales(network, per_tensor(whole, scales)), {n: layers[n] for n in layers}
    steps = check_scales(network, scales or {})
    return steps, {name: Scale(step, True) for name, step in steps.items()}


def built_here(prepared: Prepared) -> Built | None:
    """Return a prepared stage compiled by the vendor's compiler, None where it is not installed or does not exist."""
    compiler = prepared.toolchain.compiler
    if compiler is None or environment(compiler.environment).python() is None:
        return None
    return build(compiler, prepared.package, model_for(compiler, prepared.package, prepared.onnx))


def _border(
    tensors: Mapping[str, TensorType], engine: Engine, precision: str, use: str, toolchain: Toolchain
) -> dict[str, TensorType]:
    """Return the border tensors in the engine's dtype and its first accepted layout known to socsched."""
    offered = [f.layout for f in engine.operators.formats.get(precision, ()) if f.use in (use, "both")]
    layout = next((name for name in offered if _known(name)), engine.precisions[precision].layout)
    free = None if offered else toolchain.layout
    images = 4 in engine.operators.output_ranks  # values of a row leave such an engine as an image of one pixel

    def at(tensor: TensorType) -> TensorType:
        shape = (*tensor.shape, 1, 1) if images and use == "out" and len(tensor.shape) == 2 else tensor.shape
        inside = "" if len(shape) != 4 else free(tensor, precision, layout) if free else layout
        return TensorType(shape, precision, inside)

    return {name: at(tensor) if tensor.dtype == "fp32" else tensor for name, tensor in tensors.items()}


def _known(layout: str) -> bool:
    try:
        parse_layout(layout)
    except UsageError:
        return False
    return True


def _tensors(tensors: Mapping[str, TensorType], prepared: Prepared, side: str) -> list[dict[str, Any]]:
    names, steps = prepared.names, prepared.toolchain.steps(prepared.package)
    return [
        {
            "name": shown,
            "port": names.get(name, name),
            "shape": list(t.shape),
            "dtype": t.dtype,
            "layout": t.layout,
            **({"scale": steps[name]} if t.dtype == "int8" and name in steps else {}),
        }
        for (name, t), shown in zip(tensors.items(), prepared.own_names(side) or tensors, strict=True)
    ]


def _write(folder: Path, binaries: Mapping[str, bytes], texts: Mapping[str, str], document: Mapping[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in binaries.items():
            (folder / name).write_bytes(data)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            if name.startswith("build."):
                (folder / name).chmod(0o755)
        (folder / DESCRIPTION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"{folder}: cannot write: {error.strerror or error}", "free space or name another folder"
        ) from error


RECORD = "built.json"


@dataclass(frozen=True, slots=True)
class Built:
    """What a compiler made: `files` with their sha256 in `folder`, its `versions`, and how long it took.

    `layers` is the compiler's own table of layers with the cycles that it expects, empty for compilers without one.
    """

    folder: Path
    files: Mapping[str, str]
    versions: Mapping[str, str]
    target: Mapping[str, Any]
    seconds: float
    layers: tuple[Mapping[str, Any], ...]

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        return sum((self.folder / name).stat().st_size for name in self.files)


def model_for(compiler: Compiler, package: Package, model: Any) -> bytes:
    """Return the ONNX file to compile: `model` in fp32, with Q/DQ of the package's scales in int8.

    It states the shapes within: what ONNX Runtime writes out before its provider sees it has none otherwise.
    """
    from onnx import shape_inference

    if package.precision == "int8":
        model = quantised(model, package.exact, compiler.unsigned, compiler.whole_gelu)
    data: bytes = shape_inference.infer_shapes(model).SerializeToString()
    return data


def build(compiler: Compiler, package: Package, model: bytes) -> Built:
    """Return `model` compiled for the package's engine.

    Raises UsageError for an engine that the compiler does not know, MachineError if its environment is missing or
    fails, and CompileError with the compiler's reason if it refuses the model.
    """
    vendor, target = environment(compiler.environment), dict(compiler.target(package.engine))
    vendor.require()
    key = digest("vendor", identity(vendor), hashlib.sha256(model).hexdigest(), target)
    parent = private(cache_dir() / "vendors")
    cached = _recalled(parent / key)
    if cached is not None:
        return cached
    with scratch(parent) as folder, Helper(vendor) as helper:
        (helper.folder / MODEL).write_bytes(model)
        try:
            answer = helper.ask("compile", model=MODEL, target=target)
        except Refused as error:
            raise CompileError(
                f"stage {package.stage!r} for {package.engine.id} in {package.precision}: {error}",
                "place the stage on another engine, or compile a part of it (--part)",
            ) from None
        output = folder / key
        output.mkdir(mode=0o700)
        files = {}
        for name in answer["files"]:
            if Path(name).name != name:
                raise MachineError(f"{vendor.title} wrote a file outside of its folder", vendor.command)
            shutil.copyfile(helper.folder / name, output / name)
            files[name] = file_digest(output / name)
        record = {"files": files, "versions": helper.versions, "target": target, "seconds": answer["seconds"]}
        record["layers"] = answer.get("layers", [])
        (output / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
        publish(output, parent / key, lambda folder: _recalled(folder) is not None)
    cached = _recalled(parent / key)
    if cached is None:
        raise MachineError(f"{parent / key}: the compiled model cannot be read back", "set SOCSCHED_CACHE")
    return cached


def _recalled(folder: Path) -> Built | None:
    """Return a cached result, None if it is absent or damaged."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if any(file_digest(folder / name) != sha256 for name, sha256 in record["files"].items()):
            return None
        return Built(
            folder,
            record["files"],
            record["versions"],
            record["target"],
            record["seconds"],
            tuple(record["layers"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
