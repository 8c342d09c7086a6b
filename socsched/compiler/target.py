"""Compile targets: reading of a target's entry in a platform file, and building of networks for it.

A target is one `Target`, registered under the entry-point group ``socsched.targets`` by the `kind` that platform files
name.  Everything that belongs to one target only lies in its folder of `compiler.targets`:

{kind: llvm, host: true} or {kind: llvm, mcpu: native}      this machine, by its vector unit
{kind: llvm, mtriple: aarch64-linux-gnu, mcpu: cortex-a78ae}  another CPU
{kind: cuda, arch: sm_87}                                   a GPU
{kind: opencl}                                              a mobile GPU (Mali, Adreno): sources and a launch plan
{kind: hexagon, arch: v73}                                  a Hexagon DSP's scalar cores with HVX: object files
{kind: simulated}                                           an engine without a compiler: its stages are checked
                                                            against its operator rules and compiled for this machine
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.targets.llvm.share_tuning import Tuning
from socsched.errors import CompileError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

GROUP = "socsched.targets"
PRECISIONS = ("fp32", "fp16", "int8")


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A resolved target: `kind` as in the entry, `tvm` the target given to TVM, `native` whether its code runs here."""

    kind: str
    tvm: Mapping[str, Any]
    native: bool

    @property
    def triple(self) -> str:
        """Return the target triple of a processor's code, empty for this machine."""
        host = self.tvm.get("host", {})
        return str(self.tvm.get("mtriple") or (host.get("mtriple", "") if isinstance(host, Mapping) else ""))


@dataclass(frozen=True, slots=True)
class Build:
    """A network to build into `folder`; `weights` are all its parameters, `share` the engine units it may occupy (0:
    all).

    `scales` are the int8 scales of its values, None to calibrate on seeded inputs; `tuning` holds choices measured for
    the share.
    """

    folder: Path
    network: Network
    weights: Mapping[str, np.ndarray[Any, Any]]
    spec: TargetSpec
    precision: str
    scales: Scales | None = None
    tuning: Tuning | None = None
    share: int = 0


@dataclass(frozen=True, slots=True)
class Built:
    """Result of a build: files in the folder, layouts of the border tensors, and remarks for users."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def _all(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return PRECISIONS


@dataclass(frozen=True, slots=True)
class Target:
    """Reading of entries of one kind (`resolve`: entry and engine id to a spec; CompileError) and building for them.

    `precisions` returns the precisions available for an entry.  `simulated`: the engine has no compiler here, so a
    stage is checked against its operator rules and its tensors have the engine's layouts.  `tuned_to_share`: the code
    depends on the number of engine units it may occupy.
    """

    resolve: Callable[[Mapping[str, Any], str], TargetSpec]
    build: Callable[[Build], Built]
    precisions: Callable[[Mapping[str, Any]], tuple[str, ...]] = _all
    simulated: bool = False
    tuned_to_share: bool = False


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
