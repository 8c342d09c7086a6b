"""Which backend runs a task: by what its stage is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from socsched.descriptor.pipeline import Stage
from socsched.models.registry import get_model
from socsched.plan.plan import Task
from socsched.run.backends.base import Backend, Call, Setting

BACKENDS = {
    "network": "socsched.run.backends.tvm_cpu:TvmCpuBackend",
    "function": "socsched.run.backends.function:FunctionBackend",
    "synthetic": "socsched.run.backends.synthetic:SyntheticBackend",
}
"""Sort of stage -> "module:class"; a stage without model and a conversion are run as a load of their planned time."""


def sort_of(task: Task, setting: Setting) -> str:
    """Return the key of `BACKENDS` for a task."""
    stage = _stage(task, setting)
    if stage is None or stage.model is None:
        return "synthetic"
    return "network" if get_model(stage.model, stage.params).network is not None else "function"


def title_of(task: Task, setting: Setting) -> str:
    """Return what a job of this task is called in the trace; a load says that it is one."""
    stage = _stage(task, setting)
    return task.name if stage is not None and stage.model else f"{task.name} (synthetic load)"


def prepare(task: Task, setting: Setting, replaced: Mapping[str, Backend]) -> Call:
    """Return the callable for a task, from `replaced` (by sort) or the built-in backend."""
    sort = sort_of(task, setting)
    backend = replaced.get(sort) or _load(BACKENDS[sort])
    return backend.prepare(task, _stage(task, setting), setting)


def _load(where: str) -> Backend:
    module, name = where.split(":")
    backend: Backend = getattr(import_module(module), name)()
    return backend


def _stage(task: Task, setting: Setting) -> Stage | None:
    return next((stage for stage in setting.pipeline.stages if stage.name == task.name), None)
