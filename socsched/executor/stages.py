"""The stages of a plan as run.json describes them: host functions, networks compiled for CPUs, conversions, loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import CPU
from socsched.compiler.native.host_stages import StageCall, host_call
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import ONNXRUNTIME
from socsched.executor import vendor_stages
from socsched.executor.callbacks import Callbacks, Called
from socsched.executor.frames import entry_of
from socsched.executor.gpu_stages import (
    SHARING,
    describe_gpu_conversion,
    describe_gpu_stage,
    room_of,
    taking_turns,
    where_read,
)
from socsched.executor.programs import stored_cpu_program
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.planning.task import LOAD
from socsched.runtime.backends import GPUS, VENDOR, Call, Instances, Setting, prepare, sort_of, title_of
from socsched.runtime.backends.built_in import compiled, target_types
from socsched.runtime.collect import DETECTION_PORTS, PREFIXES

_SORTS = ("synthetic", "function", "network", "conversion", *GPUS, ONNXRUNTIME)
_MOST_ROWS = 100_000
"""Boxes of a host stage that the native executor allows."""

See = Callable[[str, int, Mapping[str, Any]], None]
"""Takes a stage, the number of a frame and the stage's outputs by port."""


@dataclass(frozen=True, slots=True)
class Served:
    """What this process does for the stages of a run.

    It calls those that are not compiled, and those whose sort is `replaced`, with `backends`, on the processors that
    `cpus` returns; `cheaper` returns the variant of a task for jobs that would be late.  `see` gets the outputs of all
    stages that `seen` accepts.  `places`: the most places where jobs of a task may run.
    """

    callbacks: Callbacks
    backends: Instances
    replaced: frozenset[str]
    cpus: Callable[[str, tuple[int, ...]], set[int]]
    cheaper: Callable[[Task], Task | None] = lambda task: None
    see: See | None = None
    seen: Callable[[str], bool] = lambda task: True
    places: int = 1


def unsupported_stages(setting: Setting) -> list[str]:
    """Return the stages that only Python runs, in words, without compiling any."""
    found: list[str] = []
    for task in setting.plan.tasks:
        sort, stage = sort_of(task, setting), setting.stage(task.name)
        if sort not in (*_SORTS, *((VENDOR,) if task.name in setting.built else ())):
            found.append(f"stage {task.name!r} is a {sort}")
        elif (
            sort == "function" and stage is not None and _host_call(get_model(stage.model or "", stage.params)) is None
        ):
            found.append(f"stage {task.name!r} is a function without a compiled form")
    return found


def describe_stages(
    setting: Setting,
    frames: Mapping[str, Sequence[TensorType]],
    rooms: Mapping[str, int] | None = None,
    served: Served | None = None,
) -> dict[str, dict[str, Any]]:
    """Return `stages` of run.json for a plan; networks are compiled, or taken from the cache.

    `frames`: the tensor types of the sensors' frames by sensor, in the order of `sensor_ports`, -1 where they vary.
    `rooms`: the most rows of those that vary.  `served`: what this process does for them; without it, UsageError for
    what only Python runs.
    """
    described: dict[str, dict[str, Any]] = {}
    for task in setting.plan.tasks:
        described[task.name] = how = _describe(task, setting, frames, rooms or {}, served)
        ports = [port.name for port in _outputs(task, setting)]
        if served is None or served.see is None or not ports or how["kind"] == "spin" or not served.seen(task.name):
            continue
        show = partial(served.see, task.name)
        how["observers"] = [served.callbacks.show(ports, show) for _ in range(served.places)]
        how["records"] = False
    return taking_turns(setting.plan, described)


def sensor_ports(setting: Setting) -> dict[str, list[str]]:
    """Return, for every sensor, the ports that stages read."""
    found: dict[str, list[str]] = {sensor.name: [] for sensor in setting.pipeline.sensors}
    for ports in setting.bound.values():
        for port, provider in ports.items():
            if provider in found and port not in found[provider]:
                found[provider].append(port)
    return found


def fixed_ports(setting: Setting) -> frozenset[str]:
    """Return the ports through which networks read tensors of one size; functions take any number of rows."""
    models = {name: get_model(setting.pipeline.stage(name).model or "", setting.pipeline.stage(name).params)
              for name in setting.bound}  # fmt: skip
    return frozenset(
        port.name
        for model in models.values()
        for port in model.inputs
        if model.network is not None and min(port.type.shape, default=1) > 0
    )


