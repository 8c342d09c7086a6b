"""Time the host stages of the built-in models on one core of this machine, for the anchors of shipped pipelines.

Usage: python -m tools.bench.host_stages [SCAN.bin ...]   (scans of KITTI's form; without any, synthetic ones)

Prints the median and the maximum of each stage in milliseconds.  Pin it to a quiet core, e.g. with ``taskset -c 2``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from socsched.models.centerpoint.grid import AUTOWARE
from socsched.models.centerpoint.network import MAPS
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.registry import get_model

REPEATS = 200
POINTS, PILLARS = 20000, 6000
FULL_POINTS, FULL_PILLARS = 128000, 18600
"""The fullest of 32 full turns of KITTI's LiDAR."""


def synthetic_scan(
    points: int = POINTS, pillars: int = PILLARS, seed: int = 1, grid: Grid = KITTI
) -> np.ndarray[Any, Any]:
    """Return [N, 4] float32 points in the range of `grid` that fall into about `pillars` pillars."""
    rng = np.random.default_rng(seed)
    columns, rows, _ = grid.cells
    cells = rng.permutation(columns * rows)[:pillars]
    # Every pillar holds a point, the rest crowd into few of them, as near ground rings do.
    chosen = np.concatenate([cells, cells[(pillars * rng.random(points - pillars) ** 3).astype(int)]])
    y, x = np.divmod(chosen, columns)
    size = grid.pillar[0]
    jitter = rng.random((2, points)) * size * 0.9375
    places = [x * size + grid.low[0] + jitter[0], y * size + grid.low[1] + jitter[1]]
    scan = np.stack([*places, rng.random(points) * 3 - 2.5, rng.random(points)])
    return np.ascontiguousarray(scan.T[rng.permutation(points)], np.float32)


def head_maps(seed: int = 1, active: int = 400) -> list[np.ndarray[Any, Any]]:
    """Return class, offset and direction maps in which `active` anchors pass the score threshold."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-6, 0.7, (1, 18, 248, 216)).astype(np.float32)
    logits.reshape(-1)[rng.permutation(logits.size)[:active]] = rng.normal(0, 1, active)
    offsets = rng.normal(0, 0.3, (1, 42, 248, 216)).astype(np.float32)
    return [logits, offsets, rng.normal(0, 0.5, (1, 12, 248, 216)).astype(np.float32)]


def centre_maps(seed: int = 1, objects: int = 2000, cells: int = 5) -> list[np.ndarray[Any, Any]]:
    """Return CenterPoint's maps in which `cells` cells around each of `objects` centres pass the score threshold."""
    rng = np.random.default_rng(seed)
    maps = [rng.normal(0, 0.3, (1, channels, 480, 480)).astype(np.float32) for _, channels in MAPS]
    heat, heading = maps[0][0], maps[4][0]
    heat -= 4
    heading[1] += 1
    maps[3][0] += np.log([[[2.0]], [[4.5]], [[1.6]]])
    for y, x in rng.integers(2, 478, (objects, 2)):
        spots = rng.permutation(25)[:cells]
        heat[rng.integers(0, 5), y - 2 + spots // 5, x - 2 + spots % 5] = rng.normal(1, 0.5, cells)
    return maps


def timed(function: Callable[..., Any], arguments: list[Any], repeats: int = REPEATS) -> list[float]:
    """Return the duration (ms) of each of `repeats` calls after a few to warm up."""
    for _ in range(5):
        function(*arguments)
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        function(*arguments)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of a built-in model that is one."""
    function = get_model(name).function
    if function is None:
        raise SystemExit(f"{name} is no host function")
    return function


def main() -> None:
    """Print one line per stage and input."""
    scans = [np.fromfile(path, np.float32).reshape(-1, 4) for path in map(Path, sys.argv[1:])] or [synthetic_scan()]
    image = np.random.default_rng(1).integers(0, 256, (1080, 1920, 3), np.uint8)
    turns = scans if sys.argv[1:] else [synthetic_scan(FULL_POINTS, FULL_PILLARS, grid=AUTOWARE)]
    camera_map = np.random.default_rng(1).normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    cases = [("pointpillars.voxelise", [scan], f"{len(scan)} points") for scan in scans]
    cases += [("pointpillars.decode", head_maps(), "400 active anchors"), ("camera.preprocess", [image], "1920 x 1080")]
    cases += [("centerpoint.voxelise", [turn], f"{len(turn)} points") for turn in turns]
    cases += [("centerpoint.decode", centre_maps(), "500 candidates, 100 boxes")]
    cases += [("camera.decode", [camera_map], "100 candidates of 1200")]
    for name, arguments, label in cases:
        times = timed(function_of(name), arguments)
        print(f"{name:24} {label:26} median {statistics.median(times):7.3f} ms   max {max(times):7.3f} ms")


if __name__ == "__main__":
    main()
