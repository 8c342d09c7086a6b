"""Stages and conversions of a GPU as run.json describes them: compiled to programs of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.native.host_stages import host_call
from socsched.compiler.store import read_json
from socsched.compiler.targets.cuda import convert
from socsched.compiler.targets.gpu_functions.program import is_function, marking
from socsched.cost.cost import launched_ahead
from socsched.descriptor.pipeline import Stage
from socsched.errors import MachineError, UsageError
from socsched.executor.frames import entry_of
from socsched.executor.programs import build_conversions, store, stored_program
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Plan, Task
from socsched.planning.task import LOAD, SLOT
from socsched.runtime.backends import Setting, sort_of
from socsched.runtime.backends.built_in import compiled, target_types
from socsched.runtime.collect import DETECTION_PORTS, PREFIXES

SORT = "cuda"
SHARING = ("board", "cudla")
"""Adapters whose libraries read and write memory of the first GPU."""


def describe_gpu_stage(
    task: Task,
    stage: Stage,
    setting: Setting,
    rooms: Mapping[str, int],
    frames: Mapping[str, TensorType],
    shown: bool = False,
) -> dict[str, Any]:
    """Return the part of a stage's description that is specific to GPUs: its programs, and outputs with their readers.

    `rooms`: the most rows of a sensor's frames; `frames`: the types of the inputs that come from sensors, which the
    program converts; with `shown` the host reads all outputs.  UsageError for a stage that needs TVM's runtime.
    """
    artifact = compiled(task, stage, setting)
    arch = str(setting.platform.engine(task.engine).target.get("arch", ""))
    given = dict(zip(artifact.input_names, artifact.inputs, strict=True))
    arriving = {
        name: kind for name, kind in frames.items() if artifact.target == SORT and _is_converted(kind, given[name])
    }
    program = stored_program([artifact], arch, room_of(artifact, stage, setting, rooms), arriving)
    names = artifact.output_names
    mark = marking(names) if is_function(artifact) else None
    read = {
        name: artifact.target != SORT or where_read(task, setting, name, entry_of(kind))[0]
        for name, kind in zip(names, artifact.outputs, strict=True)
    }
    records = any(list(names[:3]) == [prefix + port for port in DETECTION_PORTS] for prefix in PREFIXES)
    entries = [
        {**entry_of(kind), "on_host": shown or records or read[name] or (name == mark and any(read.values()))}
        for name, kind in zip(names, artifact.outputs, strict=True)
    ]
    described: dict[str, Any] = {"kind": sort_of(task, setting), "programs": [str(program)], "outputs": entries}
    described |= number_of(task, setting)
    described |= groups_of(task, setting)
    described |= _graphs(task, setting)
    if mark is not None:
        described["marks"] = {"output": names.index(mark), "least": int(mark == "counts")}
    inputs = [(name, arriving.get(name, kind)) for name, kind in given.items()]
    return {**described, "records": records, "inputs": inputs}


def taking_turns(plan: Plan, described: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the stages of run.json, networks that a plan loads for every frame and their loads with their slot.

    A slot has room for the largest of its networks.  UsageError for networks that are no launch lists for CUDA.
    """
    stages = {name: dict(how) for name, how in described.items()}
    for number, chain in enumerate(chain for chain in plan.chains if chain.name.startswith(SLOT)):
        names = [name.removeprefix(LOAD) for name in chain.path if name.startswith(LOAD)]
        if other := next((name for name in names if stages[name]["kind"] != SORT), ""):
            raise UsageError(
                f"weights of {other} are loaded for every frame, which the executor does for kernels of CUDA only",
                "simulate the plan, or plan with a larger memory",
            )
        size = max(read_json(Path(stages[name]["programs"][0]))["constants"] for name in names)
        for name in names:
            turn = {"slot": {"number": number, "bytes": size}}
            stages[LOAD + name] |= turn | {key: stages[name][key] for key in ("device",) if key in stages[name]}
            stages[name] |= turn
    return stages


def _is_converted(given: TensorType, wanted: TensorType) -> bool:
    """Return whether kernels bring a tensor of a sensor into the form that a stage takes, where these differ."""
    if min(given.shape, default=0) < 1 or prod(given.shape) != prod(wanted.shape):
        return False
    if (given.dtype, given.layout or "NCHW") == (wanted.dtype, wanted.layout or "NCHW"):
        return False
    try:
        convert.kernel_for(given, wanted)
    except MachineError:
        return False
    return len(given.shape) == len(wanted.shape)


def number_of(task: Task, setting: Setting) -> dict[str, int]:
    """Return the number of a task's GPU as an entry, none for the first."""
    number = setting.platform.engine(task.engine).target.get("device", 0)
    return {"device": int(number)} if number else {}


