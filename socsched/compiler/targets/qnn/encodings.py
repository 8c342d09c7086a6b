"""Quantisation scales as Qualcomm's converters read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.vendor_packages.scales import LARGEST
from socsched.graph.network import Network


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
