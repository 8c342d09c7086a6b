"""References of a bundle's self-test: the data of one frame, as Python computes them stage by stage on this machine.

references.json names a file of tensors for every sensor and stage, in the form of `inputs` of run.json, with the
tolerance of floating-point outputs in millionths of their largest value, and what a profile says of the stage.

Vendors' runtimes round int8 in their own way, and deep layers amplify a step of a constant background over all of an
image that is mostly empty.  Their references are of the network in fp32, and are compared where a sparse input is not
zero, by the root mean square of errors (`rms_ppm`): what our own int8 code errs there, and half of it more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.target import resolve
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.platform import ONNXRUNTIME, Engine, Platform, Runtime
from socsched.executor.stages import sensor_ports
from socsched.files import write_file
from socsched.graph.operators import TensorType
from socsched.graph.rules import uncompiled_operators
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.runtime.backends import VENDOR, Backend, Outputs, Setting, plain, sort_of, to_layout
from socsched.runtime.backends.built_in import FunctionBackend, OnnxRuntimeBackend, TvmCpuBackend
from socsched.runtime.frames import Frame

REFERENCES = "references.json"
_DATA = "reference-{}.bin"
_BACKENDS: Mapping[str, type[Backend]] = {
    "function": FunctionBackend,
    "network": TvmCpuBackend,
    ONNXRUNTIME: OnnxRuntimeBackend,
    VENDOR: TvmCpuBackend,
}
_TOLERANCES = {"fp32": 1e-3}
_COARSE = 2e-2
"""Tolerance in fp16 and int8, where one rounding more is a step of the data type."""
_MARGIN, _LEAST, _SPARSE = 1.5, 0.05, 0.5
"""Allowed error of vendors' int8 stages by that of ours (two that err alike, independently, are apart by its 1.4-fold),
at least (shipped heads err 3 % as Q/DQ models, as here), and the share of places below which an image is sparse."""


def tolerance_of(precision: str) -> float:
    """Return how far outputs may be apart, relative to the largest value of a tensor."""
    return _TOLERANCES.get(precision, _COARSE)


def _with_onnx_runtime(here: Setting, engine: str) -> Setting:
    """Return a setting whose engine is one that ONNX Runtime computes for, whatever its operators."""
    engines = tuple(
        replace(one, runtimes=(Runtime(ONNXRUNTIME),), operators=OperatorRules()) if one.id == engine else one
        for one in here.platform.engines
    )
    return replace(here, platform=replace(here.platform, engines=engines))


def write_references(
    setting: Setting,
    frames: Mapping[str, Frame],
    described: Mapping[str, Mapping[str, Any]],
    folder: Path,
    exact: bool = False,
) -> Path:
    """Write the inputs and outputs of a plan's stages for one frame of each sensor; return references.json.

    `described`: the stages of run.json.  Networks for other engines are computed by code for this CPU, whose results
    differ in their last digits, in fp16 and int8 by a step of the data type; `exact` allows no difference.
    """
    here, pipeline = replace(setting, platform=on_this_machine(setting.platform)), setting.pipeline
    ports = sensor_ports(setting)
    values: dict[str, Outputs] = {name: frame.outputs for name, frame in frames.items()}
    found: dict[str, Sequence[Any]] = {
        name: [values[name][port] for port in ports[name]] for name in values if ports.get(name)
    }
    data = {name: _write(folder, number, arrays) for number, (name, arrays) in enumerate(found.items())}
    tasks = {task.name: task for task in setting.plan.tasks}
    cpu = next((engine.id for engine in here.platform.engines if engine.kind == "cpu"), "")
    for name in task_graph(pipeline).order:
        task = tasks[name]
        backend = _BACKENDS.get(sort_of(task, here))
        if backend is None:
            continue
        alone = task if _runs_here(setting.platform.engine(task.engine)) else replace(task, lanes=task.lanes[:1])
        where = here
        engine = here.platform.engine(alone.engine)
        # what another engine has kernels for, and our code for CPUs has not
        if backend is TvmCpuBackend and uncompiled_operators(stage_work(pipeline.stage(name), alone.precision), engine):
            backend, where = OnnxRuntimeBackend, _with_onnx_runtime(here, task.engine)
        values[name] = backend().prepare(alone, pipeline.stage(name), where)(values)
        how_far = {"tolerance_ppm": 0 if exact else round(tolerance_of(task.precision) * 1e6)}
        if cpu and name in here.built and task.precision == "int8" and not exact:
            own = values[name]
            exactly = replace(alone, precision="fp32", engine=cpu)
            values[name] = backend().prepare(exactly, pipeline.stage(name), here)(values)
            inputs = [plain(values[source][port]) for port, source in setting.bound[name].items()]
            error = max(_rms_error(plain(own[port]), plain(values[name][port]), inputs) for port in own)
            how_far = {"rms_ppm": min(round(max(_MARGIN * error, _LEAST) * 1e6), 10**6)}
        stored = [name, *(move.task for move in setting.plan.transitions if move.source == name)]
        for title in stored:  # a conversion on a GPU has an output for every port of its source
            if how := described.get(title, {}).get("outputs"):
                written = _write_outputs(folder, len(data), values[name].values(), how)
                data[title] = {**written, **how_far}
    costs = {
        name: {"precision": task.precision, "runtime": task.runtime if name in setting.built else ""}
        for name, task in tasks.items()
        if name in data and task.kind == "stage"
    }
    return _write_document(folder, data, platform=setting.plan.platform, mode=setting.plan.mode, costs=costs)


def write_expected(
    stage: str,
    described: Mapping[str, Mapping[str, Any]],
    sensors: Mapping[str, int],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    folder: Path,
) -> Path:
    """Write the references of one stage that was computed elsewhere, without tolerance; return references.json.

    `described`: the stages of run.json; `sensors`: the number of ports of each sensor in it.  `inputs` and `outputs` of
    the stage are in their logical shapes.
    """
    how = described[stage]
    given: dict[str, list[Any]] = {}
    kinds: dict[str, list[TensorType]] = {}
    nothing = TensorType((0,), "fp32", "")
    for entry, array in zip(how["inputs"], inputs, strict=True):
        source, port = entry["from"], entry["port"]
        made = [] if source in sensors else described[source]["outputs"]
        count = sensors.get(source, len(made))
        ports = given.setdefault(source, [np.zeros(0, np.float32)] * count)
        types = kinds.setdefault(source, [nothing] * count)
        image = "NCHW" if array.ndim == 4 else ""
        types[port] = TensorType(tuple(array.shape), entry["dtype"], made[port]["layout"] if made else image)
        ports[port] = to_layout(array, types[port])
    data = {name: _write(folder, number, given[name], kinds[name]) for number, name in enumerate(given)}
    data[stage] = _write_outputs(folder, len(data), outputs, how["outputs"])
    return _write_document(folder, data)


def _rms_error(values: Any, expected: Any, inputs: Sequence[Any]) -> float:
    """Return the error relative to the expected values, where a sparse image among the inputs is not zero."""
    squares, errors = np.square(expected, dtype=np.float64), (values.astype(np.float64) - expected) ** 2
    for image in inputs:
        if (
            expected.ndim != 4
            or image.ndim != 4
            or any(a % b for a, b in zip(image.shape[2:], expected.shape[2:], strict=True))
        ):
            continue
        (rows, columns), some = expected.shape[2:], (image != 0).any(axis=(0, 1))
        cells = some.reshape(rows, image.shape[2] // rows, columns, image.shape[3] // columns).any(axis=(1, 3))
        if 0 < cells.mean() < _SPARSE:
            squares, errors = squares[..., cells], errors[..., cells]
            break
    return float(np.sqrt(errors.sum() / squares.sum())) if squares.any() else 0.0


def _write_document(folder: Path, data: Mapping[str, Any], **about: Any) -> Path:
    document = {"format": "socsched-references", "version": 1, "tolerance_ppm": 0, "data": data, **about}
    write_file(folder / REFERENCES, json.dumps(document, indent=1) + "\n")
    return folder / REFERENCES


def on_this_machine(platform: Platform) -> Platform:
    """Return a platform whose GPUs, and CPUs of another kind, are replaced by this machine's processor."""
    return replace(platform, engines=tuple(map(_here, platform.engines)))