def groups_of(task: Task, setting: Setting) -> dict[str, int]:
    """Return the groups of units that a plan divides a task's GPU into, none where a job has all of it."""
    lanes = next(engine.lanes for engine in setting.plan.engines if engine.id == task.engine)
    return {"groups": lanes} if lanes > 1 else {}


def _graphs(task: Task, setting: Setting) -> dict[str, int]:
    """Return the most that graphs queued at once may take, and how many may be; nothing for a stage of one graph.

    It is what bounds count for segments launched ahead, whatever the executor's kernels are.  A stage is one graph
    where no rival could take its place: every further graph costs the host a launch and a wait.
    """
    engine = next(engine for engine in setting.plan.engines if engine.id == task.engine)
    if engine.preemption != "segment" or len(task.segments) < 2 or not _has_rivals(task, setting.plan):
        return {}
    return {"longest_ns": launched_ahead(task.segments, engine.in_flight), "queued": engine.in_flight}


def _has_rivals(task: Task, plan: Plan) -> bool:
    """Return whether another task of its lanes may have to go first while a task runs.

    Those before and after it may not, under EDF and fixed priorities, where a frame is due before the next one comes:
    they have run, or wait.
    """
    tasks = {one.name: one for one in plan.tasks}

    def before(name: str) -> set[str]:
        found: set[str] = set()
        left = [name]
        while left:
            new = {other for other in tasks[left.pop()].after if other in tasks} - found
            found |= new
            left += new
        return found

    others = [
        one.name
        for one in plan.tasks
        if one.engine == task.engine and one.name != task.name and not set(one.lanes).isdisjoint(task.lanes)
    ]
    if plan.policy not in ("edf", "fp") or task.deadline_ns > task.period_ns:
        return bool(others)
    own = before(task.name)
    return any(name not in own and task.name not in before(name) for name in others)


def room_of(artifact: Artifact, stage: Stage, setting: Setting, rooms: Mapping[str, int]) -> int:
    """Return the most rows of an artefact's inputs whose number of rows varies, 0 if there is none.

    UsageError if they have different numbers.
    """
    bound = setting.bound[stage.name]
    varying = [
        room_of_port(setting, bound[name], name, rooms)
        for name, kind in zip(artifact.input_names, artifact.inputs, strict=True)
        if kind.shape and kind.shape[0] < 0
    ]
    if len(set(varying)) > 1:
        raise UsageError(f"{stage.name}: its inputs have different numbers of rows", "run with another executor")
    return max(varying, default=0)


def where_read(task: Task, setting: Setting, port: str, form: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the host reads an output, as it does what nothing in the plan reads, and whether a GPU does.

    `form`: how it lies on the GPU, as an entry of run.json.
    """
    tasks = {t.name: t for t in setting.plan.tasks}
    moves = [move for move in setting.plan.transitions if move.source == task.name and move.task in tasks]
    moved = {move.sink for move in moves}
    readers = [
        name
        for name, ports in setting.bound.items()
        if name in tasks and name not in moved and ports.get(port) == task.name
    ]
    there = [
        takes_on_gpu(tasks[name], task, setting, port, form) for name in (*readers, *{move.task for move in moves})
    ]
    return not all(there) or not there, any(there)


def takes_on_gpu(reader: Task, task: Task, setting: Setting, port: str, form: Mapping[str, Any]) -> bool:
    """Return whether a stage takes an output of `task` where it lies: our kernels, or a library of the first GPU.

    That has to take the form in which it lies there.
    """
    built = setting.built.get(reader.name)
    if built is None:
        return sort_of(reader, setting) == SORT and "scale_bits" not in form
    entries = [entry for entry in built["inputs"] if entry["port"] == port]
    same = [entry.get(key) == form.get(key) for entry in entries for key in ("dtype", "layout", "scale_bits")]
    return built["adapter"] in SHARING and not number_of(task, setting) and bool(entries) and all(same)


def room_of_port(setting: Setting, provider: str, port: str, rooms: Mapping[str, int]) -> int:
    """Return the most rows of a tensor whose number of rows varies for its reader."""
    if provider in rooms:
        return rooms[provider]
    stage = setting.pipeline.stage(provider)
    model = get_model(stage.model or "", stage.params)
    if model.network is None:
        call = host_call(model, [one.type for one in model.inputs])
        rows = call.rows if call is not None else 0
        return rows or next(one.type for one in model.outputs if one.name == port).shape[0]
    given = model.network().inputs
    bound = setting.bound[provider]
    found = [room_of_port(setting, bound[name], name, rooms) for name, kind in given.items() if kind.shape[0] < 0]
    if not found:
        raise UsageError(
            f"{provider}: the largest number of rows of {port!r} is not known", "run with another executor"
        )
    return max(found)


# Conversions planned on a CUDA GPU as run.json describes them: a launch list of the conversion kernels.

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
