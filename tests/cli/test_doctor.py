"""`socsched doctor` on the targets: present tools, missing tools, and the remedy for each."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from socsched.cli import doctor_targets, root
from socsched.compiler.targets.opencl import device


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    assert root.run(["doctor", "--json"]) == 0
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR)


def test_every_target_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys)
    assert {"aarch64 compiler", "aarch64 emulator", "nvcc", "OpenCL", "Hexagon"} <= set(found)
    assert all(check["status"] == "ok" or check["remedy"] for check in found.values())
    assert found["Hexagon"]["status"] == "ok" and "not run" in found["Hexagon"]["found"]


def test_every_missing_tool_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: object) -> None:
        raise OSError

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor_targets.system, "machine", lambda: "x86_64")
    monkeypatch.setattr(device.ctypes, "CDLL", absent)
    for check, word in (
        (doctor_targets.cross_compiler(), "g++-aarch64-linux-gnu"),
        (doctor_targets.emulator(), "qemu-user"),
        (doctor_targets.nvcc(), "CUDA toolkit"),
        (doctor_targets.opencl(), "pocl-opencl-icd"),
    ):
        assert check.status == "missing" and word in check.remedy


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
    check = doctor_targets.nvcc()
    assert check.status == "ok"
    assert check.remedy.startswith(remedy) and bool(check.remedy) is bool(remedy)
    tool(tmp_path, "nvcc", "exit 1")
    assert "does not run" in doctor_targets.nvcc().found
