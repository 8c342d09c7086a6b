"""The native application of a bundle: executor, stages, settings, digests, a start script that needs no Python."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from platform import machine as platform_machine
from tempfile import TemporaryDirectory
from typing import Any

from socsched.compiler.native.compilers import GLIBC, cross_compiler, require_zig
from socsched.compiler.packaging.deploy import placed_in
from socsched.compiler.store import read_json
from socsched.compiler.target import resolve
from socsched.compiler.targets.cuda.toolkits import board_toolkits
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, MachineError, UsageError
from socsched.executor.build import NAME, SOURCES, build_executor, cxx_compiler, glibc_note, newest_glibc
from socsched.executor.frames import most_rows, write_inputs
from socsched.executor.programs import PROGRAM, copy_programs, copy_sources
from socsched.executor.references import REFERENCES, write_references
from socsched.executor.settings import JOURNAL, PLAN, SETTINGS, RunSettings, document_of
from socsched.executor.stages import describe_stages, sensor_ports, unsupported_stages
from socsched.executor.vendor_stages import ADAPTER, ADAPTERS, BOARD, BOARD_SOURCES, shipped_stage
from socsched.files import digests, file_digest, write_file
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends import Setting, sort_of
from socsched.runtime.inputs import prepare_inputs
from socsched.runtime.options import Inputs

SUMS, START, BUILD, SELFTEST = "SHA256SUMS", "start.sh", "build.sh", "selftest.sha256"
README = "README.txt"
_BUILD_STEP = "  sh build.sh                             once, some minutes: what only the board's own tools make\n"
_RUNS_AS = {
    "host": "function of the executor",
    "convert": "conversion",
    "network": "kernels of this bundle",
    "cuda": "kernels of this bundle, CUDA",
    "opencl": "kernels of this bundle, OpenCL",
    "spin": "takes its planned time",
}
_SECONDS = 10
_NEVER_BUNDLED = ("manifest.json", SUMS)


def write_application(
    plan: Plan,
    pipeline: Pipeline,
    folder: Path,
    note: Callable[[str], None],
    platform: Platform | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
) -> dict[str, Any]:
    """Write the native application of `plan` into its bundle, next to plan.json; return what a manifest says of it:

    its machines, the glibc it needs, by stage the adapter or kind, and what the board builds before the first run.

    `platform` holds the engines of compiled stages, whose code is in the bundle; `weights` and `scales` are the files
    it was compiled with.  UsageError for stages that the executor does not run, MachineError for a tool that is
    missing: a bundle starts on its board, or there is none.
    """
    bound = bindings(pipeline)
    made = (
        write_stages(Setting(plan, pipeline, platform, bound, weights, 0, scales), folder)
        if platform is not None and any(stage.model is not None for stage in pipeline.stages)
        else no_stages(plan)
    )
    machines = _machines(platform)
    glibc = _build(machines, folder, note)
    settings = RunSettings(
        plan,
        _SECONDS * 10**9,
        needs={stage: set(ports.values()) for stage, ports in bound.items()},
        stages=made.stages,
        inputs=made.inputs,
        processors={engine.id: range(engine.lanes) for engine in plan.engines if engine.kind == "cpu"},
        realtime="auto",
    )
    text = json.dumps(document_of(settings, [PLAN]), indent=1) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    _store_decisions(folder)
    _write_scripts(plan, platform, folder, made, machines, glibc)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items() if name not in _NEVER_BUNDLED]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return {
        "machines": list(machines),
        "glibc": glibc,
        "stages": {name: str(stage.get("adapter") or stage["kind"]) for name, stage in sorted(made.stages.items())},
        "built_on_board": list(made.built),
    }


def program_of(folder: Path, machine: str) -> Path:
    """Return the executor of a bundle for a machine, its files checked; InputError or MachineError if it has none."""
    program = folder / FOLDER / machine / NAME
    if not (folder / SETTINGS).is_file():
        raise InputError(
            f"{folder}: no bundle with a native application", "write one: socsched compile PLAN.json -o DIR"
        )
    if not program.is_file():
        others = ", ".join(sorted(file.parent.name for file in (folder / FOLDER).glob(f"*/{NAME}"))) or "no machine"
        raise MachineError(f"{folder}: its program is for {others}, this machine is {machine}", "run it on its board")
    checked = subprocess.run([str(program), "--check", str(folder / SUMS)], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise InputError(f"{folder}: {checked.stderr.strip()[:300]}", "compile the bundle again")
    return program


def require_compilers(platform: Platform) -> None:
    """Fetch what programs for the processors of a platform take; MachineError with what to do if it is missing."""
    if cxx_compiler() is None:
        raise MachineError("no C++ compiler: no executor can be built", "sudo apt-get install -y build-essential")
    for machine in _machines(platform):
        if machine != platform_machine():
            require_zig(machine)


def _machines(platform: Platform | None) -> Sequence[str]:
    """Return the machines of a platform's CPUs; this one where it states none."""
    engines = platform.engines if platform else ()
    targets = [resolve(engine.target, engine.id) for engine in engines if engine.target.get("kind") == "llvm"]
    found = (target.triple.split("-")[0] for target in targets if target.triple)
    return tuple(dict.fromkeys(found)) or (platform_machine(),)


