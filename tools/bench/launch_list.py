"""Time of networks on the native executor's launch lists against TVM's virtual machine, stage by stage in turns.

    python -m tools.bench.launch_list [PIPELINE] [--rounds N]

Prints the medians in ms over N rounds, each of ten jobs of one and ten of the other, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from socsched.api.planning import plan as make_plan
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.compiler.loading.stages import load
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.executor.build import find_executor
from socsched.executor.frames import most_rows, write_inputs
from socsched.executor.references import write_references
from socsched.executor.settings import RunSettings, write_settings
from socsched.executor.stages import describe_stages, sensor_ports
from socsched.graph.operators import TensorType
from socsched.models.registry import bindings
from socsched.runtime.backends.base import Setting
from socsched.runtime.executor import prepare_inputs

JOBS = 10


def main() -> None:
    """Measure the networks of a pipeline."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", nargs="?", default="pointpillars-s")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    pipeline, platform = get_pipeline(asked.pipeline), get_platform("host")
    setting = Setting(make_plan(asked.pipeline, "host"), pipeline, platform, bindings(pipeline), None)
    executor = find_executor()
    if executor is None:
        raise SystemExit("no C++ compiler")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        feeds, horizon = prepare_inputs(setting, None, 2, None, False)
        given = write_inputs(setting.plan, feeds, sensor_ports(setting), horizon, folder)
        rooms = {name: most_rows(written.document) for name, written in given.items()}
        stages = describe_stages(setting, {name: written.types for name, written in given.items()}, rooms)
        frames = {name: feeds[name].frame(0) for name in given}
        references = write_references(setting, frames, stages, folder, 0)
        stored = json.loads(references.read_text())["data"]
        needs = {stage: set(ports.values()) for stage, ports in setting.bound.items()}
        inputs = {name: written.document for name, written in given.items()}
        settings = write_settings(RunSettings(setting.plan, horizon, needs, stages, inputs=inputs), folder)
        command = [str(executor), str(settings), "--selftest", str(references), "--repeat", str(JOBS)]
        networks = [task for task in setting.plan.tasks if stages[task.name]["kind"] == "network"]
        calls = {}
        for task in networks:
            engine, stage = platform.engine(task.engine), pipeline.stage(task.name)
            artifact = compile_stage(stage, engine, task.precision, None, len(task.lanes))
            calls[task.name] = (load(artifact), _stored(stages[task.name]["inputs"], stored, folder))
        times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in calls}
        for _ in range(asked.rounds):
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found = dict(re.findall(r"(\S+): passed, ([\d.]+) ms", text))
            for name, (call, arrays) in calls.items():
                times[name][0].append(float(found[name]))
                times[name][1].append(statistics.median(_time(call, arrays) for _ in range(JOBS)))
    print(f"{'stage':12} {'launch list':>12} {'TVM':>12} {'ratio':>6}")
    for name, (own, theirs) in times.items():
        mine, other = statistics.median(own), statistics.median(theirs)
        print(f"{name:12} {mine:9.3f} ms {other:9.3f} ms {mine / other:6.2f}")


def _stored(entries: Sequence[Mapping[str, Any]], stored: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the stored inputs of a stage as its code takes them."""
    arrays = []
    for entry in entries:
        data, offset = stored[entry["from"]], 0
        for port, shape in zip(data["ports"], data["frames"][0]["shapes"], strict=True):
            kind = TensorType(tuple(shape), port["dtype"], port["layout"])
            count = int(np.prod(physical_shape(kind)))
            if port is data["ports"][entry["port"]]:
                flat = np.fromfile(folder / data["file"], NUMPY_DTYPES[kind.dtype], count, offset=offset)
                array = flat.reshape(physical_shape(kind))
                goal = TensorType(kind.shape, entry["dtype"], entry["layout"])
                arrays.append(array if kind == goal else convert(array, kind, goal))
            offset += count * np.dtype(NUMPY_DTYPES[kind.dtype]).itemsize
    return arrays


def _time(call: Callable[..., object], arrays: Sequence[Any]) -> float:
    begun = time.perf_counter()
    call(*arrays)
    return (time.perf_counter() - begun) * 1e3


if __name__ == "__main__":
    main()
