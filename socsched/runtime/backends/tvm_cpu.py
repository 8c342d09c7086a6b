"""Artefacts of a run's stages, and networks on this machine's CPU: a virtual machine of TVM per worker thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.descriptor.pipeline import Stage
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Placed, Setting, gather


class TvmCpuBackend:
    """Compiles a stage for its planned engine, precision and lanes, or takes it from the cache, and loads it."""

    title = "TVM"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the loaded stage with its inputs bound; input tensors are converted to its input layouts."""
        from socsched.compiler.loading.stages import load

        assert stage is not None
        artifact = compiled(task, stage, setting)
        loaded, bound = load(artifact), setting.bound[stage.name]
        inputs = {name: bound[name] for name in artifact.input_names}

        def call(values: Mapping[str, Outputs]) -> Outputs:
            arrays = loaded(*gather(inputs, values, artifact.inputs))
            placed = map(Placed, arrays, artifact.outputs)
            return dict(zip(artifact.output_names, placed, strict=True))

        return call


def weights_of(setting: Setting) -> Mapping[str, Any] | None:
    """Return the weights of a run's weights file, None without one."""
    return _weights(setting.weights) if setting.weights else None


def scales_of(setting: Setting, stage: Stage) -> Any:
    """Return the int8 scales of a stage from a run's scales file, None without one."""
    from socsched.compiler.quantize.scales import of_stage

    return of_stage(_scales(setting.scales), stage) if setting.scales else None


def known_scales(setting: Setting, stage: Stage, precision: str) -> Any:
    """Return the int8 scales of a stage for another program than our code: given, shipped, or of drawn weights."""
    from socsched.compiler.builder import drawn_scales, network_of, shipped_scales

    scales = scales_of(setting, stage)
    if scales is None and setting.weights is None and precision == "int8":
        scales = shipped_scales(network_of(stage)[0]) or drawn_scales(stage)
    return scales


@lru_cache(maxsize=1)
def _scales(path: Path) -> Mapping[str, Any]:
    from socsched.compiler.quantize.scales import read_pipeline_scales

    return read_pipeline_scales(path)


@lru_cache(maxsize=1)
def _weights(path: Path) -> Mapping[str, Any]:
    from socsched.models.weights import load_weights

    return load_weights(path)


# Artefacts of the stages of a run.


def compiled(task: Task, stage: Stage, setting: Setting) -> Artifact:
    """Return the artefact of a network or function for its planned engine and lanes, built unless cached."""
    from socsched.compiler.builder import border_precision, compile_function, compile_stage, is_device_function

    engine = setting.platform.engine(task.engine)
    if is_device_function(stage, engine):
        placed = {t.name: (t.engine, t.precision) for t in setting.plan.tasks if t.kind == "stage"}
        return compile_function(stage, engine, border_precision(stage, setting.pipeline, engine, placed))
    scales = scales_of(setting, stage)
    return compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes), scales=scales)