def _describe(
    task: Task,
    setting: Setting,
    frames: Mapping[str, Sequence[TensorType]],
    rooms: Mapping[str, int],
    served: Served | None,
) -> dict[str, Any]:
    sort, stage, title = sort_of(task, setting), setting.stage(task.name), title_of(task, setting)
    if task.name.startswith(LOAD):
        name = task.name.removeprefix(LOAD)
        return {"kind": "load", "title": f"weights of {name}", "loads": name, "inputs": [], "outputs": []}
    if served is not None and (sort in served.replaced or sort not in (*_SORTS, VENDOR, ONNXRUNTIME)):
        return _callback(task, setting, served)
    if sort == "synthetic":
        return {"kind": "spin", "title": title, "time_ns": task.cost_ns, "cheap_time_ns": task.cost_ns}
    if sort == "conversion":
        move = next(t for t in setting.plan.transitions if t.task == task.name)
        entries = [
            {"from": move.source, "port": _port(setting, move.source, port), **entry_of(kind)}
            for port, kind in target_types(move, setting).items()
        ]
        return {"kind": "convert", "title": title, "inputs": entries}
    if stage is None:
        return {**describe_gpu_conversion(task, setting, rooms), "title": title}
    bound = setting.bound[stage.name]
    if sort in (VENDOR, ONNXRUNTIME):
        built = setting.built.get(stage.name) or vendor_stages.describe_built_stage(task, stage, setting)
        inputs = [
            {**entry, "from": bound[entry["port"]], "port": _port(setting, bound[entry["port"]], entry["port"])}
            for entry in built["inputs"]
        ]
        return {**built, "inputs": inputs, "outputs": _shared(task, setting, built, served), "title": title}
    if sort in GPUS:
        sensors = sensor_ports(setting)
        given = {
            port: frames[provider][sensors[provider].index(port)]
            for port, provider in bound.items()
            if provider in frames
        }
        shown = served is not None and served.see is not None and served.seen(task.name)
        made = describe_gpu_stage(task, stage, setting, rooms, given, shown)
        names, types = zip(*made["inputs"], strict=True)
        return {**made, "title": title, "inputs": _inputs(setting, bound, names, types)}
    if sort == "function":
        return _function(task, stage, setting, frames, served)
    return _network(task, stage, setting, rooms, served)


def _shared(task: Task, setting: Setting, built: Mapping[str, Any], served: Served | None) -> list[Mapping[str, Any]]:
    """Return the outputs of a vendor's stage, with where they are read if its library shares memory of the GPU."""
    if built["adapter"] not in SHARING:
        return list(built["outputs"])
    shown = served is not None and (served.see is not None or not served.replaced.isdisjoint(GPUS))
    read = [where_read(task, setting, entry["port"], entry) for entry in built["outputs"]]
    return [
        {**entry, "on_host": shown or on_host, "on_gpu": on_gpu}
        for entry, (on_host, on_gpu) in zip(built["outputs"], read, strict=True)
    ]


def _function(
    task: Task, stage: Stage, setting: Setting, frames: Mapping[str, Sequence[TensorType]], served: Served | None
) -> dict[str, Any]:
    model, bound, sensors = get_model(stage.model or "", stage.params), setting.bound[stage.name], sensor_ports(setting)
    kinds = [
        frames[provider][sensors[provider].index(port.name)] if (provider := bound[port.name]) in frames else port.type
        for port in model.inputs
    ]
    call = _host_call(model, kinds)
    if call is None:
        assert served is not None, "see unsupported_stages"
        return _callback(task, setting, served)
    outputs = [replace(p.type, shape=(call.rows or p.type.shape[0], *p.type.shape[1:])) for p in model.outputs]
    names = [port.name for port in model.outputs]
    return {
        "kind": "host",
        "title": title_of(task, setting),
        "function": call.function,
        "params": bytes(call.params).hex(),
        "inputs": _inputs(setting, bound, [port.name for port in model.inputs], kinds),
        "outputs": [entry_of(kind) for kind in outputs],
        "records": _detects(names),
    }


