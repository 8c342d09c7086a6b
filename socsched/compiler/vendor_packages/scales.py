"""Quantisation scales for vendors' tools.

A scale is symmetric and per tensor: real value = scale x integer, integers in -127..127.  Names are those of layers and
network inputs, as in the exported ONNX file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from socsched.errors import InputError
from socsched.graph.network import Network

LARGEST = 127


def check_scales(network: Network, scales: Mapping[str, float]) -> dict[str, float]:
    """Return the scale of every input and layer of `network`; InputError naming those missing or invalid."""
    names = [*network.inputs, *(layer.name for layer in network.layers)]
    missing = [name for name in names if name not in scales]
    if missing:
        listed = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{network.name}: no scale for {len(missing)} of {len(names)} tensors: {listed}",
            "calibrate the network on real frames, or choose fp16",
        )
    bad = [name for name in names if not (np.isfinite(scales[name]) and scales[name] > 0)]
    if bad:
        raise InputError(f"{network.name}: scale of {bad[0]!r} is {scales[bad[0]]}", "scales are positive numbers")
    return {name: float(scales[name]) for name in names}
