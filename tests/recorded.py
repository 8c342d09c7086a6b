"""Fixtures of scans with stored oracles: the included synthetic ones, and KITTI's if SOCSCHED_SHARED has them.

`tools/generate/scan_oracle.py` made the synthetic ones (tests/data/scan/README.md).  KITTI's may not be shipped; tests
over `recorded` and `accelerator` run on both where SOCSCHED_SHARED names the folder that holds data/.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline
from socsched.models.pointpillars.small import FILE as SHIPPED
from tests import tiny_pillars

Array = np.ndarray[Any, Any]
SHARED = Path(os.environ["SOCSCHED_SHARED"]) / "data" if os.environ.get("SOCSCHED_SHARED") else None
SCAN = Path(__file__).parent / "data" / "scan"
KITTI = pytest.mark.needs("KITTI")
UNITS = 256


def unpack(path: Path) -> Array:
    """Return the points [N, 4] of a stored scan: int16 differences along each column, in units of 1/256."""
    columns = np.frombuffer(lzma.decompress(path.read_bytes()), "<i2").reshape(4, -1)
    return np.ascontiguousarray((np.cumsum(columns, axis=1) / UNITS).T, np.float32)


@dataclass(frozen=True)
class Recorded:
    """Scans, the weights of a detector, and what a plain reference found with them.

    `frames` has the oracle by the scans' names, `folder` samples of tensors (features of each `every`th pillar) and
    labels with image boxes right to `pixels`.
    """

    network: str
    scans: tuple[Path, ...]
    weights: Path
    folder: Path
    frames: Mapping[str, Any]
    parameters: int
    every: int
    labels: tuple[tuple[Path, Path], ...]
    pixels: float

    def pipeline(self, taps: bool = False, precisions: tuple[str, ...] = ("fp32",)) -> Pipeline:
        """Return the detector's pipeline in these precisions; `taps` makes the backbone give its blocks' outputs."""
        made = get_pipeline(self.network)
        stages = tuple(
            replace(
                stage,
                precisions=tuple(p for p in stage.precisions if p in precisions),
                params={**stage.params, "taps": True} if taps and stage.name == "backbone" else stage.params,
            )
            for stage in made.stages
        )
        return replace(made, stages=stages)

    def samples(self, name: str) -> Mapping[str, Array]:
        """Return samples of the tensors of a scan."""
        with np.load(self.folder / f"{name}.npz") as arrays:
            return dict(arrays)


def synthetic(folder: Path) -> Recorded:
    """Return the included scans, unpacked into `folder`."""
    for path in SCAN.glob("*.xz"):
        (folder / f"{path.stem}.bin").write_bytes(unpack(path).astype("<f4").tobytes())
    document = json.loads((SCAN / "oracle.json").read_text())
    scans = tuple(sorted(folder.glob("*.bin")))
    labels = ((SCAN / "000000_label.txt", SCAN / "000000_calib.txt"),)
    frames, parameters = document["frames"], document["parameters"]
    return Recorded("pointpillars-s", scans, SHIPPED, SCAN, frames, parameters, 16, labels, 3)


def kitti(data: Path) -> Recorded:
    """Return KITTI's scans with the full network."""
    scans = tuple(sorted((data / "kitti").glob("*.bin")))
    labels = tuple((data / f"kitti/{s.stem}_label.txt", data / f"kitti/{s.stem}_calib.txt") for s in scans)
    folder = data / "pointpillars"
    frames = json.loads((folder / "oracle.json").read_text())["frames"]
    weights = folder / "pointpillars_kitti3c_ft_fp16.npz"
    return Recorded("pointpillars", scans, weights, folder, frames, 4831816, 1, labels, 12)


@pytest.fixture(scope="session", params=["synthetic", *([pytest.param("kitti", marks=KITTI)] if SHARED else [])])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return scans with their oracle."""
    return kitti(SHARED) if request.param == "kitti" and SHARED else synthetic(tmp_path_factory.mktemp("scans"))


@pytest.fixture(scope="session", params=["tiny", *([pytest.param("kitti", marks=KITTI)] if SHARED else [])])
def detector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return scans and a detector for tests of what runs it: the smallest one, without an oracle, or KITTI's."""
    if request.param == "kitti" and SHARED:
        return kitti(SHARED)
    folder = tmp_path_factory.mktemp("scans")
    given, weights = synthetic(folder), tiny_pillars.write_weights(folder / "weights.npz")
    return replace(given, network=str(tiny_pillars.PIPELINE), weights=weights, frames={})


@pytest.fixture(scope="session", params=["small", *([pytest.param("npu", marks=KITTI)] if SHARED else [])])
def accelerator(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """Return an int8 network and its golden layers: a small one, or a real accelerator's."""
    if request.param == "npu" and SHARED:
        folder = SHARED / "npu_int8"
        return folder / "mvlidarnet_pillars_int8_backbone_head.onnx", folder / "golden_000001.npz"
    return SCAN / "int8.onnx", SCAN / "int8_golden.npz"
