"""The native application of a bundle: executor, settings, digests, and a start script that needs no Python."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError
from socsched.executor.build import NAME, build_executor, cxx_compiler
from socsched.executor.settings import JOURNAL, PLAN, SETTINGS, RunSettings, document_of
from socsched.files import digests, file_digest
from socsched.models.registry import bindings
from socsched.planning.plan import Plan

FOLDER, SUMS, START, SELFTEST = "native", "SHA256SUMS", "start.sh", "selftest.sha256"
_CROSS = {"aarch64": "aarch64-linux-gnu-g++", "x86_64": "x86_64-linux-gnu-g++"}
_SECONDS = 10
_NEVER_BUNDLED = ("manifest.json", SUMS)


def write_application(plan: Plan, pipeline: Pipeline, folder: Path, note: Callable[[str], None]) -> bool:
    """Write the native application of `plan` into its bundle, next to plan.json; return whether there is one.

    There is none for a plan with stages that the native executor does not run yet, or without a C++ compiler.
    """
    if any(stage.model is not None for stage in pipeline.stages) or not plan.tasks:
        return False
    built = _build(folder, note)
    if not built:
        return False
    settings = RunSettings(
        plan,
        _SECONDS * 10**9,
        needs={stage: set(ports.values()) for stage, ports in bindings(pipeline).items()},
        stages={task.name: {"kind": "spin", "time_ns": task.cost_ns} for task in plan.tasks},
        processors={engine.id: range(engine.lanes) for engine in plan.engines if engine.kind == "cpu"},
        realtime="auto",
    )
    text = json.dumps(document_of(settings, [PLAN]), indent=1) + "\n"
    (folder / SETTINGS).write_text(text, encoding="utf-8")
    if own := built.get(platform.machine()):
        with TemporaryDirectory() as scratch:
            command = [str(own), str(folder / SETTINGS), "-o", scratch, "--virtual"]
            subprocess.run(command, check=True, capture_output=True)
            (folder / SELFTEST).write_text(f"{file_digest(Path(scratch) / JOURNAL)}  {JOURNAL}\n", encoding="utf-8")
    (folder / START).write_text(_START.format(folder=FOLDER, name=NAME, sums=SUMS, selftest=SELFTEST), encoding="utf-8")
    (folder / START).chmod(0o755)
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items() if name not in _NEVER_BUNDLED]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")
    return True


def _build(folder: Path, note: Callable[[str], None]) -> dict[str, Path]:
    """Build the executor for this machine and, with a cross compiler, for boards; return the files by machine."""
    found: dict[str, Path] = {}
    for machine in dict.fromkeys((platform.machine(), "aarch64")):
        compiler = cxx_compiler() if machine == platform.machine() else shutil.which(_CROSS[machine])
        if compiler is None:
            note(f"no native executor for {machine}: no C++ compiler ({_CROSS.get(machine, 'g++')})")
            continue
        try:
            made = build_executor(compiler, machine)
        except MachineError as error:
            note(f"no native executor for {machine}: {error}")
            continue
        found[machine] = folder / FOLDER / machine / NAME
        found[machine].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, found[machine])
        found[machine].chmod(0o755)
    return found


_START = """\
#!/bin/sh
# Runs this bundle on its board in real time. Needs a shell and the C library; no Python.
#   start.sh [--duration SECONDS] [-o RESULTS]   checks digests, runs the plan, writes results for `socsched report`
#   start.sh --selftest                          checks digests, and that decisions are those stored with the bundle
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
program="$here/{folder}/$(uname -m)/{name}"
seconds=10
results=results
selftest=
while [ $# -gt 0 ]; do
    case "$1" in
        --duration) seconds="${{2:?--duration needs a number of seconds}}"; shift 2 ;;
        -o) results="${{2:?-o needs a folder}}"; shift 2 ;;
        --selftest) selftest=yes; shift ;;
        *) echo "usage: start.sh [--duration SECONDS] [-o RESULTS] | --selftest" >&2; exit 2 ;;
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
    echo "selftest passed"
    exit 0
fi
mkdir -p "$results"
cp "$here/plan.json" "$results/plan.json"
exec "$program" "$here/run.json" -o "$results" --horizon-ns "${{seconds}}000000000"
"""
