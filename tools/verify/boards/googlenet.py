"""GoogleNet split between GPU and DLA of a Jetson AGX Xavier: the shipped board's plan of both parts, simulated.

Data: tests/data/haxconn, from the artifact of HaX-CoNN (PPoPP 2024).  No parameter is taken from the time of a split:

- the parts are two stages; conversion and hand-over between them are the descriptor's;
- their times are the descriptor's, or measured layer groups as a profile: on the GPU scaled by whole network measured /
  sum of groups, since group times leave reformatting out; on the DLA as given (differences of suffixes, so this part
  cannot fail where a boundary is a group's);
- after the DLA: what the DLA-only run takes besides DLA and input copy.

A layer inside a group counts as its group's time over the number of layers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from socsched.descriptor.catalog import get_platform
from tools.verify.boards import planned
from tools.verify.boards.planned import Part

LAYERS = 140
"""The network's last layer, prob, stays on the GPU and is part of what follows the DLA."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was published: GPU and DLA groups (first layer, layers, ms), and the rest of the calibration data."""

    gpu: tuple[tuple[int, int, float], ...]
    dla: tuple[tuple[int, int, float], ...]
    gpu_whole: float
    tail: float
    splits: dict[int, float]
    dla_only: float


def load(folder: Path) -> Measured:
    """Read the published figures; times in ms."""
    groups, splits = (
        json.loads((folder / f"googlenet_xavier_{name}.json").read_text(encoding="utf-8"))
        for name in ("layer_groups", "splits")
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
    return Measured(
        gpu=gpu,
        dla=dla,
        gpu_whole=schedules["-1"]["profile_total_ms"],
        tail=only["profile_total_ms"] - only["dla_suffix_ms"] - only["data_to_nvm_ms"],
        splits={int(k): s["profile_total_ms"] for k, s in schedules.items() if k.isdigit() and int(k) > 0},
        dla_only=only["profile_total_ms"],
    )


def parts(data: Measured, layer: int, measured: bool) -> tuple[Part, ...]:
    """Return layers [0, layer) on the GPU and the others on the DLA as stages; `measured`: with measured times."""
    scale = data.gpu_whole / sum(time for _, _, time in data.gpu) if measured else 0.0
    found = [Part("dla", "googlenet", "dla0", layer, 0, _spent(data.dla, layer, LAYERS, float(measured)))]
    if layer > 0:
        found.insert(0, Part("gpu", "googlenet", "gpu", 0, layer, _spent(data.gpu, 0, layer, scale)))
    return tuple(found)


def _spent(groups: tuple[tuple[int, int, float], ...], first: int, end: int, scale: float) -> float:
    """Return the time (ms) of layers [first, end), those of a group in equal parts."""
    overlaps = ((max(min(start + count, end) - max(start, first), 0), count, time) for start, count, time in groups)
    return sum(time * scale * inside / count for inside, count, time in overlaps)


def simulated_ms(data: Measured, layer: int, measured: bool = True) -> float:
    """Return the latency of a split as planned on the shipped board and simulated, and of what follows the DLA."""
    chains = {"googlenet": parts(data, layer, measured)}
    plan = planned.plan(chains, get_platform("jetson-agx-xavier"), "MAXN", {"googlenet": 100.0})
    return planned.latencies_ms(plan, chains)["googlenet"] + data.tail


def compare(data: Measured, measured: bool = True) -> list[tuple[str, float, float]]:
    """Return (schedule, published ms, simulated ms) of all splits, and of DLA only, which calibrates `tail`."""
    rows = [(f"GPU [0,{k}) + DLA", total, simulated_ms(data, k, measured)) for k, total in data.splits.items()]
    return [*rows, ("DLA only", data.dla_only, simulated_ms(data, 0, measured))]
