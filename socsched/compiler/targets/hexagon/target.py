"""Stages compiled for the scalar cores and HVX of a Hexagon DSP, as object files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from socsched.compiler.target import Compilation, Passes, Target, TargetSpec
from socsched.compiler.targets.llvm import target as llvm
from socsched.errors import CompileError

ARCHITECTURES = ("v68", "v69", "v73", "v75")
"""Architectures with floating point on HVX; older ones would compute it one number at a time."""


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return a spec for LLVM's own back end, selected by triple.

    TVM's hexagon tags compile the host half, all code here, for x86-64.  CompileError for an architecture without HVX
    floating point.
    """
    arch = str(entry.get("arch", ""))
    if arch not in ARCHITECTURES:
        raise CompileError(
            f"{engine}: target hexagon needs an architecture with HVX floating point, got {arch!r}",
            f"give `arch`, one of {', '.join(ARCHITECTURES)}",
        )
    features = [f"+hvx{arch}", "+hvx-length128b", "+hvx-qfloat", "-hvx-ieee-fp"]
    return TargetSpec(
        "hexagon", {"kind": "llvm", "mtriple": "hexagon", "mcpu": f"hexagon{arch}", "mattr": features}, False
    )


def passes(compilation: Compilation) -> Passes:
    """Return the passes of a CPU, which end with checked object files here."""
    from socsched.compiler.targets.hexagon.objects import check, link_objects

    own = llvm.passes(compilation)
    return replace(own, link=(link_objects,), package=(*own.package, check))


TARGET = Target(resolve, passes)
