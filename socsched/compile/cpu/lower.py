"""CPU lowering: the fused operators of a network as a Relax module of blocked kernels, weights packed in as constants.

Activations stay in channel blocks with a zero border from one end of the network to the other.  At the network's own
border an image whose channels fill whole blocks stays blocked with a border of one pixel, so that stages on one engine
hand tensors over as they lie; any other image is plain NCHW there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.compile.cpu import kernels, pillar_kernels, winograd
from socsched.compile.cpu.vector import Vector, tile
from socsched.compile.environment import relax, tirx
from socsched.compile.fusion import Graph, Group
from socsched.compile.layouts import physical_shape
from socsched.compile.relax_import import DTYPES
from socsched.errors import CompileError
from socsched.graph.operators import TensorType

EDGE = 1
"""Zero border (pixels) of blocked images that cross a stage border."""

_FEWEST_TILES = 12  # below, transforming and reading four times the weights costs more than it saves

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A Relax module whose `main` takes and returns tensors that lie as `inputs` and `outputs` say."""

    module: Any
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class _Image:
    """A blocked activation: `var` is [ceil(channels / block), height + 2 border, width + 2 border, block]."""

    var: Any
    channels: int
    height: int
    width: int
    block: int
    border: int

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.block)


def lower(graph: Graph, weights: Mapping[str, Array], vector: Vector) -> Lowered:
    """Return the CPU form of `graph`; CompileError for an operator without CPU kernel."""
    return _Lowering(graph, weights, vector).run()


def unruled(graph: Graph) -> str:
    """Return why a network cannot be lowered by the rules here, empty when it can."""
    for group in graph.groups:
        if group.kind not in _EMITTERS:
            return f"no rule for {group.kind}"
        a = group.attrs
        if a.get("uneven") or a.get("groups", 1) != 1 or a.get("dilation", 1) != 1:
            return f"no rule for {group.kind} with groups, dilation or uneven padding"
        if group.kind in ("conv2d", "max_pool") and a["stride_h"] != a["stride_w"]:
            return f"no rule for {group.kind} with different strides"
        shapes = [graph.values[name].shape for name in (*group.inputs, group.output)]
        if group.kind in ("add", "relu", "concat") and any(len(shape) != 4 for shape in shapes):
            return f"no rule for {group.kind} of anything but images"
        if group.kind == "add" and (len(group.inputs) != 2 or len(set(shapes)) > 1):
            return "no rule for additions that broadcast"
    return ""


