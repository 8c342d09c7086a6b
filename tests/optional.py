"""Tests that need more than README requires: `@pytest.mark.needs("nvcc")` names the tool, this list how to get it.

`make test` runs them where that is there.  Where it is not, one of them stays for each tool and is skipped, with the
number of those left out and the command that enables them all.  `pytest -m optional` runs these tests alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from socsched.cli.doctor import OPTIONAL
from socsched.compiler.toolchains.environments import place


@dataclass(frozen=True)
class Need:
    """Something a bare machine lacks: is it here, and the command that gets it."""

    here: Callable[[], object]
    command: str


def program(*names: str) -> Callable[[], object]:
    return lambda: all(map(shutil.which, names))


def module(name: str) -> Callable[[], object]:
    return lambda: find_spec(name)


@cache
def can_mount() -> bool:
    """Return whether a small file system can be mounted here."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        return False
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True).returncode:
            return False
        return not subprocess.run(["umount", folder], capture_output=True).returncode


VENDORS = Path(os.environ.setdefault("SOCSCHED_TESTED_VENDORS", str(place())))  # workers of a parallel run inherit it
"""Where vendors' compilers are installed; tests without one of these needs see none."""


def vendor(name: str) -> Callable[[], object]:
    return lambda: (VENDORS / name / "bin" / "python").exists()


@cache
def can_schedule() -> bool:
    """Return whether threads may be given real-time priorities here, and there is a C compiler for them."""
    if not all(map(shutil.which, ("chrt", "taskset", "cc"))):
        return False
    return not subprocess.run(["chrt", "--fifo", "1", "true"], capture_output=True).returncode


@cache
def can_decode() -> bool:
    """Return whether the system's Python has babeltrace2, which is on no package index."""
    python = Path("/usr/bin/python3")
    return python.exists() and not subprocess.run([python, "-c", "import bt2"], capture_output=True).returncode


ARM = f"{OPTIONAL['aarch64 emulator'].install} g++-aarch64-linux-gnu"
NEEDS = {
    "git": Need(program("git"), "sudo apt-get install -y git"),
    "nvcc": Need(program("nvcc"), OPTIONAL["nvcc"].install),
    "NVIDIA GPU": Need(lambda: shutil.which("nvcc") and Path("/dev/nvidiactl").exists(), OPTIONAL["GPU"].install),
    "OpenCL": Need(lambda: find_library("OpenCL"), OPTIONAL["OpenCL"].install),
    "aarch64 emulator": Need(program("qemu-aarch64", "aarch64-linux-gnu-g++"), ARM),
    "Chromium": Need(
        lambda: any(map(shutil.which, OPTIONAL["Chromium"].programs)) and find_spec("playwright"),
        OPTIONAL["Chromium"].install,
    ),
    "OpenCV images": Need(module("cv2"), ".venv/bin/pip install opencv-python-headless"),
    "HTP compiler": Need(vendor("qualcomm"), OPTIONAL["HTP compiler"].install),
    "RKNN compiler": Need(vendor("rockchip"), OPTIONAL["RKNN compiler"].install),
    "response-time-analysis": Need(module("response_time_analysis"), ".venv/bin/pip install response-time-analysis"),
    "MCAP": Need(module("mcap"), ".venv/bin/pip install '.[mcap]'"),
    "bags of ROS 1": Need(module("rosbags"), ".venv/bin/pip install '.[ros1]'"),
    "MCAP for ROS 2": Need(module("mcap_ros2"), ".venv/bin/pip install mcap-ros2-support"),
    "Foxglove SDK": Need(module("foxglove"), ".venv/bin/pip install foxglove-sdk"),
    "ROS 2": Need(module("rclpy"), ".venv/bin/pip install '.[ros2]'"),
    "pandas": Need(module("pandas"), ".venv/bin/pip install pandas"),
    "PyTorch": Need(module("torch"), ".venv/bin/pip install torch"),
    "Python headers": Need(
        lambda: (Path(sysconfig.get_path("include")) / "Python.h").exists(), "sudo apt-get install -y python3-dev"
    ),
    "real-time threads": Need(can_schedule, "sudo make test"),
    "systemd": Need(program("systemd-analyze"), "sudo apt-get install -y systemd"),
    "babeltrace2": Need(can_decode, "sudo apt-get install -y python3-bt2"),
    "mounting": Need(can_mount, "sudo make test"),
    "KITTI": Need(lambda: os.environ.get("SOCSCHED_SHARED"), "SOCSCHED_SHARED=DIR make test (scans in DIR/data)"),
}


def mark(items: list[pytest.Item]) -> None:
    """Mark every test that needs something as optional; an unknown need is an error."""
    for item in items:
        for marker in item.iter_markers("needs"):
            if marker.args[0] not in NEEDS:
                raise pytest.UsageError(f"{item.nodeid}: needs {marker.args[0]!r}, one of {', '.join(NEEDS)} expected")
            item.add_marker(pytest.mark.optional)


def leave_one(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run or to skip, one for each tool that is missing, and those left out."""
    lacking: dict[str, list[pytest.Item]] = {}
    kept = []
    for item in items:
        missing = next((m.args[0] for m in item.iter_markers("needs") if not _here(m.args[0])), None)
        if missing is None or missing not in lacking:
            kept.append(item)
        if missing is not None:
            lacking.setdefault(missing, []).append(item)
    for name, (first, *rest) in lacking.items():
        reason = f"{1 + len(rest)} tests need {name}, which is not here: {NEEDS[name].command}"
        first.add_marker(pytest.mark.skip(reason=reason))
    return kept, [item for _, *rest in lacking.values() for item in rest]


@cache
def _here(name: str) -> bool:
    return bool(NEEDS[name].here())
