"""Published whole pipelines that no fit has seen, predicted from descriptors alone beside their measured times.

    python -m tools.generate.zoo_networks FOLDER bevformer_tiny uniad_tiny_bev bevfusion_camera bevfusion_grid \\
        bevfusion_fuser bevfusion_boxes centerpoint_dense   # from public definitions; needs torch
    python -m tools.verify.published FOLDER

Every network is costed as `validate` and `plan` cost it.  Sparse 3D convolutions and the authors' own kernels have no
description here: where their time is published it is taken as given, else what is predicted is a part of the whole.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from socsched.cost.measurements import Row
from socsched.descriptor.catalog import find_platform
from socsched.validation.predict import predict

TENSORRT = "TensorRT"


@dataclass(frozen=True, slots=True)
class Published:
    """A pipeline on a board: networks with their precisions, published times (ms) of other stages, and of all.

    `part`: what else the measured time holds, empty where nothing.
    """

    title: str
    platform: str
    networks: tuple[tuple[str, str], ...]
    given: tuple[tuple[str, float], ...]
    measured: float
    source: str
    part: str = ""


LIDAR = "NVIDIA-AI-IOT/Lidar_AI_Solution@0a89169557"
UNIAD = "NVIDIA/DL4AGX@482b3f53e7 AV-Solutions/uniad-trt/documents/explicit_quantization.md, DRIVE Orin-X"
ORIN = "jetson-agx-orin-64gb"
AROUND = (("voxelization", 1.36), ("sparse 3D backbone", 22.3), ("decode and NMS", 4.4))
"""CUDA-CenterPoint's other stages on Orin; BEVFusion has the same sparse backbone and voxels."""


def _bevfusion(camera: str) -> tuple[tuple[str, str], ...]:
    return (
        ("bevfusion_camera", camera),
        ("bevfusion_grid", camera),
        ("bevfusion_fuser", camera),
        ("bevfusion_boxes", "fp16"),
    )


CENTER, FUSION = f"{LIDAR} CUDA-CenterPoint", f"{LIDAR} CUDA-BEVFusion"
HEADS, POOLING = "heads of map, motion, occupancy and planning", "pooling of lifted pixels"
THOR = "mlcommons/automotive_results_v0.5@6117c36f4e Thor-X_TRT, DRIVE Thor-X at 1.52 GHz"
DENSE, BEV = "centerpoint_dense", "uniad_tiny_bev"
PIPELINES = (
    Published("CenterPoint, RPN and head, fp16", ORIN, ((DENSE, "fp16"),), (), 11.3, CENTER),
    Published("CenterPoint, RPN and head, int8", ORIN, ((DENSE, "int8"),), (), 7.0, CENTER),
    Published("CenterPoint, whole, fp16", ORIN, ((DENSE, "fp16"),), AROUND, 40.0, CENTER),
    Published("CenterPoint, whole, int8", ORIN, ((DENSE, "int8"),), AROUND, 35.7, CENTER),
    Published("BEVFusion ResNet-50, fp16", ORIN, _bevfusion("fp16"), AROUND[:2], 1000 / 18, FUSION, POOLING),
    Published("BEVFusion ResNet-50, int8", ORIN, _bevfusion("int8"), AROUND[:2], 1000 / 25, FUSION, POOLING),
    Published("UniAD-tiny, fp32", ORIN, ((BEV, "fp32"),), (), 64.0, UNIAD, HEADS),
    Published("UniAD-tiny, fp16", ORIN, ((BEV, "fp16"),), (), 49.8, UNIAD, HEADS),
    Published("UniAD-tiny, int8", ORIN, ((BEV, "int8"),), (), 39.3, UNIAD, HEADS),
    Published("BEVFormer-tiny, int8", "jetson-agx-thor", (("bevformer_tiny", "int8"),), (), 5.14, THOR),
)


def main() -> int:
    """Print every pipeline with its stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the networks")
    folder = parser.parse_args().folder
    for one in PIPELINES:
        rows = [
            Row(one.platform, "gpu", precision, "MAXN", 0, network, 1.0, runtime=TENSORRT)
            for network, precision in one.networks
        ]
        found = predict(rows, folder, find_platform)
        print(f"{one.title} on {one.platform}: measured {one.measured:.1f} ms ({one.source})")
        for row, stage in zip(rows, found, strict=True):
            time = _shown(stage.predicted_ms, stage.lo_ms, stage.hi_ms)
            print(f"    {row.network} {row.precision}: {stage.refused or time}")
        for name, time in one.given:
            print(f"    {name}: {time} ms published")
        if any(stage.refused for stage in found):
            continue
        base = sum(time for _, time in one.given)
        middle, low, high = (base + sum(getattr(s, name) for s in found) for name in ("predicted_ms", "lo_ms", "hi_ms"))
        verdict = "inside" if low <= one.measured <= high else "outside"
        more = f"; not described, so more than this: {one.part}" if one.part else f", {verdict}"
        print(f"  whole: {_shown(middle, low, high)}, {middle / one.measured:.2f} of measured{more}")
    return 0


def _shown(time: float, low: float, high: float) -> str:
    return f"{time:.2f} ms ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
