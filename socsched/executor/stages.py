"""The stages of a plan as run.json describes them: host functions, networks compiled for CPUs, conversions, loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.builder import compile_stage
from socsched.descriptor.pipeline import Stage
from socsched.executor.cpu_programs import stored_cpu_program
from socsched.executor.gpu_conversions import describe_gpu_conversion
from socsched.executor.gpu_stages import describe_gpu_stage, room_of
from socsched.executor.host_calls import host_call
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import sort_of, title_of
from socsched.runtime.backends.conversion import target_types
from socsched.runtime.backends.tvm_cpu import scales_of, weights_of
from socsched.runtime.collect import DETECTION_PORTS, PREFIXES

_SORTS = ("synthetic", "function", "network", "conversion", "cuda")
_MOST_ROWS = 100_000
"""Boxes of a host stage that the native executor allows."""


def unsupported_stages(setting: Setting) -> list[str]:
    """Return the stages that the native executor lacks, in words, without compiling any."""
    found: list[str] = []
    for task in setting.plan.tasks:
        sort, stage = sort_of(task, setting), _stage(task, setting)
        if sort not in _SORTS:
            found.append(f"stage {task.name!r} is a {sort}")
        elif sort == "function" and stage is not None:
            model = get_model(stage.model or "", stage.params)
            call = host_call(model, [port.type for port in model.inputs])
            if call is None or (call.function != "voxelise" and call.rows > _MOST_ROWS):
                found.append(f"stage {task.name!r} is a function without a compiled form")
    return found


def describe_stages(
    setting: Setting, frames: Mapping[str, Sequence[TensorType]], rooms: Mapping[str, int] | None = None
) -> dict[str, dict[str, Any]]:
    """Return `stages` of run.json for a plan; networks are compiled, or taken from the cache.

    `frames`: the tensor types of the sensors' frames by sensor, in the order of `sensor_ports`, -1 where they vary.
    `rooms`: the most rows of those that vary.
    """
    return {task.name: _describe(task, setting, frames, rooms or {}) for task in setting.plan.tasks}


def sensor_ports(setting: Setting) -> dict[str, list[str]]:
    """Return, for every sensor, the ports that stages read."""
    found: dict[str, list[str]] = {sensor.name: [] for sensor in setting.pipeline.sensors}
    for ports in setting.bound.values():
        for port, provider in ports.items():
            if provider in found and port not in found[provider]:
                found[provider].append(port)
    return found


def _describe(
    task: Task, setting: Setting, frames: Mapping[str, Sequence[TensorType]], rooms: Mapping[str, int]
) -> dict[str, Any]:
    sort, stage, title = sort_of(task, setting), _stage(task, setting), title_of(task, setting)
    if sort == "synthetic":
        return {"kind": "spin", "title": title, "time_ns": task.cost_ns, "cheap_time_ns": task.cost_ns}
    if sort == "conversion":
        move = next(t for t in setting.plan.transitions if t.task == task.name)
        entries = [
            {"from": move.source, "port": _port(setting, move.source, port), **_tensor(kind)}
            for port, kind in target_types(move, setting).items()
        ]
        return {"kind": "convert", "title": title, "inputs": entries}
    if stage is None:
        return {**describe_gpu_conversion(task, setting, rooms), "title": title}
    model, bound = get_model(stage.model or "", stage.params), setting.bound[stage.name]
    if sort == "cuda":
        made = describe_gpu_stage(task, stage, setting, rooms)
        artifact = made.pop("artifact")
        return {**made, "title": title, "inputs": _inputs(setting, bound, artifact.input_names, artifact.inputs)}
    if sort == "function":
        sensors = sensor_ports(setting)
        wanted = [
            frames[provider][sensors[provider].index(port.name)]
            if (provider := bound[port.name]) in frames
            else port.type
            for port in model.inputs
        ]
        call = host_call(model, [replace(kind, shape=tuple(max(size, 1) for size in kind.shape)) for kind in wanted])
        assert call is not None
        outputs = [replace(p.type, shape=(call.rows or p.type.shape[0], *p.type.shape[1:])) for p in model.outputs]
        names = [port.name for port in model.outputs]
        return {
            "kind": "host",
            "title": title,
            "function": call.function,
            "params": bytes(call.params).hex(),
            "inputs": _inputs(setting, bound, [port.name for port in model.inputs], wanted),
            "outputs": [_tensor(kind) for kind in outputs],
            "records": any(names[:3] == [prefix + port for port in DETECTION_PORTS] for prefix in PREFIXES),
        }
    engine = setting.platform.engine(task.engine)
    scales = scales_of(setting, stage)
    artifact = compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes), scales=scales)
    return {
        "kind": "network",
        "title": title,
        "program": str(stored_cpu_program(artifact, room_of(artifact, stage, setting, rooms))),
        "threads": artifact.threads,
        "inputs": _inputs(setting, bound, artifact.input_names, artifact.inputs),
        "outputs": [_tensor(kind) for kind in artifact.outputs],
        **_inside(artifact),
    }


def _inside(artifact: Artifact) -> dict[str, Any]:
    """Return the forms in which the code takes and returns tensors, where they are others than the stage's."""
    sides = {
        "code_inputs": (artifact.code_inputs or artifact.inputs, artifact.inputs),
        "code_outputs": (artifact.code_outputs or artifact.outputs, artifact.outputs),
    }
    halves = artifact.computes_half
    own = {
        side: [replace(kind, dtype="fp32") if kind.dtype == "fp16" and not halves else kind for kind in kinds]
        for side, (kinds, _) in sides.items()
    }
    return {side: [_tensor(kind) for kind in kinds] for side, kinds in own.items() if kinds != list(sides[side][1])}


def _inputs(
    setting: Setting, bound: Mapping[str, str], names: Sequence[str], kinds: Sequence[TensorType]
) -> list[dict[str, Any]]:
    return [
        {"from": bound[name], "port": _port(setting, bound[name], name), **_tensor(kind)}
        for name, kind in zip(names, kinds, strict=True)
    ]


def _port(setting: Setting, provider: str, port: str) -> int:
    """Return the number of a port among the outputs of a stage or sensor."""
    sensors = sensor_ports(setting)
    if provider in sensors:
        return sensors[provider].index(port)
    stage = setting.pipeline.stage(provider)
    return [one.name for one in get_model(stage.model or "", stage.params).outputs].index(port)


def _tensor(kind: TensorType) -> dict[str, Any]:
    return {"dtype": kind.dtype, "layout": kind.layout, "shape": list(kind.shape)}


def _stage(task: Task, setting: Setting) -> Stage | None:
    return next((stage for stage in setting.pipeline.stages if stage.name == task.name), None)
