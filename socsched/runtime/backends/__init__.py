"""The backend interface: make a planned stage callable on this machine.

A backend is chosen by the sort of stage (network, host function, planned time only), never by the engine it was
planned on.  `prepare` runs in the worker thread that will call the result, because a TVM virtual machine and its
thread pool belong to one thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from socsched import plugins
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import ONNXRUNTIME, Platform
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
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


# Selection of the backend for a task, by the sort of its stage.

GROUP = "socsched.backends"
"""Backends by the sort of stage they run; a stage without a model runs as a load of its planned time."""


VENDOR = "dla"
"""Sort of the stages that a vendor's runtime executes, on DLAs, NPUs, and on GPUs where the plan chose it."""
GPUS = ("cuda", "opencl")
"""Sorts of stages that are launch lists of kernels."""
_COMPILED = (*GPUS, VENDOR)
"""Sorts that only the executor runs."""
_OF_TARGETS = {"tensorrt": VENDOR}
"""Kind of target -> the backend of its networks, if named differently."""
_OF_RUNTIMES = {("cuda", "tensorrt"): VENDOR, ("llvm", ONNXRUNTIME): ONNXRUNTIME}
"""Kind of target and planned runtime -> the backend of a program other than our code, which runs if it is installed."""


def sort_of(task: Task, setting: Setting) -> str:
    """Return the name of the backend for a task."""
    stage = setting.stage(task.name)
    kind = _target(setting, task.engine)
    if stage is None:
        if (move := setting.move(task.name)) is None:
            return "synthetic"
        if move.source not in setting.bound.get(move.sink, {}).values():  # no model reads it: there are no data
            return "synthetic"
        return "cuda" if kind == "cuda" else "conversion"
    if stage.model is None:
        return "synthetic"
    if stage.name in setting.built:
        return VENDOR
    wanted = _OF_TARGETS.get(kind, kind)
    if get_model(stage.model, stage.params).network is None:
        return wanted if _has_code(stage, task, setting) else "function"
    if program_of(task, kind):
        return _OF_RUNTIMES[kind, task.runtime]
    return wanted if wanted in (*_COMPILED, *plugins.names(GROUP)) else "network"


@cache
def is_installed(runtime: str) -> bool:
    """Return whether the Python module of a runtime is installed."""
    return find_spec(runtime) is not None


def program_of(task: Task, target: str) -> str:
    """Return the runtime that a task runs under on an engine of this kind of target, empty for our code."""
    return task.runtime if (target, task.runtime) in _OF_RUNTIMES and is_installed(task.runtime) else ""


def replaced_runtimes(setting: Setting) -> list[str]:
    """Return, in words, the stages that run as our code because the runtime they are planned for is not installed."""
    missing: dict[str, list[str]] = {}
    for task in setting.plan.tasks:
        if (_target(setting, task.engine), task.runtime) in _OF_RUNTIMES and not is_installed(task.runtime):
            missing.setdefault(task.runtime, []).append(task.name)
    return [
        f"{', '.join(names)}: planned for {runtime}, which is not installed: our kernels run instead, and take another "
        "time than planned (`socsched plan --runtime tvm` plans with them)"
        for runtime, names in missing.items()
    ]


def title_of(task: Task, setting: Setting) -> str:
    """Return the title of this task's jobs in the trace; synthetic loads are marked as such."""
    return f"{task.name} (synthetic load)" if sort_of(task, setting) == "synthetic" else task.name


def prepare(task: Task, setting: Setting, replaced: Mapping[str, Backend]) -> Call:
    """Return the callable for a task, from `replaced` (by sort) or the built-in backend."""
    sort = sort_of(task, setting)
    return (replaced.get(sort) or _load(sort)).prepare(task, setting.stage(task.name), setting)


def _target(setting: Setting, engine: str) -> str:
    found = next((e for e in setting.platform.engines if e.id == engine), None)
    return str(found.target.get("kind", "")) if found else ""


def _has_code(stage: Stage, task: Task, setting: Setting) -> bool:
    """Return whether a function is placed on an engine whose target has device code for it."""
    from socsched.compiler.builder import is_device_function

    engine = next((e for e in setting.platform.engines if e.id == task.engine), None)
    return engine is not None and not engine.operators.host_code and is_device_function(stage, engine)


class Instances(dict[str, Backend]):
    """The backends of one run by sort, each created on first use."""

    def __init__(self, replaced: Mapping[str, Backend]) -> None:
        super().__init__(replaced)
        self._lock = threading.Lock()

    def get(self, sort: str, default: Any = None) -> Any:
        """Return the backend of a sort."""
        with self._lock:
            if sort not in self:
                self[sort] = _load(sort)
            return self[sort]


def _load(sort: str) -> Backend:
    backend: Backend = plugins.load(GROUP, sort)()
    return backend
