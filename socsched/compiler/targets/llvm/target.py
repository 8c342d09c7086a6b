"""Stages compiled for a CPU by LLVM: this machine, another machine, or the host of a simulated engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compiler.target import Compilation, Passes, Target, TargetSpec
from socsched.compiler.targets.llvm.int8_dot import int8_options
from socsched.compiler.targets.llvm.processor import machine, native_target, require_known

_OWN_KEYS = ("host", "note")


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return the processor of an entry; CompileError if it is unknown to LLVM."""
    if entry.get("host") is True or entry.get("mcpu") == "native":
        return TargetSpec("llvm", native_target(), True)
    own = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
    require_known(own, engine)
    triple = str(own.get("mtriple", ""))
    return TargetSpec("llvm", own, not triple or triple.split("-")[0] == machine())


def passes(compilation: Compilation) -> Passes:
    """Return the passes for a CPU."""
    from socsched.compiler.targets.llvm.passes import choose

    return choose(compilation)


def options(spec: TargetSpec, precision: str) -> Mapping[str, Any]:
    """Return the instructions that int8 code uses beyond the level of its target."""
    return int8_options(spec) if precision == "int8" else {}


TARGET = Target(resolve, passes, options=options)
SIMULATED = Target(
    lambda entry, engine: TargetSpec("simulated", native_target(), True), passes, options=options, simulated=True
)
