"""GPU lowering of an integer network: a Relax module of bound int8 kernels with packed weights and multipliers.

Activations stay [pixels, channels] in bytes from one end of the network to the other, channels rounded up to multiples
of 16.  At the network's border tensors are fp32 and images NHWC, quantised on entry; results leave as fp32 sums where
nothing else reads them.  Operators without int8 form are computed in fp32 by TVM's general schedules, on plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from socsched.compiler.environment import relax, tirx
from socsched.compiler.layouts import physical_shape
from socsched.compiler.passes.relax_form import DTYPES
from socsched.compiler.quantize.epilogue import Epilogue
from socsched.compiler.quantize.fixed_point import RATIO_SHIFT, Array
from socsched.compiler.quantize.network import CONVOLUTIONS, QuantisedGraph, Step
from socsched.compiler.targets.cuda import gemm, int8_kernels
from socsched.compiler.targets.cuda.gemm import Bytes
from socsched.compiler.targets.cuda.int8_kernels import Operand
from socsched.compiler.targets.cuda.int8_pack import channel_table, kernel_matrix, window_of
from socsched.compiler.targets.cuda.int8_plan import planned_siblings, planned_slices
from socsched.compiler.targets.cuda.int8_tiles import int8_tile
from socsched.compiler.targets.cuda.int8_values import Image, Int8Values
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.shapes import EDGE, Convolution, Tile, round_up
from socsched.compiler.targets.cuda.values import Lowered
from socsched.errors import CompileError

_ALIGNED = 64  # bytes: alignment that kernels may assume of a tensor's address


def lower_int8(quantised: QuantisedGraph, weights: Mapping[str, Array], arch: str, bound: bool = True) -> Lowered:
    """Return the GPU form of an integer network; `weights` are those of the operators computed in fp32.

    In its products' shapes channels and k count pairs of bytes.  Without `bound` kernels remain plain loops, which run
    on a CPU.  CompileError for unsupported operators.
    """
    return _Lowering(quantised, weights, arch, bound).run()


class _Lowering(Int8Values):
    def __init__(self, quantised: QuantisedGraph, weights: Mapping[str, Array], arch: str, bound: bool) -> None:
        super().__init__(quantised, weights, bound)
        self.arch = arch
        self.slices = planned_slices(quantised)
        self.siblings = planned_siblings(quantised, self.slices)
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
        with self.builder.function("main", variables, attrs={"num_input": len(variables)}):
            with self.builder.dataflow():
                for name, tensor, variable in zip(self.graph.inputs, inputs, variables, strict=True):
                    self.enter(name, tensor, variable)
                for step in self.q.steps:
                    if step.exact:
                        self.compute_exactly(step)
                    elif step.output not in self.merged:
                        _EMITTERS[step.group.kind](self, step)
                output = self.builder.emit_output(tuple(self.leave(name) for name in self.graph.outputs))
            self.builder.emit_func_output(output)
        return Lowered(self.builder.get(), inputs, outputs, tuple(self.products))

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
        rest = shape.outputs - sum(counts)
        if len(counts) == 1 and not rest:
            return ()
        starts = [sum(counts[:index]) * shape.m * 4 for index in range(len(counts))]
        if any(count % 2 for count in counts) or any(start % _ALIGNED for start in starts):
            return ()
        return (*counts, rest) if rest else tuple(counts)

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
            args = (shape, tile.splits, form)
            finish = lambda: self.spread(gemm.reduction(*args))  # noqa: E731
            kernel = self.kernel((gemm.reduction, args), "reduction", finish)
            given = [part, entries, *extra]
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
                operand = Operand(source.dtype, factor)
                args = (source.pixels, source.lying, source.channels, channels, first, operand, self.stored(name))
                kernel = self.rescaling((*args, step.relu, RATIO_SHIFT))
                self.into(name, kernel, [source.var], relax.TensorType((height * width, channels), dtype))
                first += source.channels
        self.images[name] = Image(self.partial[name], channels, height, width, dtype)

    def rescaling(self, args: tuple[Any, ...]) -> Any:
        make = lambda: self.spread(int8_kernels.rescale(*args))  # noqa: E731
        return self.kernel((int8_kernels.rescale, args), "rescale", make)

    def add(self, step: Step) -> None:
        left, right = (self.image_of(value) for value in step.group.inputs)
        stored = self.stored(step.output)
        ours, theirs = (Operand(i.dtype, f) for i, f in zip((left, right), step.factors, strict=True))
        args = (left.pixels, left.lying, ours, theirs, stored, step.relu, RATIO_SHIFT)
        var = self.call(int8_kernels.add, args, [left.var, right.var], (left.pixels, left.lying), stored.dtype)
        self.images[step.output] = replace(left, var=var, dtype=stored.dtype)

    def relu(self, step: Step) -> None:
        source, stored = self.image_of(step.group.inputs[0]), self.stored(step.output)
        operand = Operand(source.dtype, step.factors[0])
        args = (source.pixels, source.lying, source.lying, source.lying, 0, operand, stored, step.relu, RATIO_SHIFT)
        result = relax.TensorType((source.pixels, source.lying), stored.dtype)
        var = self.builder.emit(relax.call_tir(self.rescaling(args), [source.var], result))
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
