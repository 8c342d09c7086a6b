"""Random and odd frames for the host stages, and the comparison of compiled stages with numpy's."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from socsched.models.centerpoint.network import MAPS
from socsched.models.host import CompiledStages
from socsched.models.model import Model
from socsched.models.pointpillars.grid import Grid
from socsched.models.registry import get_model

Array = np.ndarray[Any, Any]

ODD = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 3e38, 1e-42]
SCANS = ("empty", "one point", "one pillar", "too many pillars", "odd values", "duplicates", "on the edges", "street")
LIDARS = {
    "pointpillars": {"range": [0.0, -3.2, -3.0, 5.12, 3.2, 1.0]},
    "centerpoint": {"range": [-5.12, -6.4, -4.0, 5.12, 6.4, 6.0]},
}
"""Models with small grids.  PointPillars-S has the voxelising and decoding stages of PointPillars."""


@dataclass(frozen=True, slots=True)
class Case:
    """A stage and its inputs."""

    stage: str
    params: dict[str, Any]
    arrays: list[Array]


def strict(stages: CompiledStages) -> CompiledStages:
    """Return stages whose refusal is an error: silently compared with itself, numpy would always be right."""

    def run(name: str, *given: Any) -> Any:
        found = stages(name, *given)
        assert found is not None, f"{name} was left to numpy"
        return found

    return run


def equal(found: Any, expected: Any) -> bool:
    """Return whether all arrays have the same types, shapes and bits."""
    return len(found) == len(expected) and all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for a, b in zip(map(np.ascontiguousarray, found), map(np.ascontiguousarray, expected), strict=True)
    )


def run(case: Case, compiled: CompiledStages | None = None) -> Any:
    """Return the outputs of the case's stage."""
    function = _made(case.stage, json.dumps(case.params)).function
    assert function is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # non-finite values dropped
        return function(*case.arrays, **({"compiled": compiled} if compiled else {}))


@lru_cache(maxsize=64)
def _made(stage: str, params: str) -> Model:
    return get_model(stage, json.loads(params))


def same(case: Case, stages: CompiledStages) -> bool:
    """Return whether the compiled stage's outputs are numpy's, bit for bit."""
    return equal(run(case, strict(stages)), run(case))


@lru_cache
def grid_of(lidar: str) -> Grid:
    """Return the small grid of a LiDAR model."""
    function: Any = get_model(f"{lidar}.voxelise", LIDARS[lidar]).function
    grid: Grid = function.keywords["grid"]
    return grid


