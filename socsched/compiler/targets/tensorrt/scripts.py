"""Build scripts for a DLA: TensorRT's trtexec, and its Python interface.

Flags are those of trtexec 8.5 to 10.7 (NVIDIA/TensorRT, samples/common/sampleOptions.cpp): --onnx, --saveEngine,
--useDLACore, --fp16, --int8, --calib, --inputIOFormats and --outputIOFormats as type:format with chw16, chw32 and
dla_linear.  --buildDLAStandalone writes a loadable for cuDLA and implies that nothing is run; the trtexec of TensorRT
8.5 lacks it (NVIDIA-AI-IOT/cuDLA-samples ships a patch, data/trtexec-dla-standalone-trtv8.5.patch), so there trtexec
builds an engine and build.py the loadable.  --skipInference is called --buildOnly before 8.6.  --allowGPUFallback is
never given: TensorRT then fails instead of silently moving layers to the GPU (TensorRT documentation, DLA runtime
configuration, GPU fallback mode).  TensorRT 11 removed --fp16, --int8 and calibration; what each release has is in
`releases.json`.  From 11.4.1 on networks are strongly typed (`typed`): the types of the model's tensors decide.

Python: DLA standalone mode needs BuilderFlag.DIRECT_IO (TensorRT documentation, DLA standalone mode).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from socsched.compiler.targets.tensorrt import gpu, typed
from socsched.compiler.targets.tensorrt.releases import release
from socsched.compiler.targets.tensorrt.scales import shared, tensorrt_cache, version_number
from socsched.compiler.vendor_packages.package import MODEL, Package, Toolchain
from socsched.descriptor.operator_rules import version_key
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.text import one_line

JETPACK = {"8.5.2": "5.1.1", "8.6.2": "6", "10.3.0": "6.1"}
"""TensorRT -> the JetPack that includes it (8.5.2 and 8.6.2: NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md;
10.3: Torch-TensorRT documentation, JetPack 6.1)."""
CACHE = "calibration.cache"
FORMATS = {"NCHW16c": "chw16", "NCHW32c": "chw32", "NCHW": "dla_linear"}
PYTHON_FORMATS = {"chw16": "CHW16", "chw32": "CHW32", "dla_linear": "DLA_LINEAR"}


def write(package: Package) -> dict[str, str]:
    """Return file name -> text; UsageError for an unsupported version or a border layout without a flag."""
    if package.runtime:  # an engine with code of its own: a GPU, on which TensorRT runs by itself
        return gpu.write(package)
    key = version_key(package.version)
    found = release(package.version)
    if found is not None and found.dla == "none":
        raise UsageError(
            f"{package.engine.id}: TensorRT {package.version} has no DLA: {found.note}",
            "name a version up to 10.7, or 11.4.1 on a Jetson AGX Orin, in the engine's operator rules",
        )
    if found is not None and found.dla == "typed":
        tensors = {**package.inputs, **package.outputs}
        borders = {name: PYTHON_FORMATS[_format(package, tensor)] for name, tensor in tensors.items()}
        return typed.write(package, _core(package), borders)
    files = {"build.sh": _shell(package, key), "build.py": _python(package)}
    if package.precision == "int8":
        files[CACHE] = tensorrt_cache(shared(package.network, package.scales), package.version)
    return files


def convert(package: Package, model: Any) -> Any:
    """Return the model in the types that the release computes in: as it is up to 10.7, typed from 11.4.1 on."""
    if package.runtime:
        return gpu.convert(package, model)
    found = release(package.version)
    return typed.model_of(package, model) if found is not None and found.dla == "typed" else model


def _format(package: Package, tensor: TensorType) -> str:
    if tensor.layout not in FORMATS:
        raise UsageError(
            f"{package.stage}: no DLA format for a border tensor {list(tensor.shape)} {tensor.layout}".rstrip(),
            "cut the network where images cross: a DLA takes four-dimensional tensors only",
        )
    return FORMATS[tensor.layout]


def _formats(package: Package, tensors: Mapping[str, TensorType]) -> str:
    return ",".join(f"{tensor.dtype}:{_format(package, tensor)}" for tensor in tensors.values())


def flags(package: Package, standalone: bool) -> list[str]:
    """Return trtexec's arguments except those for the core, the calibration cache and the output."""
    precisions = sorted({package.precision, *package.promoted})
    chosen = [f"--onnx={MODEL}", *(f"--{name}" for name in precisions)]
    chosen += [f"--inputIOFormats={_formats(package, package.inputs)}"]
    chosen += [f"--outputIOFormats={_formats(package, package.outputs)}"]
    return [*chosen, "--buildDLAStandalone"] if standalone else chosen


