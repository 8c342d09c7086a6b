"""The backend interface: make a planned stage callable on this machine.

A backend is chosen by the sort of stage (network, host function, planned time only), never by the engine it was planned
on.  `prepare` runs in the worker thread that will call the result, because a TVM virtual machine and its thread pool
belong to one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform
from socsched.graph.operators import TensorType
from socsched.planning.plan import Plan, Task, Transition

Outputs = Mapping[str, Any]
Call = Callable[[Mapping[str, Outputs]], Outputs]
"""Takes the outputs of stages and sensors by name, returns this stage's outputs (arrays or `Placed`) by port name."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings common to all stages of a run; `bound` comes from `registry.bindings`.

    `built`: by stage, those that run as artefacts of vendors' tools, as `executor.vendor_stages` describes them.
    """

    plan: Plan
    pipeline: Pipeline
    platform: Platform
    bound: Mapping[str, Mapping[str, str]]
    weights: Path | None
    seed: int = 0
    scales: Path | None = None
    built: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def stage(self, name: str) -> Stage | None:
        """Return the pipeline's stage of a task, None for a conversion or a load."""
        return next((stage for stage in self.pipeline.stages if stage.name == name), None)

    def move(self, name: str) -> Transition | None:
        """Return the plan's first transition that a task converts for, None if it is no conversion."""
        return next((move for move in self.plan.transitions if move.task == name), None)


class Backend(Protocol):
    """Makes stages of one sort callable; `title` is a display name, `real` tells whether the stage really computes."""

    title: str
    real: bool

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the callable for a task; `stage` is None for a conversion."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """An array with its memory layout `type`; stages hand these on to avoid needless conversions."""

    array: Any
    type: TensorType


def gather(ports: Mapping[str, str], values: Mapping[str, Outputs], types: Sequence[TensorType] = ()) -> list[Any]:
    """Return the arrays for the input `ports` (port name -> provider) in port order, in the layouts of `types`.

    Without `types` they have their plain logical layout.
    """
    tensors = [values[provider][port] for port, provider in ports.items()]
    if not types:
        return [plain(value) for value in tensors]
    return [to_layout(value, wanted) for value, wanted in zip(tensors, types, strict=True)]


def plain(value: Any) -> Any:
    """Return a tensor's array in its logical shape (images as N, C, H, W)."""
    if not isinstance(value, Placed):
        return value
    return to_layout(
        value, TensorType(value.type.shape, value.type.dtype, "NCHW" if len(value.type.shape) == 4 else "")
    )


def to_layout(value: Any, wanted: TensorType) -> Any:
    """Return a tensor's array in the dtype and layout of `wanted`; the same array if it already has them."""
    from socsched.compiler.layouts import NUMPY_DTYPES, convert

    if isinstance(value, Placed):
        if (value.type.dtype, value.type.layout) == (wanted.dtype, wanted.layout):
            return value.array
        return convert(value.array, value.type, wanted)
    if len(wanted.shape) == 4 and wanted.layout not in ("", "NCHW"):
        dtype = next(name for name, known in NUMPY_DTYPES.items() if known == value.dtype)
        return convert(value, TensorType(value.shape, dtype, "NCHW"), wanted)
    return value.astype(NUMPY_DTYPES[wanted.dtype], copy=False)


class pool_of:
    """Context in which a TVM thread pool starts with `threads` threads, which inherit the caller's affinity."""

    def __init__(self, threads: int) -> None:
        # TVM's own binding counts from core 0 and would place all workers there
        self._wanted = {"TVM_NUM_THREADS": str(threads), "TVM_BIND_THREADS": "0"}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._wanted}
        os.environ.update(self._wanted)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
