"""GPU lowering of an integer network: a Relax module of bound int8 kernels with packed weights and multipliers.

Activations stay [pixels, channels] in bytes from one end of the network to the other, channels rounded up to multiples
of 16.  At the network's border tensors are fp32 and images NHWC, quantised on entry; results leave as fp32 sums where
nothing else reads them.  Operators without int8 form are computed in fp32 by TVM's general schedules, on plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tirx
from socsched.compiler.layouts import physical_shape
from socsched.compiler.passes.relax_form import DTYPES, emit_general, emit_main, rounded
from socsched.compiler.quantize import epilogue as phases
from socsched.compiler.quantize.epilogue import Epilogue, Stored
from socsched.compiler.quantize.fixed_point import RATIO_SHIFT, Array, Scale
from socsched.compiler.quantize.network import Layer, QuantisedGraph, Step, planned_siblings, planned_slices
from socsched.compiler.targets.cuda import gemm, int8_kernels, lower
from socsched.compiler.targets.cuda.gemm import Bytes
from socsched.compiler.targets.cuda.int8_kernels import Operand
from socsched.compiler.targets.cuda.lower import Emitter, Lowered, planes_of
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tiles import EDGE, Convolution, Tile, int8_tile, round_up
from socsched.errors import CompileError
from socsched.graph.integers import CONVOLUTIONS
from socsched.graph.operators import TensorType
from socsched.graph.rules import ASYMMETRIC, SYMMETRICALLY

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
    w = phases.window(step)
    first, last = w.base + w.lift // w.phases, w.base + (w.phases - 1 + w.lift) // w.phases + w.taps[0] - 1
    pad = max(-first, last)
    return Window((2 * pad + 1, 2 * pad + 1), 1, pad, int(a["stride_h"]))


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


@dataclass(frozen=True, slots=True)
class Image(lower.Image):
    """An activation: `var` is [height * width, channels rounded up to 16] in bytes, or fp32 sums that leave."""

    dtype: str

    @property
    def lying(self) -> int:
        """Return the number of channels in memory."""
        return round_up(self.channels, EDGE)


class Int8Values(Emitter):
    """The values of an integer network computed so far."""

    dtype = "float32"  # of plain values

    def __init__(self, quantised: QuantisedGraph, weights: Mapping[str, Array], bound: bool) -> None:
        super().__init__(bound)
        self.q, self.graph, self.weights = quantised, quantised.graph, weights
        self.images: dict[str, Image] = {}
        self.left: dict[str, Any] = {}  # outputs in their border layout
        self.plain: dict[str, Any] = {}  # fp32 tensors, images in NCHW

    # The network's border, and operators in fp32.

    def at_border(self, name: str) -> TensorType:
        """Return an input or output of the network as it lies outside: images NHWC."""
        tensor = self.graph.values[name]
        return TensorType(tensor.shape, tensor.dtype, "NHWC" if len(tensor.shape) == 4 else "")

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        """Take in an input of the network, in the forms that its readers need."""
        readers = self.q.consumers(name)
        if len(tensor.shape) != 4:
            self.plain[name] = self.round(name, variable)
            return
        if any(step.exact for step in readers) or name in self.graph.outputs:
            self.plain[name] = self.round(name, self.builder.emit(relax.op.permute_dims(variable, [0, 3, 1, 2])))
        if any(not step.exact for step in readers):
            _, channels, height, width = tensor.shape
            flat = self.viewed(variable, (height * width, channels), "float32")
            self.quantise(name, flat, plain=False)

    def round(self, name: str, plain: Any) -> Any:
        """Return a plain value in fp32, rounded to the integers that a file states for it."""
        return rounded(self.builder.emit, plain, self.q.scales[name]) if name in self.q.rounded else plain

    def quantise(self, name: str, var: Any, plain: bool) -> None:
        """Convert fp32 values [pixels, channels], or `plain` [channels, pixels], to bytes."""
        _, channels, height, width = self.graph.values[name].shape
        stored, pixels, lying = self.stored(name), height * width, round_up(channels, EDGE)
        inverse = float(1.0 / self.q.scales[name].step)
        args = (pixels, channels, lying, inverse, stored, plain)
        quantised = self.call(int8_kernels.quantise, args, [var], (pixels, lying), stored.dtype)
        self.images[name] = Image(quantised, channels, height, width, stored.dtype)

    def image_of(self, name: str) -> Image:
        """Return a value in bytes, quantised if it was computed in fp32."""
        if name not in self.images:
            _, channels, height, width = self.graph.values[name].shape
            self.quantise(name, self.viewed(self.plain[name], (channels, height * width), "float32"), plain=True)
        return self.images[name]

    def plain_of(self, name: str) -> Any:
        """Return a value in fp32, as a plain tensor."""
        if name not in self.plain:
            image = self.images[name]
            args = (image.pixels, image.lying, image.channels, float(self.q.scales[name].step), image.dtype, True)
            shape = (image.channels, image.pixels)
            var = self.call(int8_kernels.dequantise, args, [image.var], shape, "float32")
            self.plain[name] = self.viewed(var, self.graph.values[name].shape, "float32")
        return self.plain[name]

    def compute_exactly(self, step: Step) -> None:
        """Leave an operator without int8 form to the general schedules; a scatter's result is made in bytes."""
        if step.group.kind == "scatter" and self.scatters_bytes(step):
            return self.scatter(step)
        if step.group.kind in ("pillar_features", "scatter"):
            raise CompileError(
                f"{self.graph.network.name}: {step.group.name}: no int8 rule for {step.group.kind} on GPUs together "
                "with other operators",
                "make it a stage of its own, or plan this stage in fp16",
            )
        self.plain[step.output] = self.round(step.output, emit_general(self, step.group))

    def scatters_bytes(self, step: Step) -> bool:
        """Return whether only int8 operators read a scatter's result, and its channels fill vectors."""
        readers, channels = self.q.consumers(step.output), self.graph.values[step.output].shape[1]
        given = all(name in self.graph.inputs for name in step.group.inputs)
        inner = step.output not in self.graph.outputs and not any(reader.exact for reader in readers)
        return given and inner and channels % EDGE == 0

    def scatter(self, step: Step) -> None:
        """Quantise pillars while they are placed, so that no fp32 canvas is written and read."""
        name, (_, channels, height, width) = step.output, self.graph.values[step.output].shape
        stored, operands = self.stored(name), [self.plain[value] for value in step.group.inputs]
        args = (channels, height, width, float(1.0 / self.q.scales[name].step), stored)
        pairs = self.call(int8_kernels.scatter, args, operands, (height * width, channels // 2), "float16")
        var = self.viewed(pairs, (height * width, channels), stored.dtype)
        self.images[name] = Image(var, channels, height, width, stored.dtype)

    def leave(self, name: str) -> Any:
        """Return an output of the network in its border layout, in fp32."""
        tensor = self.at_border(name)
        if name in self.left:
            return self.left[name]
        if name not in self.images:
            var = self.plain[name]
            return self.builder.emit(relax.op.permute_dims(var, [0, 2, 3, 1])) if tensor.layout else var
        image = self.images[name]
        var, shape = image.var, (image.pixels, image.channels)
        if image.dtype != "float32":
            step = float(self.q.scales[name].step)
            arguments = (image.pixels, image.lying, image.channels, step, image.dtype, False)
            var = self.call(int8_kernels.dequantise, arguments, [var], shape, "float32")
        elif image.lying != image.channels:
            part = (image.pixels, image.lying, 0, image.channels)
            var = self.call(int8_kernels.narrow, part, [var], shape, "float32")
        return self.viewed(var, physical_shape(tensor), "float32")

    # Kernels and constants.

    def stored(self, value: str) -> Stored:
        """Return how a value's integers are stored."""
        return Stored("int8" if self.q.scales[value].signed else "uint8", 0)


def lower_int8(quantised: QuantisedGraph, weights: Mapping[str, Array], arch: str, bound: bool = True) -> Lowered:
    """Return the GPU form of an integer network; `weights` are those of the operators computed in fp32.

    In its products' shapes channels and k count pairs of bytes.  Without `bound` kernels remain plain loops, which run
    on a CPU.  CompileError for unsupported operators.
    """
    if any(scale.zero for scale in quantised.scales.values()):
        raise CompileError(f"{quantised.graph.network.name}: {ASYMMETRIC}", SYMMETRICALLY)
    return _Lowering(quantised, weights, arch, bound).run()


class _Lowering(Int8Values):
    def __init__(self, quantised: QuantisedGraph, weights: Mapping[str, Array], arch: str, bound: bool) -> None:
        super().__init__(quantised, weights, bound)
        self.arch = arch
        computed = {step.output for step in quantised.steps if step.layer}
        self.slices = planned_slices(quantised, lambda step: computed.issuperset(step.group.inputs))
        self.siblings = planned_siblings(
            quantised, lambda step: step.output not in self.slices and step.group.attrs["kernel_w"] == 1
        )
        self.merged = {step.output for members in self.siblings.values() for step in members[1:]}
        self.products: list[tuple[Convolution, Tile]] = []

    def run(self) -> Lowered:
        inputs = tuple(self.at_border(name) for name in self.graph.inputs)
        outputs = tuple(self.at_border(name) for name in self.graph.outputs)
        scattered = {name for step in self.q.steps if step.group.kind == "scatter" for name in step.group.inputs}
        borders = zip((*self.graph.inputs, *self.graph.outputs), (*inputs, *outputs), strict=True)
        if any(min(tensor.shape, default=1) < 0 and name not in scattered for name, tensor in borders):
            raise CompileError(f"{self.graph.network.name}: no int8 form on GPUs for sizes that vary", "cut it there")
        rows = tirx.Var("P", "int64")
        variables = [
            relax.Var(name, relax.TensorType([rows if n < 0 else n for n in physical_shape(t)], DTYPES[t.dtype]))
            for name, t in zip(self.graph.inputs, inputs, strict=True)
        ]
        emit_main(self, inputs, variables, self.operators)
        return Lowered(self.builder.get(), inputs, outputs, tuple(self.products))

    def operators(self) -> None:
        for step in self.q.steps:
            if step.exact:
                self.compute_exactly(step)
            elif step.output not in self.merged:
                _EMITTERS[step.group.kind](self, step)

    # Operators.

    def convolution(self, step: Step) -> None:
        members = self.siblings.get(step.output, [step])
        source, leaves = self.image_of(step.group.inputs[0]), step.output in self.q.floats
        counts = [self.graph.values[member.output].shape[1] for member in members]
        outputs, pairs, window = round_up(sum(counts), EDGE), source.lying // 2, window_of(step)
        shape = Convolution(
            *(source.height, source.width, pairs, outputs, *window.kernel, window.stride, window.pad, window.scale),
            relu=step.relu,
            residual=bool(step.residual),
        )
        concat, first = self.slices.get(step.output, ("", 0))
        if concat:
            shape = replace(shape, first=first, total=self.graph.values[concat].shape[1])
        elif leaves and window.scale == 1:
            shape = replace(shape, planes=self.planes(counts, shape))
        stored = None if leaves else self.stored(step.output)
        residual = (0, step.factors[0]) if step.residual else None
        added = self.image_of(step.residual) if step.residual else None
        epilogue = Epilogue(stored, step.shift, step.relu, residual)
        form = Bytes(source.dtype == "int8", epilogue, added.dtype if added else "")
        tile = int8_tile(shape, self.arch)
        self.products.append((shape, tile))
        layers = [(member, member.layer) for member in members if member.layer is not None]
        matrix = kernel_matrix(layers, shape, round_up(shape.k, tile.depth * tile.splits))
        scale = None if leaves else self.q.scales[step.output]
        table = channel_table(layers, scale, shape.outputs)
        pixels = self.viewed(source.var, (source.pixels, pairs), "float16")
        var = self.product(shape, tile, form, [pixels, matrix, table], added, concat)
        if not concat:
            self.place(members, counts, shape, epilogue.dtype, var)

    def place(self, members: list[Step], counts: list[int], shape: Convolution, dtype: str, var: Any) -> None:
        """Record the location of a product's results; planes are already in border layout."""
        _, _, height, width = self.graph.values[members[0].output].shape
        start = 0
        for member, count in zip(members, counts, strict=True):
            if shape.planes:
                lying = physical_shape(self.at_border(member.output))
                self.left[member.output] = self.viewed(var, lying, dtype, 4 * start * shape.m)
            elif len(members) > 1:
                args = (shape.pixels, shape.outputs, start, count)
                part = self.call(int8_kernels.narrow, args, [var], (shape.pixels, count), dtype)
                lying = physical_shape(self.at_border(member.output))
                self.left[member.output] = self.viewed(part, lying, dtype)
            else:
                self.images[member.output] = Image(var, count, height, width, dtype)
            start += count

    def planes(self, counts: list[int], shape: Convolution) -> tuple[int, ...]:
        """Return the channels of each sum if all can be written to their outputs: in pairs, at aligned addresses."""
        alone = len(counts) == 1 and shape.outputs == counts[0]
        return () if alone else planes_of(counts, shape, 4)

    def product(
        self, shape: Convolution, tile: Tile, form: Bytes, operands: list[Any], added: Image | None, concat: str
    ) -> Any:
        pixels, matrix, table = operands
        weight, entries = relax.const(matrix, "float16"), relax.const(table, "int32")
        extra = [added.var] if added else []
        name = f"conv_{shape.key.replace(' ', '_').replace('-', '_')}"

        def make() -> Any:
            function = gemm.convolution(shape, tile, form)
            return schedule(function, tile, form.family) if self.bound else function

        if tile.splits > 1:
            # parts depend only on the source's form
            kernel = self.kernel((gemm.convolution, replace(shape, relu=False), tile, form.signed), name, make)
            parts = relax.TensorType((tile.splits, shape.m, shape.n), "int32")
            part = self.builder.emit(relax.call_tir(kernel, [pixels, weight], parts))
            kernel, given = self.made(gemm.reduction, (shape, tile.splits, form)), [part, entries, *extra]
        else:
            kernel, given = self.kernel((shape, tile, form), name, make), [pixels, weight, entries, *extra]
        result = relax.TensorType((shape.pixels, shape.total or shape.outputs), form.epilogue.dtype)
        if concat:
            return self.into(concat, kernel, given, result)
        return self.builder.emit(relax.call_tir(kernel, given, result))

    def concat(self, step: Step) -> None:
        name, (_, channels, height, width) = step.output, self.graph.values[step.output].shape
        dtype = "float32" if name in self.q.floats else self.stored(name).dtype
        if name not in self.partial:
            first = 0
            for value, factor in zip(step.group.inputs, step.factors, strict=True):
                source = self.image_of(value)
                kernel = self.rescaling(step, source, source.channels, (channels, first), factor)
                self.into(name, kernel, [source.var], relax.TensorType((height * width, channels), dtype))
                first += source.channels
        self.images[name] = Image(self.partial[name], channels, height, width, dtype)

    def rescaling(self, step: Step, source: Image, count: int, target: tuple[int, int], factor: int) -> Any:
        size, operand = (source.pixels, source.lying), Operand(source.dtype, factor)
        args = (size, count, target, operand, self.stored(step.output), step.relu, RATIO_SHIFT)
        return self.made(int8_kernels.rescale, args)

    def add(self, step: Step) -> None:
        left, right = (self.image_of(value) for value in step.group.inputs)
        stored = self.stored(step.output)
        ours, theirs = (Operand(i.dtype, f) for i, f in zip((left, right), step.factors, strict=True))
        args = (left.pixels, left.lying, ours, theirs, stored, step.relu, RATIO_SHIFT)
        var = self.call(int8_kernels.add, args, [left.var, right.var], (left.pixels, left.lying), stored.dtype)
        self.images[step.output] = replace(left, var=var, dtype=stored.dtype)

    def relu(self, step: Step) -> None:
        source, stored = self.image_of(step.group.inputs[0]), self.stored(step.output)
        kernel = self.rescaling(step, source, source.lying, (source.lying, 0), step.factors[0])
        result = relax.TensorType((source.pixels, source.lying), stored.dtype)
        var = self.builder.emit(relax.call_tir(kernel, [source.var], result))
        self.images[step.output] = replace(source, var=var, dtype=stored.dtype)

    def max_pool(self, step: Step) -> None:
        source, a = self.image_of(step.group.inputs[0]), step.group.attrs
        _, _, height, width = self.graph.values[step.output].shape
        stored = self.stored(step.output)
        window = (int(a["kernel_h"]), int(a["kernel_w"]), int(a["stride_h"]), int(a["pad"]), height, width)
        args = (source.lying, source.height, source.width, window, stored)
        var = self.call(int8_kernels.max_pool, args, [source.var], (height * width, source.lying), stored.dtype)
        self.images[step.output] = Image(var, source.channels, height, width, stored.dtype)


_EMITTERS: Mapping[str, Callable[[_Lowering, Step], None]] = {
    **dict.fromkeys(CONVOLUTIONS, _Lowering.convolution),
    "concat": _Lowering.concat,
    "add": _Lowering.add,
    "relu": _Lowering.relu,
    "max_pool": _Lowering.max_pool,
}
