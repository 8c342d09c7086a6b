"""Hand-over to TensorRT: build scripts and models for a DLA and for a GPU, and what each release has for a DLA.

DLA.  Flags are those of trtexec 8.5 to 10.7 (NVIDIA/TensorRT, samples/common/sampleOptions.cpp): --onnx, --saveEngine,
--useDLACore, --fp16, --int8, --calib, --inputIOFormats and --outputIOFormats as type:format with chw16, chw32 and
dla_linear.  --buildDLAStandalone writes a loadable for cuDLA and implies that nothing is run; the trtexec of TensorRT
8.5 lacks it (NVIDIA-AI-IOT/cuDLA-samples ships a patch, data/trtexec-dla-standalone-trtv8.5.patch), so there trtexec
builds an engine and build.py the loadable.  --skipInference is called --buildOnly before 8.6.  --allowGPUFallback is
never given: TensorRT then fails instead of silently moving layers to the GPU (TensorRT documentation, DLA runtime
configuration, GPU fallback mode).  TensorRT 11 removed --fp16, --int8 and calibration; what each release has is in
`tensorrt_releases.json`.  Python: DLA standalone mode needs BuilderFlag.DIRECT_IO (documentation, DLA standalone mode).

Strongly typed networks for a DLA (11.4.1 on): fp16 tensors, int8 as symmetric Q/DQ; the types of the model decide.
ADJUST_FOR_DLA lets the parser change layers for the DLA; REPORT_CAPABILITY_DLA makes parsing fail at a layer that the
DLA cannot run, and needs the builder's configuration beforehand (TensorRT 11.4.1 documentation, strongly typed networks
for DLA, ONNX parser flags for DLA, DLA standalone mode).

GPU.  trtexec 8.2 to 10.x builds an engine, in the planned formats at its borders: LINEAR (chw), HWC8 (hwc8: channels
padded to a multiple of 8, fp16), CHW32 (chw32; TensorRT API, TensorFormat).  From 11.0 on networks are strongly typed.
"""

from __future__ import annotations

import json
import re
import shlex
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.toolchains.package import MODEL, Package, Toolchain
from socsched.compiler.toolchains.qdq import bytes_at_borders, quantised
from socsched.descriptor.operator_rules import version_key
from socsched.errors import UsageError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.text import one_line

JETPACK = {"8.5.2": "5.1.1", "8.6.2": "6", "10.3.0": "6.1"}
"""TensorRT -> the JetPack that includes it (8.5.2 and 8.6.2: NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md;
10.3: Torch-TensorRT documentation, JetPack 6.1)."""
CACHE = "calibration.cache"
FORMATS = {"NCHW16c": "chw16", "NCHW32c": "chw32", "NCHW": "dla_linear"}
GPU_FORMATS = {"NHWC": "hwc8", "NCHW32c": "chw32", "NCHW": "chw", "": "chw"}
"""Layout of a border tensor -> its name in trtexec's options, on a DLA and on a GPU."""
PYTHON_FORMATS = {
    "chw16": "CHW16", "chw32": "CHW32", "dla_linear": "DLA_LINEAR", "hwc8": "HWC8", "chw": "LINEAR",
}  # fmt: skip
"""trtexec's name of a format -> that of TensorRT's interface."""
TYPED = (11,)
"""First release without precision flags."""
FIRST_LOADABLE = (8, 6)
"""First release whose trtexec writes loadables for cuDLA; earlier ones write engines for TensorRT's runtime."""
RELEASES = Path(__file__).with_name("tensorrt_releases.json")


@dataclass(frozen=True, slots=True)
class Release:
    """Releases from `since` up to but without `until` ("": all later ones).

    `dla`: calibrated (precision by flags, calibration cache), typed (strongly typed networks with Q/DQ), or none;
    `modules` are the Jetson modules on which a DLA is supported, `sources` document titles with place.
    """

    since: str
    until: str
    jetpack: str
    modules: tuple[str, ...]
    dla: str
    sources: tuple[str, ...]
    note: str


