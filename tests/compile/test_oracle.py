"""The full-size network on real scans against what an independent implementation computed (oracle.json)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.compile.builder import compile_stage
from socsched.compile.layouts import convert
from socsched.compile.runtime import CompiledStage, load
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network
from socsched.models.weights import load_weights

Array = np.ndarray[Any, Any]
GRID = (432, 496)
LOW, CELL = np.array([0, -39.68, -3], np.float32), np.array([0.16, 0.16, 4], np.float32)


def voxelise(points: Array, slots: int = 32) -> tuple[Array, Array, Array]:
    """Pillars in order of first appearance, point by point: the definition, not the way to do it fast."""
    cells = np.floor((points[:, :3] - LOW) / CELL).astype(np.int64)
    inside = ((cells >= 0) & (cells < (*GRID, 1))).all(axis=1)
    index: dict[tuple[int, int], int] = {}
    members: list[list[Array]] = []
    for point, (x, y, _) in zip(points[inside], cells[inside].tolist(), strict=True):
        number = index.setdefault((x, y), len(members))
        if number == len(members):
            members.append([])
        if len(members[number]) < slots:
            members[number].append(point)
    voxels = np.zeros((len(members), slots, 4), np.float32)
    for number, found in enumerate(members):
        voxels[number, : len(found)] = found
    return voxels, np.array([len(m) for m in members], np.int32), np.array(list(index), np.int32)


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "pointpillars"


@pytest.fixture(scope="module")
def stages(folder: Path, make_engine: Callable[..., Engine]) -> dict[str, CompiledStage]:
    networks = pfn_network(), backbone_network(), head_network()
    weights = load_weights(folder / "pointpillars_kitti3c_ft_fp16.npz", networks)
    loaded = {}
    for name in ("pfn", "scatter", "backbone", "head"):
        stage = Stage(name, name, f"pointpillars.{name}", params={"taps": True} if name == "backbone" else {})
        loaded[name] = load(compile_stage(stage, make_engine(), weights=weights, threads=2))
    return loaded


def plain(arrays: tuple[Array, ...], stage: CompiledStage) -> list[Array]:
    return [convert(a, t, TensorType(t.shape, "fp32", "NCHW")) for a, t in zip(arrays, stage.outputs, strict=True)]


def check(name: str, array: Array, expected: dict[str, Any]) -> None:
    assert list(array.shape) == expected["shape"], name
    values = array.astype(np.float64)
    found = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    found["l2"] = np.sqrt((values * values).sum())
    for statistic, value in found.items():
        assert value == pytest.approx(expected[statistic], rel=1e-4, abs=1e-9), f"{name}: {statistic}"


@pytest.mark.parametrize("frame", ["000000", "000001", "000002", "000003", "000004"])
def test_every_stage_equals_the_oracle(frame: str, folder: Path, stages: dict[str, CompiledStage]) -> None:
    (scan,) = folder.parent.glob(f"kitti/**/{frame}.bin")
    oracle = json.loads((folder / "oracle.json").read_text())["frames"][frame]["stats"]
    samples = np.load(folder / f"{frame}.npz")
    voxels, counts, coords = voxelise(np.fromfile(scan, np.float32).reshape(-1, 4))
    assert np.array_equal(coords, samples["coors"]) and np.array_equal(counts, samples["npts"])

    (features,) = stages["pfn"](voxels, counts, coords)
    check("pfn", features, oracle["pfn"])
    assert np.abs(features - samples["pfn"]).max() < 1e-3 * np.abs(features).max()
    canvas = stages["scatter"](features, coords)
    check("bev", plain(canvas, stages["scatter"])[0], oracle["bev"])
    blocked = stages["backbone"](*canvas)
    for name, array in zip(("neck", "block1", "block2", "block3"), plain(blocked, stages["backbone"]), strict=True):
        check(name, array, oracle[name])
    heads = stages["head"](blocked[0])
    for name, array in zip(("cls", "reg", "dir"), heads, strict=True):
        check(name, array[0], oracle[name])
        assert np.abs(array[0][:, ::31, ::27] - samples[f"{name}_sample"]).max() < 1e-4
