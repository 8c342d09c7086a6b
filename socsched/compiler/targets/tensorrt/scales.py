"""Quantisation scales as TensorRT reads them, with one scale for tensors that share a range on a DLA."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from socsched.graph.network import Network

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


def version_number(version: str) -> int:
    """Return NV_TENSORRT_VERSION: 8.6.2 -> 8602; from version 10 on, 10.3.0 -> 100300 (NvInferVersion.h)."""
    major, minor, patch = ([int(part) for part in version.split(".")] + [0, 0])[:3]
    return major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch
