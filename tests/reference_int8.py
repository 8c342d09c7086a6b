"""An integer-only accelerator's network in plain numpy int64, slow and obvious; uses nothing of socsched.

The file is ONNX with attributes of its own (`npu_golden`): weights [O, h, w, I], biases shifted left by `bias_offset`,
sums shifted right by `offset` with halves rounded up; a transposed convolution is a plain one on an image with zeros
put between its pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]


def run(model: onnx.ModelProto, first: str, source: Array) -> dict[str, Array]:
    """Return the output of every node after `first`, [H, W, C] as uint8 or int8, given `source` as that of `first`."""
    weights = {item.name: onnx.numpy_helper.to_array(item).astype(np.int64) for item in model.graph.initializer}
    values = {first: source.astype(np.int64)}
    found = {}
    for node in model.graph.node:
        if node.name == first or node.op_type not in ("Conv", "ConvTranspose", "Concat"):
            continue
        a = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Concat":
            parts = zip(node.input, a["input_scale"], a["input_offset"], strict=True)
            sums = np.concatenate([rounded(values[name] * scale, shift) for name, scale, shift in parts], axis=2)
        else:
            sums = convolved(node.op_type, values[node.input[0]], weights[node.input[1]], a)
            sums = rounded(sums + (weights[node.input[2]] << np.array(a["bias_offset"])), np.array(a["offset"]))
        signed = node.op_type == "Conv" and not a.get("nonlinear")
        values[node.name] = np.clip(sums, -128, 127) if signed else np.clip(sums, 0, 255)
        found[node.name] = values[node.name].astype(np.int8 if signed else np.uint8)
    return found


def rounded(sums: Array, shift: Any) -> Array:
    """Return the sums divided by 2^shift, halves rounded up."""
    half = (1 << np.asarray(shift)) >> 1
    return (sums + half) >> shift


def convolved(op: str, x: Array, kernel: Array, attributes: dict[str, Any]) -> Array:
    """Return the sums [H, W, O] of a convolution or transposed convolution: a matrix product for each of its taps.

    Products are float64, which holds these integers exactly, since numpy has no fast ones of int64.
    """
    out, kh, kw, _ = kernel.shape
    stride, pad = attributes["stride"][0], attributes["padding"][0]
    if op == "ConvTranspose":
        spread = np.zeros(((len(x) - 1) * stride + 1, (x.shape[1] - 1) * stride + 1, x.shape[2]), np.int64)
        spread[::stride, ::stride] = x
        x, stride, pad = spread, 1, kh - 1 - pad
    x = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
    height, width = (x.shape[0] - kh) // stride + 1, (x.shape[1] - kw) // stride + 1
    sums = np.zeros((height, width, out), np.int64)
    for i in range(kh):
        for j in range(kw):
            tap = x[i : i + height * stride : stride, j : j + width * stride : stride][:height, :width]
            sums += (tap.astype(np.float64) @ kernel[:, i, j].T.astype(np.float64)).astype(np.int64)
    return sums
