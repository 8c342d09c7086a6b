"""Stages compiled for a CPU by LLVM: this machine, another machine, or the host of a simulated engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.passes.link import write_library
from socsched.compiler.target import Build, Built, Target, TargetSpec
from socsched.compiler.targets.llvm import processor
from socsched.compiler.targets.llvm.processor import machine, native_target, require_known, vector_unit
from socsched.graph.operators import TensorType

_OWN_KEYS = ("host", "note")


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return the processor of an entry; CompileError if it is unknown to LLVM."""
    if entry.get("host") is True or entry.get("mcpu") == "native":
        return TargetSpec("llvm", native_target(), True)
    own = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
    require_known(own, engine)
    triple = str(own.get("mtriple", ""))
    return TargetSpec("llvm", own, not triple or triple.split("-")[0] == machine())


def build(asked: Build) -> Built:
    """Write a library, or object files where no linker for the target is present."""
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.passes.fusion import read
    from socsched.compiler.passes.relax_import import import_network
    from socsched.compiler.targets.llvm.lower import lower

    if asked.precision == "int8":
        from socsched.compiler.quantize.build import build_int8

        return Built(*build_int8(asked.folder, asked.network, asked.weights, asked.spec, asked.scales))
    half, weights = asked.precision == "fp16", asked.weights
    unit = processor.half_unit(asked.spec) if half else None
    if half:
        weights = {name: array.astype(np.float16).astype(np.float32) for name, array in weights.items()}
    graph = read(import_network(asked.network), asked.network)
    lowered = lower(graph, weights, unit or vector_unit(asked.spec), asked.tuning)
    executable = relax.build(lowered.module, target=tvm.target.Target(dict(asked.spec.tvm)))
    files, notes = write_library(executable, asked.folder, asked.spec)
    if lowered.general:
        notes += (f"general schedules, which are slow, for: {', '.join(lowered.general)}",)
    if unit:
        notes += ("fp16: half-precision arithmetic, totals of convolutions in fp32",)
    elif half:
        notes += ("fp16: stage inputs, weights and outputs rounded to half precision, arithmetic in fp32",)
    return Built(_border(lowered.inputs, half), _border(lowered.outputs, half), files, notes)


def _border(tensors: tuple[TensorType, ...], half: bool) -> tuple[TensorType, ...]:
    return tuple(TensorType(t.shape, "fp16" if half and t.dtype == "fp32" else t.dtype, t.layout) for t in tensors)


TARGET = Target(resolve, build)
SIMULATED = Target(lambda entry, engine: TargetSpec("simulated", native_target(), True), build, simulated=True)
