"""Placement of networks for ONNX Runtime, which divides them itself.

docs/annotated_partitioning (`layer_ann` in the metadata of nodes and the session option
`session.layer_assignment_settings`, which 1.31 has), execution providers QNN, TensorRT and CUDA (provider options).  A
device of the option is stated as the name of its provider: `cpu` means any provider on a CPU, QNN's emulation too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.errors import UsageError
from socsched.planning.export.linux import ExportRequest
from socsched.planning.export.networks import Part, PlacedNetwork, exportable, listed, names_of

CPU = "CPUExecutionProvider"
PROVIDERS = {
    ("tvm", "llvm"): CPU,
    ("tvm", "cuda"): "CUDAExecutionProvider",
    ("tensorrt", "cuda"): "TensorrtExecutionProvider",
    ("tensorrt", "simulated"): "TensorrtExecutionProvider",
    ("qnn", "simulated"): "QNNExecutionProvider",
}
ANNOTATION, OPTION = "layer_ann", "session.layer_assignment_settings"
NO_FALLBACK = "session.disable_cpu_ep_fallback"
MODEL, SESSION = "model.onnx", "session.json"


def onnxruntime(request: ExportRequest) -> dict[str, str | bytes]:
    """Return path -> content: for each network its annotated model, its parts if it is divided, and session.json."""
    found, omitted = exportable(request.plan, PROVIDERS, "ONNX Runtime")
    files = listed(omitted)
    for placed in found:
        folder = names_of(found)[placed.name]
        models, document = _annotated(placed)
        files.update({f"{folder}/{name}": data for name, data in models.items()})
        files[f"{folder}/{SESSION}"] = json.dumps(document, indent=1) + "\n"
    return files


def _annotated(placed: PlacedNetwork) -> tuple[dict[str, bytes], dict[str, Any]]:
    engines = {part.engine.id: part for part in placed.parts}
    providers = {name: PROVIDERS[part.program] for name, part in engines.items()}
    options = {name: _provider_options(part) for name, part in engines.items()}
    chosen: dict[str, Mapping[str, str]] = {}
    for name, provider in providers.items():
        if chosen.setdefault(provider, options[name]) != options[name]:
            raise UsageError(
                f"{placed.name}: ONNX Runtime has one {provider} in a session, but {', '.join(engines)} need several",
                "plan the network on one of these engines: --pin",
            )
    onnx = placed.onnx()
    owners = placed.owners(onnx)
    for node in onnx.graph.node:
        node.metadata_props.add(key=ANNOTATION, value=owners[node.name].engine.id)
    models = {MODEL: onnx.SerializeToString()}
    parts = []
    for number, part in enumerate(placed.parts, 1):
        provider = providers[part.engine.id]
        entry: dict[str, Any] = {"task": part.task.name, "engine": part.engine.id, "precision": part.task.precision}
        entry |= {"provider": provider, "planned_ns": part.task.cost_ns, "planned_runtime": part.program[0]}
        stated = placed.quantised(part, unsigned=True) if part.task.precision == "int8" else None
        if part.task.precision == "int8" and stated is None:
            entry["quantise"] = "int8 is planned, and no scales of this network are known: quantise the model first"
        if stated is not None or len(placed.parts) > 1:
            # Up to 1.32 a connected graph cannot be divided between a plugin provider and another (docs/exports.md), so
            # that the parts of a divided network are also models of their own.
            entry["model"] = f"part{number}.onnx"
            models[entry["model"]] = (stated or placed.onnx(part)).SerializeToString()
        entry |= {"inputs": list(part.network.inputs), "outputs": list(part.network.outputs)}
        parts.append(entry)
    groups: dict[str, list[str]] = {}
    for name, provider in providers.items():
        groups.setdefault(provider, []).append(name)
    order = sorted(chosen, key=lambda provider: provider == CPU)  # the CPU takes what others leave
    settings = "; ".join(f"{provider}({', '.join(f'={name}' for name in groups[provider])})" for provider in order)
    return models, {
        "network": placed.name,
        "model": MODEL,
        "providers": [[provider, dict(chosen[provider])] for provider in order],
        "config": {OPTION: settings, **({} if CPU in chosen else {NO_FALLBACK: "1"})},
        "nodes": {node.name: providers[owners[node.name].engine.id] for node in onnx.graph.node},
        "parts": parts,
    }


def _provider_options(part: Part) -> dict[str, str]:
    """Return the provider options of an engine."""
    runtime, kind = part.program
    if runtime == "qnn":
        compiler = vendor_compiler(part.engine)
        chip = {name: str(value) for name, value in compiler.target(part.engine).items()} if compiler else {}
        return {"backend_path": "libQnnHtp.so", **chip}
    if runtime == "tensorrt":
        types = {"trt_fp16_enable": "1"} if part.task.precision != "fp32" else {}
        types |= {"trt_int8_enable": "1"} if part.task.precision == "int8" else {}
        digits = part.engine.id[len(part.engine.id.rstrip("0123456789")) :]
        return types | ({"trt_dla_enable": "1", "trt_dla_core": digits or "0"} if kind == "simulated" else {})
    return {}
