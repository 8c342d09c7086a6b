"""The native application of a bundle: executor, settings, digests, and a start script that needs no Python."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from platform import machine as platform_machine
from tempfile import TemporaryDirectory
from typing import Any

from socsched.compiler.native.cross import GLIBC, cross_compiler, require_zig
from socsched.compiler.target import resolve
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, MachineError
from socsched.executor.build import NAME, SOURCES, build_executor, cxx_compiler, glibc_note, newest_glibc
from socsched.executor.bundle_stages import FOLDER, Stages, no_stages, write_stages
from socsched.executor.references import REFERENCES
from socsched.executor.settings import JOURNAL, PLAN, SETTINGS, RunSettings, document_of
from socsched.executor.vendor_stages import ADAPTER, ADAPTERS, BOARD, BOARD_SOURCES
from socsched.files import digests, file_digest
from socsched.models.registry import bindings
from socsched.planning.plan import Plan, Task
from socsched.runtime.backends.base import Setting

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
