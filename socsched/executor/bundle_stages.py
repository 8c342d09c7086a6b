"""Stages of a bundle's native application: its compiled networks, host functions, and frames for its sensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.compiler.packaging.deploy import placed_in
from socsched.compiler.store import read_json
from socsched.compiler.targets.cuda.toolkits import board_toolkits
from socsched.errors import UsageError
from socsched.executor.frames import most_rows, write_inputs
from socsched.executor.gpu_programs import PROGRAM, copy_programs, copy_sources
from socsched.executor.references import write_references
from socsched.executor.stages import describe_stages, sensor_ports, unsupported_stages
from socsched.executor.vendor_stages import shipped_stage
from socsched.files import write_file
from socsched.models.registry import get_model
from socsched.planning.plan import Plan
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import sort_of
from socsched.runtime.inputs import prepare_inputs

FOLDER, PROGRAMS = "native", "programs"
_FRAMES = 4
"""Frames of every sensor in a bundle; a run repeats them."""


@dataclass(frozen=True, slots=True)
class Stages:
    """`stages` and `inputs` of run.json; `built`: artefacts that the board's own tools make before the first run."""

    stages: Mapping[str, Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    built: tuple[str, ...] = ()


def no_stages(plan: Plan) -> Stages:
    """Return the stages of a plan that only takes time."""
    return Stages({task.name: {"kind": "spin", "time_ns": task.cost_ns} for task in plan.tasks})


def write_stages(setting: Setting, folder: Path) -> Stages:
    """Write programs, frames and references into a bundle that holds the compiled networks; return its stages.

    Code for GPUs is made by every CUDA toolkit of this machine.  UsageError for a plan with stages that the native
    executor cannot run, or whose code the bundle lacks.
    """
    setting = replace(setting, built=_built(setting, folder))
    sorts = [(task, sort_of(task, setting)) for task in setting.plan.tasks]
    kinds = {engine.id: engine.target.get("kind") for engine in setting.platform.engines}
    lacking = unsupported_stages(setting)
    lacking += [
        f"stage {task.name!r} is on an engine that is only simulated"
        for task, sort in sorts
        if sort == "network" and kinds[task.engine] == "simulated"
    ]
    if lacking:
        raise UsageError("; ".join(lacking[:5]))
    own = folder / FOLDER
    own.mkdir(exist_ok=True)
    feeds, horizon = prepare_inputs(setting, None, _FRAMES, None, False)
    given = write_inputs(setting.plan, feeds, sensor_ports(setting), horizon, own)
    rooms = {sensor: most_rows(written.document) for sensor, written in given.items()}
    described = describe_stages(setting, {sensor: written.types for sensor, written in given.items()}, rooms)
    stages = {name: _bundled(name, stage, setting, folder) for name, stage in described.items()}
    write_references(setting, {name: feeds[name].frame(0) for name in given}, described, own)
    inputs = {
        sensor: {**written.document, "file": f"{FOLDER}/{written.document['file']}"}
        for sensor, written in given.items()
    }
    artefacts = [str(stage["artefact"]) for stage in setting.built.values()]
    return Stages(stages, inputs, tuple(sorted(name for name in artefacts if not (folder / name).exists())))


def _built(setting: Setting, folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the stages that vendors' tools make, by name."""
    found: dict[str, Mapping[str, Any]] = {}
    for task in setting.plan.tasks:
        stage = next((stage for stage in setting.pipeline.stages if stage.name == task.name), None)
        if stage is None or stage.model is None or get_model(stage.model, stage.params).network is None:
            continue
        name = placed_in(stage, setting.platform.engine(task.engine), task.precision).as_posix()
        if (made := shipped_stage(task, setting, folder, name)) is not None:
            found[task.name] = made
    return found


def _bundled(name: str, stage: Mapping[str, Any], setting: Setting, folder: Path) -> dict[str, Any]:
    """Return a stage whose program is a file of the bundle, with the code next to it in the bundle."""
    if stage["kind"] == "cuda":
        program = Path(stage["programs"][0])
        makers = board_toolkits(str(read_json(program)["arch"]))
        paths = copy_programs(program, folder, f"{FOLDER}/{PROGRAMS}/{name}", makers)
        return {**stage, "programs": paths}
    if stage["kind"] == "opencl":
        program = Path(stage["programs"][0])
        return {**stage, "programs": copy_sources(program, folder, f"{FOLDER}/{PROGRAMS}/{name}")}
    if stage["kind"] != "network":
        return dict(stage)
    task = next(task for task in setting.plan.tasks if task.name == name)
    engine = setting.platform.engine(task.engine)
    code = folder / placed_in(setting.pipeline.stage(name), engine, task.precision)
    program = read_json(Path(stage["program"]))
    files = {key: code / Path(program[key]).name for key in ("code", "weights")}
    if files["code"].suffix != ".so":
        raise UsageError(f"stage {name!r} is not linked for its processor")
    if missing := [file for file in files.values() if not file.is_file()]:
        raise UsageError(f"stage {name!r}: the bundle has no {missing[0].name}")
    own = folder / FOLDER / PROGRAMS / name
    own.mkdir(parents=True)
    document = {**program, **{key: os.path.relpath(file, own) for key, file in files.items()}}
    write_file(own / PROGRAM, json.dumps(document, indent=1) + "\n")
    return {**stage, "program": (own / PROGRAM).relative_to(folder).as_posix()}
