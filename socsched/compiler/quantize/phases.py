"""A convolution's integers by output phase: tap positions, weights, and tables for its epilogue; for every target."""

from __future__ import annotations

import numpy as np

from socsched.compiler.quantize.epilogue import Stored, Window
from socsched.compiler.quantize.fixed_point import LARGEST, Array, Scale, bounds
from socsched.compiler.quantize.network import Layer, Step


def window(step: Step) -> Window:
    """Return the tap positions of a convolution or transposed convolution."""
    a = step.group.attrs
    kernel, stride, pad = (int(a["kernel_h"]), int(a["kernel_w"])), int(a["stride_h"]), int(a["pad"])
    if step.group.kind == "conv2d":
        return Window(kernel, stride, 1, -pad, 0)
    taps = -(-max(kernel) // stride)
    return Window((taps, taps), 1, stride, 1 - taps, pad)


def reach(step: Step) -> int:
    """Return the border (pixels) a convolution's input must have."""
    w = window(step)
    if step.group.kind == "conv2d":
        return -w.base
    return max(-w.base - w.lift // w.phases, (w.phases - 1 + w.lift) // w.phases, 0)


def by_phase(step: Step, layer: Layer) -> Array:
    """Return the weights as [O, phases^2, I, kh, kw]: for each output phase, the taps that reach it."""
    w = window(step)
    if step.group.kind == "conv2d":
        return layer.weight[:, None]
    taps, kernel = w.taps[0], layer.weight.shape[2]
    weight = layer.weight.transpose(1, 0, 2, 3)
    out, into = weight.shape[:2]
    found = np.zeros((out, w.phases, w.phases, into, taps, taps), np.int8)
    for dy, dx, ty, tx in np.ndindex(w.phases, w.phases, taps, taps):
        y, x = ((d + w.lift) % w.phases + (taps - 1 - t) * w.phases for d, t in ((dy, ty), (dx, tx)))
        if y < kernel and x < kernel:
            found[:, dy, dx, :, ty, tx] = weight[:, :, y, x]
    return found.reshape(out, w.phases**2, into, taps, taps)


def table(phased: Array, step: Step, layer: Layer, source: Stored, target: Scale | None, blocks: int, c: int) -> Array:
    """Return the epilogue's table [blocks, phases, rows, c]: bias, low, high, multiplier, or bias and fp32 factor.

    Activations are stored with an offset; the bias cancels its contribution to every sum.
    """
    phases = phased.shape[1]
    offset = source.zero * phased.astype(np.int64).sum(axis=(2, 3, 4))
    bias = (layer.bias.astype(np.int64)[:, None] - offset).astype(np.int32)
    if target is None:
        rows = [layer.factor.view(np.int32)]
    elif step.residual:
        limit = LARGEST // layer.multiplier
        rows = [-limit, limit, layer.multiplier]
    else:
        rows = [*bounds(layer.multiplier, target, step.shift), layer.multiplier]
    full = np.stack([bias, *(np.repeat(row[:, None], phases, 1) for row in rows)], axis=2)
    whole = np.zeros((blocks * c, phases, full.shape[2]), np.int32)
    whole[: len(full)] = full
    return np.ascontiguousarray(whole.reshape(blocks, c, phases, -1).transpose(0, 2, 3, 1))
