"""Hand-over of a stage for a GPU to TensorRT: trtexec builds an engine, in the planned formats at its borders.

Flags are those of trtexec 8.2 to 10.x (NVIDIA/TensorRT, samples/common/sampleOptions.cpp): --onnx, --saveEngine,
--fp16, --int8, --calib, --inputIOFormats and --outputIOFormats as type:format; --skipInference is called --buildOnly
before 8.6.  From 11.0 on networks are strongly typed and precision flags are gone: the types of the model decide.
Formats: TensorRT API, TensorFormat: LINEAR (chw), HWC8 (hwc8: channels padded to a multiple of 8, fp16), CHW32 (chw32).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from socsched.compiler.targets.tensorrt import typed
from socsched.compiler.targets.tensorrt.scales import tensorrt_cache, version_number
from socsched.compiler.vendor_packages.package import MODEL, Package
from socsched.descriptor.operator_rules import version_key
from socsched.graph.operators import TensorType
from socsched.text import one_line

CACHE = "calibration.cache"
FORMATS = {"NHWC": "hwc8", "NCHW32c": "chw32", "NCHW": "chw", "": "chw"}
PYTHON_FORMATS = {"hwc8": "HWC8", "chw32": "CHW32", "chw": "LINEAR"}
TYPED = (11,)
"""First release without precision flags."""


def layout(tensor: TensorType, precision: str, own: str) -> str:
    """Return the layout of a border image: the engine's own where TensorRT has the same, plain channels otherwise."""
    if own == "NHWC":  # HWC8 pads channels, which the engine's own layout does not
        return own if precision == "fp16" and tensor.shape[1] % 8 == 0 else "NCHW"
    return own if own in FORMATS else "NCHW"


def convert(package: Package, model: Any) -> Any:
    """Return the model in the types that the release computes in."""
    strong = version_key(package.version) >= TYPED and package.precision != "fp32"
    return typed.model_of(package, model) if strong else model


def write(package: Package) -> dict[str, str]:
    """Return file name -> text."""
    files = {"build.sh": _shell(package)}
    if package.precision == "int8" and version_key(package.version) < TYPED:
        files[CACHE] = tensorrt_cache(package.scales, package.version)
    return files


def flags(package: Package) -> list[str]:
    """Return trtexec's arguments except those for the calibration cache and the output."""
    chosen = [f"--onnx={MODEL}"]
    if version_key(package.version) < TYPED:
        wanted = {"fp32": (), "fp16": ("fp16",), "int8": ("int8", "fp16")}[package.precision]
        chosen += [f"--{name}" for name in wanted]
    chosen += [f"--inputIOFormats={_formats(package.inputs)}", f"--outputIOFormats={_formats(package.outputs)}"]
    return [*chosen, "--skipInference" if version_key(package.version) >= (8, 6) else "--buildOnly"]


def _formats(tensors: Mapping[str, TensorType]) -> str:
    return ",".join(f"{tensor.dtype}:{FORMATS[tensor.layout]}" for tensor in tensors.values())


def _shell(package: Package) -> str:
    options = flags(package)
    lines = [
        "#!/bin/sh",
        f"# {one_line(package.stage)} for the GPU by TensorRT {one_line(package.version)}; run it on the board.",
        "set -eu",
        'cd "$(dirname "$0")"',
        'trtexec="${TRTEXEC:-/usr/src/tensorrt/bin/trtexec}"',
    ]
    if package.precision == "int8" and version_key(package.version) < TYPED:
        lines += [
            "# TensorRT refuses a calibration cache whose header names another version than its own.",
            "found=$(\"$trtexec\" --help 2>&1 | sed -n 's/.*TensorRT v\\([0-9]*\\).*/\\1/p' | head -n 1)",
            f'sed "1s/^TRT-[0-9]*/TRT-${{found:-{version_number(package.version)}}}/" {CACHE} > local-{CACHE}',
        ]
        options.append(f"--calib=local-{CACHE}")
    command = ['exec "$trtexec"', *map(shlex.quote, options), "--saveEngine=model.engine"]
    return "\n".join(lines) + "\n" + " \\\n  ".join(command) + "\n"
