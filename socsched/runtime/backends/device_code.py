"""Artefacts of the stages of a run."""

from __future__ import annotations

from socsched.compiler.artifact import Artifact
from socsched.descriptor.pipeline import Stage
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Setting


def compiled(task: Task, stage: Stage, setting: Setting) -> Artifact:
    """Return the artefact of a network or function for its planned engine and lanes, built unless cached."""
    from socsched.compiler.builder import border_precision, compile_function, compile_stage, is_device_function
    from socsched.runtime.backends.tvm_cpu import scales_of, weights_of

    engine = setting.platform.engine(task.engine)
    if is_device_function(stage, engine):
        placed = {t.name: (t.engine, t.precision) for t in setting.plan.tasks if t.kind == "stage"}
        return compile_function(stage, engine, border_precision(stage, setting.pipeline, engine, placed))
    scales = scales_of(setting, stage)
    return compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes), scales=scales)
