"""`socsched doctor`: every check on faked machines, optional tools, and what it prints."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from socsched.cli import doctor, root
from socsched.cli.doctor import OPTIONAL, Check
from socsched.cli.output import show_all
from socsched.compiler.targets.opencl import device


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    assert root.run(["doctor", "--json"]) == 0
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("codes", "remedy"),
    [
        ("sm_75 sm_80 sm_87 sm_90", "no code for sm_62, sm_72: put the nvcc of CUDA 12 first on PATH for these"),
        ("sm_62 sm_72 sm_80 sm_87 sm_90", ""),
        ("sm_62 sm_72", "no code for sm_80, sm_87, sm_90: put the nvcc of CUDA 12 or later first"),
    ],
)
def test_toolkits_have_dropped_architectures(
    codes: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "nvcc", f"echo {codes}")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    check = doctor._nvcc()
    assert check.status == "ok"
    assert check.remedy.startswith(remedy) and bool(check.remedy) is bool(remedy)
    tool(tmp_path, "nvcc", "exit 1")
    assert "does not run" in doctor._nvcc().found


class Fake:
    """A machine that is made up as a test needs it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.set, self.put = folder, monkeypatch.setattr, monkeypatch.setitem
        self.nvml(False)
        monkeypatch.setattr(doctor, "ROOT", folder)

    def file(self, name: str, text: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def nvml(self, available: bool) -> None:
        self.set("socsched.runtime.meters.Nvml", lambda *_: types.SimpleNamespace(available=available))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


JETSON = "NVIDIA Jetson AGX Orin Developer Kit\0"


def _jetson(fake: Fake) -> None:
    fake.file("proc/device-tree/model", JETSON)
    fake.file("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1")


def _driver(fake: Fake, answers: bool) -> None:
    fake.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22")
    fake.nvml(answers)


def _trt(fake: Fake, version: str) -> None:
    fake.set(util, "find_spec", lambda name: object())
    fake.set("socsched.cli.doctor.import_module", lambda name: types.SimpleNamespace(__version__=version))


def _rails(fake: Fake) -> None:
    chip = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    fake.file(f"{chip}/in1_label", "VDD_GPU_SOC\n")


STATES: list[tuple[str, Callable[[], Check], Callable[[Fake], Any], str, str, str]] = [
    # what, check, what the machine is made of, state, a part of what was found, a part of the remedy
    ("no GPU", doctor._gpu, lambda f: None, "missing", "no NVIDIA GPU", "apt-get install"),
    ("a GPU", doctor._gpu, lambda f: _driver(f, True), "ok", "driver 550.54.14", ""),
    ("a driver that hangs", doctor._gpu, lambda f: _driver(f, False), "broken", "not responding", "modprobe"),
    ("a Jetson", doctor._gpu, lambda f: (_jetson(f), f.file("dev/nvmap")), "ok", "R36", ""),
    ("a Jetson in a bare container", doctor._gpu, _jetson, "broken", "AGX Orin", "nvidia-l4t-core"),
    (
        "TensorRT",
        doctor._tensorrt,
        lambda f: (_trt(f, "10.3.0"), f.file("dev/nvhost-nvdla0")),
        "ok",
        "1 DLA",
        "",
    ),
    ("TensorRT without DLA", doctor._tensorrt, lambda f: _trt(f, "10.9.0"), "broken", "has no DLA", "10.7"),
    (
        "no TensorRT",
        doctor._tensorrt,
        lambda f: (f.set(util, "find_spec", lambda name: None), f.file("dev/nvhost-nvdla0")),
        "missing",
        "1 DLA cores here",
        "python3-libnvinfer",
    ),
    (
        "real time",
        doctor._realtime,
        lambda f: f.set("socsched.runtime.conditions.refusal", lambda: ""),
        "ok",
        "permitted",
        "",
    ),
    (
        "no real time",
        doctor._realtime,
        lambda f: f.set("socsched.runtime.conditions.refusal", lambda: "not permitted (EPERM)"),
        "missing",
        "EPERM",
        "rtprio 99",
    ),
    ("no power sensors", doctor._power, lambda f: None, "missing", "none on this", "not observed"),
    ("rails", doctor._power, _rails, "ok", "1 rails (INA3221)", ""),
    ("NVML", doctor._power, lambda f: f.nvml(True), "ok", "NVML", ""),
    (
        "package counters",
        doctor._power,
        lambda f: f.file("sys/class/powercap/intel-rapl:0/energy_uj", "1"),
        "ok",
        "1 package counters",
        "",
    ),
    (
        "counters that may not be read",
        doctor._power,
        lambda f: (
            f.file("sys/class/powercap/intel-rapl:0/energy_uj", "1"),
            f.set("socsched.descriptor.host.os.access", lambda *_: False),
        ),
        "broken",
        "not readable",
        "chmod a+r",
    ),
    (
        "OR-Tools",
        OPTIONAL["OR-Tools"].look,
        lambda f: f.set(metadata, "version", lambda name: "9.15.1"),
        "ok",
        "9.15.1",
        "",
    ),
    ("no OR-Tools", OPTIONAL["OR-Tools"].look, lambda f: _absent(f), "missing", "not installed", "pip install"),
    ("TVM", doctor._codegen, lambda f: _tvm(f, ["x86_64", "aarch64"]), "ok", "aarch64, cuda", ""),
    ("a foreign TVM", doctor._codegen, lambda f: _tvm(f, ["riscv64"]), "broken", "cuda", "pinned"),
    (
        "a TVM that does not load",
        doctor._codegen,
        lambda f: f.put(sys.modules, "socsched.compiler.environment", None),
        "broken",
        "does not load",
        "tvm above",
    ),
]


def _absent(fake: Fake) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    fake.set(metadata, "version", version)


def _tvm(fake: Fake, processors: list[str]) -> None:
    codegen = types.SimpleNamespace(llvm_get_targets=lambda: processors)
    target = types.SimpleNamespace(codegen=codegen)
    module = types.ModuleType("socsched.compiler.environment")
    module.tvm = types.SimpleNamespace(  # type: ignore[attr-defined]
        target=target, get_global_func=lambda name, allow_missing: name.endswith("cuda")
    )
    fake.set(doctor.system, "machine", lambda: "x86_64")
    fake.put(sys.modules, "socsched.compiler.environment", module)


@pytest.mark.parametrize(
    ("check", "make", "status", "found", "remedy"), [pytest.param(*row[1:], id=row[0]) for row in STATES]
)
def test_each_state(
    fake: Fake, check: Callable[[], Check], make: Callable[[Fake], Any], status: str, found: str, remedy: str
) -> None:
    make(fake)
    reported = check()
    assert (reported.status, found in reported.found, reported.name != "") == (status, True, True), reported
    assert remedy in reported.remedy and bool(reported.remedy) is (status != "ok"), reported


def test_the_core_lines_in_their_states(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert (doctor._compiler().status, "build-essential" in doctor._compiler().remedy) == ("missing", True)
    monkeypatch.setenv("SOCSCHED_CACHE", "/dev/null/cache")
    assert (doctor._cache().status, "SOCSCHED_CACHE" in doctor._cache().remedy) == ("broken", True)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**8))
    assert (doctor._disk().status, "0.1 GB" in doctor._disk().found) == ("missing", True)
    monkeypatch.setattr("socsched.resources.names", lambda kind: [])
    assert doctor._descriptors().status == "broken"
    monkeypatch.setattr(metadata, "version", lambda name: "0.1")
    assert (doctor._tvm().status, doctor._tvm().remedy.startswith("pip install")) == ("broken", True)


def reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *checks: Check) -> tuple[int, Any]:
    monkeypatch.setattr(doctor, "CHECKS", tuple(lambda c=c: c for c in checks))
    capsys.readouterr()
    code = root.run(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_only_what_the_main_job_needs_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, gone = Check("disk", "ok", "", "", "", True), Check("GPU", "broken", "", "", "mend it")
    assert reported(monkeypatch, capsys, good, gone)[0] == 0
    code, document = reported(monkeypatch, capsys, good, gone, Check("tvm", "missing", "", "", "pip install", True))
    assert (code, document["healthy"]) == (3, False)


def test_a_check_that_fails_is_a_finding_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def _strange_thing() -> Check:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(doctor, "CHECKS", (_strange_thing, lambda: Check("disk", "ok", "plenty", "")))
    capsys.readouterr()
    assert root.run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "strange thing" in out and "ZeroDivisionError" in out and "plenty" in out


PROGRAMS = [tool for tool in OPTIONAL.values() if tool.programs]
PACKAGES = [tool for tool in OPTIONAL.values() if tool.package]
DEEP = "/opt/a/toolchain/of/a/vendor/with/a/long/name/bin/"
"""Where the faked programs are: a path that fits no column."""
COMPILERS = ("g++", "clang++", "c++")


class Machine:
    """A machine on which the tools of `there` are, by the names of `OPTIONAL`, and nothing else; faked, not installed.

    "g++" among them is the C++ compiler, which is not optional.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.there: frozenset[str] = frozenset()
        real = metadata.version
        programs = {name: tool.name for tool in PROGRAMS for name in tool.programs} | dict.fromkeys(COMPILERS, "g++")
        packages = {tool.package: tool.name for tool in PACKAGES}

        def which(name: str, *_: Any) -> str | None:
            return DEEP + Path(name).name if programs.get(name) in self.there else None

        def version(name: str) -> str:
            if name in packages and packages[name] not in self.there:
                raise metadata.PackageNotFoundError(name)
            return "1.2.3.post4" if name in packages else real(name)

        def load(name: str, *_: Any) -> Any:
            raise OSError(name)

        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("SOCSCHED_CACHE", str(root / "cache"))  # counting a full one takes a while
        monkeypatch.setattr(shutil, "which", which)
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(device, "ctypes", types.SimpleNamespace(CDLL=load, util=device.ctypes.util))
        monkeypatch.setattr(doctor.system, "machine", lambda: "x86_64")
        monkeypatch.setattr(doctor, "ROOT", root)
        monkeypatch.setattr("socsched.runtime.meters.Nvml", lambda *_: types.SimpleNamespace(available=False))
        monkeypatch.setattr(
            "socsched.runtime.conditions.refusal", lambda: "" if "real time" in self.there else "not (EPERM)"
        )
        monkeypatch.setattr(util, "find_spec", lambda name: object() if "TensorRT" in self.there else None)
        monkeypatch.setattr(
            "socsched.cli.doctor.import_module",
            lambda _: types.SimpleNamespace(__version__="10.3.0"),
        )
        monkeypatch.setattr(doctor, "_architectures", lambda _: {"sm_80", "sm_87", "sm_90"})

    def has(self, there: Iterable[str]) -> list[Check]:
        """Return the findings of `doctor` where only these tools are installed."""
        self.there = frozenset(there)
        return doctor.examine()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Machine]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Machine(monkeypatch, tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def shown() -> Iterable[Callable[[list[Check], int], str]]:
    """Return a function that gives what `doctor` prints of findings at a width."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NO_COLOR", "1")

        def show(checks: list[Check], width: int) -> str:
            import contextlib
            import io

            monkeypatch.setenv("COLUMNS", str(width))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                show_all(doctor._tables(checks))
            return out.getvalue()

        yield show


