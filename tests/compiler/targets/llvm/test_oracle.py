"""Compiled stages on whole scans against the results of an independent implementation (oracle.json)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference_pointpillars
from recorded import Recorded

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import CompiledStage, load
from socsched.descriptor.platform import Engine
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.boxes import CLASSES
from socsched.models.pointpillars.decode import detect
from socsched.models.weights import load_weights

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def stages(recorded: Recorded, make_engine: Callable[..., Engine]) -> dict[str, CompiledStage]:
    loaded, weights = {}, load_weights(recorded.weights)
    for name in ("pfn", "scatter", "backbone", "head"):
        stage = recorded.pipeline(taps=True).stage(name)
        loaded[name] = load(compile_stage(stage, make_engine(), weights=weights, threads=2))
    return loaded


def plain(arrays: tuple[Array, ...], stage: CompiledStage) -> list[Array]:
    return [convert(a, t, TensorType(t.shape, "fp32", "NCHW")) for a, t in zip(arrays, stage.outputs, strict=True)]


def check(name: str, array: Array, expected: dict[str, Any]) -> None:
    assert [size for size in array.shape if size != 1] == [size for size in expected["shape"] if size != 1], name
    values = array.astype(np.float64)
    found = {"mean": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
    found["l2"] = np.sqrt((values * values).sum())
    for statistic, value in found.items():
        assert value == pytest.approx(expected[statistic], rel=1e-4, abs=1e-9), f"{name}: {statistic}"


@pytest.mark.slow
def test_every_stage_equals_the_oracle(recorded: Recorded, stages: dict[str, CompiledStage]) -> None:
    for scan in recorded.scans:
        expected, samples = recorded.frames[scan.stem]["stats"], recorded.samples(scan.stem)
        voxels, counts, coords = reference_pointpillars.voxelise(np.fromfile(scan, np.float32).reshape(-1, 4))
        assert len(coords) == expected["pillars"]

        (features,) = stages["pfn"](voxels, counts, coords)
        check("pfn", features, expected["pfn"])
        assert np.abs(features[:: recorded.every] - samples["pfn"]).max() < 1e-3 * np.abs(features).max()
        canvas = stages["scatter"](features, coords)
        check("bev", plain(canvas, stages["scatter"])[0], expected["bev"])
        blocked = stages["backbone"](*canvas)
        for name, array in zip(("neck", "block1", "block2", "block3"), plain(blocked, stages["backbone"]), strict=True):
            check(name, array, expected[name])
        heads = stages["head"](blocked[0])
        for name, array in zip(("cls", "reg", "dir"), heads, strict=True):
            check(name, array[0], expected[name])
            assert np.abs(array[0][:, ::31, ::27] - samples[f"{name}_sample"]).max() < 1e-4

        found, wanted = detect(*heads), recorded.frames[scan.stem]["detections"]
        assert [CLASSES[label] for label in found.labels] == [entry["cls"] for entry in wanted]
        np.testing.assert_allclose(found.scores, [entry["score"] for entry in wanted], atol=1e-3)
        np.testing.assert_allclose(found.boxes, [entry["box"] for entry in wanted], atol=1e-3)
