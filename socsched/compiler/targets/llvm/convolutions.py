"""Convolution rules: choice of kernel and tile, packing of weights, and destination of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.layouts import padded
from socsched.compiler.targets.llvm import conv_kernels, half, winograd
from socsched.compiler.targets.llvm.fuse import Activation, activation
from socsched.compiler.targets.llvm.images import Array, Image, Images
from socsched.compiler.targets.llvm.vector import NEON, Lying, Order, Tile, Vector, Window, tile, window_of
from socsched.graph.epilogues import channels_read
from socsched.graph.fusion import Group

_CACHED = 1 << 18  # bytes of activations that a task of a pointwise convolution may traverse repeatedly
_TASKS = 16  # minimum, to keep several threads busy


class Convolutions(Images):
    """Emits convolutions, transposed convolutions and the concatenations they are written into."""

    KINDS = ("conv2d", "conv2d_transpose")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.siblings: dict[str, list[Group]] = {}
        self.merged: set[str] = set()
        self.most = half.TERMS if self.dtype == "float32" else half.most(self.graph)

    def takes(self, group: Group) -> bool:
        """Return whether a rule covers this convolution: batch size 1 and as many channels as blocks need."""
        if not self.is_image(*group.inputs, group.output):
            return False
        a = group.attrs
        if group.kind == "conv2d":
            return True
        weight = self.weights[group.weights["weight"]]
        plain = a["groups"] == a["dilation"] == 1 and not a["pad"] and a["stride_h"] == a["stride_w"]
        return bool(plain and weight.shape[2:] == (a["stride_h"], a["stride_h"]) and self.grows_by_stride(group))

    def grows_by_stride(self, group: Group) -> bool:
        (_, _, h, w), (_, _, oh, ow) = (self.graph.values[name].shape for name in (group.inputs[0], group.output))
        stride = int(group.attrs["stride_h"])
        return (oh, ow) == (h * stride, w * stride)

    # Concatenations written in place, and convolutions that share their input.

    def plan_slices(self) -> None:
        """Plan the slice of each input of an in-place concatenation: (the concatenation, first block within it)."""
        for group in self.graph.groups:
            if not self.graph.in_place(group):
                continue
            if any(self.graph.values[value].shape[1] % self.c for value in group.inputs):
                continue
            makers = [g for g in self.graph.groups if g.output in group.inputs]
            if not all(self.takes(maker) for maker in makers):
                continue
            first = 0
            for value in group.inputs:
                self.slices[value] = (group, first)
                first += self.graph.values[value].shape[1] // self.c

    def plan_siblings(self) -> None:
        """Merge 1x1 convolutions of one input into one kernel if all results leave as plain NCHW (a detection head)."""
        heads: dict[tuple[str, Activation], list[Group]] = {}
        for group in self.graph.groups:
            if group.kind != "conv2d" or len(group.inputs) > 1 or not self.takes(group):
                continue
            a = group.attrs
            plain = group.output in self.graph.outputs and self.at_border(group.output).layout == "NCHW"
            pointwise = a["kernel_h"] == a["kernel_w"] == a["stride_h"] == a["stride_w"] == a["groups"] == 1
            if pointwise and plain and not a["pad"] and not self.graph.consumers(group.output):
                heads.setdefault((group.inputs[0], activation(group)), []).append(group)
        self.siblings = {members[0].output: members for members in heads.values()}
        self.merged = {group.output for members in heads.values() for group in members[1:]}

    # Convolution.

    def conv2d(self, group: Group) -> None:
        members = self.siblings.get(group.output, [group])
        source = self.image_of(group.inputs[0])
        weight = np.concatenate([self.weights[member.weights["weight"]] for member in members])
        groups = int(group.attrs["groups"])
        target, lying = self.target(group, weight.shape[0])
        window = window_of(group)
        act = activation(group)
        residual = self.image_of(group.inputs[1]) if len(group.inputs) > 1 else None
        bias = self.bias(members, target.blocks * self.c)
        border = residual.border if residual else -1
        extra = residual.var if residual else self.constant(np.zeros((1, 1, 1, 1)), self.dtype)
        if groups > 1 and groups == source.channels == weight.shape[0] and source.block == self.c:
            pixels = tile(self.vector, 1, target.width).pixels
            args = (source.lying, lying, window, act, border, pixels)
            packed = padded(weight[:, 0], (0, target.blocks * self.c))
            packed = packed.reshape(target.blocks, self.c, *weight.shape[2:]).transpose(0, 2, 3, 1)
            kept = conv_kernels.depthwise_sums(window, self.dtype)
            bias = self.bias(members, target.blocks * self.c, kept)
            operands = [source.var, self.constant(packed, self.dtype), bias, extra]
            self.finish(group, target, conv_kernels.depthwise, args, operands)
            return
        span, several = channels_read(weight.shape[1] * groups, weight.shape[0], groups, source.block)
        joined = several * (weight.shape[0] // groups) // source.block  # blocks that read the same channels
        part = replace(source, channels=span) if joined else source
        weight = _ungrouped(weight, groups, span)
        method = half.Method(0, self.dtype) if joined else self.method(group, source, target, weight, window)
        m = method.m
        if m:
            unit = self.vector if method.dtype == self.dtype else NEON
            grouping = winograd.group(winograd.tiles(target.height, target.width, m), target.blocks, unit)
            division = winograd.Division(m, *grouping, method.dtype, self.most)
            taken = self.weights_as(
                (method, source.blocks, source.block),
                members,
                lambda: self.winograd_weight(weight, source, target, method),
            )
            operands = [source.var, taken, bias, extra]
            self.finish(group, target, winograd.conv2d_winograd, (source.lying, lying, act, border, division), operands)
            return
        skips = self.skips(group)
        taken = self.weights_as(
            (groups, part.blocks, part.block, skips), members, lambda: self.conv_weight(weight, part, target, skips)
        )
        operands = [source.var, taken, bias, extra]
        self.direct(group, source, target, lying, residual, operands, (part.blocks, joined))
        if len(members) > 1:
            self.split(members)

    def direct(
        self,
        group: Group,
        source: Image,
        target: Image,
        lying: Lying,
        residual: Image | None,
        operands: list[Any],
        grouped: tuple[int, int],
    ) -> None:
        """Emit a direct convolution; a pointwise one without borders treats its pixels as one long row.

        `grouped`: the blocks of the image that a block of output reads, and how many blocks of output read the same
        ones, 0 if all do.
        """
        (span, joined), window, act = grouped, window_of(group), activation(group)
        image = replace(source.lying, blocks=span, total=source.blocks)
        residual_border = residual.border if residual else 0
        pointwise = window.kernel == window.stride == (1, 1)
        border = residual.border if residual else -1
        if not pointwise or source.border or target.border or residual_border or group.output in self.slices:
            chosen = tile(self.vector, joined or target.blocks, target.width)
            order = Order(1, _rows_first(source, target, window))
            conv = conv_kernels.Convolution(image, lying, window, chosen, order, self.most, joined)
            if self.skips(group):
                conv = replace(conv, tile=_inside(conv, self.vector))
                self.finish(group, target, conv_kernels.conv2d_inside, (conv, act, border), operands)
            else:
                self.finish(group, target, conv_kernels.conv2d, (conv, act, border), operands)
            return
        pixels = target.height * target.width
        chosen = tile(self.vector, joined or target.blocks, pixels)
        flat_source = replace(image, height=1, width=pixels)
        flat = replace(target.lying, height=1, width=pixels)
        parts = _parts(chosen, target.blocks, pixels, span * source.block)
        order = Order(parts, _rows_first(source, target, window))
        operands[0] = self.reshaped(operands[0], flat_source.shape)
        if residual:
            operands[3] = self.reshaped(operands[3], flat.shape)
        conv = conv_kernels.Convolution(flat_source, flat, window, chosen, order, self.most, joined)
        var = self.call(conv_kernels.conv2d, (conv, act, border), operands, self.type(flat.shape))
        whole = self.reshaped(var, target.lying.shape)
        self.images[group.output] = replace(target, var=whole, border=0)

    def method(self, group: Group, source: Image, target: Image, weight: Array, window: Window) -> half.Method:
        """Return the method of a convolution: Winograd needs 3x3, stride 1, whole blocks and enough tiles."""
        direct = half.Method(0, self.dtype)
        if self.skips(group):
            return direct
        plain = window == Window((3, 3), (1, 1), (1, 1)) and weight.shape[2:] == (3, 3)
        same = self.graph.values[group.output].shape[2:] == (source.height, source.width)
        if not (plain and same and source.block == self.c and source.border >= 1):
            return direct
        size = (source.height, source.width)
        if self.dtype == "float32":
            return half.Method(winograd.best(*size), self.dtype)
        choices = [direct]
        choices += [half.Method(m, t) for m, t in half.WINOGRAD if winograd.tiles(*size, m) >= winograd.FEWEST_TILES]
        layer = half.Layer(source.channels, target.channels, weight.shape[2] * weight.shape[3], size)
        return half.best(choices, layer, self.vector, self.most)

    def winograd_weight(self, weight: Array, source: Image, target: Image, method: half.Method) -> Any:
        """Transform OIHW weights to [O/c, (m + 2)^2, I/b, b, c]."""
        o, i, m = target.blocks, source.blocks, method.m
        whole = padded(winograd.transform_weight(weight, m), (0, o * self.c), (1, i * source.block))
        blocked = whole.reshape(o, self.c, i, source.block, (m + 2) ** 2).transpose(0, 4, 2, 3, 1)
        return self.constant(blocked, method.dtype)

    def conv_weight(self, weight: Array, source: Image, target: Image, apart: bool) -> Any:
        """Pack OIHW weights as [O/c, I/b, kh, kw, b, c], positions `apart` as [O/c, kh, kw, I/b, b, c]."""
        o, i = target.blocks, source.blocks
        whole = padded(weight, (0, o * self.c), (1, i * source.block))
        blocked = whole.reshape(o, self.c, i, source.block, *weight.shape[2:])
        return self.constant(blocked.transpose((0, 4, 5, 2, 3, 1) if apart else (0, 2, 4, 5, 3, 1)), self.dtype)

    # Transposed convolution.

    def conv2d_transpose(self, group: Group) -> None:
        source = self.image_of(group.inputs[0])
        weight, stride = self.weights[group.weights["weight"]], int(group.attrs["stride_h"])
        target, lying = self.target(group)
        chosen: Tile = tile(self.vector, target.blocks, source.width)
        args = (source.lying, lying, stride, activation(group), chosen, self.most)
        o, i = target.blocks, source.blocks
        whole = padded(weight, (0, i * source.block), (1, o * self.c))
        blocked = whole.reshape(i, source.block, o, self.c, stride, stride).transpose(2, 4, 5, 0, 1, 3)
        operands = [source.var, self.constant(blocked, self.dtype), self.bias([group], target.blocks * self.c)]
        self.finish(group, target, conv_kernels.conv2d_transpose, args, operands)


def _ungrouped(weight: Array, groups: int, span: int) -> Array:
    """Return the weights of a grouped convolution as those of one of `span` channels: zero between the groups."""
    if groups == 1:
        return weight
    o, i, *kernel = weight.shape
    whole = np.zeros((o, span, *kernel), np.float32)
    for g in range(groups):
        rows, first = slice(g * (o // groups), (g + 1) * (o // groups)), g * i % span
        whole[rows, first : first + i] = weight[rows]
    return whole


def _inside(conv: conv_kernels.Convolution, vector: Vector) -> Tile:
    """Return the tile that computes the fewest pixels of those that each column of the window reads inside the image.

    Every tile loads the weights again, which costs about a pixel's work.
    """
    window, width, blocks = conv.window, conv.source.width, conv.tile.blocks
    columns = np.arange(conv.target.width) * window.stride[1] - window.pad[1]
    reads = [columns + k * window.dilation[1] for k in range(window.kernel[1])]
    counts = [int(((at >= 0) & (at < width)).sum()) for at in reads]
    most = min((vector.registers - 3) // (blocks * vector.per_block) - 1, 8, conv.target.width)
    sizes = range(max(most, 1), most // 2, -1)
    return Tile(min(sizes, key=lambda n: sum(-(-count // n) for count in counts) * (n + 1)), blocks)


def _rows_first(source: Image, target: Image, window: Window) -> bool:
    """Return whether the larger operand, to be traversed once, is the image (rows) rather than the weights (groups)."""
    image = source.blocks * (source.height + 2 * source.border) * (source.width + 2 * source.border)
    return image >= target.blocks * target.block * source.blocks * window.kernel[0] * window.kernel[1]


def _parts(chosen: Tile, blocks: int, pixels: int, channels: int) -> int:
    """Return the number of tasks to cut a long row into: activations fit the cache, and every thread has work."""
    tiles = -(-pixels // chosen.pixels)
    cached = max(_CACHED // (4 * channels * chosen.pixels), 1)
    return min(tiles, max(-(-tiles // cached), -(-_TASKS // (blocks // chosen.blocks))))
