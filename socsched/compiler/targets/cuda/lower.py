"""GPU lowering in fp16: the fused operators of a network as a Relax module of bound kernels with packed weights.

Activations stay [pixels, channels] in fp16 from one end of the network to the other, which is NHWC with its channels
rounded up to whole 16-byte groups; sums are fp32.  At the network's border images are plain NHWC.  An operator without
a rule is left alone to TVM's general schedules, on plain tensors in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from socsched.compiler import script
from socsched.compiler.environment import relax, tirx
from socsched.compiler.layouts import padded, physical_shape
from socsched.compiler.passes.relax_form import emit_general, emit_main
from socsched.compiler.targets.cuda import gemm, kernels, rules, sequence_kernels, sequence_lower
from socsched.compiler.targets.cuda.activation import beyond_relu
from socsched.compiler.targets.cuda.kernels import Window
from socsched.compiler.targets.cuda.recurrent import spelt_out
from socsched.compiler.targets.cuda.rules import axis_table
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tiles import EDGE, VECTOR, Convolution, Tile, estimate, gpu, round_up, tile_for
from socsched.compiler.targets.llvm.fuse import activation, fuse_activations, gelus, hard_gates, with_numbers
from socsched.compiler.targets.llvm.vector import window_of
from socsched.errors import CompileError
from socsched.graph import index_maps
from socsched.graph.batches import one_by_one
from socsched.graph.fusion import Graph, Group
from socsched.graph.index_maps import NOTHING, Moves
from socsched.graph.operators import TensorType

# Fusion beyond bias and ReLU for GPUs: gates and activations merged into the operator that feeds only them.
#
# The activation is kept in `Group.options["activation"]` (`cuda.activation`).


def fuse(graph: Graph) -> Graph:
    """Return `graph` with activations inside the operators that feed only them, recurrent layers spelt out, batches of
    images one by one.
    """
    return _gelus(gelus(fuse_activations(hard_gates(spelt_out(one_by_one(graph, stacks=True))))))


def _gelus(graph: Graph) -> Graph:
    """Merge a GELU into the dense layer that it follows."""
    for gelu in graph.groups:
        dense = graph.maker(gelu.inputs[0]) if gelu.kind == "gelu" else None
        if dense is None or dense.kind != "dense" or dense.relu or "activation" in dense.options:
            continue
        if graph.used_once(dense.output):
            fused = replace(dense, output=gelu.output, options={**dense.options, **gelu.options})
            kept = (fused if group is gelu else group for group in graph.groups if group is not dense)
            graph = replace(graph, groups=tuple(kept))
    return graph


Array = np.ndarray[Any, Any]

_ALIGNED = 64  # bytes: alignment that kernels may assume of a tensor's address
_DENSE = 64
"""Outputs of a dense layer are rounded up to this, for wide tiles, unless they are a multiple of `_WIDTH`."""
_WIDTH = 32
_STRIPS, _BUSY = (1, 2, 4), 128
"""Pixels of a row that a thread of a depthwise convolution computes, and the threads that keep an SM busy."""
_SUMMED = 32 * kernels.STRIP
"""Pixels that a kernel sums at once."""


class Emitter:
    """The module's builder and its kernels; without `bound` kernels remain plain loops."""

    def __init__(self, bound: bool) -> None:
        self.bound = bound
        self.builder = relax.BlockBuilder()
        self.kernels: dict[Any, Any] = {}
        self.partial: dict[str, Any] = {}  # concatenations of which some slices are written

    def viewed(self, var: Any, shape: Any, dtype: str = "float16", offset: int = 0) -> Any:
        """Return the memory of `var`, from byte `offset` on, as a tensor of another shape and type; no kernel."""
        place = tirx.IntImm("int64", offset)
        return self.builder.emit(relax.op.memory.view(var, relax.ShapeExpr(shape), dtype, place))

    def call(
        self, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any], shape: Any, dtype: str = "float16"
    ) -> Any:
        """Return the result of the kernel that `make` writes for `args`."""
        return self.builder.emit(relax.call_tir(self.made(make, args), operands, relax.TensorType(shape, dtype)))

    def made(self, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the module's kernel that `make` writes for `args`."""
        return self.kernel((make, args), make.__name__, lambda: self.spread(script.kernel(make, args)))

    def into(self, concat: str, kernel: Any, operands: list[Any], result: Any) -> Any:
        """Call a kernel that writes a slice of a concatenation into the tensor that holds the previous slice."""
        if concat in self.partial:
            operands = [*operands, self.partial[concat]]
            var = self.builder.emit(relax.call_tir_inplace(kernel, operands, [len(operands) - 1], result))
        else:
            var = self.builder.emit(relax.call_tir(kernel, operands, result))
        self.partial[concat] = var
        return var

    def spread(self, function: Any) -> Any:
        """Return a kernel with its loops on the GPU's threads, if kernels are bound."""
        bind = kernels.by_columns if kernels.SHARED in function.attrs else kernels.spread
        return bind(function) if self.bound else function

    def kernel(self, key: Any, name: str, make: Callable[[], Any]) -> Any:
        """Return the module's kernel of a key, made when it is first asked for."""
        if key not in self.kernels:
            self.kernels[key] = self.builder.add_func(make(), name)
        return self.kernels[key]


_DTYPES = {"fp32": "float16", "fp16": "float16", "int32": "int32", "int64": "int64", "uint8": "uint8", "bool": "bool"}


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
    """The values of a network while it is lowered, by name: each as an image, as a plain tensor, or as both.

    Those in `moves` have no memory until somebody asks for one of these forms.
    """

    def __init__(self, graph: Graph, moves: Moves, bound: bool) -> None:
        super().__init__(bound)
        self.graph, self.moves = graph, moves
        self.dynamic = tirx.Var("P", "int64")
        self.images: dict[str, Image] = {}
        self.plain: dict[str, Any] = {}  # images in NCHW
        self.held: dict[str, tuple[Any, int]] = {}  # plain tensors as rows, with the columns that these have in memory
        self.deferred: dict[str, Callable[[Any], Any]] = {}  # values whose rows are computed in the order that is asked
        self.ordered: dict[str, tuple[Any, Array]] = {}  # tensors with the place of each element in memory
        self.by_pixels: set[str] = set()  # moved values that are images
        self.left: dict[str, Any] = {}  # outputs in their border layout

    # The network's border.

    def at_border(self, name: str) -> TensorType:
        tensor = self.graph.values[name]
        if tensor.dtype != "fp32":  # bytes of a camera: plain
            return tensor
        images = {1: "NHWC"}.get(tensor.shape[0], "NCHW") if len(tensor.shape) == 4 else ""  # batches are plain
        return TensorType(tensor.shape, "fp16", images)

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
            if name not in self.plain and self.elsewhere(name):
                wanted = np.full((pixels, lying), NOTHING, np.int32)
                wanted[:, :channels] = np.arange(channels * pixels, dtype=np.int32).reshape(channels, pixels).T
                self.images[name] = Image(self.arranged(name, wanted), channels, height, width)
                return self.images[name]
            flat = self.viewed(self.plain_of(name), (channels, pixels))
            var = self.call(kernels.packed, (pixels, channels, lying), [flat], (pixels, lying))
            self.images[name] = Image(var, channels, height, width)
        return self.images[name]

    def plain_of(self, name: str) -> Any:
        """Return a value as a plain tensor, converted if it is an image."""
        if name in self.held and name not in self.plain:
            (var, held), (*lead, columns) = self.held[name], self.graph.values[name].shape
            narrow = self.copied(var, prod(lead), held, 0, columns, columns)
            self.plain[name] = self.viewed(narrow, self.graph.values[name].shape)
        if name not in self.plain and name not in self.images and self.elsewhere(name):
            shape = self.graph.values[name].shape
            self.plain[name] = self.arranged(name, np.arange(prod(shape), dtype=np.int32).reshape(shape))
        if name not in self.plain:
            image = self.images[name]
            args, shape = (image.pixels, image.lying, image.channels), (image.channels, image.pixels)
            var = self.call(kernels.unpacked, args, [image.var], shape)
            self.plain[name] = self.viewed(var, self.graph.values[name].shape)
        return self.plain[name]

    def elsewhere(self, name: str) -> bool:
        """Return whether a value has no form of its own yet."""
        return name in self.moves.found or name in self.ordered or name in self.deferred

    def arranged(self, name: str, wanted: Array) -> Any:
        """Return a value's elements in another order, as a tensor of the shape of `wanted`: a view where it can be one.

        `wanted`: the number of each element in the value, `NOTHING` for a zero.
        """
        moved = self.moves.of(name)
        later = self.deferred.get(moved.roots[0]) if moved.roots[0] not in self.plain else None
        if (
            later is not None
            and len(moved.roots) == 1
            and moved.factor == 1.0
            and self.moves.alone(name, moved.roots[0])
        ):
            columns = self.graph.values[moved.roots[0]].shape[-1]
            rows = index_maps.rows(np.where(wanted < 0, NOTHING, moved.index.reshape(-1)[wanted]), columns)
            if rows is not None:
                return self.viewed(later(rows), wanted.shape)
        sources, places, factor = self.placed(name)
        found = np.where(wanted < 0, NOTHING, places.reshape(-1)[wanted])
        first = index_maps.piece(found) if len(sources) == 1 and factor == 1.0 else None
        if first is not None and first * 2 % _ALIGNED == 0:
            return self.viewed(sources[0][0], found.shape, offset=first * 2)
        rows, width = index_maps.vectors(found)
        regular = index_maps.strides(rows) if len(sources) == 1 else None
        operands = [self.viewed(var, (size,)) for var, size in sources]
        sizes = tuple(size for _, size in sources)
        args: tuple[Any, ...] = (sizes, regular, rows.size, width, factor)
        if regular is None:
            operands.append(relax.const(rows, "int32"))
        shape = (rows.size, 1, width) if factor == 1.0 else (rows.size, width, 1)
        return self.viewed(self.call(kernels.picked, args, operands, shape), found.shape)

    def placed(self, name: str) -> tuple[list[tuple[Any, int]], Array, float]:
        """Return the tensors that hold a value, and their sizes; each element's place in them in a row; a factor."""
        direct = name in self.plain or name in self.images or name in self.held or name in self.ordered
        moved = self.moves.itself(name) if direct else self.moves.of(name)
        places, sources = moved.index, []
        first = start = 0
        for root in moved.roots:
            count = prod(self.graph.values[root].shape)
            var, size, order = self.laid_out(root)
            if len(moved.roots) > 1 or order is not None:
                inside = (moved.index >= first) & (moved.index < first + count)
                own = moved.index[inside] - first
                if places is moved.index:
                    places = moved.index.copy()
                places[inside] = (own if order is None else order[own]) + start
            sources.append((var, size))
            first, start = first + count, round_up(start + size, VECTOR)
        return sources, places, moved.factor

    def laid_out(self, name: str) -> tuple[Any, int, Array | None]:
        """Return the tensor that holds a value, its size, and each element's place in it, None where in order."""
        shape = self.graph.values[name].shape
        if name in self.moves.found and name not in self.plain and name not in self.images:
            (self.image_of if name in self.by_pixels else self.plain_of)(name)
        if name in self.deferred and name not in self.plain:
            self.plain[name] = self.viewed(self.deferred[name](None), shape)
        if name in self.plain:
            return self.plain[name], prod(shape), None
        if name in self.images:
            image = self.images[name]
            order = np.arange(image.pixels * image.lying, dtype=np.int32).reshape(image.pixels, image.lying)
            return image.var, image.pixels * image.lying, order[:, : image.channels].T.reshape(-1)
        if name in self.ordered:
            var, order = self.ordered[name]
            return var, prod(shape), order
        var, held = self.held[name]
        order = np.arange(prod(shape[:-1]) * held, dtype=np.int32).reshape(-1, held)
        return var, order.size, order[:, : shape[-1]].reshape(-1)

    def copied(self, var: Any, pixels: int, source: int, start: int, count: int, total: int) -> Any:
        return self.call(kernels.copy, (pixels, source, start, count, total), [var], (pixels, total))

    def image(self, group: Group, make: Callable[..., Any], args: tuple[Any, ...], operands: list[Any]) -> None:
        _, channels, height, width = self.graph.values[group.output].shape
        var = self.call(make, args, operands, (height * width, rules.lying(channels)))
        self.images[group.output] = Image(var, channels, height, width)


def lower(graph: Graph, weights: Mapping[str, Array], arch: str, bound: bool = True, sms: int = 0) -> Lowered:
    """Return the GPU form of `graph` for an architecture ("sm_87"); CompileError for an operator without any kernel.

    Without `bound` kernels remain plain loops, which run on a CPU.  `sms`: number of multiprocessors that tiles are
    chosen for, 0 for all of them.
    """
    return _Lowering(with_numbers(fuse(graph), weights), weights, arch, bound, sms).run()


class _Lowering(Values):
    dtype = "float16"  # of plain values

    def __init__(self, graph: Graph, weights: Mapping[str, Array], arch: str, bound: bool, sms: int = 0) -> None:
        self.judged = rules.judged(graph, weights)
        super().__init__(graph, self.judged.moves, bound)
        self.by_pixels = self.judged.images
        self.weights, self.arch, self.sms = weights, arch, sms
        gone = self.judged.elsewhere
        self.slices = rules.slices(graph, gone)
        self.siblings = rules.siblings(graph, gone)
        self.sums = rules.sums(graph, self.slices, gone)
        self.dense_sums = rules.dense_sums(graph, self.judged)
        joined = (member for members in self.siblings.values() for member in members[1:])
        self.merged = {group.output for group in (*joined, *self.sums.values(), *self.dense_sums.values())}
        self.products: list[tuple[Convolution, Tile]] = []

    def run(self) -> Lowered:
        inputs = tuple(self.at_border(name) for name in self.graph.inputs)
        variables = [self.variable(name, t) for name, t in zip(self.graph.inputs, inputs, strict=True)]
        emit_main(self, inputs, variables, self.operators)
        outputs = tuple(self.at_border(name) for name in self.graph.outputs)
        reasons = tuple(dict.fromkeys(self.judged.unruled.values()))
        return Lowered(self.builder.get(), inputs, outputs, tuple(self.products), reasons)

    def operators(self) -> None:
        for group in self.graph.groups:
            self.operator(group)

    def operator(self, group: Group) -> None:
        """Emit an operator, unless it is part of another or its readers do its work."""
        name, made = group.output, self.judged
        if name in made.inside or name in made.moves.found or name in self.merged:
            return
        if name in made.attentions:
            sequence_lower.attention(self, made.attentions[name])
        elif name in made.pools:
            sequence_lower.pooled(self, made.pools[name])
        elif name in made.plain:
            sequence_lower.emit(self, group)
        elif name in made.unruled:
            self.plain[name] = emit_general(self, group)
        else:
            _EMITTERS[group.kind](self, group)

    # Operators.

    def conv2d(self, group: Group) -> None:
        if rules.is_depthwise(group):
            self.depthwise(group)
            return
        if group.attrs.get("groups", 1) != 1:
            self.grouped(group)
            return
        members = self.siblings.get(group.output, [group])
        source, pad = self.with_border(group)
        weight = np.concatenate([self.weights[member.weights["weight"]] for member in members])
        outputs, _, kernel_h, kernel_w = weight.shape
        final = self.sums.get(group.output, group)
        shape = self.convolution(group, source, pad, round_up(outputs, EDGE), (kernel_h, kernel_w))
        if len(members) > 1:
            shape = replace(shape, planes=self.planes(members, shape))
        packed = padded(weight, (0, shape.outputs), (1, source.lying)).transpose(0, 2, 3, 1)
        operands = [source.var, *self.residual(group)]
        var = self.product(final, shape, packed.reshape(shape.n, -1), members, operands)
        if len(members) > 1:
            self.split(members, var, shape)
        elif final.output not in self.slices:
            _, channels, height, width = self.graph.values[final.output].shape
            self.images[final.output] = Image(self.narrowed(var, shape, channels), channels, height, width)

    def convolution(
        self, group: Group, source: Image, pad: int, outputs: int, kernel: tuple[int, int], groups: int = 1
    ) -> Convolution:
        """Return a convolution's shape, with what is merged into it."""
        final = self.sums.get(group.output, group)
        return Convolution(
            *(source.height, source.width, source.lying, outputs, *kernel),
            *(int(group.attrs["stride_h"]), pad),
            relu=final.relu,
            residual=final is not group,
            stride_w=0 if group.attrs["stride_w"] == group.attrs["stride_h"] else int(group.attrs["stride_w"]),
            dilation=int(group.attrs["dilation"]),
            activation=beyond_relu(activation(final)),
            inner=activation(group) if final is not group else (),
            groups=groups,
        )

    def residual(self, group: Group) -> list[Any]:
        """Return the image that is added to a convolution's result, if there is one."""
        total = self.sums.get(group.output)
        if total is None:
            return []
        return [self.image_of(next(value for value in total.inputs if value != group.output)).var]

    def grouped(self, group: Group) -> None:
        """Emit a convolution in groups as a product for each so many of them as is fastest, with zeros in between."""
        source, pad = self.with_border(group)
        weight = self.weights[group.weights["weight"]]
        outputs, own, *kernel = weight.shape
        count = int(group.attrs["groups"])
        total = outputs // count
        whole = source.lying // own
        shapes = {
            number: self.convolution(group, source, pad, whole * total, (kernel[0], kernel[1]), whole // number)
            for number in rules.merged(group)
        }
        number = min(shapes, key=lambda number: self.time_of(shapes[number]))
        packed = np.zeros((whole * total, *kernel, number * own), np.float32)
        for index in range(count):
            first = index % number * own
            rows = slice(index * total, (index + 1) * total)
            packed[rows, :, :, first : first + own] = weight[rows].transpose(0, 2, 3, 1)
        final = self.sums.get(group.output, group)
        operands = [source.var, *self.residual(group)]
        var = self.product(final, shapes[number], packed.reshape(len(packed), -1), [group], operands)
        if final.output not in self.slices:
            _, channels, height, width = self.graph.values[final.output].shape
            self.images[final.output] = Image(var, channels, height, width)

    def time_of(self, shape: Convolution) -> float:
        """Return the modelled time of a product with its best tile."""
        return estimate(shape, tile_for(shape, self.arch, self.sms), self.arch, self.sms)

    def with_border(self, group: Group) -> tuple[Image, int]:
        """Return a convolution's input and the padding left to it: none where the sides differ, which are copied."""
        source, a = self.image_of(group.inputs[0]), group.attrs
        if not a.get("uneven"):
            return source, int(a["pad"])
        _, _, height, width = self.graph.values[group.output].shape
        tall = (height - 1) * int(a["stride_h"]) + int(a["dilation"]) * (int(a["kernel_h"]) - 1) + 1
        wide = (width - 1) * int(a["stride_w"]) + int(a["dilation"]) * (int(a["kernel_w"]) - 1) + 1
        args = (source.lying, source.height, source.width, int(a["pad_top"]), int(a["pad_left"]), tall, wide)
        var = self.call(kernels.padded, args, [source.var], (tall * wide, source.lying))
        return Image(var, source.channels, tall, wide), 0

    def depthwise(self, group: Group) -> None:
        source = self.image_of(group.inputs[0])
        weight = self.weights[group.weights["weight"]]  # [channels, 1, rows, columns]
        taps = padded(weight.reshape(source.channels, -1).T, (1, source.lying))
        window = self.window(group)
        strip = strip_of(window, source.lying // VECTOR, self.sms or gpu(self.arch).sms)
        args = (source.lying, source.height, source.width, window, activation(group), strip)
        bias = relax.const(padded(self.bias(group), (0, source.lying)), "float32")
        operands = [source.var, relax.const(taps.astype(np.float16), "float16"), bias]
        self.image(group, kernels.depthwise, args, operands)

    def window(self, group: Group) -> Window:
        own = window_of(group)
        return Window(own.kernel, own.stride, own.pad, own.dilation, self.size(group.output))

    def size(self, name: str) -> tuple[int, int]:
        """Return the rows and columns of an image."""
        _, _, height, width = self.graph.values[name].shape
        return height, width

    def narrowed(self, var: Any, shape: Convolution, channels: int) -> Any:
        """Return a result of 8 channels or fewer narrowed to 8, since a product has at least 16."""
        if rules.lying(channels) == shape.outputs:
            return var
        return self.copied(var, shape.pixels, shape.outputs, 0, rules.lying(channels), rules.lying(channels))

    def planes(self, members: list[Group], shape: Convolution) -> tuple[int, ...]:
        """Return the channels of each member if all can be written to their outputs: in pairs, at aligned addresses."""
        return planes_of([self.graph.values[member.output].shape[1] for member in members], shape, 2)

    def split(self, members: list[Group], var: Any, shape: Convolution) -> None:
        start = 0
        for member in members:
            tensor = self.at_border(member.output)
            count = tensor.shape[1]
            if shape.planes:
                part = self.viewed(var, self.physical(tensor), offset=start * shape.m * 2)
            else:
                copied = self.copied(var, shape.pixels, shape.outputs, start, count, count)
                part = self.viewed(copied, self.physical(tensor))
            self.left[member.output] = part
            start += count

    def conv2d_transpose(self, group: Group) -> None:
        source = self.image_of(group.inputs[0])
        weight = self.weights[group.weights["weight"]]  # [in, out, scale, scale]
        scale = weight.shape[2]
        _, channels, height, width = self.graph.values[group.output].shape
        shape = Convolution(
            *(source.height, source.width, source.lying, round_up(channels, EDGE)),
            scale=scale,
            relu=group.relu,
            activation=beyond_relu(activation(group)),
        )
        packed = padded(weight, (0, source.lying), (1, shape.outputs)).transpose(2, 3, 1, 0)
        var = self.product(group, shape, packed.reshape(shape.n, -1), [group], [source.var])
        if group.output not in self.slices:
            self.images[group.output] = Image(self.narrowed(var, shape, channels), channels, height, width)

    def dense(self, group: Group) -> None:
        weight = np.asarray(self.weights[group.weights["weight"]])
        weight = weight.reshape(-1, weight.shape[-1])
        outputs, inputs = weight.shape
        *sides, _ = self.graph.values[group.inputs[0]].shape
        rows, held = prod(sides), round_up(inputs, EDGE)
        source = self.padded_rows(group.inputs[0], rows, held)
        total = self.dense_sums.get(group.output)
        final, more = total or group, []
        if total is not None:
            other = next(name for name in total.inputs if self.moves.of(name).roots[0] != group.output)
            image = final.output in self.by_pixels
            more = [self.image_of(other).var if image else self.viewed(self.plain_of(other), (rows, outputs))]
        shape = Convolution(
            *(rows, 1, held, outputs if outputs % _WIDTH == 0 else round_up(outputs, _DENSE)),
            relu=final.relu,
            residual=bool(more),
            activation=beyond_relu(activation(final)),
        )
        if scale := self.moves.scales.get(group.output):
            weight = weight * np.asarray(self.weights[scale.weight], np.float32).reshape(-1)[scale.order][:, None]
        var = self.product(final, shape, padded(weight, (0, shape.n), (1, held)), [group], [source, *more])
        if shape.n != outputs:
            var = self.copied(var, rows, shape.n, 0, outputs, outputs)
        if more and final.output in self.by_pixels:
            _, channels, height, width = self.graph.values[final.output].shape
            self.images[final.output] = Image(var, channels, height, width)
        else:
            self.plain[final.output] = self.viewed(var, self.graph.values[final.output].shape)

    def padded_rows(self, name: str, rows: int, held: int) -> Any:
        """Return a value as rows of `held` columns, zero beyond its own."""
        columns = self.graph.values[name].shape[-1]
        wanted = np.full((rows, held), NOTHING, np.int32)
        wanted[:, :columns] = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
        return self.arranged(name, wanted)

    def product(
        self, group: Group, shape: Convolution, weight: Array, members: list[Group], operands: list[Any]
    ) -> Any:
        """Emit an implicit GEMM; a slice of a concatenation goes into the tensor of the previous slice."""
        into = self.slices.get(group.output)
        if into is not None:
            shape = replace(shape, first=into[1], total=self.graph.values[into[0].output].shape[1])
        source, *others = operands
        bias = padded(np.concatenate([self.bias(member) for member in members]), (0, shape.outputs)).astype(np.float32)
        constants = [relax.const(weight.astype(np.float16), "float16"), relax.const(bias, "float32")]
        if into is None and not shape.planes and shape.single:
            function = gemm.row(shape)
            make = lambda: sequence_kernels.by_rows(function, shape.n, True) if self.bound else function  # noqa: E731
            kernel, result = self.kernel((gemm.row, shape), "row", make), relax.TensorType((shape.n, 1), "float16")
            var = self.builder.emit(relax.call_tir(kernel, [source, *constants, *others], result))
            return self.viewed(var, (1, shape.n))
        tile = tile_for(shape, self.arch, self.sms)
        if shape.planes:
            tile = replace(tile, splits=1, store=2)
        self.products.append((shape, tile))
        packed = padded(weight, (1, round_up(shape.k, tile.depth * tile.splits)))
        constants[0] = relax.const(packed.astype(np.float16), "float16")
        if tile.splits > 1:
            parts = relax.TensorType((tile.splits, shape.m, shape.n), "float32")
            part = self.builder.emit(relax.call_tir(self.multiplying(shape, tile), [source, constants[0]], parts))
            kernel, operands = self.made(gemm.reduction, (shape, tile.splits)), [part, constants[1], *others]
        else:
            kernel, operands = self.multiplying(shape, tile), [source, *constants, *others]
        result = relax.TensorType((shape.pixels, shape.total or shape.outputs), "float16")
        if into is not None:
            return self.into(into[0].output, kernel, operands, result)
        return self.builder.emit(relax.call_tir(kernel, operands, result))

    def multiplying(self, shape: Convolution, tile: Tile) -> Any:
        def make() -> Any:
            function = gemm.convolution(shape, tile)
            return schedule(function, tile) if self.bound else function

        return self.kernel((shape, tile), f"conv_{shape.key.replace(' ', '_').replace('-', '_')}", make)

    def bias(self, group: Group) -> Array:
        if "bias" not in group.weights:
            return np.zeros(self.outputs(group), np.float32)
        bias = np.asarray(self.weights[group.weights["bias"]], np.float32)
        scale = self.moves.scales.get(group.output)
        return bias if scale is None else bias * np.asarray(self.weights[scale.weight]).reshape(-1)[scale.order]

    def outputs(self, group: Group) -> int:
        """Return the channels of a layer's result."""
        shape = self.graph.values[group.output].shape
        return int(group.attrs["out_channels"]) if group.kind != "dense" else shape[-1]

    def concat(self, group: Group) -> None:
        name, (_, channels, height, width) = group.output, self.graph.values[group.output].shape
        if name not in self.partial:
            parts, vars_ = zip(*map(self.channels, group.inputs), strict=True)
            groups = height * width, *kernels.grouped(parts)
            joined = self.call(kernels.joined, (height * width, parts), list(vars_), groups)
            self.partial[name] = self.viewed(joined, (height * width, channels))
        self.images[name] = Image(self.partial[name], channels, height, width)

    def channels(self, name: str) -> tuple[tuple[int, int, int], Any]:
        """Return how many channels the image has in memory that a value is or is cut out of, the value's first and
        their number; and that image.
        """
        shape, moved = self.graph.values[name].shape, self.moves.of(name)
        image = self.images.get(moved.roots[0]) if len(moved.roots) == 1 and moved.factor == 1.0 else None
        if name not in self.images and image is not None and image.pixels == prod(shape[2:]):
            first = int(moved.index.flat[0])
            if np.array_equal(moved.index.reshape(-1), np.arange(first, first + prod(shape))):
                return (image.lying, first // image.pixels, shape[1]), image.var
        image = self.image_of(name)
        return (image.lying, 0, shape[1]), image.var

    def pool(self, group: Group) -> None:
        source, window = self.image_of(group.inputs[0]), self.window(group)
        args: tuple[Any, ...] = (source.lying, source.height, source.width, window)
        if group.kind == "avg_pool":
            self.image(group, kernels.avg_pool, (*args, bool(group.options.get("count_padding", False))), [source.var])
        else:
            self.image(group, kernels.max_pool, args, [source.var])

    def mean(self, group: Group) -> None:
        source = self.image_of(group.inputs[0])
        var, pixels, given = source.var, source.pixels, "float16"
        while pixels > 1 or var is source.var:
            parts = -(-pixels // _SUMMED)
            args = (pixels, source.lying, parts, given, source.pixels)
            var = self.call(kernels.means, args, [var], (parts, source.lying), "float16" if parts == 1 else "float32")
            pixels, given = parts, "float32"
        if len(self.graph.values[group.output].shape) == 4:
            self.images[group.output] = Image(var, source.channels, 1, 1)
        else:
            self.held[group.output] = (var, source.lying)

    def combined(self, group: Group) -> None:
        left, right = self.sides(group, [self.image_of(value) for value in group.inputs], self.image_constant)
        pixels = max(left.pixels, right.pixels)
        args = (left.pixels, right.pixels, pixels, left.lying, group.kind, activation(group))
        self.image(group, kernels.combined, args, [left.var, right.var])

    def mapped(self, group: Group) -> None:
        source = self.image_of(group.inputs[0])
        args = (source.pixels, source.lying, activation(group))
        self.image(group, kernels.mapped, args, [source.var])

    def resize(self, group: Group) -> None:
        source, (height, width) = self.image_of(group.inputs[0]), self.size(group.output)
        tables = [*axis_table(source.height, height, group.options), *axis_table(source.width, width, group.options)]
        constants = [relax.const(table, str(table.dtype)) for table in tables]
        args = (source.lying, source.height, source.width, height, width)
        make = kernels.resize_bilinear if group.attrs["bilinear"] else kernels.resize
        self.image(group, make, args, [source.var, *constants])

    def sides(self, group: Group, values: list[Any], constant: Callable[[str, tuple[int, ...]], Any]) -> list[Any]:
        """Return both operands of an operator, in order; one may be a parameter, made by `constant`."""
        made = [constant(name, self.graph.values[group.output].shape) for name in group.weights.values()]
        return [*made, *values] if self.graph.operations[group.output].weight_first else [*values, *made]

    def image_constant(self, name: str, shape: tuple[int, ...]) -> Image:
        """Return a parameter as an image of a shape, of one pixel where all are the same."""
        _, channels, height, width = shape
        whole = np.broadcast_to(self.weights[name], shape)
        if all(side == 1 for side in np.shape(self.weights[name])[-2:]):
            whole, height, width = whole[:, :, :1, :1], 1, 1
        pixels = padded(whole[0].reshape(channels, -1).T, (1, rules.lying(channels)))
        return Image(relax.const(pixels.astype(np.float16), "float16"), channels, height, width)

    def reshape(self, group: Group) -> None:
        self.plain[group.output] = emit_general(self, group)

    def pillar_features(self, group: Group) -> None:
        slots, channels = self.graph.values[group.inputs[0]].shape[1], int(group.attrs["out_channels"])
        weight = np.ascontiguousarray(self.weights[group.weights["weight"]].T, np.float32)
        args = (slots, channels, group.options["pillar"], *group.options["origin"])
        operands = [self.plain_of(value) for value in group.inputs]
        operands += [relax.const(weight, "float32"), relax.const(self.bias(group), "float32")]
        self.plain[group.output] = self.call(kernels.pillar_net, args, operands, [self.dynamic, channels])

    def scatter(self, group: Group) -> None:
        _, channels, ny, nx = self.graph.values[group.output].shape
        operands = [self.plain_of(value) for value in group.inputs]
        if rules.lying(channels) != channels:
            raise CompileError(f"{group.name}: {channels} channels do not fill groups of {EDGE}")
        self.image(group, kernels.scatter, (channels, ny, nx), operands)


def planes_of(counts: list[int], shape: Convolution, size: int) -> tuple[int, ...]:
    """Return the channels of each member, `size` bytes each, and the rest, if all can be written to their outputs."""
    starts = [sum(counts[:index]) * shape.m * size for index in range(len(counts))]
    if any(count % 2 for count in counts) or any(start % _ALIGNED for start in starts):
        return ()
    rest = shape.outputs - sum(counts)
    return (*counts, rest) if rest else tuple(counts)


def strip_of(window: Window, groups: int, sms: int) -> int:
    """Return the pixels of a row that a thread computes: more share more loads, if there are threads for all SMs."""
    height, width = window.result
    fitting = [strip for strip in _STRIPS if width % strip == 0 and height * width * groups >= strip * sms * _BUSY]
    return max(fitting, default=1)


_EMITTERS: dict[str, Callable[[_Lowering, Group], None]] = {
    "conv2d": _Lowering.conv2d,
    "conv2d_transpose": _Lowering.conv2d_transpose,
    "dense": _Lowering.dense,
    "concat": _Lowering.concat,
    **dict.fromkeys(("max_pool", "avg_pool"), _Lowering.pool),
    **dict.fromkeys(("global_avg_pool", "reduce_mean"), _Lowering.mean),
    **dict.fromkeys(kernels.BINARY, _Lowering.combined),
    **dict.fromkeys(rules.MAPPED, _Lowering.mapped),
    "resize2d": _Lowering.resize,
    "reshape": _Lowering.reshape,
    "pillar_features": _Lowering.pillar_features,
    "scatter": _Lowering.scatter,
}
