"""Runs of one stage that takes a sensor's frames and returns boxes, scores and labels, on the native executor."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.executor.run_native import DETECTIONS
from socsched.executor.settings import RunSettings, write_settings
from tests.runtime.run_plans import MS, plan, task

ROWS = 4
INPUT = np.arange(ROWS * 7, dtype=np.float32).reshape(ROWS, 7) / 8


def tensor(name: str, dtype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "layout": "", "shape": list(shape)}


OUTPUTS = [tensor("boxes", "fp32", ROWS, 7), tensor("scores", "fp32", ROWS), tensor("labels", "int32", ROWS)]


def run(
    executor: Path,
    folder: Path,
    stage: Mapping[str, Any],
    given: np.ndarray[Any, Any] = INPUT,
    lanes: tuple[int, ...] = (0,),
    first: Mapping[str, Any] | None = None,
    **env: str,
) -> Any:
    """Return the process after two frames of a sensor went through a stage on some lanes of its engine.

    With `first` through that stage before, "first", whose outputs it reads.
    """
    (folder / "frames.bin").write_bytes(given.tobytes() * 3)
    entry = {"shapes": [list(given.shape)]}
    document = {
        "file": "frames.bin",
        "ports": [{"dtype": "fp32", "layout": "", "shape": list(given.shape)}],
        "frames": [entry, entry],
        "warm": entry,
    }
    tasks = [task("detect", "s" if first is None else "first", queue=9, lanes=lanes)]
    tasks[:0] = [] if first is None else [task("first", "s", queue=9)]
    made = plan(*tasks, sensors={"s": 20 * MS})
    inputs = [{"from": "s", "port": 0, **tensor("x", "fp32", *given.shape)}]
    full = {
        "inputs": inputs,
        "outputs": OUTPUTS,
        "records": True,
        **stage,
    }
    stages = {"detect": full} if first is None else {"first": {"inputs": inputs, **first}, "detect": full}
    needs = {"detect": {"s"}} if first is None else {"first": {"s"}, "detect": {"first"}}
    settings = RunSettings(made, 40 * MS, needs, stages, inputs={"s": document})
    command = [str(executor), str(write_settings(settings, folder)), "-o", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})


def detections(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / DETECTIONS).read_text().splitlines()]
