"""The passes for CPUs in int8: integers from the first operator to the last, fp32 at the border."""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.environment import relax, tvm
from socsched.compiler.passes.link import link
from socsched.compiler.passes.quantise import QUANTISE, keep_scales, left_in_floats
from socsched.compiler.target import Compilation, Passes
from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8
from socsched.compiler.targets.llvm.launch_list import list_launches


def lower_integers(compilation: Compilation) -> Compilation:
    """Return the kernels in integers, fp32 at the border."""
    vector, dot = dot_for(compilation.asked.spec)
    lowered = lower_int8(compilation.integers, compilation.weights, vector, dot)
    assert compilation.scales is not None
    notes = [f"int8: {dot.name} products, border tensors fp32, activations by {compilation.scales.source}"]
    notes += [f"int8: computed in fp32: {reason}" for reason in left_in_floats(compilation)]
    return replace(
        compilation, module=lowered.module, inputs=lowered.inputs, outputs=lowered.outputs, notes=tuple(notes)
    )


def generate_integers(compilation: Compilation) -> Compilation:
    """Return the machine code, with the instructions for byte products that the target's level leaves out."""
    target = tvm.target.Target(int8_options(compilation.asked.spec))
    return replace(compilation, executable=relax.build(compilation.module, target=target))


INT8 = Passes(
    quantise=QUANTISE,
    lower=(lower_integers,),
    build=(generate_integers,),
    link=(link, list_launches),
    package=(keep_scales,),
)