def _build(machines: Sequence[str], folder: Path, note: Callable[[str], None]) -> str:
    """Build the executor for each machine, with a cross compiler for others; return the glibc that a board needs."""
    newest = GLIBC
    for machine in machines:
        here = cxx_compiler()
        own = machine == platform_machine()
        compiler = cross_compiler(machine) if not own else (here,) if here else None
        if compiler is None:
            raise MachineError(f"no C++ compiler for {machine}: no executor can be built", "pip install ziglang")
        made = build_executor(compiler, machine)
        if not own and (remark := glibc_note(made.read_bytes(), machine)):
            note(remark)
        newest = max(newest, newest_glibc(made.read_bytes()))
        home = folder / FOLDER / machine
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, home / NAME)
        (home / NAME).chmod(0o755)
    return ".".join(map(str, newest))


def _store_decisions(folder: Path) -> None:
    """Write the digest of the journal of a run on a virtual clock, which is the same on every machine."""
    here = cxx_compiler()
    if here is None:
        return
    with TemporaryDirectory() as scratch:
        command = [str(build_executor((here,), platform_machine())), str(folder / SETTINGS), "-o", scratch, "--virtual"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(f"the executor does not take the bundle: {done.stderr[-2000:]}", "report this fault")
        (folder / SELFTEST).write_text(f"{file_digest(Path(scratch) / JOURNAL)}  {JOURNAL}\n", encoding="utf-8")


def _runs(task: Task, stage: Mapping[str, Any]) -> str:
    """Return a line of README.txt: a stage, its engine, and what computes it."""
    how = _RUNS_AS.get(stage["kind"]) or f"{task.runtime or stage.get('adapter', stage['kind'])}, {stage['artefact']}"
    return f"  {task.name:24} {task.engine:8} {task.precision or '':6} {how}"


def _write_scripts(
    plan: Plan, platform: Platform | None, folder: Path, made: Stages, machines: Sequence[str], glibc: str
) -> None:
    """Write README.txt, start.sh, and build.sh with the sources it compiles where the board's own tools make stages."""
    adapted = any(stage.get("adapter") == BOARD for stage in made.stages.values())
    adapter = f"{ADAPTERS}/{ADAPTER}" if adapted else ""
    values: Mapping[str, str] = {
        "FOLDER": FOLDER,
        "NAME": NAME,
        "SUMS": SUMS,
        "SELFTEST": SELFTEST,
        "REFERENCES": f"{FOLDER}/{REFERENCES}",
        "MODE": str(platform.mode(plan.mode).id) if platform else "",
        "PLATFORM": plan.platform,
        "PERIOD": str(max((sensor.period_ns for sensor in plan.sensors), default=100_000_000)),
        "MACHINES": " ".join(machines),
        "GLIBC": glibc,
        "BUILT": " ".join(map(shlex.quote, filter(None, (*made.built, adapter)))),
        "ADAPTER": adapter,
        "ADAPTERS": ADAPTERS,
        "PIPELINE": plan.pipeline,
        "IN_MODE": f" in mode {plan.mode}" if platform else "",
        "BUILD_STEP": _BUILD_STEP if made.built else "",
        "STAGES": "\n".join(_runs(task, made.stages[task.name]) for task in plan.tasks if task.name in made.stages),
        "ENGINES": "\n".join(f"build {shlex.quote(str(Path(one).parent))} {Path(one).name}" for one in made.built),
    }
    texts = {README: README, START: "start.sh", **({BUILD: "build-bundle.sh"} if made.built else {})}
    for name, source in texts.items():
        text = (BOARD_SOURCES / source).read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o644 if name == README else 0o755)
    if adapted:
        home = folder / FOLDER / "source"
        home.mkdir()
        shutil.copyfile(BOARD_SOURCES / "build-adapter.sh", home / BUILD)
        for file in (BOARD_SOURCES / "tensorrt_adapter.cpp", SOURCES / "cuda_driver.cpp", *SOURCES.glob("*.h*")):
            shutil.copyfile(file, home / file.name)


# Stages of a bundle's native application: its compiled networks, host functions, and frames for its sensors.

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
    feeds, horizon = prepare_inputs(setting, Inputs(frames=_FRAMES))
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
