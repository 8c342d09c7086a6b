"""Values of an integer network while it is lowered for a GPU: where they lie, its border, and operators in fp32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from socsched.compiler.environment import relax
from socsched.compiler.layouts import physical_shape
from socsched.compiler.passes.relax_form import emit_general
from socsched.compiler.quantize.epilogue import Stored
from socsched.compiler.quantize.fixed_point import Array
from socsched.compiler.quantize.network import QuantisedGraph, Step
from socsched.compiler.targets.cuda import int8_kernels
from socsched.compiler.targets.cuda.emitter import Emitter
from socsched.compiler.targets.cuda.shapes import EDGE, round_up
from socsched.errors import CompileError
from socsched.graph.operators import TensorType


@dataclass(frozen=True, slots=True)
class Image:
    """An activation: `var` is [height * width, channels rounded up to 16] in bytes, or fp32 sums that leave."""

    var: Any
    channels: int
    height: int
    width: int
    dtype: str

    @property
    def lying(self) -> int:
        """Return the number of channels in memory."""
        return round_up(self.channels, EDGE)

    @property
    def pixels(self) -> int:
        """Return the number of rows in memory."""
        return self.height * self.width


class Int8Values(Emitter):
    """The values of an integer network computed so far."""

    dtype = "float32"  # of plain values

    def __init__(self, quantised: QuantisedGraph, weights: Mapping[str, Array], bound: bool) -> None:
        super().__init__(bound)
        self.q, self.graph, self.weights = quantised, quantised.graph, weights
        self.images: dict[str, Image] = {}
        self.left: dict[str, Any] = {}  # outputs in their border layout
        self.plain: dict[str, Any] = {}  # fp32 tensors, images in NCHW
        self.partial: dict[str, Any] = {}

    # The network's border, and operators in fp32.

    def at_border(self, name: str) -> TensorType:
        """Return an input or output of the network as it lies outside: images NHWC."""
        tensor = self.graph.values[name]
        return TensorType(tensor.shape, tensor.dtype, "NHWC" if len(tensor.shape) == 4 else "")

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        """Take in an input of the network, in the forms that its readers need."""
        readers = self.q.consumers(name)
        if len(tensor.shape) != 4:
            self.plain[name] = variable
            return
        if any(step.exact for step in readers) or name in self.graph.outputs:
            self.plain[name] = self.builder.emit(relax.op.permute_dims(variable, [0, 3, 1, 2]))
        if any(not step.exact for step in readers):
            _, channels, height, width = tensor.shape
            flat = self.viewed(variable, (height * width, channels), "float32")
            self.quantise(name, flat, plain=False)

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
        self.plain[step.output] = emit_general(self, step.group)

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

    def into(self, concat: str, kernel: Any, operands: list[Any], result: Any) -> Any:
        """Call a kernel that writes a slice of a concatenation into the tensor that holds the previous slice."""
        if concat in self.partial:
            operands = [*operands, self.partial[concat]]
            var = self.builder.emit(relax.call_tir_inplace(kernel, operands, [len(operands) - 1], result))
        else:
            var = self.builder.emit(relax.call_tir(kernel, operands, result))
        self.partial[concat] = var
        return var
