"""What tests of studies share: a writer of studies, and a sweep long enough to be interrupted with its output."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

Writer = Callable[..., Path]

STUDY = """schema_version: "1"
name: killed
parameters:
  platform: jetson-agx-orin-64gb
  mode: [MAXN, MODE_50W, MODE_30W, MODE_15W]
  pipeline: camera-detection
  load: {between: [1, 4], steps: 20}
  seed: [0, 1000, 2000, 3000]
simulate: {duration: 20 s, runs: 8, settle: false}
holds: {misses: 0.01}
"""
ROWS = 4 * 20 * 4


def start(folder: Path, name: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "socsched", "sweep", str(folder / "killed.yaml"), "-o", str(folder / name), "-q"]
    return subprocess.Popen([*command, "--workers", "2", *more], cwd=Path(__file__).parents[2])


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "table.parquet").read_bytes()).hexdigest()


def rows(folder: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob("parts/*"))


def await_rows(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    deadline = time.monotonic() + 200
    while rows(folder) < count:
        assert process.poll() is None, "it was done before it could be disturbed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
