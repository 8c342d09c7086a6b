"""Storage of a network's values while its CPU form is built: blocked images, plain tensors, and conversions.

Activations stay in channel blocks with a zero border from one end of the network to the other.  At the network's own
border an image whose channels fill whole blocks stays blocked with a border of one pixel, so that stages on one engine
exchange tensors without conversion; any other image is plain NCHW there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from socsched.compiler import script
from socsched.compiler.environment import relax, tirx
from socsched.compiler.layouts import padded, physical_shape
from socsched.compiler.passes.relax_form import DTYPES
from socsched.compiler.targets.llvm import kernels
from socsched.compiler.targets.llvm.vector import Lying, Vector
from socsched.errors import CompileError
from socsched.graph.epilogues import SKIPPED, inside
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import TensorType

EDGE = 1
"""Zero border (pixels) of blocked images that cross a stage border."""

_BLOCKED = (
    *("conv2d", "conv2d_transpose", "max_pool", "avg_pool", "add", "multiply", "concat", "scatter"),
    *("relu", "silu", "sigmoid", "clip", "leaky_relu"),
)
"""Operators whose images leave in blocks; all other results leave plain."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Image:
    """A blocked activation of `dtype`: `var` is [blocks, height + 2 border, width + 2 border, block]."""

    var: Any
    channels: int
    height: int
    width: int
    block: int
    border: int
    dtype: str = "float32"

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.block)

    @property
    def lying(self) -> Lying:
        return Lying(self.blocks, self.block, self.height, self.width, self.border, dtype=self.dtype)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.lying.shape


