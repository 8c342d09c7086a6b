"""Each line of `socsched doctor` in each of its states, with fakes; and the states that determine the exit code."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest

from socsched.cli import doctor, doctor_machine, root
from socsched.cli.doctor_tools import OPTIONAL, Check


class Fake:
    """A machine that is made up as a test needs it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.set, self.put = folder, monkeypatch.setattr, monkeypatch.setitem
        self.nvml(False)
        monkeypatch.setattr(doctor_machine, "ROOT", folder)

    def file(self, name: str, text: str = "") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def nvml(self, available: bool) -> None:
        self.set("socsched.runtime.meters.Nvml", lambda *_: types.SimpleNamespace(available=available))

    def libraries(self, *names: str) -> None:
        def load(name: str) -> None:
            if name not in names:
                raise OSError(name)

        self.set(doctor_machine.ctypes, "CDLL", load)


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
    fake.set(
        "socsched.runtime.backends.tensorrt_dla.import_module", lambda name: types.SimpleNamespace(__version__=version)
    )


def _rails(fake: Fake) -> None:
    chip = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    fake.file(f"{chip}/in1_label", "VDD_GPU_SOC\n")


STATES: list[tuple[str, Callable[[], Check], Callable[[Fake], Any], str, str, str]] = [
    # what, check, what the machine is made of, state, a part of what was found, a part of the remedy
    ("no GPU", doctor_machine.gpu, lambda f: None, "missing", "no NVIDIA GPU", "apt-get install"),
    ("a GPU", doctor_machine.gpu, lambda f: _driver(f, True), "ok", "driver 550.54.14", ""),
    ("a driver that hangs", doctor_machine.gpu, lambda f: _driver(f, False), "broken", "not responding", "modprobe"),
    ("a Jetson", doctor_machine.gpu, lambda f: (_jetson(f), f.file("dev/nvmap")), "ok", "R36", ""),
    ("a Jetson in a bare container", doctor_machine.gpu, _jetson, "broken", "AGX Orin", "nvidia-l4t-core"),
    ("CUDA 13", doctor_machine.cudart, lambda f: f.libraries("libcudart.so.13"), "ok", "libcudart.so.13", ""),
    ("CUDA 12", doctor_machine.cudart, lambda f: f.libraries("libcudart.so.12"), "broken", "TVM needs 13", "13"),
    ("no CUDA", doctor_machine.cudart, lambda f: f.libraries(), "missing", "not installed", "cuda-cudart-13-0"),
    (
        "TensorRT",
        doctor_machine.tensorrt,
        lambda f: (_trt(f, "10.3.0"), f.file("dev/nvhost-nvdla0")),
        "ok",
        "1 DLA",
        "",
    ),
    ("TensorRT without DLA", doctor_machine.tensorrt, lambda f: _trt(f, "10.9.0"), "broken", "has no DLA", "10.7"),
    (
        "no TensorRT",
        doctor_machine.tensorrt,
        lambda f: (f.set(util, "find_spec", lambda name: None), f.file("dev/nvhost-nvdla0")),
        "missing",
        "1 DLA cores here",
        "python3-libnvinfer",
    ),
    (
        "real time",
        doctor_machine.realtime,
        lambda f: f.set("socsched.runtime.realtime.refusal", lambda: ""),
        "ok",
        "permitted",
        "",
    ),
    (
        "no real time",
        doctor_machine.realtime,
        lambda f: f.set("socsched.runtime.realtime.refusal", lambda: "not permitted (EPERM)"),
        "missing",
        "EPERM",
        "rtprio 99",
    ),
    ("no power sensors", doctor_machine.power, lambda f: None, "missing", "none on this", "not observed"),
    ("rails", doctor_machine.power, _rails, "ok", "1 rails (INA3221)", ""),
    ("NVML", doctor_machine.power, lambda f: f.nvml(True), "ok", "NVML", ""),
    (
        "package counters",
        doctor_machine.power,
        lambda f: f.file("sys/class/powercap/intel-rapl:0/energy_uj", "1"),
        "ok",
        "1 package counters",
        "",
    ),
    (
        "counters that may not be read",
        doctor_machine.power,
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
    ("TVM", doctor_machine.codegen, lambda f: _tvm(f, ["x86_64", "aarch64", "hexagon"]), "ok", "hexagon, cuda", ""),
    ("a foreign TVM", doctor_machine.codegen, lambda f: _tvm(f, ["riscv64"]), "broken", "cuda", "pinned"),
    (
        "a TVM that does not load",
        doctor_machine.codegen,
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
    fake.set(doctor_machine.system, "machine", lambda: "x86_64")
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


def test_every_line_that_is_not_ok_states_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: Check("GPU", "broken", "asleep", "", "sudo modprobe nvidia"),))
    capsys.readouterr()
    root.run(["doctor"])
    assert "GPU    sudo modprobe nvidia" in capsys.readouterr().out
