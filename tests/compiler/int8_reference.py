"""Reference for integer networks in plain numpy: compiled kernels match it bit by bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from socsched.compiler.quantize.fixed_point import RATIO_SHIFT, Array, quantise, requantise
from socsched.compiler.quantize.network import QuantisedGraph, Step


def run(quantised: QuantisedGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return every value for fp32 `inputs` (NCHW): integers (int64), or fp32 for outputs that leave as sums."""
    values = {name: quantise(array, quantised.scales[name]) for name, array in inputs.items()}
    for step in quantised.steps:
        if step.exact:
            raise ValueError(f"{step.output} is computed in fp32")
        values[step.output] = compute(quantised, step, values)
    return values


def compute(quantised: QuantisedGraph, step: Step, values: Mapping[str, Array]) -> Array:
    """Return the result of one operator for the integers it reads."""
    return _COMPUTE[step.group.kind](quantised, step, values)


def outputs(quantised: QuantisedGraph, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the network's outputs as fp32."""
    values = run(quantised, inputs)
    return tuple(
        values[name]
        if name in quantised.floats
        else values[name].astype(np.float32) * np.float32(quantised.scales[name].step)
        for name in quantised.graph.outputs
    )


def sums(step: Step, source: Array) -> Array:
    """Return the int64 sums of a convolution or transposed convolution, with bias."""
    assert step.layer is not None
    attrs, weight = step.group.attrs, step.layer.weight.astype(np.float64)
    x, stride, pad = source[0].astype(np.float64), int(attrs["stride_h"]), int(attrs["pad"])
    height, width = x.shape[1:]
    kh, kw = weight.shape[2:]
    if step.group.kind == "conv2d":
        padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        oh, ow = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
        total = np.zeros((weight.shape[0], oh, ow))
        for i in range(kh):
            for j in range(kw):
                part = padded[:, i : i + stride * oh : stride, j : j + stride * ow : stride][:, :oh, :ow]
                total += np.tensordot(weight[:, :, i, j], part, 1)
    else:
        whole = np.zeros((weight.shape[1], (height - 1) * stride + kh, (width - 1) * stride + kw))
        for i in range(kh):
            for j in range(kw):
                part = np.tensordot(weight[:, :, i, j].T, x, 1)
                whole[:, i : i + stride * height : stride, j : j + stride * width : stride][:, :height, :width] += part
        total = whole[:, pad : whole.shape[1] - pad, pad : whole.shape[2] - pad]
    return (total.astype(np.int64) + step.layer.bias[:, None, None])[None]


def _convolution(quantised: QuantisedGraph, step: Step, values: Mapping[str, Array]) -> Array:
    assert step.layer is not None
    total = sums(step, values[step.group.inputs[0]])
    if step.output in quantised.floats:
        real = total.astype(np.int32).astype(np.float32) * step.layer.factor[:, None, None]
        return np.maximum(real, np.float32(0)) if step.relu else real
    scaled = total * step.layer.multiplier.astype(np.int64)[:, None, None]
    if step.residual:
        limit = (1 << 30) // step.layer.multiplier.astype(np.int64)[:, None, None]
        scaled = np.clip(total, -limit, limit) * step.layer.multiplier.astype(np.int64)[:, None, None]
        scaled = scaled + values[step.residual] * step.factors[0]
    return _rectified(step, requantise(scaled, 1, quantised.scales[step.output], step.shift))


def _rectified(step: Step, integers: Array) -> Array:
    return np.maximum(integers, 0) if step.relu else integers


def _combined(quantised: QuantisedGraph, step: Step, values: Mapping[str, Array]) -> Array:
    total: Array = np.zeros(1, np.int64)
    for name, factor in zip(step.group.inputs, step.factors, strict=True):
        total = total + values[name] * factor
    return _rectified(step, requantise(total, 1, quantised.scales[step.output], RATIO_SHIFT))


def _concatenated(quantised: QuantisedGraph, step: Step, values: Mapping[str, Array]) -> Array:
    parts = [values[name] for name in step.group.inputs]
    if step.output not in quantised.floats:
        scale = quantised.scales[step.output]
        parts = [requantise(part, m, scale, RATIO_SHIFT) for part, m in zip(parts, step.factors, strict=True)]
    return np.concatenate(parts, axis=1)


def _max_pool(quantised: QuantisedGraph, step: Step, values: Mapping[str, Array]) -> Array:
    attrs, x = step.group.attrs, values[step.group.inputs[0]]
    rows, columns, stride, pad = (int(attrs[name]) for name in ("kernel_h", "kernel_w", "stride_h", "pad"))
    sides = (pad, pad + stride)  # a last window may extend past the padding
    padded = np.pad(x, ((0, 0), (0, 0), sides, sides), constant_values=-(1 << 20))
    view = np.lib.stride_tricks.sliding_window_view(padded, (rows, columns), axis=(2, 3))[:, :, ::stride, ::stride]
    height, width = quantised.graph.values[step.group.output].shape[2:]
    result: Array = view[:, :, :height, :width].max(axis=(4, 5))
    return result


_COMPUTE = {
    "conv2d": _convolution,
    "conv2d_transpose": _convolution,
    "add": _combined,
    "relu": _combined,
    "concat": _concatenated,
    "max_pool": _max_pool,
}
