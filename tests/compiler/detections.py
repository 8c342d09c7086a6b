"""Detections of the four network stages in one precision, and the number that another precision reproduces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from recorded import Recorded

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import CompiledStage, load
from socsched.compiler.quantize.scales import Scales
from socsched.descriptor.platform import Engine
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.boxes import footprints, iou_matrix
from socsched.models.pointpillars.decode import Detections, detect
from socsched.models.pointpillars.voxelise import voxelise
from socsched.models.weights import Weights

Array = np.ndarray[Any, Any]
LEAST_SCORE, LEAST_IOU = 0.3, 0.7


class Chain:
    """The four network stages in one precision, each handing on to the next."""

    def __init__(
        self, engine: Engine, precision: str, given: Recorded, weights: Weights, scales: Mapping[str, Scales]
    ) -> None:
        self.stages: dict[str, CompiledStage] = {}
        for name in ("pfn", "scatter", "backbone", "head"):
            stage = given.pipeline().stage(name)
            artifact = compile_stage(stage, engine, precision, weights, 2, scales=scales.get(name))
            self.stages[name] = load(artifact)

    def __call__(self, points: Array) -> Detections:
        voxels, counts, coords = voxelise(points)
        values: tuple[Array, ...] = (voxels, counts, coords)
        types = [TensorType(a.shape, "fp32" if a.dtype == np.float32 else "int32") for a in values]
        for name, stage in self.stages.items():
            if name == "scatter":
                values, types = (values[0], coords), [types[0], TensorType(coords.shape, "int32")]
            given = [convert(a, t, wanted) for a, t, wanted in zip(values, types, stage.inputs, strict=True)]
            values, types = stage(*given), list(stage.outputs)
        return detect(*(np.asarray(array, np.float32) for array in values))


def overlaps(box: Array, others: Array) -> Array:
    """IoU in space of one box [7] with others [K, 7]: of the footprints and of the heights."""
    ground = iou_matrix(footprints(np.concatenate([box[None], others])))[0, 1:]
    area, areas = box[3] * box[4], others[:, 3] * others[:, 4]
    shared = ground * (area + areas) / (1 + ground)
    height = np.minimum(box[2] + box[5], others[:, 2] + others[:, 5]) - np.maximum(box[2], others[:, 2])
    volume = shared * np.clip(height, 0, None)
    return volume / (area * box[5] + areas * others[:, 5] - volume)


def recall(expected: list[Detections], found: list[Detections]) -> tuple[int, int]:
    """Return (boxes of `expected` above the least score that were found, all of them)."""
    hits = total = 0
    for want, got in zip(expected, found, strict=True):
        for box, label in zip(want.boxes[want.scores > LEAST_SCORE], want.labels, strict=False):
            same = got.boxes[got.labels == label]
            total += 1
            hits += bool(len(same) and overlaps(box, same).max() >= LEAST_IOU)
    return hits, total
