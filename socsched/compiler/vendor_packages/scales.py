"""Quantisation scales in the formats read by vendors' tools.

A scale is symmetric and per tensor: real value = scale x integer, integers in -127..127.  Names are those of layers and
network inputs, as in the exported ONNX file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.errors import InputError
from socsched.graph.network import Network

LARGEST = 127
_SHARED = ("concat", "max_pool", "avg_pool", "add")
"""Layers whose tensors must share one range in INT8 on a DLA (TensorRT, DLA layer restrictions); add: inputs only."""


def checked(network: Network, scales: Mapping[str, float]) -> dict[str, float]:
    """Return the scale of every input and layer of `network`; InputError naming those missing or invalid."""
    names = [*network.inputs, *(layer.name for layer in network.layers)]
    missing = [name for name in names if name not in scales]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{network.name}: no scale for {len(missing)} of {len(names)} tensors: {shown}",
            "calibrate the network on real frames, or choose fp16",
        )
    bad = [name for name in names if not (np.isfinite(scales[name]) and scales[name] > 0)]
    if bad:
        raise InputError(f"{network.name}: scale of {bad[0]!r} is {scales[bad[0]]}", "scales are positive numbers")
    return {name: float(scales[name]) for name in names}


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


def version_number(version: str) -> int:
    """Return NV_TENSORRT_VERSION: 8.6.2 -> 8602; from version 10 on, 10.3.0 -> 100300 (NvInferVersion.h)."""
    major, minor, patch = ([int(part) for part in version.split(".")] + [0, 0])[:3]
    return major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch


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