def _host_call(model: Model, kinds: Sequence[TensorType] = ()) -> StageCall | None:
    """Return how the native executor calls a function, None if it cannot."""
    kinds = kinds or [port.type for port in model.inputs]
    if any(size < 0 for kind in kinds for size in kind.shape[1:]):
        return None  # images whose size is not known
    call = host_call(model, kinds)
    return None if call is not None and call.function != "voxelise" and call.rows > _MOST_ROWS else call


def _network(
    task: Task, stage: Stage, setting: Setting, rooms: Mapping[str, int], served: Served | None
) -> dict[str, Any]:
    artifact = compiled(task, stage, setting)
    if served is not None and CPU.file not in artifact.files:
        return _callback(task, setting, served)
    cheaper = served.cheaper(task) if served is not None else None
    return {
        "kind": "network",
        "title": title_of(task, setting),
        "program": str(stored_cpu_program(artifact, room_of(artifact, stage, setting, rooms))),
        "threads": artifact.threads,
        "inputs": _inputs(setting, setting.bound[stage.name], artifact.input_names, artifact.inputs),
        "outputs": [entry_of(kind) for kind in artifact.outputs],
        **_inside(artifact),
        **({"cheaper": _network(cheaper, stage, setting, rooms, None)} if cheaper is not None else {}),
    }


def _callback(task: Task, setting: Setting, served: Served) -> dict[str, Any]:
    """Return a stage that this process runs; its tensors cross as they are, each of its places has a thread."""
    stage, cheaper = setting.stage(task.name), served.cheaper(task)
    ports = _outputs(task, setting)
    given = _given(task, setting)

    def prepared(cheap: bool) -> Call:
        return prepare(cheaper if cheap and cheaper is not None else task, setting, served.backends)

    called = Called(
        task.name,
        prepared,
        cheaper is not None,
        [(provider, port) for provider, port, _ in given],
        {port.name: port.type for port in ports},
        frozenset(served.cpus(task.engine, tuple(task.lanes))),
        len(task.lanes),
    )
    return {
        "kind": "callback",
        "title": title_of(task, setting) if stage is None or stage.model is not None else task.name,
        "channels": [served.callbacks.call(called) for _ in range(served.places)],
        "inputs": [
            {"from": provider, "port": _port(setting, provider, port), **entry_of(kind)}
            for provider, port, kind in given
        ],
        "outputs": [entry_of(port.type) for port in ports],
        "records": _detects([port.name for port in ports]),
    }


def _given(task: Task, setting: Setting) -> list[tuple[str, str, TensorType]]:
    """Return provider, port and nominal type of the tensors that a task reads."""
    if move := setting.move(task.name):
        return [(move.source, port, kind) for port, kind in target_types(move, setting).items()]
    stage = setting.stage(task.name)
    if stage is None or stage.model is None:
        return []
    bound, ports = setting.bound[stage.name], get_model(stage.model, stage.params).inputs
    return [(bound[port.name], port.name, port.type) for port in ports]


def _outputs(task: Task, setting: Setting) -> Sequence[Port]:
    """Return the ports of a task's outputs, of a conversion those of its source."""
    move = setting.move(task.name)
    stage = setting.stage(task.name if move is None else move.source)
    return () if stage is None or stage.model is None else get_model(stage.model, stage.params).outputs


def _detects(ports: Sequence[str]) -> bool:
    return any(list(ports[:3]) == [prefix + port for port in DETECTION_PORTS] for prefix in PREFIXES)


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
    return {side: [entry_of(kind) for kind in kinds] for side, kinds in own.items() if kinds != list(sides[side][1])}


def _inputs(
    setting: Setting, bound: Mapping[str, str], names: Sequence[str], kinds: Sequence[TensorType]
) -> list[dict[str, Any]]:
    return [
        {"from": bound[name], "port": _port(setting, bound[name], name), **entry_of(kind)}
        for name, kind in zip(names, kinds, strict=True)
    ]


def _port(setting: Setting, provider: str, port: str) -> int:
    """Return the number of a port among the outputs of a stage or sensor."""
    sensors = sensor_ports(setting)
    if provider in sensors:
        return sensors[provider].index(port)
    stage = setting.pipeline.stage(provider)
    return [one.name for one in get_model(stage.model or "", stage.params).outputs].index(port)