class _Lowering:
    def __init__(self, graph: Graph, weights: Mapping[str, Array], vector: Vector) -> None:
        self.graph, self.weights, self.vector = graph, weights, vector
        self.c = vector.block
        self.builder = relax.BlockBuilder()
        self.dynamic = tirx.Var("P", "int64")
        self.images: dict[str, _Image] = {}
        self.plain: dict[str, Any] = {}
        self.kernels: dict[Any, Any] = {}
        self.slices: dict[str, tuple[Group, int]] = {}
        self.partial: dict[str, Any] = {}
        self.siblings: dict[str, list[Group]] = {}
        self.merged: set[str] = set()

    def run(self) -> Lowered:
        inputs = tuple(self.at_border(name) for name in self.graph.inputs)
        variables = [self.variable(name, t) for name, t in zip(self.graph.inputs, inputs, strict=True)]
        self.plan_slices()
        self.plan_siblings()
        with self.builder.function("main", variables, attrs={"num_input": len(variables)}):
            with self.builder.dataflow():
                for name, tensor, variable in zip(self.graph.inputs, inputs, variables, strict=True):
                    self.enter(name, tensor, variable)
                for group in self.graph.groups:
                    self.emit_group(group)
                results = tuple(self.leave(name) for name in self.graph.outputs)
                output = self.builder.emit_output(results)
            self.builder.emit_func_output(output)
        return Lowered(self.builder.get(), inputs, tuple(self.at_border(name) for name in self.graph.outputs))

    # Layout at the network's border and between its operators.

    def at_border(self, name: str) -> TensorType:
        tensor = self.graph.values[name]
        if len(tensor.shape) != 4:
            return TensorType(tensor.shape, tensor.dtype)
        blocked = tensor.shape[1] % self.c == 0
        return TensorType(tensor.shape, tensor.dtype, f"NCHW{self.c}c+{EDGE}" if blocked else "NCHW")

    def physical(self, tensor: TensorType) -> list[Any]:
        return [self.dynamic if size < 0 else size for size in physical_shape(tensor)]

    def variable(self, name: str, tensor: TensorType) -> Any:
        return relax.Var(name, self.type(self.physical(tensor), DTYPES[tensor.dtype]))

    def type(self, shape: Any, dtype: str = "float32") -> Any:
        return relax.TensorType(shape, dtype)

    def border(self, value: str) -> int:
        """The zero border `value` needs: its convolutions' padding, and `EDGE` where it leaves blocked."""
        pads = [int(g.attrs["pad"]) for g in self.graph.consumers(value) if g.kind == "conv2d"]
        return max([0, *pads, EDGE if value in self.graph.outputs and self.at_border(value).layout != "NCHW" else 0])

    def enter(self, name: str, tensor: TensorType, variable: Any) -> None:
        if len(tensor.shape) != 4:
            self.plain[name] = variable
            return
        _, channels, height, width = tensor.shape
        need = self.border(name)
        if tensor.layout != "NCHW":
            lying = _Image(self.unbatched(variable, tensor), channels, height, width, self.c, EDGE)
            self.images[name] = lying if need <= EDGE else self.copied(lying, need)
            return
        block = min(channels, self.c)  # A three-channel image needs no padding to a whole block.
        image = _Image(None, channels, height, width, block, need)
        args = (channels, block, height, width, need)
        self.images[name] = self.image(image, kernels.pack, args, [variable])

    def leave(self, name: str) -> Any:
        if name in self.plain:
            return self.plain[name]
        image, tensor = self.images[name], self.at_border(name)
        if tensor.layout == "NCHW":
            return self.unpacked(image, tensor, 0)
        if image.border != EDGE:
            image = self.copied(image, EDGE)
        return self.builder.emit(relax.op.reshape(image.var, self.physical(tensor)))

    def unbatched(self, variable: Any, tensor: TensorType) -> Any:
        if tensor.shape[0] != 1:
            raise CompileError(f"{self.graph.network.name}: batch {tensor.shape[0]}, only 1 is lowered for CPUs")
        return self.builder.emit(relax.op.reshape(variable, self.physical(tensor)[1:]))

    def copied(self, image: _Image, border: int) -> _Image:
        target = _Image(None, image.channels, image.height, image.width, image.block, border)
        args = (image.blocks, image.block, image.height, image.width, image.border, border, image.blocks, 0, False)
        return self.image(target, kernels.copy, args, [image.var])

    def unpacked(self, image: _Image, tensor: TensorType, offset: int) -> Any:
        _, channels, height, width = tensor.shape
        args = (image.blocks, image.block, channels, offset, height, width, image.border)
        return self.call(kernels.unpack, args, [image.var], self.type(tensor.shape))

    # Kernels and constants.

    def call(self, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any], result: Any) -> Any:
        return self.builder.emit(relax.call_tir(self.kernel(make, args), operands, result))

    def kernel(self, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        key = (make, args)
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(make(*args), make.__name__)
        return self.kernels[key]

    def image(self, target: _Image, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any]) -> _Image:
        b = target.border
        shape = (target.blocks, target.height + 2 * b, target.width + 2 * b, target.block)
        var = self.call(make, args, operands, self.type(shape))
        return _Image(var, target.channels, target.height, target.width, target.block, b)

    def bias(self, groups: list[Group], channels: int) -> Any:
        values = np.concatenate([self.raw_bias(group) for group in groups])
        return relax.const(_padded(values, (0, channels)).reshape(-1, self.c), "float32")

    def raw_bias(self, group: Group) -> Array:
        if "bias" in group.weights:
            return np.asarray(self.weights[group.weights["bias"]], np.float32)
        return np.zeros(int(group.attrs["out_channels"]), np.float32)

    # Concatenations written in place, and convolutions that share their input.

    def plan_slices(self) -> None:
        """Where every input of an in-place concatenation goes: (the concatenation, its first block there)."""
        for group in self.graph.groups:
            if not self.graph.in_place(group):
                continue
            if any(self.graph.values[value].shape[1] % self.c for value in group.inputs):
                continue
            first = 0
            for value in group.inputs:
                self.slices[value] = (group, first)
                first += self.graph.values[value].shape[1] // self.c

    def plan_siblings(self) -> None:
        """1x1 convolutions of one input whose results all leave as plain NCHW are one kernel (a detection head)."""
        heads: dict[tuple[str, bool], list[Group]] = {}
        for group in self.graph.groups:
            plain = group.output in self.graph.outputs and self.at_border(group.output).layout == "NCHW"
            pointwise = group.kind == "conv2d" and group.attrs["kernel_h"] == group.attrs["stride_h"] == 1
            if pointwise and plain and not group.attrs["pad"] and not self.graph.consumers(group.output):
                heads.setdefault((group.inputs[0], group.relu), []).append(group)
        self.siblings = {members[0].output: members for members in heads.values()}
        self.merged = {group.output for members in heads.values() for group in members[1:]}

    # Operators.

    def emit_group(self, group: Group) -> None:
        if group.output in self.merged:
            return
        emit = _EMITTERS.get(group.kind)
        if emit is None:
            raise CompileError(f"{self.graph.network.name}: {group.name}: no CPU kernel for {group.kind}")
        emit(self, group)

    def conv2d(self, group: Group) -> None:
        members = self.siblings.get(group.output, [group])
        source = self.images[group.inputs[0]]
        _, _, height, width = self.graph.values[group.output].shape
        channels = sum(self.graph.values[member.output].shape[1] for member in members)
        weight = np.concatenate([self.weights[member.weights["weight"]] for member in members])
        target = _Image(None, channels, height, width, self.c, self.border_of(group, members))
        stride, (first, total) = int(group.attrs["stride_h"]), self.placed(group, target)
        self.reject_unusual(group)
        if self.suits_winograd(group, source, weight):
            return self.winograd(group, source, target, weight)
        args = (
            *(source.blocks, source.block, target.blocks, self.c, source.height, source.width),
            *(weight.shape[2:], stride, int(group.attrs["pad"]), source.border, target.border),
            *(total, first, group.relu, tile(self.vector, target.blocks, width, stride)),
        )
        constants = [self.conv_weight(weight, source, target), self.bias(members, target.blocks * self.c)]
        self.finish(group, target, kernels.conv2d, args, [source.var, *constants])
        if len(members) > 1:
            self.split(members)

    def suits_winograd(self, group: Group, source: _Image, weight: Array) -> bool:
        """Say whether Winograd pays: 3x3, stride 1, whole blocks of channels, and enough tiles to share weights."""
        plain = weight.shape[2:] == (3, 3) and group.attrs["stride_h"] == 1 and group.attrs["pad"] == 1
        enough = winograd.tiles(source.height, source.width) >= _FEWEST_TILES
        return bool(plain and enough and source.block == self.c and source.border >= 1)

    def winograd(self, group: Group, source: _Image, target: _Image, weight: Array) -> None:
        first, total = self.placed(group, target)
        shape = (source.blocks, source.block, target.blocks, self.c, source.height, source.width)
        together, held = winograd.group(winograd.tiles(source.height, source.width), self.vector)
        args = (*shape, source.border, target.border, total, first, group.relu, together, held)
        padded = _padded(winograd.transformed(weight), (0, target.blocks * self.c), (1, source.blocks * source.block))
        blocked = padded.reshape(target.blocks, self.c, source.blocks, source.block, 36).transpose(0, 4, 2, 3, 1)
        constant = relax.const(np.ascontiguousarray(blocked), "float32")
        operands = [source.var, constant, self.bias([group], target.blocks * self.c)]
        self.finish(group, target, winograd.conv2d_winograd, args, operands)

    def reject_unusual(self, group: Group) -> None:
        a = group.attrs
        if a["groups"] != 1 or a["dilation"] != 1 or a["stride_h"] != a["stride_w"]:
            raise CompileError(f"{group.name}: grouped, dilated or anisotropic convolutions have no CPU kernel")

    def split(self, members: list[Group]) -> None:
        image, offset = self.images.pop(members[0].output), 0
        for member in members:
            tensor = self.graph.values[member.output]
            self.plain[member.output] = self.unpacked(image, tensor, offset)
            offset += tensor.shape[1]

    def border_of(self, group: Group, members: list[Group]) -> int:
        if len(members) > 1:
            return 0
        return self.border(self.slices[group.output][0].output if group.output in self.slices else group.output)

    def placed(self, group: Group, target: _Image) -> tuple[int, int]:
        """First block of the operator's result, and blocks of the tensor it is written into."""
        if group.output not in self.slices:
            return 0, target.blocks
        concat, first = self.slices[group.output]
        return first, self.graph.values[concat.output].shape[1] // self.c

    def finish(self, group: Group, target: _Image, make: Any, args: tuple[Any, ...], operands: list[Any]) -> None:
        """Emit the kernel; a slice of a concatenation goes into the tensor the slice before it was written to."""
        if group.output not in self.slices:
            self.images[group.output] = self.image(target, make, args, operands)
            return
        name = self.slices[group.output][0].output
        b = target.border
        shape = (self.graph.values[name].shape[1] // self.c, target.height + 2 * b, target.width + 2 * b, self.c)
        if name not in self.partial:
            self.partial[name] = self.call(make, args, operands, self.type(shape))
            return
        operands = [*operands, self.partial[name]]
        call = relax.call_tir_inplace(self.kernel(make, args), operands, [len(operands) - 1], self.type(shape))
        self.partial[name] = self.builder.emit(call)

    def conv_weight(self, weight: Array, source: _Image, target: _Image) -> Any:
        """OIHW to [O/c, I/b, kh, kw, b, c]; missing channels are zero."""
        o, i = target.blocks, source.blocks
        padded = _padded(weight, (0, o * self.c), (1, i * source.block))
        blocked = padded.reshape(o, self.c, i, source.block, *weight.shape[2:]).transpose(0, 2, 4, 5, 3, 1)
        return relax.const(np.ascontiguousarray(blocked), "float32")

    def conv2d_transpose(self, group: Group) -> None:
        source = self.images[group.inputs[0]]
        weight = self.weights[group.weights["weight"]]
        stride = int(group.attrs["stride_h"])
        if weight.shape[2:] != (stride, stride) or group.attrs["pad"]:
            raise CompileError(f"{group.name}: only transposed convolutions with kernel = stride have a CPU kernel")
        _, channels, height, width = self.graph.values[group.output].shape
        target = _Image(None, channels, height, width, self.c, self.border_of(group, [group]))
        first, total = self.placed(group, target)
        args = (
            *(source.blocks, source.block, target.blocks, self.c, source.height, source.width, stride),
            *(source.border, target.border, total, first, group.relu, tile(self.vector, target.blocks, source.width)),
        )
        o, i = target.blocks, source.blocks
        padded = _padded(weight, (0, i * source.block), (1, o * self.c))
        blocked = padded.reshape(i, source.block, o, self.c, stride, stride).transpose(2, 4, 5, 0, 1, 3)
        constant = relax.const(np.ascontiguousarray(blocked), "float32")
        operands = [source.var, constant, self.bias([group], target.blocks * self.c)]
        self.finish(group, target, kernels.conv2d_transpose, args, operands)

    def concat(self, group: Group) -> None:
        name, (_, channels, height, width) = group.output, self.graph.values[group.output].shape
        target = _Image(None, channels, height, width, self.c, self.border(name))
        if name not in self.partial:
            self.concat_copy(group, target)
        self.images[name] = _Image(self.partial[name], channels, height, width, self.c, target.border)

    def concat_copy(self, group: Group, target: _Image) -> None:
        sources = [self.images[value] for value in group.inputs]
        if group.attrs["axis"] != 1 or any(source.channels % self.c or source.block != self.c for source in sources):
            raise CompileError(f"{group.name}: only channels in whole blocks of {self.c} can be concatenated on CPUs")
        first, b = 0, target.border
        shape = (target.blocks, target.height + 2 * b, target.width + 2 * b, self.c)
        for source in sources:
            args = (source.blocks, self.c, source.height, source.width, source.border, b, target.blocks, first, False)
            first += source.blocks
            if group.output not in self.partial:
                self.partial[group.output] = self.call(kernels.copy, args, [source.var], self.type(shape))
                continue
            operands = [source.var, self.partial[group.output]]
            call = relax.call_tir_inplace(self.kernel(kernels.copy, args), operands, [1], self.type(shape))
            self.partial[group.output] = self.builder.emit(call)

    def max_pool(self, group: Group) -> None:
        source = self.images[group.inputs[0]]
        _, channels, height, width = self.graph.values[group.output].shape
        target = _Image(None, channels, height, width, source.block, self.border(group.output))
        a = group.attrs
        args = (
            *(source.blocks, source.block, source.height, source.width),
            *(int(a["kernel_h"]), int(a["stride_h"]), int(a["pad"]), source.border, target.border),
        )
        self.images[group.output] = self.image(target, kernels.max_pool, args, [source.var])

    def add(self, group: Group) -> None:
        left, right = (self.images[value] for value in group.inputs)
        target = _Image(None, left.channels, left.height, left.width, left.block, self.border(group.output))
        args = (
            *(left.blocks, left.block, left.height, left.width),
            *(left.border, right.border, target.border, group.relu),
        )
        self.images[group.output] = self.image(target, kernels.add, args, [left.var, right.var])

    def relu(self, group: Group) -> None:
        source = self.images[group.inputs[0]]
        b = self.border(group.output)
        target = _Image(None, source.channels, source.height, source.width, source.block, b)
        args = (source.blocks, source.block, source.height, source.width, source.border, b, source.blocks, 0, True)
        self.images[group.output] = self.image(target, kernels.copy, args, [source.var])

    def pillar_features(self, group: Group) -> None:
        slots = self.graph.values[group.inputs[0]].shape[1]
        channels = int(group.attrs["out_channels"])
        lanes = next(n for n in (self.vector.lanes, 4, 1) if channels % n == 0)
        weight = np.ascontiguousarray(self.weights[group.weights["weight"]].T, np.float32)
        args = (slots, channels, lanes, group.options["pillar"], *group.options["origin"])
        operands = [self.plain[value] for value in group.inputs]
        operands += [relax.const(weight, "float32"), relax.const(self.raw_bias(group), "float32")]
        result = self.type([self.dynamic, channels])
        self.plain[group.output] = self.call(pillar_kernels.pillar_net, args, operands, result)

    def scatter(self, group: Group) -> None:
        _, channels, ny, nx = self.graph.values[group.output].shape
        if channels % self.c:
            raise CompileError(f"{group.name}: {channels} channels do not fill blocks of {self.c}")
        target = _Image(None, channels, ny, nx, self.c, self.border(group.output))
        args = (target.blocks, self.c, ny, nx, target.border)
        operands = [self.plain[value] for value in group.inputs]
        self.images[group.output] = self.image(target, pillar_kernels.scatter, args, operands)


def _padded(array: Array, *sizes: tuple[int, int]) -> Array:
    """`array` with the given axes filled up with zeros to the given sizes."""
    widths = [(0, 0)] * array.ndim
    for axis, size in sizes:
        widths[axis] = (0, size - array.shape[axis])
    return np.pad(np.asarray(array, np.float32), widths)


_EMITTERS: dict[str, Callable[[_Lowering, Group], None]] = {
    "conv2d": _Lowering.conv2d,
    "conv2d_transpose": _Lowering.conv2d_transpose,
    "concat": _Lowering.concat,
    "max_pool": _Lowering.max_pool,
    "add": _Lowering.add,
    "relu": _Lowering.relu,
    "pillar_features": _Lowering.pillar_features,
    "scatter": _Lowering.scatter,
}
