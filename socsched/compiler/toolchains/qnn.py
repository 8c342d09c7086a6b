"""Build scripts for Hexagon: Qualcomm's AI Engine Direct (QNN) for HTP, SNPE for the older HTA.

QNN: qnn-onnx-converter, qnn-model-lib-generator and qnn-context-binary-generator, from model to context binary
(docs.qualcomm.com 80-63442-10, Converters and ONNX to QNN for Linux host).  In INT8 every tensor has an encoding
(--quantization_overrides, AIMET's format); the quantiser still requires a list of inputs to run, and one frame of zeros
is sufficient.  --float_fallback, which would let tensors without encoding run in floating point, is omitted: HTP V68 of
QCS6490 has no floating point.  Short options (--bias_bw) are those of 2.20 and earlier; later releases accept them too.

SNPE 1.x: snpe-onnx-to-dlc, then snpe-dlc-quantize --enable_hta, which compiles the HTA's section into the DLC.

Quantisation scales as Qualcomm's converters read them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.toolchains.package import LARGEST, MODEL, Compiler, Package, Toolchain
from socsched.descriptor.platform import Engine
from socsched.errors import UsageError
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES
from socsched.text import one_line

ENCODINGS = "encodings.json"


def write_qnn(package: Package) -> dict[str, str]:
    """Return file name -> text for QNN."""
    quantised = package.precision == "int8"
    convert = ["qnn-onnx-converter", f"--input_network {MODEL}", "--output_path build/model.cpp"]
    convert += [f"--input_layout {shlex.quote(n)} NCHW" for n, t in package.inputs.items() if len(t.shape) == 4]
    if quantised:
        convert += [f"--quantization_overrides {ENCODINGS}", "--input_list build/inputs.txt", "--bias_bw 32"]
    else:
        convert += ["--float_bw 16"]
    host = '"$QNN_SDK_ROOT/lib/x86_64-linux-clang'
    library = ["qnn-model-lib-generator", "-c build/model.cpp", "-b build/model.bin", "-t x86_64-linux-clang"]
    context = ["qnn-context-binary-generator", "--model build/lib/x86_64-linux-clang/libmodel.so"]
    context += [f'--backend {host}/libQnnHtp.so"', "--binary_file model", "--output_dir build"]
    files = {}
    if architecture := _architecture(package.engine):
        context.append("--config_file build/backend.json")
        files["htp.json"] = json.dumps({"devices": [{"dsp_arch": architecture}]}, indent=1) + "\n"
    lines = [*_head(package, "QNN_SDK_ROOT", "QNN"), *(_inputs(package) if quantised else [])]
    if architecture:
        extension = {"shared_library_path": "@lib@/libQnnHtpNetRunExtensions.so", "config_file_path": "htp.json"}
        text = json.dumps({"backend_extensions": extension})
        lines.append(f"printf '%s\\n' {shlex.quote(text)} | sed \"s|@lib@|{host[1:]}|\" > build/backend.json")
    commands = [" \\\n  ".join(command) for command in (convert, [*library, "-o build/lib"], context)]
    files["build.sh"] = "\n".join([*lines, *commands, 'echo "wrote build/model.bin (context binary)"']) + "\n"
    return files | _encodings(package)


def write_snpe(package: Package) -> dict[str, str]:
    """Return file name -> text for SNPE 1.x."""
    convert = ["snpe-onnx-to-dlc", f"--input_network {MODEL}", "--output_path build/float.dlc"]
    lines = _head(package, "SNPE_ROOT", "SNPE")
    if package.precision != "int8":
        return {"build.sh": "\n".join([*lines, " \\\n  ".join(convert)]) + "\n"}
    convert.append(f"--quantization_overrides {ENCODINGS}")
    quantise = ["snpe-dlc-quantize", "--input_dlc build/float.dlc", "--input_list build/inputs.txt"]
    quantise += ["--override_params", "--enable_hta", "--output_dlc build/model.dlc"]
    commands = [" \\\n  ".join(command) for command in (convert, quantise)]
    return {"build.sh": "\n".join([*lines, *_inputs(package), *commands]) + "\n"} | _encodings(package)


def chip(engine: Engine) -> Mapping[str, Any]:
    """Return the HTP compiler's settings for an engine: its model of SoC, HTP architecture and MB of VTCM.

    An engine states its architecture by its operator rules and its VTCM as `sram`.  Raises UsageError for a pair of
    which no SoC is known here.
    """
    architecture, vtcm = _architecture(engine), engine.sram.value / 2**20 if engine.sram else 0
    model = _MODELS.get((architecture, round(vtcm)))
    if model is None:
        known = ", ".join(f"{a} with {size} MiB ({name})" for (a, size), (_, name) in _MODELS.items())
        raise UsageError(
            f"{engine.id}: the HTP compiler knows no SoC with {architecture or 'no HTP'} and {vtcm:g} MiB of VTCM",
            f"known: {known}",
        )
    return {"soc_model": model[0], "htp_arch": int(architecture[1:]), "vtcm_mb": round(vtcm)}


_MODELS = {("v73", 8): (66, "QCS8550"), ("v68", 8): (39, "SA8295P"), ("v68", 2): (35, "QCS6490")}
"""Architecture and MiB of VTCM -> QNN's number of a SoC and its name, as QNN's SDK numbers them."""


def _architecture(engine: Engine) -> str:
    """Return the HTP architecture ("v73") in the name of the engine's rule file, empty if it has none."""
    name = re.search(r"htp-(v\d+)", engine.operators.name)
    return name[1] if name else ""


