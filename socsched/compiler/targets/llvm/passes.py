"""The passes for CPUs: rules for every operator, LLVM's code, a library where a linker for the target is present."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from socsched.compiler.environment import relax, tvm
from socsched.compiler.passes.link import link
from socsched.compiler.passes.relax_form import in_precision
from socsched.compiler.quantize.network import STAYS_FLOAT, stays_float
from socsched.compiler.target import Compilation, Passes
from socsched.compiler.targets.llvm import processor
from socsched.compiler.targets.llvm.launch_list import list_launches
from socsched.compiler.targets.llvm.lower import lower


def choose(compilation: Compilation) -> Passes:
    """Return the passes for a network, by its precision."""
    if compilation.asked.precision == "int8" and not stays_float(compilation.graph):
        from socsched.compiler.targets.llvm.int8_passes import INT8

        return INT8
    return HALF if compilation.asked.precision == "fp16" else FLOAT


def lower_floats(compilation: Compilation) -> Compilation:
    """Return the kernels in fp32, the weights packed into their layouts."""
    asked = compilation.asked
    lowered = lower(compilation.graph, compilation.weights, processor.vector_unit(asked.spec))
    notes = (STAYS_FLOAT,) if asked.precision == "int8" else _slow(lowered.general)
    return replace(compilation, module=lowered.module, inputs=lowered.inputs, outputs=lowered.outputs, notes=notes)


def round_weights(compilation: Compilation) -> Compilation:
    """Return the network with its weights rounded to half precision."""
    weights = {name: array.astype(np.float16).astype(np.float32) for name, array in compilation.weights.items()}
    return replace(compilation, weights=weights)


def lower_halves(compilation: Compilation) -> Compilation:
    """Return the kernels in half precision; in fp32 where the processor has no half-precision arithmetic."""
    asked = compilation.asked
    unit = processor.half_unit(asked.spec)
    lowered = lower(compilation.graph, compilation.weights, unit or processor.vector_unit(asked.spec))
    note = (
        "fp16: half-precision arithmetic, totals of convolutions in fp32"
        if unit
        else "fp16: stage inputs, weights and outputs rounded to half precision, arithmetic in fp32"
    )
    return replace(
        compilation,
        module=lowered.module,
        inputs=in_precision(lowered.inputs, "fp16"),
        outputs=in_precision(lowered.outputs, "fp16"),
        notes=(*_slow(lowered.general), note),
        computes_half=unit is not None,
    )


def generate(compilation: Compilation) -> Compilation:
    """Return the machine code."""
    target = tvm.target.Target(dict(compilation.asked.spec.tvm))
    return replace(compilation, executable=relax.build(compilation.module, target=target))


def _slow(general: tuple[str, ...]) -> tuple[str, ...]:
    return (f"general schedules, which are slow, for: {', '.join(general)}",) if general else ()


FLOAT = Passes(lower=(lower_floats,), build=(generate,), link=(link, list_launches))
HALF = Passes(lower=(round_weights, lower_halves), build=(generate,), link=(link, list_launches))
