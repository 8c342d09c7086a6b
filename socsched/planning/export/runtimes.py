"""Placement of networks for runtimes that divide them themselves: ONNX Runtime, OpenVINO, ExecuTorch, IREE.

ONNX Runtime: docs/annotated_partitioning (`layer_ann` in the metadata of nodes and the session option
`session.layer_assignment_settings`, which 1.31 has), execution providers QNN, TensorRT and CUDA (provider options).  A
device of the option is stated as the name of its provider: `cpu` means any provider on a CPU, QNN's emulation too.

OpenVINO: documentation, Heterogeneous execution, manual mode: the key `affinity` in the `rt_info` of every operation
holds a device, and the model is compiled for `HETERO:` with the devices in order of priority.

ExecuTorch: documentation, `to_edge_transform_and_lower(program, partitioner=[...])`, whose partitioners take nodes one
after the other; Qualcomm's takes compile specs and sets of nodes and operators to leave out, XNNPACK's and Vulkan's
take none.  ExecuTorch names nodes when it exports a PyTorch model, so that layers are listed for comparison.

IREE: `#hal.device.promise<@DEVICE>` as `iree.abi.affinity` of arguments and results and as the target of
`flow.tensor.transfer`; `iree-compile --iree-hal-target-device=DEVICE=KIND[ORDINAL]`; functions of other modules are
declared as `@MODULE.FUNCTION` (IREE documentation, multi-device tests and bytecode module linking).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pprint import pformat
from typing import Any

from socsched.compiler.toolchains.hand_over import vendor_compiler
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.planning.export.linux import ExportRequest
from socsched.planning.export.networks import Part, PlacedNetwork, exportable, file_name, listed, names_of
from socsched.text import one_line

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


OPENVINO_DEVICES = {("tvm", "llvm"): "CPU", ("tvm", "opencl"): "GPU"}
"""OpenVINO's GPU plugin runs on Intel's GPUs, through OpenCL; those of shipped platforms are others."""
RUN = "load.py"


def openvino(request: ExportRequest) -> dict[str, str | bytes]:
    """Return path -> content: for each network model.onnx and affinities.json, and load.py."""
    found, omitted = exportable(request.plan, OPENVINO_DEVICES, "OpenVINO")
    files = {**listed(omitted), RUN: _LOADER}
    for placed in found:
        folder, onnx = names_of(found)[placed.name], placed.onnx()
        owners = placed.owners(onnx)
        nodes = {node.name: OPENVINO_DEVICES[owners[node.name].program] for node in onnx.graph.node}
        order = sorted(dict.fromkeys(nodes.values()), key=lambda device: device == "CPU")
        document = {"network": placed.name, "device": "HETERO:" + ",".join(order), "affinities": nodes}
        files[f"{folder}/model.onnx"] = onnx.SerializeToString()
        files[f"{folder}/affinities.json"] = json.dumps(document, indent=1) + "\n"
    return files


_LOADER = '''\
#!/usr/bin/env python3
"""Compile an exported network for OpenVINO's HETERO device: python3 load.py FOLDER [OPENVINO_DEVICES]

Every operation gets the device of the plan; constants and operations that the reader of ONNX added get that of their
reader.  OPENVINO_DEVICES replaces the plan's, such as HETERO:CPU on a machine without the others.
"""

import json
import sys
from pathlib import Path

import openvino as ov


def load(folder, devices=None):
    """Return the compiled model, and the affinity of every operation."""
    document = json.loads((Path(folder) / "affinities.json").read_text())
    wanted = document["affinities"]
    core = ov.Core()
    model = core.read_model(str(Path(folder) / "model.onnx"))
    found, device = {}, None
    for node in reversed(model.get_ordered_ops()):
        names = [node.get_friendly_name(), *(n for o in node.outputs() for n in o.get_names())]
        own = next((wanted[name] for name in names if name in wanted), None)
        readers = [found[i.get_node().get_friendly_name()] for o in node.outputs() for i in o.get_target_inputs()]
        device = own or (readers[0] if readers else None)
        if device is None:  # a result: the device of what it returns
            source = node.input_value(0)
            names = [source.get_node().get_friendly_name(), *source.get_names()]
            device = next(wanted[name] for name in names if name in wanted)
        found[node.get_friendly_name()] = device
        node.get_rt_info()["affinity"] = device if devices is None else devices.partition(":")[2].split(",")[0]
    return core.compile_model(model, devices or document["device"]), found


if __name__ == "__main__":
    compiled, found = load(*sys.argv[1:3])
    print(json.dumps(found, indent=1))
'''


_BACKENDS = "executorch.backends"
XNNPACK = f"{_BACKENDS}.xnnpack.partition.xnnpack_partitioner.XnnpackPartitioner"
PARTITIONERS = {
    ("tvm", "llvm"): XNNPACK,
    ("tvm", "opencl"): f"{_BACKENDS}.vulkan.partitioner.vulkan_partitioner.VulkanPartitioner",
    ("qnn", "simulated"): f"{_BACKENDS}.qualcomm.partition.qnn_partitioner.QnnPartitioner",
}
CHIPS = {66: "SM8550", 39: "SA8295", 35: "QCM6490"}
"""QNN's number of a chip -> `QcomChipset` of ExecuTorch with the same HTP (architecture and VTCM)."""