def _head(package: Package, root: str, name: str) -> list[str]:
    title = one_line(f"{package.stage} for {package.engine.title}, {name} {package.version}")
    return [
        "#!/bin/sh",
        f"# {title}; runs on an x86-64 host with the SDK.",
        "set -eu",
        'cd "$(dirname "$0")"',
        f': "${{{root}:?set it to the {name} SDK (source its envsetup.sh)}}"',
        "mkdir -p build",
    ]


def _inputs(package: Package) -> list[str]:
    lines = ["# Every tensor has its encoding already; the quantiser only requires a frame to start."]
    entries = []
    for index, (name, tensor) in enumerate(package.inputs.items()):
        size = prod(tensor.shape) * DTYPE_BYTES["fp32"]
        lines.append(f"head -c {size} /dev/zero > build/input{index}.raw")
        entries.append(f"{name}:=build/input{index}.raw" if len(package.inputs) > 1 else f"build/input{index}.raw")
    return [*lines, f"printf '%s\\n' {shlex.quote(' '.join(entries))} > build/inputs.txt"]


def _encodings(package: Package) -> dict[str, str]:
    if package.precision != "int8":
        return {}
    return {ENCODINGS: aimet_encodings(package.network, package.weights, package.scales)}


QNN = Toolchain(write_qnn, Compiler("qualcomm", chip, unsigned=True, simulates="model_ctx.onnx", whole_gelu=True))
SNPE = Toolchain(write_snpe)


def aimet_encodings(network: Network, weights: Mapping[str, Any], scales: Mapping[str, float]) -> str:
    """Return the JSON of `--quantization_overrides` (AIMET encodings 0.6.1) for QNN's and SNPE's converters.

    Activations are unsigned with offset -128, weights symmetric with one scale per output channel.
    """
    activations = {name: [_encoding(scale)] for name, scale in scales.items()}
    params = {}
    for layer in network.layers:
        if layer.op not in ("conv2d", "conv2d_transpose", "dense"):
            continue
        name = layer.weights["weight"]
        array = np.asarray(weights[name])
        channel = 1 if layer.op == "conv2d_transpose" else 0
        peaks = np.abs(array).max(axis=tuple(axis for axis in range(array.ndim) if axis != channel))
        params[name] = [_encoding(max(float(peak), 1e-8) / LARGEST, symmetric=True) for peak in peaks]
    document = {"version": "0.6.1", "activation_encodings": activations, "param_encodings": params}
    return json.dumps(document, indent=1) + "\n"


def _encoding(scale: float, symmetric: bool = False) -> dict[str, Any]:
    low = -LARGEST if symmetric else -LARGEST - 1
    return {
        "bitwidth": 8,
        "dtype": "int",
        "is_symmetric": str(symmetric),
        "min": low * scale,
        "max": LARGEST * scale,
        "offset": -128,
        "scale": scale,
    }
