"""Network weights: from a file, or seeded if none is given."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from socsched.errors import InputError
from socsched.graph.network import Network
from socsched.models.npz import read_npz

Weights = dict[str, np.ndarray[Any, np.dtype[np.float32]]]

CLASS_PRIOR = 0.01
"""Probability a seeded classifier starts with (Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, 4.1)."""


def load_weights(path: str | Path, networks: Iterable[Network] = ()) -> Weights:
    """Return the arrays of an .npz file as fp32, checked against what `networks` need.

    Raises InputError when the file cannot be read, holds something other than finite numbers, or a parameter of the
    networks is missing or has another shape (every such parameter is named).
    """
    arrays = read_npz(path, "weights", "expected an .npz of arrays")
    with np.errstate(over="ignore"):  # values beyond fp32 become infinite and are reported below
        weights = {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}
    bad = [name for name, array in weights.items() if not np.isfinite(array).all()]
    if bad:
        raise InputError(f"{path}: not finite: {', '.join(bad)}", "write the weights again from a sound checkpoint")
    for network in networks:
        check_weights(network, weights, str(path))
    return weights


def check_weights(network: Network, weights: Weights, source: str = "weights") -> None:
    """Raise InputError naming every parameter of `network` that `weights` lacks or has in another shape."""
    faults = []
    for name, shape in network.params.items():
        if name not in weights:
            faults.append(f"{name} {list(shape)} is missing")
        elif tuple(weights[name].shape) != tuple(shape):
            faults.append(f"{name} is {list(weights[name].shape)}, expected {list(shape)}")
    if faults:
        raise InputError(f"{source}: {'; '.join(faults)}", f"give the parameters of {network.name}, batch norm folded")


def draw_weights(network: Network, seed: int = 0) -> Weights:
    """Return random weights for every parameter, the same for the same seed and network.

    Weights are normal with variance 2 / fan-in (He et al., Delving Deep into Rectifiers, ICCV 2015, eq. 10); biases are
    zero, except a classifier's ("cls.bias", "heatmap.bias"), set so that its sigmoid starts at `CLASS_PRIOR`.
    """
    generator = np.random.default_rng(seed)
    transposed = {layer.weights["weight"] for layer in network.layers if layer.op == "conv2d_transpose"}
    weights: Weights = {}
    for name, shape in network.params.items():
        if len(shape) == 1:
            prior = -np.log((1 - CLASS_PRIOR) / CLASS_PRIOR) if name in ("cls.bias", "heatmap.bias") else 0.0
            weights[name] = np.full(shape, prior, np.float32)
            continue
        # A transposed convolution with kernel = stride adds up its input channels only.
        fan_in = shape[0] if name in transposed else int(np.prod(shape[1:]))
        weights[name] = (generator.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
    return weights