@lru_cache(maxsize=1)
def releases() -> tuple[Release, ...]:
    """Return the rows of the table, oldest first."""
    document = json.loads(RELEASES.read_text(encoding="utf-8"))
    titles = document["sources"]
    return tuple(
        Release(**{**row, "modules": tuple(row["modules"]), "sources": tuple(titles[key] for key in row["sources"])})
        for row in document["rows"]
    )


def release(version: str) -> Release | None:
    """Return the row of a release, None for one older than the table."""
    key = version_key(version)
    rows = [row for row in releases() if version_key(row.since) <= key]
    return next((row for row in rows if not row.until or key < version_key(row.until)), None)


def dla_refusal(version: str, model: str = "") -> str:
    """Return the reason for which a release builds nothing for a DLA, empty if it does.

    `model`: the board's name in its device tree, such as "NVIDIA Jetson AGX Orin Developer Kit"; "": not known.
    """
    row = release(version)
    if row is None:  # older than the table
        return ""
    if row.dla == "none":
        return f"TensorRT {version} has no DLA"
    board = model.strip("\0").strip()
    words = board.lower().split()
    if "jetson" in words and not any(set(module.split("-")) <= set(words) for module in row.modules):
        return f"TensorRT {version} has a DLA on {', '.join(row.modules)} only, this is a {board}"
    return ""


_SHARED = ("concat", "max_pool", "avg_pool", "add")
"""Layers whose tensors must share one range in INT8 on a DLA (TensorRT, DLA layer restrictions); add: inputs only."""


