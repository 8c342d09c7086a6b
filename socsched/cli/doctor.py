"""`socsched doctor`: working and missing features of this machine, with reasons and remedies."""

from __future__ import annotations

import os
import platform as system
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import click

from socsched.cli import doctor_machine, doctor_targets
from socsched.cli.doctor_tools import OPTIONAL, Check
from socsched.cli.options import Output, echo, output_options, terminal_width

NEEDED_BYTES = 1_500_000_000


@click.command("doctor", short_help="Check this machine: what works, what does not, and how to fix it.")
@click.option("--install", metavar="NAME", help="Install a vendor's compiler: qualcomm or rockchip.")
@output_options
@click.pass_obj
def command(output: Output, install: str | None) -> int:
    """Check this machine: what works, what does not, why, and how to fix it; exit code 3 if the main job cannot work.

    The main job is to plan, simulate, compile and run on this machine; anything else that is missing is listed with
    the command that installs it, and does not affect the exit code.

    With --install make the Python environment of a vendor's compiler, from the package index that pip uses, and
    check that it starts; its licence is printed first.
    """
    from socsched.errors import EXIT_MACHINE, EXIT_OK

    if install is not None:
        return _install(output, install)
    checks = examine()
    lacking = [check for check in checks if check.main and check.status != "ok"]
    output.result({"healthy": not lacking, "checks": [asdict(check) for check in checks]}, lambda: _show(checks))
    return EXIT_MACHINE if lacking else EXIT_OK


def _install(output: Output, name: str) -> int:
    from socsched.compiler.toolchains.environments import Helper, environment, install
    from socsched.errors import EXIT_OK

    wanted = environment(name)
    python = install(wanted, output.note)
    with Helper(wanted) as helper:
        versions = helper.versions
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    output.result({"python": str(python), "versions": versions}, lambda: echo(f"{wanted.title} works: {listed}"))
    return EXIT_OK


def examine() -> list[Check]:
    """Return every finding; a check that raises an error counts as a finding too."""
    checks = []
    for check in CHECKS:
        try:
            checks.append(check())
        except Exception as error:  # a failing check must not hide the findings of the others
            name = check.__name__.strip("_").replace("_", " ")
            checks.append(Check(name, "broken", f"{type(error).__name__}: {error}", "", "socsched doctor -v"))
    return checks


def _show(checks: list[Check]) -> None:
    from rich.text import Text

    from socsched.reporting.terminal import console, table

    marks = {"ok": "✓ ok", "missing": "– missing", "broken": "✗ BROKEN"}
    rows = [[check.name, marks[check.status], check.found, check.enables] for check in checks]
    screen = console(terminal_width())
    screen.print(
        table(
            f"socsched on {system.machine()}, {_os_name()}", ["check", "state", "found", "needed for"], rows, (), (3,)
        )
    )
    for title, main in (("Required: how to fix it", True), ("Optional: how to install it", False)):
        remedies = [[check.name, check.remedy] for check in checks if check.remedy and check.main is main]
        if remedies:
            screen.print(Text(""), table(title, ["check", "remedy"], remedies))


def _os_name() -> str:
    try:
        return system.freedesktop_os_release().get("PRETTY_NAME", system.system())
    except OSError:
        return system.system()


def _python() -> Check:
    version = system.python_version()
    good = sys.version_info >= (3, 10)
    remedy = "" if good else "use Python 3.10 or newer"
    return Check("python", "ok" if good else "broken", version, "everything", remedy, True)


def _tvm() -> Check:
    from importlib import metadata

    from socsched.compiler.versions import PINNED

    versions: dict[str, str] = {}
    for package in PINNED:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "none"
    good = versions == dict(PINNED)
    remedy = "" if good else "pip install " + " ".join(f"{name}=={version}" for name, version in PINNED.items())
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Check("tvm", "ok" if good else "broken", listed, "compile, run, plan", remedy, True)


def _compiler() -> Check:
    candidates = [os.environ.get("CXX", ""), "g++", "clang++", "c++"]
    path = next((found for name in candidates if name and (found := shutil.which(name))), None)
    remedy = "" if path else "sudo apt-get install -y build-essential"
    state = "ok" if path else "missing"
    return Check("C++ compiler", state, path or "none on PATH", "linking compiled stages", remedy, True)


def _cache() -> Check:
    import tempfile

    from socsched.cache import cache_dir
    from socsched.errors import MachineError

    try:
        folder = cache_dir()
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except (MachineError, OSError) as error:
        remedy = "make the folder writable, or set SOCSCHED_CACHE to a writable folder"
        return Check("artefact cache", "broken", str(error), "compile, run", remedy, True)
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Check("artefact cache", "ok", f"{folder} ({used / 1e6:.0f} MB)", "reuse of compiled stages", "", True)


def _disk() -> Check:
    free = shutil.disk_usage(Path.cwd()).free
    good = free >= NEEDED_BYTES
    remedy = "" if good else "free some disk space: results and artefacts take up to 1 GB"
    state = "ok" if good else "missing"
    return Check("disk", state, f"{free / 1e9:.1f} GB free here", "results, artefacts", remedy, True)


def _threads() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    requested = os.environ.get("TVM_NUM_THREADS")
    found = f"{cores} cores usable" + (f", TVM_NUM_THREADS={requested}" if requested else "")
    return Check("cores", "ok", found, "run, profile")


def _descriptors() -> Check:
    from socsched import resources

    counts = {kind: len(resources.names(kind)) for kind in resources.KINDS}
    good = all(counts.values())
    listed = ", ".join(f"{kind}: {count}" for kind, count in counts.items())
    remedy = "" if good else "pip install --force-reinstall --no-deps /path/to/socsched"
    return Check("descriptors", "ok" if good else "broken", listed, "everything", remedy, True)


def _settings() -> Check:
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("SOCSCHED_"))
    return Check("settings", "ok", ", ".join(settings) or "no SOCSCHED_* variables set", "defaults")


_OWN: dict[str, Callable[[], Check]] = {
    "aarch64 compiler": doctor_targets.cross_compiler,
    "aarch64 emulator": doctor_targets.emulator,
    "nvcc": doctor_targets.nvcc,
    "GPU": doctor_machine.gpu,
    "libcudart": doctor_machine.cudart,
    "TensorRT": doctor_machine.tensorrt,
    "OpenCL": doctor_targets.opencl,
    "Hexagon": doctor_targets.hexagon,
    "HTP compiler": doctor_targets.htp_compiler,
    "RKNN compiler": doctor_targets.rknn_compiler,
    "real time": doctor_machine.realtime,
    "power sensors": doctor_machine.power,
}
"""Optional tools that need more than a search for a program or package."""

CHECKS: tuple[Callable[[], Check], ...] = (
    _python, _tvm, doctor_machine.codegen, _compiler, _cache, _disk, _threads, _descriptors, _settings,
    *(_OWN.get(name, tool.look) for name, tool in OPTIONAL.items()),
)  # fmt: skip