def executorch(request: ExportRequest) -> str:
    """Return a Python module: `NETWORKS`, and `partitioners(NAME)` for `to_edge_transform_and_lower`."""
    entries: dict[str, Any] = {}
    found, omitted = exportable(request.plan, PARTITIONERS, "ExecuTorch")
    for placed in found:
        chosen: dict[str, dict[str, Any]] = {}
        for part in placed.parts:
            name = PARTITIONERS[part.program]
            chosen.setdefault(name, {"partitioner": name, "engine": part.engine.id, **_qualcomm(part)})
        order = sorted(chosen.values(), key=lambda one: one["partitioner"] == XNNPACK)
        layers = {
            layer: PARTITIONERS[part.program].rpartition(".")[2] for layer, part in placed.part_of_layer().items()
        }
        precisions = {part.task.name: part.task.precision for part in placed.parts}
        entries[placed.name] = {"partitioners": order, "precisions": precisions, "layers": layers}
    return _MODULE.format(plan=_literal(entries), omitted=_literal(omitted))


def _literal(value: Any) -> str:
    return pformat(value, width=100, sort_dicts=False)


def _qualcomm(part: Part) -> dict[str, Any]:
    if part.program[0] != "qnn":
        return {}
    compiler = vendor_compiler(part.engine)
    number = int(compiler.target(part.engine)["soc_model"]) if compiler else 0
    return {"chipset": CHIPS.get(number, ""), "fp16": part.task.precision == "fp16"}


_MODULE = '''\
"""Partitioners of a plan for ExecuTorch:

    to_edge_transform_and_lower(program, partitioner=partitioners(NAME))

The first takes every node that it supports, the next ones the rest.  Compare the result with `layers`: nodes that the
plan places elsewhere are left out by names of nodes or operators, which Qualcomm's partitioner takes.
"""

import importlib

NETWORKS = {plan}
OMITTED = {omitted}


def partitioners(name, skip_nodes=(), skip_operators=()):
    """Return the partitioners of a network in order of priority."""
    return [make(entry, set(skip_nodes), set(skip_operators)) for entry in NETWORKS[name]["partitioners"]]


def make(entry, skip_nodes, skip_operators):
    """Return one partitioner."""
    module, _, name = entry["partitioner"].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    if "chipset" not in entry:
        return kind()
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
    )

    options = generate_htp_compiler_spec(use_fp16=entry["fp16"])
    chip = getattr(QcomChipset, entry["chipset"])
    specs = generate_qnn_executorch_compiler_spec(soc_model=chip, backend_options=options)
    return kind(specs, skip_node_id_set=skip_nodes, skip_node_op_set=skip_operators)
'''


IREE_DEVICES = {
    ("tvm", "llvm"): "local",
    ("tvm", "cuda"): "cuda",
    ("tensorrt", "cuda"): "cuda",
    ("tvm", "opencl"): "vulkan",
}
TYPES = {"fp32": "f32", "int32": "i32", "int64": "i64", "uint8": "ui8"}
LOCAL = "--iree-hal-local-target-device-backends=llvm-cpu"


def iree(request: ExportRequest) -> dict[str, str | bytes]:
    """Return path -> content: for each network its parts as ONNX, main.mlir, and build.sh."""
    found, omitted = exportable(request.plan, IREE_DEVICES, "IREE")
    files = listed(omitted)
    for placed in found:
        folder = names_of(found)[placed.name]
        modules = [f"{folder}_{number}" for number in range(1, len(placed.parts) + 1)]
        for module, part in zip(modules, placed.parts, strict=True):
            onnx = placed.onnx(part)
            onnx.graph.name = "main"
            files[f"{folder}/{module}.onnx"] = onnx.SerializeToString()
        files[f"{folder}/main.mlir"] = _main(placed, folder, modules)
        files[f"{folder}/build.sh"] = _build(placed, modules)
    return files