def shared(network: Network, scales: Mapping[str, float]) -> dict[str, float]:
    """Return `scales` with one scale, the largest, for tensors that must share a range on a DLA.

    These are the inputs and the result of a concatenation or pooling, and the two inputs of an addition.
    """
    group = {name: name for name in scales}

    def find(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for layer in network.layers:
        if layer.op in _SHARED:
            first, *others = layer.inputs if layer.op == "add" else (layer.name, *layer.inputs)
            for other in others:
                group[find(other)] = find(first)
    largest: dict[str, float] = {}
    for name, scale in scales.items():
        largest[find(name)] = max(scale, largest.get(find(name), 0.0))
    return {name: largest[find(name)] for name in scales}


def tensorrt_cache(scales: Mapping[str, float], version: str) -> str:
    """Return a TensorRT calibration cache: a header naming the version, then `tensor: scale`, fp32 bits in hex.

    The scale is that of one step (1 / 127 for a tensor in -1..1, "3c010204"), as in the caches of NVIDIA's cuDLA
    samples.  TensorRT rejects a cache whose header names another version (observed with 10.3 and a header of 8.6).
    """
    lines = [f"TRT-{version_number(version)}-EntropyCalibration2"]
    lines += [f"{name}: {struct.pack('>f', scale).hex()}" for name, scale in scales.items()]
    return "\n".join(lines) + "\n"


def _own_cache(package: Package) -> list[str]:
    """Return the lines of a script that put the board's own version into the cache, which TensorRT insists on."""
    return [
        "# TensorRT refuses a calibration cache whose header names another version than its own.",
        "found=$(\"$trtexec\" --help 2>&1 | sed -n 's/.*TensorRT v\\([0-9]*\\).*/\\1/p' | head -n 1)",
        f'sed "1s/^TRT-[0-9]*/TRT-${{found:-{version_number(package.version)}}}/" {CACHE} > local-{CACHE}',
    ]


def version_number(version: str) -> int:
    """Return NV_TENSORRT_VERSION: 8.6.2 -> 8602; from version 10 on, 10.3.0 -> 100300 (NvInferVersion.h)."""
    major, minor, patch = ([int(part) for part in version.split(".")] + [0, 0])[:3]
    return major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch


def typed_model(package: Package, model: Any) -> Any:
    """Return a model in fp32 as fp16 tensors, in int8 with symmetric Q/DQ of signed bytes and shared ranges."""
    if package.precision == "int8":
        steps = shared(package.network, package.scales)
        scales = {name: Scale(step, True) for name, step in steps.items()}
        # DIRECT_IO allows no conversion at the borders
        return bytes_at_borders(quantised(model, scales, unsigned=False))
    return _half(model)


def _half(model: Any) -> Any:
    """Return a copy of a model with fp16 in place of fp32 in inputs, outputs and weights; other types stay."""
    import onnx
    from onnx import TensorProto, numpy_helper

    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    for value in (*halved.graph.input, *halved.graph.output, *halved.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    wide = {name for node in halved.graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for entry in halved.graph.initializer:
        if entry.data_type == TensorProto.FLOAT and entry.name not in wide:  # a Resize's scales stay fp32
            array = np.clip(numpy_helper.to_array(entry), -65504, 65504).astype(np.float16)
            entry.CopyFrom(numpy_helper.from_array(array, entry.name))
    return halved


def gpu_layout(tensor: TensorType, precision: str, own: str) -> str:
    """Return the layout of a border image: the engine's own where TensorRT has the same, plain channels otherwise."""
    if own == "NHWC":  # HWC8 pads channels, which the engine's own layout does not
        return own if precision == "fp16" and tensor.shape[1] % 8 == 0 else "NCHW"
    return own if own in GPU_FORMATS else "NCHW"


def write(package: Package) -> dict[str, str]:
    """Return file name -> text; UsageError for an unsupported version or a border layout without a flag."""
    if package.runtime:  # an engine with code of its own: a GPU, on which TensorRT runs by itself
        files = {"build.sh": _gpu_shell(package)}
        if package.precision == "int8" and version_key(package.version) < TYPED:
            files[CACHE] = tensorrt_cache(package.scales, package.version)
        return files
    key = version_key(package.version)
    named = release(package.version)
    if named is not None and named.dla == "none":
        raise UsageError(
            f"{package.engine.id}: TensorRT {package.version} has no DLA: {named.note}",
            "name a version up to 10.7, or 11.4.1 on a Jetson AGX Orin, in the engine's operator rules",
        )
    if named is not None and named.dla == "typed":
        tensors = {**package.inputs, **package.outputs}
        borders = {name: PYTHON_FORMATS[_format(package, tensor)] for name, tensor in tensors.items()}
        table = "".join(f"    {name!r}: {layout!r},\n" for name, layout in borders.items())
        tables = f"# Border tensors: format.\nBORDERS = {{\n{table}}}\n"
        return {"build.py": _program(package, _TYPED_ABOUT, tables, _TYPED_BUILD)}
    files = {"build.sh": _shell(package, key), "build.py": _python(package)}
    if package.precision == "int8":
        files[CACHE] = tensorrt_cache(shared(package.network, package.scales), package.version)
    return files


def convert(package: Package, model: Any) -> Any:
    """Return the model in the types that the release computes in: as it is up to 10.7, typed from 11.4.1 on."""
    if package.runtime:
        typed = version_key(package.version) >= TYPED and package.precision != "fp32"
    else:
        named = release(package.version)
        typed = named is not None and named.dla == "typed"
    return typed_model(package, model) if typed else model


def _format(package: Package, tensor: TensorType) -> str:
    if tensor.layout not in FORMATS:
        raise UsageError(
            f"{package.stage}: no DLA format for a border tensor {list(tensor.shape)} {tensor.layout}".rstrip(),
            "cut the network where images cross: a DLA takes four-dimensional tensors only",
        )
    return FORMATS[tensor.layout]


def flags(package: Package, standalone: bool = False) -> list[str]:
    """Return trtexec's arguments except those for the core, the calibration cache and the output."""
    chosen = [f"--onnx={MODEL}"]
    if not package.runtime:
        chosen += [f"--{name}" for name in sorted({package.precision, *package.promoted})]
    elif version_key(package.version) < TYPED:
        chosen += {"fp32": [], "fp16": ["--fp16"], "int8": ["--int8", "--fp16"]}[package.precision]
    for side, tensors in (("input", package.inputs), ("output", package.outputs)):
        formats = (GPU_FORMATS[t.layout] if package.runtime else _format(package, t) for t in tensors.values())
        listed = ",".join(f"{t.dtype}:{name}" for t, name in zip(tensors.values(), formats, strict=True))
        chosen.append(f"--{side}IOFormats={listed}")
    return [*chosen, "--buildDLAStandalone"] if standalone else chosen


def _script(package: Package, about: list[str], options: list[str], first: list[str], last: list[str]) -> str:
    """Return a shell script that runs trtexec with `first`, `options` and `last`; `about`: its lines before."""
    lines = ["#!/bin/sh", *about, 'trtexec="${TRTEXEC:-/usr/src/tensorrt/bin/trtexec}"']
    if package.precision == "int8" and version_key(package.version) < TYPED:
        lines += _own_cache(package)
        options = [*options, f"--calib=local-{CACHE}"]
    command = ['exec "$trtexec"', *first, *map(shlex.quote, options), *last]
    return "\n".join(lines) + "\n" + " \\\n  ".join(command) + "\n"


def _gpu_shell(package: Package) -> str:
    about = [
        f"# {one_line(package.stage)} for the GPU by TensorRT {one_line(package.version)}; run it on the board.",
        "set -eu",
        'cd "$(dirname "$0")"',
    ]
    options = [*flags(package), "--skipInference" if version_key(package.version) >= (8, 6) else "--buildOnly"]
    cache = '"--timingCacheFile=${TIMING_CACHE:-timing.cache}"'
    return _script(package, about, options, [], [cache, "--saveEngine=model.engine"])


def _core(package: Package) -> int:
    """Return the DLA core of an engine: engines of several cores are numbered, dla1 is core 1."""
    digits = re.search(r"\d+$", package.engine.id)
    return int(digits[0]) if digits else 0


def _shell(package: Package, version: tuple[int, ...]) -> str:
    standalone = version >= FIRST_LOADABLE
    options = flags(package, standalone) + ([] if standalone else ["--buildOnly"])
    jetpack = JETPACK.get(package.version)
    included = f" (JetPack {jetpack})." if jetpack else "."
    about = [
        f"# {one_line(package.stage)} for the DLA of TensorRT {one_line(package.version)}{included}",
        "# Layers that the DLA cannot run stop the build, because --allowGPUFallback is not set.",
    ]
    if not standalone:
        about.append("# This trtexec lacks --buildDLAStandalone: it builds an engine; build.py builds a loadable.")
    about += ["set -eu", 'cd "$(dirname "$0")"', f'core="${{DLA_CORE:-{_core(package)}}}"']
    name = "model.dla" if standalone else "model.engine"
    return _script(package, about, options, ['"--useDLACore=$core"'], [f"--saveEngine={name}"])


def _python(package: Package) -> str:
    borders = {
        name: (tensor.dtype, PYTHON_FORMATS[_format(package, tensor)])
        for name, tensor in (*package.inputs.items(), *package.outputs.items())
    }
    scales = shared(package.network, package.scales) if package.precision == "int8" else {}
    table = "".join(f"    {name!r}: {scale!r},\n" for name, scale in scales.items())
    tables = _TABLES.format(
        precisions=sorted({package.precision, *package.promoted}),
        borders="".join(f"    {name!r}: {layout!r},\n" for name, layout in borders.items()),
        scales=f"\n{table}" if table else "",
    )
    return _program(package, _ABOUT, tables, _BUILD)


def _program(package: Package, about: str, tables: str, build: str) -> str:
    title = one_line(f"{package.stage} for TensorRT {package.version}")
    return _PROGRAM.format(title=title, about=about, core=_core(package), tables=tables, build=build)


_PROGRAM = """\
#!/usr/bin/env python3
# {title}
{about}
import sys
from pathlib import Path

import tensorrt as trt

HERE = Path(__file__).resolve().parent
CORE = int(sys.argv[1]) if len(sys.argv) > 1 else {core}
{tables}

def main():
    builder = trt.Builder(trt.Logger(trt.Logger.INFO))
    if builder.num_DLA_cores <= CORE:
        sys.exit(f"DLA core {{CORE}} does not exist: this machine has {{builder.num_DLA_cores}}")
{build}    loadable = builder.build_serialized_network(network, config)
    if loadable is None:
        sys.exit("TensorRT could not build the loadable; its messages are above")
    (HERE / "model.dla").write_bytes(loadable)
    print(f"wrote {{HERE / 'model.dla'}}")


main()
"""
_CONFIGURE = """\
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = CORE
    config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    config.set_flag(trt.BuilderFlag.DIRECT_IO)
"""
_PARSE = """\
    if not parser.parse_from_file(str(HERE / "model.onnx")):
        sys.exit("\\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
"""
_ABOUT = '''\
"""Build a DLA loadable with TensorRT: python3 build.py [CORE]; run it on the board.

No layer falls back to the GPU: layers that the DLA cannot run are listed, and no file is written.
"""
'''
_TABLES = '''\
PRECISIONS = {precisions!r}
# Border tensors: data type and format.
BORDERS = {{
{borders}}}
# Scale of one step of every tensor, for INT8.
SCALES = {{{scales}}}
DTYPES = {{"fp16": trt.float16, "int8": trt.int8}}
FLAGS = {{"fp16": trt.BuilderFlag.FP16, "int8": trt.BuilderFlag.INT8}}


def tensors(network):
    """Every tensor of the network, once."""
    found = {{}}
    for index in range(network.num_inputs):
        found[network.get_input(index).name] = network.get_input(index)
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for output in range(layer.num_outputs):
            found[layer.get_output(output).name] = layer.get_output(output)
    return found
'''
_BUILD = f"""\
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
{_PARSE}{_CONFIGURE}\
    for precision in PRECISIONS:
        config.set_flag(FLAGS[precision])
    found = tensors(network)
    for name, (dtype, layout) in BORDERS.items():
        found[name].dtype = DTYPES[dtype]
        found[name].allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))
    for name, tensor in found.items():
        if name in SCALES:
            tensor.dynamic_range = (-127 * SCALES[name], 127 * SCALES[name])
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    refused = [layer.name for layer in layers if not config.can_run_on_DLA(layer)]
    if refused:
        sys.exit("the DLA cannot run: " + ", ".join(refused))
"""
_TYPED_ABOUT = '''\
"""Build a DLA loadable with strongly typed TensorRT: python3 build.py [CORE]; run it on a Jetson AGX Orin.

Types come from the model.  No layer falls back to the GPU: parsing stops at a layer that the DLA cannot run.
"""
'''
_TYPED_BUILD = f"""\
{_CONFIGURE}\
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
    parser.set_builder_config(config)
    parser.set_flag(trt.OnnxParserFlag.ADJUST_FOR_DLA)
    parser.set_flag(trt.OnnxParserFlag.REPORT_CAPABILITY_DLA)
{_PARSE}\
    ends = [network.get_input(index) for index in range(network.num_inputs)]
    ends += [network.get_output(index) for index in range(network.num_outputs)]
    for tensor in ends:
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, BORDERS[tensor.name]))
"""


def steps(package: Package) -> Mapping[str, float]:
    """Return the scales in int8: those of the network on a GPU up to TensorRT 10, else with shared ranges."""
    if package.precision != "int8" or (package.runtime and version_key(package.version) < TYPED):
        return package.scales
    return shared(package.network, package.scales)


TENSORRT = Toolchain(write, convert=convert, layout=gpu_layout, steps=steps)