def _core(package: Package) -> int:
    """Return the DLA core of an engine: engines of several cores are numbered, dla1 is core 1."""
    digits = re.search(r"\d+$", package.engine.id)
    return int(digits[0]) if digits else 0


def _shell(package: Package, version: tuple[int, ...]) -> str:
    standalone = version >= (8, 6)
    options = flags(package, standalone) + ([] if standalone else ["--buildOnly"])
    jetpack = JETPACK.get(package.version)
    release = f" (JetPack {jetpack})." if jetpack else "."
    lines = [
        "#!/bin/sh",
        f"# {one_line(package.stage)} for the DLA of TensorRT {one_line(package.version)}{release}",
        "# Layers that the DLA cannot run stop the build, because --allowGPUFallback is not set.",
    ]
    if not standalone:
        lines.append("# This trtexec lacks --buildDLAStandalone: it builds an engine; build.py builds a loadable.")
    lines += [
        "set -eu",
        'cd "$(dirname "$0")"',
        f'core="${{DLA_CORE:-{_core(package)}}}"',
        'trtexec="${TRTEXEC:-/usr/src/tensorrt/bin/trtexec}"',
    ]
    if package.precision == "int8":
        lines += [
            "# TensorRT refuses a calibration cache whose header names another version than its own.",
            "found=$(\"$trtexec\" --help 2>&1 | sed -n 's/.*TensorRT v\\([0-9]*\\).*/\\1/p' | head -n 1)",
            f'sed "1s/^TRT-[0-9]*/TRT-${{found:-{version_number(package.version)}}}/" {CACHE} > local-{CACHE}',
        ]
        options.append(f"--calib=local-{CACHE}")
    name = "model.dla" if standalone else "model.engine"
    command = ['exec "$trtexec"', '"--useDLACore=$core"', *map(shlex.quote, options), f"--saveEngine={name}"]
    return "\n".join(lines) + "\n" + " \\\n  ".join(command) + "\n"


def _python(package: Package) -> str:
    borders = {
        name: (tensor.dtype, PYTHON_FORMATS[_format(package, tensor)])
        for name, tensor in (*package.inputs.items(), *package.outputs.items())
    }
    scales = shared(package.network, package.scales) if package.precision == "int8" else {}
    table = "".join(f"    {name!r}: {scale!r},\n" for name, scale in scales.items())
    return _PROGRAM.format(
        title=one_line(f"{package.stage} for TensorRT {package.version}"),
        core=_core(package),
        model=MODEL,
        precisions=sorted({package.precision, *package.promoted}),
        borders="".join(f"    {name!r}: {layout!r},\n" for name, layout in borders.items()),
        scales=f"\n{table}" if table else "",
    )


_PROGRAM = '''\
#!/usr/bin/env python3
# {title}
"""Build a DLA loadable with TensorRT: python3 build.py [CORE]; run it on the board.

No layer falls back to the GPU: layers that the DLA cannot run are listed, and no file is written.
"""

import sys
from pathlib import Path

import tensorrt as trt

HERE = Path(__file__).resolve().parent
CORE = int(sys.argv[1]) if len(sys.argv) > 1 else {core}
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


def main():
    builder = trt.Builder(trt.Logger(trt.Logger.INFO))
    if builder.num_DLA_cores <= CORE:
        sys.exit(f"DLA core {{CORE}} does not exist: this machine has {{builder.num_DLA_cores}}")
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.WARNING))
    if not parser.parse_from_file(str(HERE / "{model}")):
        sys.exit("\\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.default_device_type = trt.DeviceType.DLA
    config.DLA_core = CORE
    config.engine_capability = trt.EngineCapability.DLA_STANDALONE
    config.set_flag(trt.BuilderFlag.DIRECT_IO)
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
    loadable = builder.build_serialized_network(network, config)
    if loadable is None:
        sys.exit("TensorRT could not build the loadable; its messages are above")
    (HERE / "model.dla").write_bytes(loadable)
    print(f"wrote {{HERE / 'model.dla'}}")


main()
'''


TENSORRT = Toolchain(write, convert=convert, layout=gpu.layout)
