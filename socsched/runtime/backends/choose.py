"""Selection of the backend for a task, by the sort of its stage."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from socsched import plugins
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import ONNXRUNTIME
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Backend, Call, Setting

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
