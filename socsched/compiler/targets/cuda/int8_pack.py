"""A convolution's integers in the layout its GPU kernel reads: a matrix of weight byte pairs, a table by channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from socsched.compiler.quantize import epilogue as phases
from socsched.compiler.quantize.epilogue import Stored
from socsched.compiler.quantize.fixed_point import Array, Scale
from socsched.compiler.quantize.network import Layer, Step
from socsched.compiler.targets.cuda.shapes import Convolution

Layers = Sequence[tuple[Step, Layer]]
"""Convolutions computed as one, with their integers."""


@dataclass(frozen=True, slots=True)
class Window:
    """A convolution's window: kernel, stride, padding, and output pixels per side for each position."""

    kernel: tuple[int, int]
    stride: int
    pad: int
    scale: int


def window_of(step: Step) -> Window:
    """Return the window of a convolution, or of the one that computes all phases of a transposed one.

    A phase of a transposed convolution reads some neighbours of its pixel; the window covers those of all phases, and
    is the pixel itself where kernel = stride.
    """
    a = step.group.attrs
    if step.group.kind == "conv2d":
        return Window((int(a["kernel_h"]), int(a["kernel_w"])), int(a["stride_h"]), int(a["pad"]), 1)
    first, last = _reach(step)
    pad = max(-first, last)
    return Window((2 * pad + 1, 2 * pad + 1), 1, pad, int(a["stride_h"]))


def _reach(step: Step) -> tuple[int, int]:
    """Return the first and last pixel, relative to its own, that any phase of a transposed convolution reads."""
    w = phases.window(step)
    return w.base + w.lift // w.phases, w.base + (w.phases - 1 + w.lift) // w.phases + w.taps[0] - 1


def kernel_matrix(layers: Layers, shape: Convolution, length: int) -> Array:
    """Return the weights as fp16 containers [n, length]: rows in the order of n in `shape`, pairs of bytes along k."""
    taps = np.concatenate([_taps(step, layer) for step, layer in layers], axis=1)  # [phases^2, O, kh, kw, I]
    whole = np.zeros((len(taps), shape.outputs, *taps.shape[2:4], 2 * shape.channels), np.int8)
    whole[:, : taps.shape[1], :, :, : taps.shape[4]] = taps
    matrix = np.zeros((shape.n, 2 * length), np.int8)
    matrix[:, : 2 * shape.k] = whole.reshape(shape.n, -1)
    return matrix.view("<f2")


def _taps(step: Step, layer: Layer) -> Array:
    """Return a layer's weights as [phases^2, O, kh, kw, I]."""
    if step.group.kind == "conv2d":
        return np.ascontiguousarray(layer.weight.transpose(0, 2, 3, 1)[None])
    w, pad = phases.window(step), window_of(step).pad
    phased = phases.by_phase(step, layer)  # [O, phases^2, I, taps, taps]
    out, _, into, taps, _ = phased.shape
    found = np.zeros((w.phases**2, out, 2 * pad + 1, 2 * pad + 1, into), np.int8)
    for dy, dx in np.ndindex(w.phases, w.phases):
        y, x = (pad + w.base + (d + w.lift) // w.phases for d in (dy, dx))
        part = phased[:, dy * w.phases + dx].transpose(0, 2, 3, 1)
        found[dy * w.phases + dx, :, y : y + taps, x : x + taps] = part
    return found


def channel_table(layers: Layers, target: Scale | None, outputs: int) -> Array:
    """Return the epilogue's table [rows, outputs]: bias, low, high, multiplier, or bias and the bits of a factor."""
    zero = Stored("int8", 0)
    rows = []
    for step, layer in layers:
        phased = phases.by_phase(step, layer)
        rows.append(phases.table(phased, step, layer, zero, target, 1, len(phased))[0, 0])
    flat = np.concatenate(rows, axis=1)
    whole = np.zeros((len(flat), outputs), np.int32)
    whole[:, : flat.shape[1]] = flat
    return whole