class Emitter:
    """The values of a network that is lowered, each blocked, plain or both, and the kernels made so far.

    Numbers that no kernel states otherwise are of `dtype`; `c` is the channels of a block.
    """

    def __init__(self, graph: Graph, builder: Any, c: int, dtype: str) -> None:
        self.graph, self.builder, self.c, self.dtype = graph, builder, c, dtype
        self.images: dict[str, Image] = {}
        self.plain: dict[str, Any] = {}
        self.kernels: dict[Any, Any] = {}
        self.partial: dict[str, Any] = {}
        self.wholes: dict[Any, Any] = {}

    def type(self, shape: Any, dtype: str = "") -> Any:
        """Return a tensor type, by default of the dtype in which numbers are stored."""
        return relax.TensorType(shape, dtype or self.dtype)

    def call(self, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any], result: Any) -> Any:
        return self.builder.emit(relax.call_tir(self.kernel(make, args), operands, result))

    def kernel(self, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        key = (make, args)
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(script.kernel(make, args), make.__name__)
        return self.kernels[key]

    def image(self, target: Image, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any]) -> Image:
        return replace(target, var=self.call(make, args, operands, self.type(target.shape, target.dtype)))

    def into(self, name: str, target: Image, make: Any, args: tuple[Any, ...], operands: list[Any]) -> None:
        """Emit a kernel that fills a part of the concatenation `name`: into the tensor of the other parts."""
        _, height, width, _ = target.shape
        result = self.type((self.graph.values[name].shape[1] // self.c, height, width, self.c), target.dtype)
        if name not in self.partial:
            self.partial[name] = self.call(make, args, operands, result)
            return
        operands = [*operands, self.partial[name]]
        call = relax.call_tir_inplace(self.kernel(make, args), operands, [len(operands) - 1], result)
        self.partial[name] = self.builder.emit(call)

    def reshaped(self, var: Any, shape: Any) -> Any:
        """Return a tensor in another shape: as a view, which TVM makes of one reshape and not of several."""
        var = self.wholes.get(var, var)
        view = self.builder.emit(relax.op.reshape(var, shape))
        self.wholes[view] = var
        return view

    def unpacked(self, image: Image, tensor: TensorType, offset: int) -> Any:
        args = (image.lying, tensor.shape[1], offset)
        return self.call(kernels.unpack, args, [image.var], self.type(tensor.shape))

    def split(self, members: Sequence[Any]) -> None:
        """Unpack the results of operators (groups or steps) that one kernel has computed."""
        image, offset = self.images.pop(members[0].output), 0
        for member in members:
            tensor = self.graph.values[member.output]
            self.plain[member.output] = self.unpacked(image, tensor, offset)
            offset += tensor.shape[1]


class Images(Emitter):
    """The values of a graph in floating point while it is lowered; `packed`: weights by form."""

    def __init__(self, graph: Graph, weights: Mapping[str, Array], vector: Vector) -> None:
        super().__init__(graph, relax.BlockBuilder(), vector.block, vector.dtype)
        self.weights, self.vector = weights, vector
        self.dynamic = tirx.Var("P", "int64")
        self.packed: dict[Any, Any] = {}
        self.slices: dict[str, tuple[Group, int]] = {}

    # Layout at the network's border and between its operators.

    def at_border(self, name: str) -> TensorType:
        tensor = self.graph.values[name]
        dtype = "fp16" if tensor.dtype == "fp32" and self.dtype == "float16" else tensor.dtype
        if len(tensor.shape) != 4:
            return TensorType(tensor.shape, dtype)
        maker = next((group.kind for group in self.graph.groups if group.output == name), "relu")
        fits = dtype in ("fp32", "fp16") and tensor.shape[1] % self.c == 0  # bytes stay as a camera gives them
        blocked = fits and tensor.shape[0] == 1 and maker in _BLOCKED
        return TensorType(tensor.shape, dtype, f"NCHW{self.c}c+{EDGE}" if blocked else "NCHW")

    def physical(self, tensor: TensorType) -> list[Any]:
        return [self.dynamic if size < 0 else size for size in physical_shape(tensor)]

    def variable(self, name: str, tensor: TensorType) -> Any:
        return relax.Var(name, self.type(self.physical(tensor), DTYPES[tensor.dtype]))

    def border(self, value: str) -> int:
        """Return the zero border `value` needs: its convolutions' padding, and `EDGE` where it leaves blocked."""
        readers = [group for group in self.graph.consumers(value) if group.kind == "conv2d"]
        pads = [_padding(group) for group in readers if not self.skips(group)]
        return max([0, *pads, EDGE if value in self.graph.outputs and self.at_border(value).layout != "NCHW" else 0])

    def skips(self, group: Group) -> bool:
        """Return whether a convolution reads no border, because most of its window lies outside of the image."""
        given, made = (self.graph.values[name].shape for name in (group.inputs[0], group.output))
        channels = given[1]
        whole = group.attrs["groups"] == 1 and channels % self.c == 0 and self.dtype == "float32"
        return whole and inside(group.attrs, given, made) < SKIPPED

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        if tensor.layout in ("", "NCHW"):
            self.plain[name] = variable
            return
        _, channels, height, width = tensor.shape
        var = self.reshaped(variable, self.physical(tensor)[1:])
        self.images[name] = Image(var, channels, height, width, self.c, EDGE, self.dtype)

    def leave(self, name: str) -> Any:
        tensor = self.at_border(name)
        if tensor.layout in ("", "NCHW"):
            return self.plain_of(name)
        image = self.image_of(name)
        if image.border != EDGE:
            image = self.copied(image, EDGE)
        return self.reshaped(image.var, self.physical(tensor))

    def image_of(self, name: str) -> Image:
        """Return a value in blocks with the border its readers need, packed or copied if necessary."""
        need = self.border(name)
        if name not in self.images:
            batch, channels, height, width = self.graph.values[name].shape
            if batch != 1:
                raise CompileError(f"{self.graph.network.name}: batch {batch}, only 1 is lowered for CPUs")
            block = channels if self.only_convolved(name) else self.c
            image = Image(None, channels, height, width, block, need, self.dtype)
            args = (channels, image.lying)
            self.images[name] = self.image(image, kernels.pack, args, [self.plain[name]])
        elif self.images[name].border < need:
            self.images[name] = self.copied(self.images[name], need)
        return self.images[name]

    def plain_of(self, name: str) -> Any:
        """Return a value as plain NCHW, unpacked if necessary."""
        if name not in self.plain:
            self.plain[name] = self.unpacked(self.images[name], self.graph.values[name], 0)
        return self.plain[name]

    def only_convolved(self, name: str) -> bool:
        """Return whether a value has few channels and only convolutions read it, so that no whole block is needed."""
        readers = self.graph.consumers(name)
        plain = all(g.kind == "conv2d" and g.inputs[0] == name and len(g.inputs) == 1 for g in readers)
        return self.graph.values[name].shape[1] < self.c and plain and name not in self.graph.outputs

    def is_image(self, *names: str) -> bool:
        """Return whether all these values can be stored in whole blocks of the vector unit's size."""
        return self.graph.is_image(*names)

    def copied(self, image: Image, border: int) -> Image:
        target = replace(image, var=None, border=border)
        return self.image(target, kernels.map_kernel, (image.lying, target.lying, ()), [image.var])

    # Kernels, constants, results.

    def constant(self, array: Array, dtype: str = "float32") -> Any:
        return relax.const(np.ascontiguousarray(array, dtype), dtype)

    def weights_as(self, form: Any, groups: list[Group], make: Callable[[], Any]) -> Any:
        """Return the constant that holds the weights of operators in a form; those of several levels are made once."""
        key = (form, *(group.weights["weight"] for group in groups))
        if key not in self.packed:
            self.packed[key] = make()
        return self.packed[key]

    def bias(self, groups: list[Group], channels: int, dtype: str = "float32") -> Any:
        values = np.concatenate([self.raw_bias(group) for group in groups])
        return self.constant(padded(values, (0, channels)).reshape(-1, self.c), dtype)

    def raw_bias(self, group: Group) -> Array:
        if "bias" in group.weights:
            return np.asarray(self.weights[group.weights["bias"]], np.float32).reshape(-1)
        return np.zeros(int(group.attrs["out_channels"]), np.float32)

    def target(self, group: Group, channels: int = 0) -> tuple[Image, Lying]:
        """Return the destination of the result of `group`: the image, and its place in the whole tensor."""
        _, own, height, width = self.graph.values[group.output].shape
        name = self.slices[group.output][0].output if group.output in self.slices else group.output
        image = Image(None, channels or own, height, width, self.c, self.border(name), self.dtype)
        if group.output not in self.slices:
            return image, image.lying
        concat, first = self.slices[group.output]
        total = self.graph.values[concat.output].shape[1] // self.c
        return image, replace(image.lying, total=total, first=first)

    def finish(self, group: Group, target: Image, make: Any, args: tuple[Any, ...], operands: list[Any]) -> None:
        """Emit the kernel; a slice of a concatenation is written into the tensor that holds the previous slice."""
        if group.output not in self.slices:
            self.images[group.output] = self.image(target, make, args, operands)
            return
        self.into(self.slices[group.output][0].output, target, make, args, operands)


def _padding(group: Group) -> int:
    attrs = group.attrs
    return max(int(attrs["pad"]), int(attrs.get("pad_h", 0)), int(attrs.get("pad_w", 0)))
