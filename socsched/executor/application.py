"""The native application of a bundle: executor, settings, digests, and a start script that needs no Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from platform import machine as platform_machine
from tempfile import TemporaryDirectory

from socsched.compiler.target import resolve
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, MachineError, SocschedError
from socsched.executor.build import NAME, build_executor, cross_compiler, cxx_compiler, glibc_note
from socsched.executor.bundle_stages import FOLDER, no_stages, write_stages
from socsched.executor.references import REFERENCES
from socsched.executor.settings import JOURNAL, PLAN, SETTINGS, RunSettings, document_of
from socsched.files import digests, file_digest
from socsched.models.registry import bindings
from socsched.planning.plan import Plan
from socsched.runtime.backends.base import Setting
from socsched.runtime.backends.choose import replaced_runtimes

SUMS, START, SELFTEST = "SHA256SUMS", "start.sh", "selftest.sha256"
PYTHON_START = "start-python.sh"
"""The program that runs a bundle stage by stage; without an application, `start.sh` starts it."""
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
) -> bool:
    """Write the native application of `plan` into its bundle, next to plan.json; return whether there is one.

    `platform` holds the engines of compiled stages, whose code is in the bundle; `weights` and `scales` are the files
    it was compiled with.  There is none for a plan with stages that the native executor does not run, or without a
    C++ compiler.
    """
    if not plan.tasks:
        return False
    bound = bindings(pipeline)
    computing = any(stage.model is not None for stage in pipeline.stages)
    if computing and platform is None:
        return False
    try:
        compiled = (
            write_stages(Setting(plan, pipeline, platform, bound, weights, 0, scales), folder)
            if computing and platform is not None
            else no_stages(plan)
        )
    except SocschedError as error:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        note(f"no native application: {error}")
        return False
    for remark in replaced_runtimes(Setting(plan, pipeline, platform, bound, weights)) if platform else ():
        note(f"native application: {remark}")
    built = _build(_machines(platform) if computing and platform else (platform_machine(), "aarch64"), folder, note)
    if not built:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        return False
    settings = RunSettings(
        plan,
        _SECONDS * 10**9,
        needs={stage: set(ports.values()) for stage, ports in bound.items()},
        stages=compiled.stages,
        inputs=compiled.inputs,
        processors={engine.id: range(engine.lanes) for engine in plan.engines if engine.kind == "cpu"},
        realtime="auto",
    )
    text = json.dumps(document_of(settings, [PLAN]), indent=1) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    if own := built.get(platform_machine()):
        with TemporaryDirectory() as scratch:
            command = [str(own), str(folder / SETTINGS), "-o", scratch, "--virtual"]
            subprocess.run(command, check=True, capture_output=True)
            (folder / SELFTEST).write_text(f"{file_digest(Path(scratch) / JOURNAL)}  {JOURNAL}\n", encoding="utf-8")
    if (folder / START).is_file():
        (folder / START).replace(folder / PYTHON_START)
    (folder / START).write_text(
        _START.format(
            folder=FOLDER,
            name=NAME,
            sums=SUMS,
            selftest=SELFTEST,
            references=f"{FOLDER}/{REFERENCES}",
            python=PYTHON_START,
            mode=platform.mode(plan.mode).id if platform else "",
        ),
        encoding="utf-8",
    )
    (folder / START).chmod(0o755)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items() if name not in _NEVER_BUNDLED]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return True


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


def _machines(platform: Platform) -> Sequence[str]:
    """Return this machine and those of a platform's CPUs."""
    targets = [resolve(engine.target, engine.id) for engine in platform.engines if engine.target.get("kind") == "llvm"]
    return (platform_machine(), *(target.triple.split("-")[0] for target in targets if target.triple))


def _build(machines: Sequence[str], folder: Path, note: Callable[[str], None]) -> dict[str, Path]:
    """Build the executor for machines, others than this one with a cross compiler; return the files by machine."""
    found: dict[str, Path] = {}
    for machine in dict.fromkeys(machines):
        own = machine == platform_machine()
        here = cxx_compiler()
        compiler = cross_compiler(machine) if not own else (here,) if here else None
        if compiler is None:
            note(f"no native executor for {machine}: no C++ compiler ({'g++' if own else f'{machine}-linux-gnu-g++'})")
            continue
        try:
            made = build_executor(compiler, machine)
        except MachineError as error:
            note(f"no native executor for {machine}: {error}")
            continue
        if not own and (remark := glibc_note(made.read_bytes(), machine)):
            note(remark)
        found[machine] = folder / FOLDER / machine / NAME
        found[machine].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, found[machine])
        found[machine].chmod(0o755)
    return found


_START = """\
#!/bin/sh
# Runs this bundle on its board in real time. Needs a shell and the C library; no Python.
#   start.sh [--duration SECONDS] [-o RESULTS]   checks digests, runs the plan, writes results for `socsched report`
#            [--apply-mode]                      sets a Jetson to the plan's power mode before, and back afterwards
#   start.sh --selftest                          checks digests, decisions, and every stage on stored inputs and outputs
# Other options are those of {python}, which runs stage after stage and needs Python.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
program="$here/{folder}/$(uname -m)/{name}"
seconds=10
results=results
selftest=
mode=
if [ -f "$here/{python}" ]; then
    for option in "$@"; do
        case "$option" in --input | --all | --json | --help) exec sh "$here/{python}" "$@" ;; esac
    done
fi
while [ $# -gt 0 ]; do
    case "$1" in
        --duration) seconds="${{2:?--duration needs a number of seconds}}"; shift 2 ;;
        -o) results="${{2:?-o needs a folder}}"; shift 2 ;;
        --selftest) selftest=yes; shift ;;
        --apply-mode)
            mode="{mode}"
            [ -n "$mode" ] || {{ echo "error: the plan has no power mode" >&2; exit 2; }}
            shift ;;
        *) echo "usage: start.sh [--duration SECONDS] [-o RESULTS] [--apply-mode] | --selftest" >&2; exit 2 ;;
    esac
done
case "$seconds" in '' | *[!0-9]* | ???????*) echo "error: --duration: expected whole seconds" >&2; exit 2 ;; esac
if [ ! -x "$program" ]; then
    echo "error: no executor for $(uname -m) in {folder}/" >&2
    exit 3
fi
"$program" --check "$here/{sums}"
if [ -n "$selftest" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    "$program" "$here/run.json" -o "$scratch" --virtual
    cp "$here/{selftest}" "$scratch/expected"
    "$program" --check "$scratch/expected"
    [ ! -f "$here/{references}" ] || "$program" "$here/run.json" --selftest "$here/{references}"
    echo "selftest passed"
    exit 0
fi
mkdir -p "$results"
cp "$here/plan.json" "$results/plan.json"
if [ -n "$mode" ]; then
    before=$(nvpmodel -q)
    before=${{before##*[!0-9]}}
    trap 'nvpmodel -m "$before"' EXIT
    nvpmodel -m "$mode" </dev/null
    now=$(nvpmodel -q)
    if [ "${{now##*[!0-9]}}" != "$mode" ]; then
        echo "error: the board does not change to mode $mode; it may need a reboot" >&2
        exit 3
    fi
    "$program" "$here/run.json" -o "$results" --horizon-ns "${{seconds}}000000000"
    exit
fi
exec "$program" "$here/run.json" -o "$results" --horizon-ns "${{seconds}}000000000"
"""
