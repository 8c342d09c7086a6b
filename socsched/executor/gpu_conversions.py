"""Conversions planned on a CUDA GPU as run.json describes them: a launch list of the conversion kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from socsched.compiler.targets.cuda import convert
from socsched.errors import MachineError, UsageError
from socsched.executor.frames import entry_of
from socsched.executor.gpu_programs import build_conversions, store
from socsched.executor.gpu_stages import SORT, number_of, room_of_port, takes_on_gpu
from socsched.executor.host_calls import host_call
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import sort_of
from socsched.runtime.backends.conversion import target_types
from socsched.runtime.backends.device_code import compiled

_ABSENT = {"dtype": "fp32", "layout": "", "shape": [0], "on_host": False}
"""An output that does not cross: a conversion's outputs have the ports of its source."""


def describe_gpu_conversion(task: Task, setting: Setting, rooms: Mapping[str, int]) -> dict[str, Any]:
    """Return a conversion's description: its program, and for every port of its source an output.

    `rooms`: the most rows of a sensor's frames.  UsageError for tensors that the GPU does not convert.
    """
    move = next(t for t in setting.plan.transitions if t.task == task.name)
    given, wanted = output_types(move.source, setting), target_types(move, setting)
    names = list(given)
    sinks = {t.sink for t in setting.plan.transitions if t.task == task.name}
    readers = [t for t in setting.plan.tasks if t.name in sinks]
    tensors: dict[int, tuple[TensorType, TensorType, int]] = {}
    inputs: list[dict[str, Any]] = []
    outputs = [dict(_ABSENT) for _ in names]
    for port, kind in wanted.items():
        source, number = _readable(given[port]), names.index(port)
        rows = room_of_port(setting, move.source, port, rooms) if source.shape[:1] == (-1,) else 0
        full = replace(source, shape=(rows, *source.shape[1:])) if rows else source
        tensors[number] = full, replace(kind, shape=full.shape), rows
        inputs.append({"from": move.source, "port": number, **entry_of(source)})
        form = entry_of(replace(kind, shape=source.shape))
        there = (takes_on_gpu(reader, task, setting, port, form) for reader in readers)
        outputs[number] = {**form, "on_host": not all(there)}
    arch = str(setting.platform.engine(task.engine).target.get("arch", ""))
    try:
        program = store(build_conversions(tensors, len(names), arch))
    except MachineError as error:
        raise UsageError(f"{task.name}: {error}", error.hint) from error
    described = {"kind": SORT, "programs": [str(program)], "inputs": inputs}
    return {**described, **number_of(task, setting), "outputs": outputs}


def output_types(name: str, setting: Setting) -> dict[str, TensorType]:
    """Return the types of a stage's outputs in memory, by port in the order of its model; -1: rows that vary."""
    task = next(t for t in setting.plan.tasks if t.name == name)
    stage = setting.pipeline.stage(name)
    sort, model = sort_of(task, setting), get_model(stage.model or "", stage.params)
    if built := setting.built.get(name):
        return {one["port"]: TensorType(tuple(one["shape"]), one["dtype"], one["layout"]) for one in built["outputs"]}
    if sort == "function":
        call = host_call(model, [port.type for port in model.inputs])
        varied = call is not None and call.rows > 0
        return {
            port.name: replace(port.type, shape=(-1, *port.type.shape[1:])) if varied else port.type
            for port in model.outputs
        }
    artifact = compiled(task, stage, setting)
    return dict(zip(artifact.output_names, artifact.outputs, strict=True))


def _readable(kind: TensorType) -> TensorType:
    """Return a type that the kernels read: images with a border arrive from a processor, which lays them plainly."""
    image = len(kind.shape) == 4
    return replace(kind, layout="NCHW") if image and convert.channel_block(kind.layout or "NCHW") is None else kind