def scan(rng: np.random.Generator, kind: str, grid: Grid) -> Array:
    """Return points [N, 4] of one of SCANS."""
    low, high = np.array(grid.low), np.array(grid.high)
    count = {"empty": 0, "one point": 1}.get(kind, int(rng.integers(2, 600)))
    span = high - low
    points = np.column_stack([low - 0.15 * span + 1.3 * span * rng.random((count, 3)), rng.random(count)])
    if kind == "one pillar":
        cell = low[:2] + grid.pillar[0] * (rng.integers(0, grid.cells[:2]) + 0.5)
        points[:, :2] = cell + rng.uniform(-0.45, 0.45, (count, 2)) * grid.pillar[0]
        points[:, 2] = rng.uniform(grid.low[2], grid.high[2], count)
    elif kind == "on the edges":
        points[:, :3] = low + np.round((points[:, :3] - low) / grid.pillar) * grid.pillar
    elif kind == "duplicates":
        points = points[rng.integers(0, max(count // 20, 1), count)]
    elif kind == "street":
        points[:, :2] = low[:2] + span[:2] * rng.beta(0.5, 3, (count, 2))
    points = points.astype(np.float32)
    if kind == "odd values":
        points[rng.integers(0, count, 20), rng.integers(0, 4, 20)] = rng.choice(ODD, 20)
    return points


def voxelise_case(rng: np.random.Generator, kind: str, lidar: str) -> Case:
    """Return a scan for the voxelising stage of `lidar`, with limits that some scans exceed."""
    few = kind == "too many pillars"
    limits = {"max_pillars": int(rng.integers(1, 20 if few else 900)), "max_points": int(rng.integers(1, 33))}
    return Case(f"{lidar}.voxelise", {**LIDARS[lidar], **limits}, [scan(rng, kind, grid_of(lidar))])


def decode_case(rng: np.random.Generator, lidar: str) -> Case:
    """Return maps for the decoding stage of `lidar`: crowded or sparse, with ties, and often with odd values."""
    nx, ny, _ = grid_of(lidar).cells
    step = rng.choice([0.01, 0.5, 2.0])  # coarse logits tie
    limits = {
        "score": float(rng.choice([0.0, 0.1, 0.35, 0.9])),
        "iou": float(rng.choice([0.0, 0.01, 0.1, 0.5, 1.0])),
        "candidates": int(rng.integers(1, 300)),
        "max_boxes": int(rng.integers(1, 60)),
    }
    mean = rng.choice([-6.0, -2.0, 0.0])
    if lidar == "pointpillars":
        limits |= {"anchors": str(rng.choice(["centres", "edges"])), "turn": float(rng.choice([0.0, 0.785]))}
        spreads = ((18, mean, 2.0), (42, 0.0, 0.6), (12, 0.0, 1.0))
        maps = [rng.normal(m, s, (1, channels, ny // 2, nx // 2)) for channels, m, s in spreads]
    else:
        limits["circle"] = float(rng.choice([0.0, 0.5, 1.0]))
        maps = [rng.normal(0, 0.7, (1, channels, ny, nx)) for _, channels in MAPS]
        maps[0] = maps[0] * 2 + mean
    maps[0] = np.round(maps[0] / step) * step
    arrays = [array.astype(np.float32) for array in maps]
    if rng.random() < 0.5:
        for array in arrays:
            places = rng.integers(0, array.size, 12)
            array.reshape(-1)[places] = rng.choice([*ODD, 25.0, 40.0, 90.0, -90.0, 1e6], 12)
    return Case(f"{lidar}.decode", {**LIDARS[lidar], **limits}, arrays)


def image_boxes_case(rng: np.random.Generator) -> Case:
    """Return a map of the camera detector."""
    params = {
        "score": float(rng.choice([0.0, 0.1, 0.5])),
        "iou": float(rng.choice([0.0, 0.45, 1.0])),
        "candidates": int(rng.integers(1, 200)),
        "max_boxes": int(rng.integers(1, 60)),
        "fit": str(rng.choice(["stretch", "letterbox"])),
        "input_height": 96,
        "input_width": 160,
    }
    output = np.round(rng.normal(0, 1.5, (1, 40, 3, 5)) * 4).astype(np.float32) / 4
    if rng.random() < 0.5:
        output.reshape(-1)[rng.integers(0, output.size, 8)] = rng.choice([*ODD, 800.0, -800.0], 8)
    return Case("camera.decode", params, [output])


def image_case(rng: np.random.Generator) -> Case:
    """Return an image in any format, smaller or larger than the network's input."""
    form = str(rng.choice(["rgb", "rgb planar", "bgr", "nv12"]))
    rows, columns = rng.integers(1, (90, 400)).tolist()
    shapes = {"rgb planar": (1, 3, rows, columns), "nv12": (3 * rows, 2 * columns)}
    params = {
        "format": form.split()[0],
        "fit": str(rng.choice(["stretch", "letterbox"])),
        "precision": str(rng.choice(["fp32", "fp16"])),
        "layout": str(rng.choice(["NCHW", "NHWC"])),
        "input_height": int(rng.choice([32, 64])),
        "input_width": int(rng.choice([32, 64, 96])),
    }
    image = rng.integers(0, 256, shapes.get(form, (rows, columns, 3)), np.uint8)
    return Case("camera.preprocess", params, [image])


def lidar_cases(seed: int, count: int) -> Iterator[Case]:
    """Yield `count` scans, each with maps for the decoder of its model."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        lidar = ("pointpillars", "centerpoint")[number % 2]
        yield voxelise_case(rng, SCANS[number // 2 % len(SCANS)], lidar)
        yield decode_case(rng, lidar)


def camera_cases(seed: int, count: int) -> Iterator[Case]:
    """Yield `count` images, each with a map for the decoder."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        yield image_case(rng)
        yield image_boxes_case(rng)
