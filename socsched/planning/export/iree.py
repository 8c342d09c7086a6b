"""Placement for IREE: a module that calls the parts of a network on their devices, and the compiler's options.

Formats: IREE, `#hal.device.promise<@DEVICE>` as `iree.abi.affinity` of arguments and results and as the target of
`flow.tensor.transfer`; `iree-compile --iree-hal-target-device=DEVICE=KIND[ORDINAL]`; functions of other modules are
declared as `@MODULE.FUNCTION` (IREE documentation, multi-device tests and bytecode module linking).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from socsched.graph.operators import TensorType
from socsched.planning.export.networks import Part, PlacedNetwork, exportable, file_name, listed, names_of
from socsched.text import one_line

if TYPE_CHECKING:
    from socsched.planning.export.threads import Request

DEVICES = {
    ("tvm", "llvm"): "local",
    ("tvm", "cuda"): "cuda",
    ("tensorrt", "cuda"): "cuda",
    ("tvm", "opencl"): "vulkan",
}
TYPES = {"fp32": "f32", "int32": "i32", "int64": "i64", "uint8": "ui8"}
LOCAL = "--iree-hal-local-target-device-backends=llvm-cpu"


def write(request: Request) -> dict[str, str | bytes]:
    """Return path -> content: for each network its parts as ONNX, main.mlir, and build.sh."""
    found, omitted = exportable(request.plan, DEVICES, "IREE")
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
        kind = DEVICES[part.program]
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
                lines.append(f"    {moved} = flow.tensor.transfer {value} : {_type(types[name])} to {target}")
                value = moved
            arguments.append(value)
        takes = ", ".join(_type(types[name]) for name in part.network.inputs)
        gives = ", ".join(_type(types[name]) for name in part.network.outputs)
        declared.append(f"  func.func private @{module}.main({takes}) -> ({gives})")
        made, count = f"%{count}", count + 1
        several = len(part.network.outputs) > 1
        left = f"{made}:{len(part.network.outputs)}" if several else made
        lines.append(f"    {left} = call @{module}.main({', '.join(arguments)}) : ({takes}) -> ({gives})")
        for index, name in enumerate(part.network.outputs):
            values[name], home[name] = (f"{made}#{index}" if several else made), part
    signature = ", ".join(f"{values[n]}: {_type(types[n])} {_affinity(first[n])}" for n in network.inputs)
    results = ", ".join(f"{_type(types[n])} {_affinity(last[n])}" for n in network.outputs)
    returned = ", ".join(values[n] for n in network.outputs)
    returns = ", ".join(_type(types[n]) for n in network.outputs)
    return "\n".join(
        [f"// {one_line(placed.name)}: each part runs on the device of the plan, tensors move where it changes.",
         f"module @{folder} {{", *declared, f"  func.func @main({signature}) -> ({results}) {{", *lines,
         f"    return {returned} : {returns}", "  }", "}", ""]
    )  # fmt: skip


def _affinity(part: Part) -> str:
    return f"{{iree.abi.affinity = #hal.device.promise<@{_device(part)}>}}"


def _type(tensor: TensorType) -> str:
    return f"tensor<{'x'.join(map(str, tensor.shape))}x{TYPES[tensor.dtype]}>"
