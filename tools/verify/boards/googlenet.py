"""GoogleNet split between GPU and DLA of a Jetson AGX Xavier: plans of published layer times, and what they take.

Data: tests/data/haxconn, from the artifact of HaX-CoNN (PPoPP 2024).  No parameter is taken from the
time of a split:

- GPU: group times leave reformatting out, so they are scaled by whole network measured / sum of groups, GPU only;
- DLA: group times as given (differences of suffixes, so this part cannot fail where a boundary is a group's);
- leaving the GPU early: mean cost of marking a layer as output there (another experiment), other layers only;
- reformatting: launch and rate fitted to all other layers' reformat times, then `socsched.cost.conversion`;
- after the DLA: what the DLA-only run takes besides DLA and input copy.

A layer inside a group counts as its group's time over the number of layers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from socsched.cost.conversion import Hop, conversion_cost
from socsched.cost.cost import Segment
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Engine, Figure
from socsched.graph.operators import TensorType
from socsched.planning.evidence import Bandwidth, Power
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.planning.search_report import SearchReport
from socsched.sim.engine import simulate

MS = 1_000_000
LAYERS = 140
"""The network's last layer, prob, stays on the GPU and is part of what follows the DLA."""
_FRAME = 100 * MS


@dataclass(frozen=True, slots=True)
class Measured:
    """What was published: GPU and DLA groups (first layer, layers, ms), and the rest of the calibration data."""

    gpu: tuple[tuple[int, int, float], ...]
    dla: tuple[tuple[int, int, float], ...]
    gpu_whole: float
    reformat: dict[int, tuple[int, float]]
    marks: dict[int, float]
    tail: float
    input_copy: float
    splits: dict[int, float]
    dla_only: float


def load(folder: Path) -> Measured:
    """Read the published figures; times in ms, tensors in bytes."""
    groups, splits, costs = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in (
            "googlenet_xavier_layer_groups.json",
            "googlenet_xavier_splits.json",
            "transition_costs_xavier.json",
        )
    )
    runs = groups["gpu_ms_three_runs"].values()
    ranges = [tuple(pair) for pair in groups["group_layer_ranges"]]
    gpu = tuple((a, b - a + 1, mean(run[f"{a}-{b}"] for run in runs)) for a, b in ranges)
    dla = tuple(
        (row["layers"][0], row["layers"][1] - row["layers"][0] + 1, row["dla_ms"])
        for row in groups["dla_ms_recovered_from_raw_profiles"]
    )
    schedules = splits["schedules"]
    only = schedules["dla_only"]
    marks = [run["gpu_marks_output"] for run in costs["runs"].values()]
    return Measured(
        gpu=gpu,
        dla=dla,
        gpu_whole=schedules["-1"]["profile_total_ms"],
        reformat={
            int(k): (costs["tensor_bytes_fp16"][k], ms) for k, ms in costs["gpu_to_dla_input_reformat_ms"].items()
        },
        marks={int(k): mean(run[k]["cost_ms"] for run in marks) for k in marks[0] if int(k) > 0},
        tail=only["profile_total_ms"] - only["dla_suffix_ms"] - only["data_to_nvm_ms"],
        input_copy=only["data_to_nvm_ms"],
        splits={int(k): s["profile_total_ms"] for k, s in schedules.items() if k.isdigit() and int(k) > 0},
        dla_only=only["profile_total_ms"],
    )


def line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope of the least-squares line through points."""
    x, y = mean(a for a, _ in points), mean(b for _, b in points)
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return y - slope * x, slope


def _segments(groups: tuple[tuple[int, int, float], ...], first: int, end: int, scale: float) -> tuple[Segment, ...]:
    """Return the parts of groups within layers [first, end) as segments."""
    result = []
    for start, count, time in groups:
        inside = min(start + count, end) - max(start, first)
        if inside > 0:
            result.append(Segment(f"{start}-{start + count - 1}", round(time * scale * inside / count * MS), 0, 0))
    return tuple(result)


def conversion_engine(data: Measured, without: int) -> Engine:
    """Return Xavier's GPU with launch time and conversion rate fitted to the reformats of all layers but one."""
    points = [(2.0 * size, time * MS) for layer, (size, time) in data.reformat.items() if layer != without]
    fixed, per_byte = line(points)
    gpu = get_platform("jetson-agx-xavier").engine("gpu")
    note = "least squares over the other layers' reformat times"
    return replace(
        gpu,
        launch_ns=Figure(max(fixed, 0.0), "derived", note=note),
        submit_ns=Figure(0, "derived", note=note),
        conversion=Figure(1e9 / per_byte, "derived", note=note),
    )


