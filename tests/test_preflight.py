"""The messages of `make` on a machine that lacks a requirement: its name, and the command that installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NEEDED = ("sh", "id", "env")


@pytest.fixture
def machine(tmp_path: Path):
    """Return a function that makes a PATH of scripts (name -> content) and runs the preflight check there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)

    def run(checkout: Path, scripts: dict[str, str]) -> subprocess.CompletedProcess[str]:
        for name, content in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{content}\n")
            (folder / name).chmod(0o755)
        environment = {key: value for key, value in os.environ.items() if key != "CXX"} | {"PATH": str(folder)}
        command = ["sh", str(checkout / "tools" / "ci" / "preflight.sh"), "python3"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


REAL = f'exec "{sys.executable}" "$@"'
NO_ENSUREPIP = f'case "$2" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"'
OLD = 'case "$2" in *"3, 10"*) exit 1 ;; *) echo 3.8 ;; esac'


def test_a_complete_machine_passes_silently(machine, checkout: Path) -> None:
    done = machine(checkout, {"python3": REAL, "g++": "true"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("scripts", "missing", "package"),
    [
        ({"python3": REAL}, "a C++ compiler", "build-essential"),
        ({"python3": NO_ENSUREPIP, "g++": "true"}, "the venv module", "python3-venv"),
        ({"g++": "true"}, "Python >= 3.10", "python3 python3-venv"),
    ],
)
def test_what_is_missing_is_named_with_its_package(
    machine, checkout: Path, scripts: dict[str, str], missing: str, package: str
) -> None:
    done = machine(checkout, scripts)
    assert done.returncode == 3
    assert missing in done.stderr
    assert f"apt-get install -y {package}" in done.stderr


def test_everything_missing_is_named_at_once(machine, checkout: Path) -> None:
    done = machine(checkout, {"python3": NO_ENSUREPIP})
    assert "apt-get install -y python3-venv build-essential" in done.stderr


def test_an_old_python_is_refused(machine, checkout: Path) -> None:
    done = machine(checkout, {"python3": OLD, "g++": "true"})
    assert done.returncode == 3
    assert "Python 3.8" in done.stderr
    assert "make PYTHON=" in done.stderr
