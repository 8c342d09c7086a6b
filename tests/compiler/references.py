"""The layers in plain numpy at float64: the reference for compiled networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.graph.network import Layer, Network

Array = np.ndarray[Any, Any]


def run(network: Network, weights: Mapping[str, Array], inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the outputs of `network` for plain NCHW `inputs`."""
    values: dict[str, Array] = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}
    for layer in network.layers:
        given = {role: np.asarray(weights[name], np.float64) for role, name in layer.weights.items()}
        values[layer.name] = LAYERS[layer.op](layer, [values[name] for name in layer.inputs], given)
    return tuple(values[name] for name in network.outputs)


def sides(pad: int | tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return padding, one number or (top, left, bottom, right), as numpy takes it."""
    top, left, bottom, right = (pad,) * 4 if isinstance(pad, int) else pad
    return (0, 0), (0, 0), (top, bottom), (left, right)


def conv2d(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    stride, pad = layer.attrs.get("stride", 1), layer.attrs.get("padding", 0)
    kernel = weights["weight"]
    x = np.pad(inputs[0], sides(pad))
    view = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    y = np.einsum("nchwij,ocij->nohw", view, kernel, optimize=True)
    return y + weights["bias"][None, :, None, None] if "bias" in weights else y


def conv2d_transpose(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    s, (n, _, h, w) = layer.attrs["stride"], inputs[0].shape
    y = np.einsum("nchw,coij->nohiwj", inputs[0], weights["weight"], optimize=True)
    return y.reshape(n, -1, h * s, w * s) + weights["bias"][None, :, None, None]


def max_pool(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    kernel, stride, pad = (layer.attrs[name] for name in ("kernel", "stride", "padding"))
    x = np.pad(inputs[0], sides(pad), constant_values=-np.inf)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    return view.max(axis=(4, 5))


def cut_out(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    where = [slice(None)] * inputs[0].ndim
    attrs = layer.attrs
    for axis, begin, end, step in zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["step"], strict=True):
        where[axis] = slice(begin, end, step)
    return inputs[0][tuple(where)]


def pillar_features(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    voxels, counts, coords = inputs
    filled = np.arange(voxels.shape[1]) < counts[:, None]
    sums = (voxels[:, :, :3] * filled[:, :, None]).sum(axis=1)
    mean = sums / np.maximum(counts, 1)[:, None]
    centre = (coords + 0.5) * layer.attrs["pillar"] + np.asarray(layer.attrs["origin"])
    offsets = (voxels[:, :, :3] - mean[:, None], voxels[:, :, :2] - centre[:, None])
    return np.concatenate([voxels, *offsets], axis=2) * filled[:, :, None]


def scatter(layer: Layer, inputs: list[Array], weights: Mapping[str, Array]) -> Array:
    features, coords = inputs
    ny, nx = layer.attrs["ny"], layer.attrs["nx"]
    canvas = np.zeros((1, features.shape[1], ny, nx))
    for feature, (x, y) in zip(features, coords, strict=True):
        if 0 <= x < nx and 0 <= y < ny:
            canvas[0, :, y, x] = feature
    return canvas


LAYERS = {
    "conv2d": conv2d,
    "conv2d_transpose": conv2d_transpose,
    "max_pool": max_pool,
    "slice": cut_out,
    "pillar_features": pillar_features,
    "scatter": scatter,
    "dense": lambda layer, inputs, weights: inputs[0] @ weights["weight"].T + weights["bias"],
    "relu": lambda layer, inputs, weights: np.maximum(inputs[0], 0),
    "add": lambda layer, inputs, weights: inputs[0] + inputs[1],
    "concat": lambda layer, inputs, weights: np.concatenate(inputs, axis=layer.attrs["axis"]),
    "reduce_max": lambda layer, inputs, weights: inputs[0].max(axis=layer.attrs["axis"]),
}