def plan_split(data: Measured, layer: int) -> Plan:
    """Return the plan that runs layers [0, layer) on the GPU and the others on the DLA; 0 for DLA only.

    A layer whose tensor is not in the data counts as the nearest listed one before it.
    """
    tail = Segment("prob", round(data.tail * MS), 0, 0)
    scale = data.gpu_whole / sum(time for _, _, time in data.gpu)
    dla = _segments(data.dla, layer, LAYERS, 1.0)
    if layer <= 0:
        copy = Segment("input copy", round(data.input_copy * MS), 0, 0)
        tasks = [_task("copy", "gpu", (copy,)), _task("dla", "dla", dla, "copy"), _task("prob", "gpu", (tail,), "dla")]
        return _plan(tasks)
    size = data.reformat[max(k for k in data.reformat if k <= layer)][0]
    marked = mean(cost for k, cost in data.marks.items() if k != layer)
    front = (*_segments(data.gpu, 0, layer, scale), Segment("mark output", round(marked * MS), 0, 0))
    platform = get_platform("jetson-agx-xavier")
    tensor = TensorType((1, size // 2, 1, 1), "fp16", "NCHW")
    hop = Hop(tensor, replace(tensor, layout="NCHW16c"))
    cost = conversion_cost("front>dla", [hop], conversion_engine(data, layer), platform, platform.mode("MAXN"))
    return _plan(
        [
            _task("front", "gpu", front),
            _task("front>dla", "gpu", cost.segments, "front"),
            _task("dla", "dla", dla, "front>dla"),
            _task("prob", "gpu", (tail,), "dla"),
        ]
    )


def _task(name: str, engine: str, segments: tuple[Segment, ...], after: str = "") -> Task:
    time = sum(segment.time_ns for segment in segments)
    fields: dict[str, Any] = {"kind": "conversion" if ">" in name else "stage", "engine": engine, "lanes": (0,)}
    fields.update(precision="fp16", after=(after,) if after else (), reads=(), timer=not after, period_ns=_FRAME)
    fields.update(offset_ns=0, queue=1, cost_ns=time, wcet_ns=time, bytes=0, energy_uj=0, segments=segments)
    fields.update(priority=0, deadline_ns=_FRAME, jitter_ns=0, criticality="firm")
    return Task(name=name, **fields, provenance="derived", source="haxconn", error=0.0)


def _plan(tasks: list[Task]) -> Plan:
    engines = tuple(
        PlannedEngine(name, name, 1, "segment", 0, "fifo", bandwidth=0, idle_mw=0, dynamic_mw=0)
        for name in ("gpu", "dla")
    )
    empty: dict[str, Any] = dict.fromkeys(("sensors", "transitions", "chains", "violations"), ())
    empty.update(power=Power(), bandwidth=Bandwidth(), solver=SearchReport(), inputs={})
    names = {"platform": "jetson-agx-xavier", "mode": "MAXN", "pipeline": "googlenet", "verdict": "undecided"}
    return Plan(**names, policy="fifo", engines=engines, tasks=tuple(tasks), **empty)


def simulated_ms(plan: Plan) -> float:
    """Return the time of one frame from the start of its first task to the end of its last."""
    jobs = simulate(plan, _FRAME).jobs
    return (max(job.finish_ns for job in jobs) - min(job.start_ns for job in jobs)) / MS


def compare(data: Measured) -> list[tuple[str, float, float]]:
    """Return (schedule, published ms, simulated ms) of all splits, and of DLA only, which calibrates `tail`."""
    rows = [(f"GPU [0,{k}) + DLA", total, simulated_ms(plan_split(data, k))) for k, total in data.splits.items()]
    return [*rows, ("DLA only", data.dla_only, simulated_ms(plan_split(data, 0)))]