def _here(engine: Engine) -> Engine:
    return engine if _runs_here(engine) else replace(engine, target={"kind": "llvm", "host": True})


def _runs_here(engine: Engine) -> bool:
    kind = engine.target.get("kind")
    return kind not in ("cuda", "opencl") and (kind != "llvm" or resolve(engine.target, engine.id).native)


def _write_outputs(
    folder: Path, number: int, values: Iterable[Any], how: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Write a stage's outputs in the forms that run.json states, empty where a port does not cross a conversion."""
    kinds = [TensorType(tuple(one["shape"]), one["dtype"], one["layout"]) for one in how]
    arrays = [
        np.zeros(0, np.float32) if kind.shape == (0,) else to_layout(value, kind)
        for value, kind in zip(values, kinds, strict=True)
    ]
    return _write(folder, number, arrays, kinds)


def _write(folder: Path, number: int, arrays: Sequence[Any], kinds: Sequence[TensorType] = ()) -> dict[str, Any]:
    """Write tensors to a file and return its entry: one frame, and an empty one to warm up."""
    from socsched.compiler.layouts import NUMPY_DTYPES

    names = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
    file = folder / _DATA.format(number)
    with file.open("wb") as target:
        for array in arrays:
            target.write(np.ascontiguousarray(array).tobytes())
    ports, shapes = [], []
    for index, array in enumerate(arrays):
        layout = kinds[index].layout if kinds else ""
        image = bool(kinds) and len(kinds[index].shape) == 4
        shape = list(kinds[index].shape) if image else list(array.shape)
        ports.append({"dtype": names[array.dtype], "layout": layout, "shape": shape})
        shapes.append(shape)
    empty = {"shapes": [[0]] * len(shapes)}
    return {"file": file.name, "ports": ports, "frames": [{"shapes": shapes}], "warm": empty}
