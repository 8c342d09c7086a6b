"""Compile targets: reading of a target's entry in a platform file, and building of networks for it.

A target is one `Target`, registered under the entry-point group ``socsched.targets`` by the `kind` that platform files
name.  Everything that belongs to one target only lies in its folder of `compiler.targets`:

{kind: llvm, host: true} or {kind: llvm, mcpu: native}      this machine, by its vector unit
{kind: llvm, mtriple: aarch64-linux-gnu, mcpu: cortex-a78ae}  another CPU
{kind: cuda, arch: sm_87}                                   a GPU
{kind: opencl}                                              a mobile GPU (Mali, Adreno): sources and a launch plan
{kind: simulated}                                           an engine without a compiler: its stages are checked
                                                            against its operator rules and compiled for this machine
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.compiler.quantize.scales import Scales
from socsched.errors import CompileError
from socsched.graph.fusion import Graph
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model

GROUP = "socsched.targets"
PRECISIONS = ("fp32", "fp16", "int8")

Array = np.ndarray[Any, Any]


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

    `scales` are the int8 scales of its values, None to calibrate on seeded inputs.
    """

    folder: Path
    network: Network
    weights: Mapping[str, Array]
    spec: TargetSpec
    precision: str
    scales: Scales | None = None
    share: int = 0


@dataclass(frozen=True, slots=True)
class Compilation:
    """A network between two passes: the request, and what the passes so far have made of it.

    `graph`: its fused operators.  `module`: its kernels, in Relax.  `integers`:
    the same in int8 (`quantize.network.QuantisedGraph`).  `inputs` and `outputs`: the border tensors, with their
    layouts.  `executable`: the code in memory.  `launches`: what the launch list of a CPU is written of, if it has one;
    the code then takes its constants as arguments.  `files`: those written into the folder, first the one to load or
    link.  `notes`: remarks for users.  `computes_half`: as of `artifact.Artifact`.
    """

    asked: Build
    weights: Mapping[str, Array]
    scales: Scales | None
    graph: Graph
    module: Any = None
    integers: Any = None
    inputs: tuple[TensorType, ...] = ()
    outputs: tuple[TensorType, ...] = ()
    executable: Any = None
    launches: Any = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    computes_half: bool = False


Pass = Callable[[Compilation], Compilation]


@dataclass(frozen=True, slots=True)
class Passes:
    """A target's passes for one network, by the phases of `pipeline`; a phase without passes is skipped."""

    quantise: tuple[Pass, ...] = ()
    lower: tuple[Pass, ...] = ()
    schedule: tuple[Pass, ...] = ()
    build: tuple[Pass, ...] = ()
    link: tuple[Pass, ...] = ()
    package: tuple[Pass, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionBuild:
    """A function to build into `folder` for an engine: `model` has a device implementation (`Model.device`)."""

    folder: Path
    model: Model
    spec: TargetSpec
    precision: str


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A function's files, first the one to load, its border tensors, and remarks for users."""

    files: tuple[str, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """Reading of entries of one kind (`resolve`: entry and engine id to a spec; CompileError) and building for them.

    `passes` chooses the passes for a network whose operators are known; imports of TVM belong inside it, as a cached
    artefact needs none.  `precisions` returns the precisions available for an entry.  `options` returns what code of a
    spec in a precision depends on besides the spec.  `simulated`: the engine has no compiler here, so a stage is
    checked against its operator rules and its tensors have the engine's layouts.  `tuned_to_share`: the code depends
    on the number of engine units it may occupy.  `functions`: host functions (`models.model.Model.device`) that have
    device code for this target, each with its builder.
    """

    resolve: Callable[[Mapping[str, Any], str], TargetSpec]
    passes: Callable[[Compilation], Passes]
    precisions: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda entry: PRECISIONS
    options: Callable[[TargetSpec, str], Mapping[str, Any]] = lambda spec, precision: {}
    simulated: bool = False
    tuned_to_share: bool = False
    functions: Mapping[str, Callable[[FunctionBuild], FunctionCode]] = field(default_factory=dict)


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