def _device(part: Part) -> str:
    return f"device_{file_name(part.engine.id)}"


def _flags(parts: tuple[Part, ...]) -> list[str]:
    ordinals: dict[str, int] = {}
    flags: list[str] = []
    for part in parts:
        kind = IREE_DEVICES[part.program]
        flag = f"--iree-hal-target-device={_device(part)}={kind}[{{}}]"
        if flag not in flags:
            flags.append(flag)
    found = []
    for flag in flags:
        kind = flag.rpartition("=")[2]
        found.append(flag.format(ordinals.setdefault(kind, 0)))
        ordinals[kind] += 1
    return [*found, *([LOCAL] if any("=local[" in flag for flag in found) else [])]


def _build(placed: PlacedNetwork, modules: list[str]) -> str:
    flags = " ".join(f"'{flag}'" for flag in _flags(placed.parts))
    lines = ["#!/bin/sh", f"# {one_line(placed.name)}: every part for its own device, and the module that calls them."]
    lines += ["set -eu", 'cd "$(dirname "$0")"']
    for module, part in zip(modules, placed.parts, strict=True):
        own = " ".join(f"'{flag}'" for flag in _flags((part,)))
        lines.append(f"iree-import-onnx {module}.onnx -o {module}.mlir")
        lines.append(f"sed -i '1s/^module /module @{module} /' {module}.mlir")
        lines.append(f"iree-compile {module}.mlir {own} -o {module}.vmfb")
    lines.append(f"iree-compile main.mlir {flags} -o main.vmfb")
    listed = " ".join(f"--module={module}.vmfb" for module in [*modules, "main"])
    return "\n".join([*lines, f"echo 'run: iree-run-module {listed} --function=main --input=...'"]) + "\n"


def _main(placed: PlacedNetwork, folder: str, modules: list[str]) -> str:
    network, types = placed.network, {**placed.network.inputs, **placed.types}
    first = {name: next(p for p in placed.parts if name in p.network.inputs) for name in network.inputs}
    last = placed.part_of_layer()
    values = {name: f"%arg{index}" for index, name in enumerate(network.inputs)}
    home = {name: first[name] for name in network.inputs}
    lines: list[str] = []
    count = 0
    declared = []
    for module, part in zip(modules, placed.parts, strict=True):
        arguments = []
        for name in part.network.inputs:
            value = values[name]
            if _device(home[name]) != _device(part):
                moved, count = f"%{count}", count + 1
                target = f"#hal.device.promise<@{_device(part)}>"
                lines.append(f"    {moved} = flow.tensor.transfer {value} : {_tensor(types[name])} to {target}")
                value = moved
            arguments.append(value)
        takes = ", ".join(_tensor(types[name]) for name in part.network.inputs)
        gives = ", ".join(_tensor(types[name]) for name in part.network.outputs)
        declared.append(f"  func.func private @{module}.main({takes}) -> ({gives})")
        made, count = f"%{count}", count + 1
        several = len(part.network.outputs) > 1
        left = f"{made}:{len(part.network.outputs)}" if several else made
        lines.append(f"    {left} = call @{module}.main({', '.join(arguments)}) : ({takes}) -> ({gives})")
        for index, name in enumerate(part.network.outputs):
            values[name], home[name] = (f"{made}#{index}" if several else made), part
    signature = ", ".join(f"{values[n]}: {_tensor(types[n])} {_affinity(first[n])}" for n in network.inputs)
    results = ", ".join(f"{_tensor(types[n])} {_affinity(last[n])}" for n in network.outputs)
    returned = ", ".join(values[n] for n in network.outputs)
    returns = ", ".join(_tensor(types[n]) for n in network.outputs)
    return "\n".join(
        [f"// {one_line(placed.name)}: each part runs on the device of the plan, tensors move where it changes.",
         f"module @{folder} {{", *declared, f"  func.func @main({signature}) -> ({results}) {{", *lines,
         f"    return {returned} : {returns}", "  }", "}", ""]
    )  # fmt: skip


def _affinity(part: Part) -> str:
    return f"{{iree.abi.affinity = #hal.device.promise<@{_device(part)}>}}"


def _tensor(tensor: TensorType) -> str:
    return f"tensor<{'x'.join(map(str, tensor.shape))}x{TYPES[tensor.dtype]}>"
