"""Meaning of an engine's `target` entry: compiler back end and processor.

{kind: llvm, host: true} or {kind: llvm, mcpu: native}      this machine, by its vector unit
{kind: llvm, mtriple: aarch64-linux-gnu, mcpu: cortex-a78ae}  another CPU
{kind: cuda, arch: sm_87}                                   a GPU
{kind: opencl}                                              a mobile GPU (Mali, Adreno): sources and a launch plan
{kind: hexagon, arch: v73}                                  a Hexagon DSP's scalar cores with HVX: object files
{kind: simulated}                                           an engine without a compiler: its stages are checked
                                                            against its operator rules and compiled for this machine
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched import plugins
from socsched.compiler.target import GROUP, Target, TargetSpec
from socsched.errors import CompileError


def target_of(entry: Mapping[str, Any], engine: str = "engine") -> Target:
    """Return the compile target of an entry; CompileError if it names no known target."""
    kind = entry.get("kind")
    if kind not in plugins.names(GROUP):
        raise CompileError(
            f"{engine}: no compiler for target kind {kind!r}", f"kinds: {', '.join(plugins.names(GROUP))}"
        )
    found: Target = plugins.load(GROUP, str(kind), Target)
    return found


def resolve(entry: Mapping[str, Any], engine: str = "engine") -> TargetSpec:
    """Return the resolved target entry of an engine; CompileError if it names no known target."""
    return target_of(entry, engine).resolve(entry, engine)