"""The tools the test below removes: each program separately, the Python packages, whose rows are alike, together."""


@settings(max_examples=25)
@given(st.sets(st.sampled_from([*OPTIONAL, "g++"])), st.sampled_from([60, 80]))
def test_it_fits_any_mixture(
    machine: Machine, shown: Callable[[list[Check], int], str], there: set[str], width: int
) -> None:
    checks = machine.has(there)
    assert ("C++ compiler" in {check.name for check in checks if check.status == "missing"}) is ("g++" not in there)
    out = shown(checks, width)
    assert ("Required: how to fix it" in out) is ("g++" not in there)
    assert [line for line in out.splitlines() if cell_len(line) > width] == []


def test_every_remedy_is_shown_whole(machine: Machine, shown: Callable[[list[Check], int], str]) -> None:
    checks = machine.has([])
    words = shown(checks, 60).split("how to fix it", 1)[1].replace("\n", " ")
    for check in checks:
        assert check.remedy.replace(" ", "") in words.replace(" ", "") or not check.remedy, check.name


def test_the_list_holds_exactly_what_may_be_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that `doctor` finds on a machine with nothing on it, and that the main job does without."""
    monkeypatch.setattr("tvm.target.codegen.llvm_get_targets", lambda: ["x86_64"])
    checks = machine.has([])
    assert {check.name for check in checks if check.status == "missing" and not check.main} == set(OPTIONAL)
    found = {check.name: check for check in checks}
    for name, tool in OPTIONAL.items():
        assert (found[name].enables, found[name].remedy) == (tool.enables, tool.remedy)


def test_every_extra_of_the_package_is_in_the_list(checkout: Path) -> None:
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", text.split("[project.optional-dependencies]")[1].split("\n[")[0], re.MULTILINE)
    listed = {found[1] for tool in OPTIONAL.values() if (found := re.search(r"socsched\[(\w+)\]", tool.install))}
    assert listed == set(extras) - {"test", "dev"}


def test_make_help_lists_the_same_and_what_preflight_asks_for(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of the `make` that runs this
    done = subprocess.run(["make", "-s", "help"], cwd=checkout, capture_output=True, text=True, check=True)
    words = " ".join(done.stdout.split())
    assert f"optional: {', '.join(OPTIONAL)} (socsched doctor" in words
    preflight = (checkout / "tools" / "ci" / "preflight.sh").read_text(encoding="utf-8")
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    for package in ("python3-venv", "build-essential"):
        assert package in preflight and package in words and package in readme
