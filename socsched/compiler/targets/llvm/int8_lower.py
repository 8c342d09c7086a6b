"""CPU lowering of an integer network: a Relax module of int8 kernels, with weights and multipliers as packed constants.

As in `lower`, activations stay in channel blocks with a border from one end of the network to the other, here with one
byte per element.  At the network's own border tensors are fp32 with the layouts of `lower`, so that a stage's precision
does not affect other stages: they are quantised on entry; results leave as fp32 sums where nothing else reads them.
Operators without an int8 form are computed by `lower`'s rules on dequantised values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.environment import relax
from socsched.compiler.layouts import physical_shape
from socsched.compiler.passes.relax_form import DTYPES, emit_main, rounded
from socsched.compiler.quantize import epilogue as phases
from socsched.compiler.quantize.epilogue import Epilogue, Stored
from socsched.compiler.quantize.fixed_point import RATIO_SHIFT, Array, Scale
from socsched.compiler.quantize.network import QuantisedGraph, Step, planned_siblings, planned_slices
from socsched.compiler.targets.llvm import int8_kernels, kernels
from socsched.compiler.targets.llvm.images import EDGE, Emitter, Image
from socsched.compiler.targets.llvm.int8_dot import Dot
from socsched.compiler.targets.llvm.int8_kernels import Canvas, Operand
from socsched.compiler.targets.llvm.lower import Exact, Lowered
from socsched.compiler.targets.llvm.vector import Tile, Vector, window_of
from socsched.errors import CompileError
from socsched.graph.integers import CONVOLUTIONS
from socsched.graph.operators import TensorType

QUAD = 4
"""Channels of a pixel that a byte product takes at once."""
STRIPS = 24
"""Strips that a canvas has at least, if it has as many rows: work for the cores of any processor here."""


def lower_int8(quantised: QuantisedGraph, weights: Mapping[str, Array], vector: Vector, dot: Dot) -> Lowered:
    """Return the CPU form of an integer network; `weights` are those of the operators computed in fp32.

    `dot` must suit the target the module is built for.
    """
    return _Lowering(quantised, weights, vector, dot).run()


class _Lowering(Emitter):
    def __init__(self, quantised: QuantisedGraph, weights: Mapping[str, Array], vector: Vector, dot: Dot) -> None:
        self.q, self.vector, self.dot = quantised, vector, dot
        self.exact = Exact(quantised.graph, weights, vector)
        super().__init__(quantised.graph, self.exact.builder, vector.block, "float32")
        self.slices = planned_slices(
            quantised, lambda step: not any(self.graph.values[name].shape[1] % self.c for name in step.group.inputs)
        )
        self.siblings = planned_siblings(quantised, lambda step: self.at_border(step.output).layout == "NCHW")
        self.canvases: dict[str, Any] = {}

    def run(self) -> Lowered:
        inputs = tuple(self.at_border(name) for name in self.graph.inputs)
        outputs = tuple(self.at_border(name) for name in self.graph.outputs)
        variables = [
            relax.Var(name, self.type(physical_shape(tensor), DTYPES[tensor.dtype]))
            for name, tensor in zip(self.graph.inputs, inputs, strict=True)
        ]
        merged = {step.output for members in self.siblings.values() for step in members[1:]}

        def operators() -> None:
            for step in self.q.steps:
                if step.exact:
                    self.compute_exactly(step)
                elif step.output not in merged:
                    _EMITTERS[step.group.kind](self, step)

        emit_main(self, inputs, variables, operators)
        return Lowered(self.builder.get(), inputs, outputs)

    # Layout at the network's border and between its operators.

    def at_border(self, name: str) -> TensorType:
        return self.exact.at_border(name)

    def stored(self, value: str) -> Stored:
        return stored(self.q.scales[value], self.dot)

    def border(self, value: str) -> int:
        """Return the border `value` needs: the reach of its convolutions, and `EDGE` where it leaves unchanged."""
        if value in self.q.floats:
            return EDGE if self.at_border(value).layout != "NCHW" else 0
        reads = [step for step in self.q.consumers(value) if step.layer and value in step.group.inputs]
        return max([0, *(phases.reach(step) for step in reads)])

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        if self.is_canvas(name):
            self.canvases[name] = variable
            return
        self.exact.enter(name, tensor, variable)
        self.round(name)
        if name in self.images or all(step.exact for step in self.q.consumers(name)):
            return
        if tensor.layout != "NCHW":
            variable = self.reshaped(variable, physical_shape(tensor)[1:])
        self.quantise(name, -1 if tensor.layout == "NCHW" else EDGE, variable)

    def is_canvas(self, name: str) -> bool:
        """Return whether one convolution alone reads an input, of so few channels that it rounds them itself."""
        shape, readers = self.graph.values[name].shape, self.q.consumers(name)
        alone = len(readers) == 1 and not readers[0].exact and readers[0].residual != name
        taps = alone and readers[0].group.kind in CONVOLUTIONS and name not in self.graph.outputs
        return taps and shape[1] <= QUAD and self.at_border(name).layout == "NCHW"

    def canvas(self, name: str, step: Step) -> tuple[Canvas, Image]:
        """Return an input that the convolution `step` rounds, and how its bytes would lie."""
        _, channels, height, width = self.graph.values[name].shape
        stored, rows = self.stored(name), self.graph.values[step.output].shape[2] // phases.window(step).phases
        image = Image(self.canvases[name], channels, height, width, QUAD, self.border(name), stored.dtype)
        return Canvas(channels, float(1.0 / self.q.scales[name].step), stored, strip(rows)), image

    def quantise(self, name: str, edge: int, variable: Any) -> None:
        """Convert an fp32 value, in blocks with a border `edge`, or plain (-1), to bytes."""
        _, channels, height, width = self.graph.values[name].shape
        readers = [step for step in self.q.consumers(name) if not step.exact]
        taps = all(step.group.kind in CONVOLUTIONS and step.residual != name for step in readers)
        block = min(-(-channels // QUAD) * QUAD, self.c) if taps else self.c  # few channels need no whole block
        scale, stored = self.q.scales[name], self.stored(name)
        image = Image(None, channels, height, width, block, self.border(name), stored.dtype)
        args = (channels, edge, image.lying, float(1.0 / scale.step), stored)
        self.images[name] = self.image(image, int8_kernels.quantise, args, [variable])

    def round(self, name: str) -> None:
        """Round a value in fp32 to the integers that a file states for it."""
        if name not in self.q.rounded:
            return
        shape = self.graph.values[name].shape
        if len(shape) == 4 and shape[0] == 1:
            self.image_of(name)
            self.exact.plain.pop(name, None)
        else:
            self.exact.plain[name] = rounded(self.builder.emit, self.exact.plain_of(name), self.q.scales[name])
        self.exact.images.pop(name, None)

    def image_of(self, name: str) -> Image:
        """Return a value in bytes, quantised if it was computed in fp32: from whole blocks, if it lies in them."""
        if name not in self.images:
            image = self.exact.images.get(name)
            if image is not None and image.block == self.c <= image.channels:
                self.quantise(name, image.border, image.var)
            else:
                self.quantise(name, -1, self.exact.plain_of(name))
        return self.images[name]

    def compute_exactly(self, step: Step) -> None:
        """Let `lower` emit an operator that has no int8 form: in blocks where it has a rule for them."""
        plain, images = self.exact.plain, self.exact.images
        lacking = [name for name in dict.fromkeys(step.group.inputs) if name not in plain and name not in images]
        for name in lacking:
            images[name] = self.dequantised(name, self.exact.border(name))
        taken = self.exact.rule(step.group) is not None
        for name in lacking:
            if not taken or images[name].block != self.c:
                plain[name] = self.unpacked(images.pop(name), self.graph.values[name], 0)
        self.exact.emit_group(step.group)
        self.round(step.output)

    def leave(self, name: str) -> Any:
        if name in self.plain:
            return self.plain[name]
        if name not in self.images:
            return self.exact.leave(name)
        tensor, image = self.at_border(name), self.images[name]
        if name not in self.q.floats:
            image = self.dequantised(name, 0 if tensor.layout == "NCHW" else EDGE)
        if tensor.layout == "NCHW":
            return self.unpacked(image, tensor, 0)
        return self.reshaped(image.var, physical_shape(tensor))

    def dequantised(self, name: str, border: int) -> Image:
        """Return a value of bytes in fp32, in blocks with a border."""
        image = self.images[name]
        target = replace(image, border=border, dtype="float32")
        args = (image.lying, target.lying, float(self.q.scales[name].step), self.stored(name))
        return self.image(target, int8_kernels.dequantise, args, [image.var])

    # Kernels and constants.

    def nothing(self, block: int = 0, dtype: str = "") -> Any:
        """Return a placeholder for an operand that a kernel does not read."""
        dtype = dtype or self.dot.dtype
        return relax.const(np.zeros((1, 1, 1, block or self.c), dtype), dtype)

    def place(self, name: str, target: Image, make: Any, args: tuple[Any, ...], operands: list[Any]) -> None:
        """Emit a kernel; a slice of a concatenation is written into the tensor that holds the previous slice."""
        if name not in self.slices:
            self.images[name] = self.image(target, make, args, operands)
            return
        self.into(self.slices[name][0], target, make, args, operands)

    # Operators.

    def convolution(self, step: Step) -> None:
        members = self.siblings.get(step.output, [step])
        name, window = step.group.inputs[0], phases.window(step)
        canvas, source = self.canvas(name, step) if name in self.canvases else (None, self.image_of(name))
        concat, first = self.slices.get(step.output, (step.output, 0))
        channels = sum(self.graph.values[member.output].shape[1] for member in members)
        _, _, height, width = self.graph.values[step.output].shape
        leaves = step.output in self.q.floats
        border = 0 if len(members) > 1 else self.border(concat)
        target = Image(None, channels, height, width, self.c, border, "float32" if leaves else self.dot.dtype)
        lying = target.lying
        if concat != step.output:
            lying = replace(lying, total=self.graph.values[concat].shape[1] // self.c, first=first // self.c)
        added, residual, extra = None, None, self.nothing(dtype="uint8")
        if step.residual:
            added = self.image_of(step.residual)
            if added.block != self.c:
                raise CompileError(f"{step.output}: an addition of {added.channels} channels fills no block")
            residual, extra = (self.stored(step.residual).zero, step.factors[0]), added.var
        epilogue = Epilogue(None if leaves else self.stored(step.output), step.shift, step.relu, residual)
        chosen = int8_tile(self.vector, self.dot, target.blocks, width // window.phases)
        args = (source.lying, lying, window, added.lying if added else None, epilogue, self.dot, chosen)
        operands = [source.var, *self.constants(members, source, target, leaves), extra]
        if canvas is None:
            self.place(step.output, target, int8_kernels.conv2d, args, operands)
        else:
            self.place(step.output, target, int8_kernels.conv_canvas, (canvas, *args), operands)
        if len(members) > 1:
            self.split(members)

    def constants(self, members: list[Step], source: Image, target: Image, leaves: bool) -> list[Any]:
        """Return the weights and table of convolutions that are computed as one."""
        scale = None if leaves else self.q.scales[members[0].output]
        zero = self.stored(members[0].group.inputs[0])
        phased, rows = [], []
        for step in members:
            assert step.layer is not None
            taps = phases.by_phase(step, step.layer)
            phased.append(taps)
            rows.append(phases.table(taps, step, step.layer, zero, scale, 1, len(taps)))
        weight = packed_weight(np.concatenate(phased), target.blocks, self.c, source.blocks, source.block)
        flat = np.concatenate(rows, axis=3)  # [1, phases, rows, channels]
        whole = np.zeros((*flat.shape[:3], target.blocks * self.c), np.int32)
        whole[..., : flat.shape[3]] = flat
        blocked = whole[0].reshape(*flat.shape[1:3], target.blocks, self.c).transpose(2, 0, 1, 3)
        return [relax.const(weight, "int8"), relax.const(np.ascontiguousarray(blocked), "int32")]

    def concat(self, step: Step) -> None:
        name = step.output
        _, channels, height, width = self.graph.values[name].shape
        dtype = "float32" if name in self.q.floats else self.dot.dtype
        target = Image(None, channels, height, width, self.c, self.border(name), dtype)
        if name not in self.partial:
            self.concat_copy(step, target)
        self.images[name] = replace(target, var=self.partial[name])

    def concat_copy(self, step: Step, target: Image) -> None:
        sources = [self.image_of(value) for value in step.group.inputs]
        if any(source.channels % self.c or source.block != self.c for source in sources):
            raise CompileError(f"{step.output}: only channels in whole blocks of {self.c} can be concatenated on CPUs")
        first = 0
        for value, factor, source in zip(step.group.inputs, step.factors, sources, strict=True):
            lying = replace(target.lying, blocks=source.blocks, total=target.blocks, first=first)
            args = (self.operand(value, source, factor), None, lying, *self.rescaled(step))
            self.into(step.output, target, int8_kernels.combine, args, [source.var, self.nothing()])
            first += source.blocks

    def operand(self, value: str, source: Image, factor: int) -> Operand:
        return Operand(source.lying, self.stored(value).zero, factor)

    def rescaled(self, step: Step) -> tuple[Stored, bool, int]:
        return self.stored(step.output), step.relu, RATIO_SHIFT

    def add(self, step: Step) -> None:
        """Emit an addition, or with one operand a standalone ReLU."""
        sources = [self.image_of(value) for value in step.group.inputs]
        left, *rest = map(self.operand, step.group.inputs, sources, step.factors)
        target = replace(sources[0], var=None, border=self.border(step.output))
        args = (left, rest[0] if rest else None, target.lying, *self.rescaled(step))
        operands = [sources[0].var, sources[1].var if rest else self.nothing(target.block)]
        self.images[step.output] = self.image(target, int8_kernels.combine, args, operands)

    def max_pool(self, step: Step) -> None:
        source = self.image_of(step.group.inputs[0])
        _, _, height, width = self.graph.values[step.output].shape
        target = replace(source, var=None, height=height, width=width, border=self.border(step.output))
        args = (source.lying, target.lying, window_of(step.group), "", self.stored(step.output).zero)
        self.images[step.output] = self.image(target, kernels.pool, args, [source.var])


_EMITTERS: Mapping[str, Callable[[_Lowering, Step], None]] = {
    **dict.fromkeys(CONVOLUTIONS, _Lowering.convolution),
    "concat": _Lowering.concat,
    "add": _Lowering.add,
    "relu": _Lowering.add,
    "max_pool": _Lowering.max_pool,
}


def strip(rows: int) -> int:
    """Return how many rows of output share the rows of a canvas that are rounded for them.

    Neighbours round some rows twice, so they are many, yet so few that all cores have work; strips are equally high.
    """
    return next(n for n in range(max(rows // STRIPS, 1), 0, -1) if rows % n == 0)


def stored(scale: Scale, dot: Dot) -> Stored:
    """Return the memory representation of values of `scale` on a target with the byte product `dot`."""
    return Stored(dot.dtype, dot.zero - scale.low)


def packed_weight(phased: Array, blocks: int, c: int, in_blocks: int, ci: int) -> Array:
    """Return [O, phases, I, kh, kw] as [blocks, phases, in_blocks, kh, kw, ci/4, c, 4]; missing channels are zero."""
    out, phases, into, kh, kw = phased.shape
    whole = np.zeros((blocks * c, phases, in_blocks * ci, kh, kw), np.int8)
    whole[:out, :, :into] = phased
    split = whole.reshape(blocks, c, phases, in_blocks, ci // 4, 4, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 6, 7, 4, 1, 5))


def int8_tile(vector: Vector, dot: Dot, out_blocks: int, width: int) -> Tile:
    """Return the register tile: blocks of outputs that share a broadcast, pixels that share weights.

    Among the tiles whose sums fit the registers, the one that computes the fewest pixels twice (the last tile of a row
    is shifted back over the previous one), then the largest.
    """
    per_block = -(-vector.block // dot.lanes)
    sums, most = (24, 5) if vector.registers >= 32 else (8, 2)
    choices = []
    for blocks in (n for n in (5, 4, 3, 2, 1) if out_blocks % n == 0 and n * per_block <= max(most, per_block)):
        limit = min(sums // (blocks * per_block), width, 9)
        for pixels in range(max(1, limit // 2), max(1, limit) + 1):
            wasted = -(-width // pixels) * pixels / width
            loads = (pixels + blocks) / (pixels * blocks)
            choices.append((wasted * (1 + 0.3 * loads), -pixels * blocks, Tile(pixels, blocks)))
    return min(choices, key=lambda choice: choice[:2])[2]
