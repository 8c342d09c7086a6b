"""The passes for GPUs in int8: tensor-core kernels, operators without an int8 form by TVM's general schedules."""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.passes.quantise import QUANTISE, keep_scales, left_in_floats
from socsched.compiler.target import Compilation, Passes
from socsched.compiler.targets.cuda.codegen import build
from socsched.compiler.targets.cuda.int8_lower import lower_int8
from socsched.compiler.targets.cuda.tiles import OLDEST, capability
from socsched.errors import CompileError


def require_products(compilation: Compilation) -> None:
    """Raise CompileError for a GPU whose tensor cores lack the products that the rules use."""
    arch = str(compilation.asked.spec.tvm["arch"])
    if capability(arch) < OLDEST:
        raise CompileError(
            f"{compilation.asked.network.name}: int8 on {arch}: the rules need asynchronous copies and 32-deep "
            f"products, sm_{OLDEST} or later",
            "plan this stage in fp16",
        )


def lower_integers(compilation: Compilation) -> Compilation:
    """Return the int8 kernels, scheduled, images NHWC and fp32 at the border."""
    lowered = lower_int8(compilation.integers, compilation.weights, str(compilation.asked.spec.tvm["arch"]))
    assert compilation.scales is not None
    notes = [f"int8: tensor cores, border tensors fp32, activations by {compilation.scales.source}"]
    notes += [
        f"int8: computed in fp32 by general schedules, which are slow: {reason}"
        for reason in left_in_floats(compilation)
    ]
    return replace(
        compilation, module=lowered.module, inputs=lowered.inputs, outputs=lowered.outputs, notes=tuple(notes)
    )


def generate_integers(compilation: Compilation) -> Compilation:
    """Return the executable; operators left in floats get TVM's general schedules."""
    general = any(step.exact for step in compilation.integers.steps)
    made = build(compilation.module, compilation.asked.spec.tvm, general=general)
    return replace(compilation, executable=made)


INT8 = Passes(quantise=QUANTISE, lower=(lower_integers,), build=(generate_integers,), package=(keep_scales,))
