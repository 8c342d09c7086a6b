"""The passes for CPUs: rules for every operator, LLVM's code, a library where a linker for the target is present."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.environment import tvm
from socsched.compiler.launch_list import CPU
from socsched.compiler.passes.launches import CpuRecorder
from socsched.compiler.passes.link import link
from socsched.compiler.passes.relax_form import in_precision
from socsched.compiler.quantize.calibrate import QUANTISE, keep_scales, left_in_floats
from socsched.compiler.target import Compilation, Passes
from socsched.compiler.targets.llvm import general, processor
from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8
from socsched.compiler.targets.llvm.lower import lower
from socsched.errors import CompileError
from socsched.graph.integers import STAYS_FLOAT, stays_float

_PREFIX = b"__tvm_ffi_"
_SLOTS = {b"__TVMBackendParallelLaunch", b"__TVMBackendAllocWorkspace", b"__TVMBackendFreeWorkspace"}
"""Functions that the executor supplies to the kernels (`parallel.hpp`, `network_stage.cpp`)."""


def choose(compilation: Compilation) -> Passes:
    """Return the passes for a network, by its precision."""
    if compilation.asked.precision == "int8" and not stays_float(compilation.graph):
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
    return _generated(compilation, int8_options(compilation.asked.spec))


def generate(compilation: Compilation) -> Compilation:
    """Return the machine code."""
    return _generated(compilation, compilation.asked.spec.tvm)


def _generated(compilation: Compilation, options: Mapping[str, Any]) -> Compilation:
    """Return the code; it takes its constants as arguments if it has a launch list, beside which they are kept."""
    target = tvm.target.Target(dict(options))
    module = general.legalised(compilation.module, target)
    recorder = CpuRecorder(compilation.asked.network.name, module, tvm.IRModule({}))
    try:
        recorder.record()
    except CompileError as error:
        notes = (*compilation.notes, f"runs with TVM's runtime only: {error}")
        return replace(compilation, module=module, executable=general.built(module, target), notes=notes)
    executable = general.built(recorder.without_constants(module), target)
    return replace(compilation, module=module, executable=executable, launches=recorder)


def list_launches(compilation: Compilation) -> Compilation:
    """Return the network with its launch list and constants in the folder, if it has one.

    CompileError if its code is not what the list calls.
    """
    recorder, asked = compilation.launches, compilation.asked
    if recorder is None:
        return compilation
    code = b"\0".join((asked.folder / name).read_bytes() for name in compilation.files)
    if foreign := set(re.findall(rb"__TVM\w+", code)) - _SLOTS:
        raise CompileError(f"{asked.network.name}: its kernels call {min(foreign).decode()}")
    exported = set(re.findall(rb"__tvm_ffi_\w+", code))
    for launch in recorder.launches:
        if _PREFIX + launch["kernel"].encode() not in exported:
            raise CompileError(f"{asked.network.name}: the kernel {launch['kernel']} is not among those compiled")
    files = CPU.write(asked.folder, recorder.plan(), recorder.constants())
    return replace(compilation, files=(*compilation.files, *files))


def _slow(general: tuple[str, ...]) -> tuple[str, ...]:
    return (f"general schedules for: {', '.join(general)}",) if general else ()


FLOAT = Passes(lower=(lower_floats,), build=(generate,), link=(link, list_launches))
HALF = Passes(lower=(round_weights, lower_halves), build=(generate,), link=(link, list_launches))
INT8 = Passes(
    quantise=QUANTISE,
    lower=(lower_integers,),
    build=(generate_integers,),
    link=(link, list_launches),
    package=(keep_scales,),
)
