"""What a compile target is: how its entry in a platform file is read, and how a network is built for it.

A target is one `Target`, registered under the entry-point group ``socsched.targets`` by the `kind` that platform files
name; the built-in ones are in a folder each (`cpu`, `gpu`, `opencl`, `hexagon`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.cpu.share_tuning import Tuning
from socsched.compiler.quantize.scales import Scales
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

GROUP = "socsched.targets"
PRECISIONS = ("fp32", "fp16", "int8")


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A resolved target: `kind` as in the entry, `tvm` what TVM is told, `native` whether its code runs here."""

    kind: str
    tvm: Mapping[str, Any]
    native: bool

    @property
    def triple(self) -> str:
        """The target triple of the code a processor runs, empty for this machine."""
        host = self.tvm.get("host", {})
        return str(self.tvm.get("mtriple") or (host.get("mtriple", "") if isinstance(host, Mapping) else ""))


@dataclass(frozen=True, slots=True)
class Build:
    """A network to build into `folder`; `weights` are all its parameters, `share` the units it may occupy (0: all).

    `scales` are of its values in int8, None for ones of seeded inputs; `tuning` are choices measured for the share.
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
    """What was written: files in the folder, how the tensors at the border lie, and remarks for people."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def _all(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return PRECISIONS


@dataclass(frozen=True, slots=True)
class Target:
    """How entries of one kind are read (`resolve`: entry and engine id to a spec; CompileError) and built for.

    `precisions` says of an entry what it can be compiled in.  `simulated`: the engine has no compiler here, so a stage
    is held against its operator rules and its tensors lie as the engine would store them.  `tuned_to_share`: the code
    depends on how many units of the engine it may occupy.
    """

    resolve: Callable[[Mapping[str, Any], str], TargetSpec]
    build: Callable[[Build], Built]
    precisions: Callable[[Mapping[str, Any]], tuple[str, ...]] = _all
    simulated: bool = False
    tuned_to_share: bool = False
