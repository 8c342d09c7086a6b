"""Values of an fp16 lowering for GPUs: images by pixels, plain tensors, and the network's border."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from socsched.compiler.environment import relax, tirx
from socsched.compiler.layouts import physical_shape
from socsched.compiler.targets.cuda import image_kernels, kernels, rules
from socsched.compiler.targets.cuda.emitter import Emitter
from socsched.compiler.targets.cuda.shapes import Convolution, Tile
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import TensorType

_DTYPES = {"fp32": "float16", "fp16": "float16", "int32": "int32", "int64": "int64"}


@dataclass(frozen=True, slots=True)
class Image:
    """An activation: `var` is [height * width, up(channels)]."""

    var: Any
    channels: int
    height: int
    width: int

    @property
    def lying(self) -> int:
        """Return the number of channels in memory."""
        return rules.lying(self.channels)

    @property
    def pixels(self) -> int:
        return self.height * self.width


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Relax module whose `main` takes and returns tensors with the layouts in `inputs` and `outputs`.

    `products` are its matrix products in order, with their tiles; `general` the reasons for which operators were left
    to the general schedules.
    """

    module: Any
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    products: tuple[tuple[Convolution, Tile], ...]
    general: tuple[str, ...] = ()


class Values(Emitter):
    """The values of a network while it is lowered, by name: each as an image, as a plain tensor, or as both."""

    def __init__(self, graph: Graph, bound: bool) -> None:
        super().__init__(bound)
        self.graph = graph
        self.dynamic = tirx.Var("P", "int64")
        self.images: dict[str, Image] = {}
        self.plain: dict[str, Any] = {}  # images in NCHW
        self.held: dict[str, tuple[Any, int]] = {}  # plain tensors as rows, with the columns that these have in memory
        self.left: dict[str, Any] = {}  # outputs in their border layout

    # The network's border.

    def at_border(self, name: str) -> TensorType:
        tensor = self.graph.values[name]
        dtype = "fp16" if tensor.dtype == "fp32" else tensor.dtype
        return TensorType(tensor.shape, dtype, _layout(tensor.shape))

    def physical(self, tensor: TensorType) -> list[Any]:
        return [self.dynamic if size < 0 else size for size in physical_shape(tensor)]

    def variable(self, name: str, tensor: TensorType) -> Any:
        return relax.Var(name, relax.TensorType(self.physical(tensor), _DTYPES[tensor.dtype]))

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        if tensor.layout != "NHWC":
            self.plain[name] = variable
            return
        _, channels, height, width = tensor.shape
        flat = self.viewed(variable, (height * width, channels))
        image = Image(flat, channels, height, width)
        if image.lying != channels:
            image = replace(image, var=self.copied(flat, image.pixels, channels, 0, channels, image.lying))
        self.images[name] = image

    def leave(self, name: str) -> Any:
        tensor = self.at_border(name)
        if name in self.left:
            return self.left[name]
        if tensor.layout != "NHWC":
            return self.plain_of(name)
        image = self.image_of(name)
        var = image.var
        if image.lying != image.channels:
            var = self.copied(var, image.pixels, image.lying, 0, image.channels, image.channels)
        return self.viewed(var, self.physical(tensor))

    def image_of(self, name: str) -> Image:
        """Return a value as an image, converted if it was computed as a plain tensor."""
        if name not in self.images:
            _, channels, height, width = self.graph.values[name].shape
            pixels, lying = height * width, rules.lying(channels)
            flat = self.viewed(self.plain_of(name), (channels, pixels))
            var = self.call(image_kernels.packed, (pixels, channels, lying), [flat], (pixels, lying))
            self.images[name] = Image(var, channels, height, width)
        return self.images[name]

    def plain_of(self, name: str) -> Any:
        """Return a value as a plain tensor, converted if it is an image."""
        if name in self.held and name not in self.plain:
            (var, held), (*lead, columns) = self.held[name], self.graph.values[name].shape
            narrow = self.copied(var, prod(lead), held, 0, columns, columns)
            self.plain[name] = self.viewed(narrow, self.graph.values[name].shape)
        if name not in self.plain:
            image = self.images[name]
            args, shape = (image.pixels, image.lying, image.channels), (image.channels, image.pixels)
            var = self.call(image_kernels.unpacked, args, [image.var], shape)
            self.plain[name] = self.viewed(var, self.graph.values[name].shape)
        return self.plain[name]

    def copied(self, var: Any, pixels: int, source: int, start: int, count: int, total: int) -> Any:
        return self.call(kernels.copy, (pixels, source, start, count, total, 0, False), [var], (pixels, total))

    def image(self, group: Group, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any]) -> None:
        _, channels, height, width = self.graph.values[group.output].shape
        var = self.call(make, args, operands, (height * width, rules.lying(channels)))
        self.images[group.output] = Image(var, channels, height, width)


def _layout(shape: tuple[int, ...]) -> str:
    """Return the layout of a tensor at the border: images by pixels, batches of images plain."""
    if len(shape) != 4:
        return ""
    return "NHWC" if shape[0] == 1 else "NCHW"
