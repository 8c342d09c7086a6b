"""Conversions planned on a CUDA GPU as run.json describes them: a launch list of the conversion kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.targets.cuda import convert
from socsched.errors import MachineError, UsageError
from socsched.executor.gpu_programs import CONSTANTS, FORMAT, Program, after, conversion, store
from socsched.executor.gpu_stages import SORT, number_of, room_of_port, takes_on_gpu
from socsched.executor.host_calls import host_call
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import sort_of
from socsched.runtime.backends.conversion import target_types
from socsched.runtime.backends.device_code import compiled
from socsched.runtime.backends.tvm_cpu import scales_of, weights_of

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
    made = _Program()
    inputs: list[dict[str, Any]] = []
    outputs, places = [dict(_ABSENT) for _ in names], [{"offset": 0, "bytes": 0} for _ in names]
    for port, kind in wanted.items():
        source, number = _readable(given[port]), names.index(port)
        rows = room_of_port(setting, move.source, port, rooms) if source.shape[:1] == (-1,) else 0
        full = _filled(source, rows)
        try:
            places[number] = made.add(full, replace(kind, shape=full.shape), rows)
        except MachineError as error:
            raise UsageError(f"{task.name}: {error}", error.hint) from error
        inputs.append({"from": move.source, "port": number, **_tensor(source)})
        form = _tensor(replace(kind, shape=source.shape))
        there = (takes_on_gpu(reader, task, setting, port, form) for reader in readers)
        outputs[number] = {**form, "on_host": not all(there)}
    arch = str(setting.platform.engine(task.engine).target.get("arch", ""))
    program = store(made.program(arch, places))
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
        return {port.name: _varying(port.type) if varied else port.type for port in model.outputs}
    if sort == SORT:
        artifact = compiled(task, stage, setting)
    else:
        engine, scales = setting.platform.engine(task.engine), scales_of(setting, stage)
        artifact = compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes), scales=scales)
    return dict(zip(artifact.output_names, artifact.outputs, strict=True))


class _Program:
    """The launch list of a conversion as far as it is built."""

    def __init__(self) -> None:
        self.memory = self.results = 0
        self.inputs: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []

    def add(self, given: TensorType, wanted: TensorType, rows: int) -> dict[str, int]:
        """Append a tensor's conversion and return its place among the results; `rows`: the most, if they vary."""
        size = _bytes(given)
        self.memory, offset = after(self.memory, size)
        self.results, result = after(self.results, _bytes(wanted))
        self.inputs.append(
            {"in": "memory", "offset": offset, "bytes": size, "row_bytes": size // rows if rows else 0, "fill": 0}
        )
        self.launches += conversion(given, wanted, offset, {"in": "results", "offset": result}, 0)
        return {"offset": result, "bytes": _bytes(wanted)}

    def program(self, arch: str, outputs: list[dict[str, int]]) -> Program:
        code = convert.code(arch)
        document = {
            "format": FORMAT,
            "version": 1,
            "arch": arch,
            "code": [str(code)],
            "sources": [{"file": str(convert.source_of(code)), "options": []}],
            "weights": CONSTANTS,
            "memory": self.memory,
            "constants": 0,
            "results": self.results,
            "inputs": self.inputs,
            "outputs": outputs,
            "launches": self.launches,
        }
        return Program(document, b"", (), (), ())


def _readable(kind: TensorType) -> TensorType:
    """Return a type that the kernels read: images with a border arrive from a processor, which lays them plainly."""
    image = len(kind.shape) == 4
    return replace(kind, layout="NCHW") if image and convert.channel_block(kind.layout or "NCHW") is None else kind


def _varying(kind: TensorType) -> TensorType:
    return replace(kind, shape=(-1, *kind.shape[1:]))


def _filled(kind: TensorType, rows: int) -> TensorType:
    return replace(kind, shape=(rows, *kind.shape[1:])) if rows else kind


def _bytes(kind: TensorType) -> int:
    return prod(physical_shape(kind)) * NUMPY_DTYPES[kind.dtype].itemsize


def _tensor(kind: TensorType) -> dict[str, Any]:
    return {"dtype": kind.dtype, "layout": kind.layout, "shape": list(kind.shape)}
