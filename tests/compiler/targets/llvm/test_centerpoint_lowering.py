"""CenterPoint's compiled stages on a small grid against the published architecture written out as matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import CompiledStage, load
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights

Array = np.ndarray[Any, Any]
RANGE = [-5.12, -3.84, -4, 5.12, 3.84, 6]
NX, NY = 32, 24
STAGES = ("pfn", "scatter", "backbone", "head")
MAPS = {"heatmap": 5, "reg": 2, "height": 1, "dim": 3, "rot": 2, "vel": 2}


@pytest.fixture(scope="module")
def weights() -> dict[str, Array]:
    """Return seeded weights of all stages, biases not zero so that a forgotten one shows."""
    generator, found = np.random.default_rng(7), {}
    for name in STAGES:
        network = get_model(f"centerpoint.{name}", {"range": RANGE}).network
        assert network is not None
        for key, array in draw_weights(network(), 5).items():
            bias = np.asarray(generator.normal(0, 0.1, array.shape), np.float32)
            found[key] = bias if array.ndim == 1 else array
    return found


@pytest.fixture(scope="module")
def stages(make_engine: Callable[..., Engine], weights: dict[str, Array]) -> dict[str, CompiledStage]:
    loaded = {}
    for name in STAGES:
        stage = Stage(name, name, f"centerpoint.{name}", params={"range": RANGE})
        loaded[name] = load(compile_stage(stage, make_engine(), weights=weights, threads=2))
    return loaded


def convolve(x: Array, weight: Array, bias: Array, stride: int = 1) -> Array:
    kernel = weight.shape[2]
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2))
    out = np.zeros((len(weight), height // stride * (width // stride)))
    for i in range(kernel):
        for j in range(kernel):
            tap = padded[:, i : i + height : stride, j : j + width : stride]
            out += weight[:, :, i, j] @ tap.reshape(len(x), -1)
    return np.asarray(out + bias[:, None]).reshape(-1, height // stride, width // stride)


def upsample(x: Array, weight: Array, bias: Array) -> Array:
    channels, height, width = x.shape
    out, k = weight.shape[1], weight.shape[2]
    y = (weight.reshape(channels, -1).T @ x.reshape(channels, -1)).reshape(out, k, k, height, width)
    plain: Array = y.transpose(0, 3, 1, 4, 2).reshape(out, height * k, width * k)
    return plain + bias[:, None, None]


def by_hand(voxels: Array, counts: Array, coords: Array, given: dict[str, Array]) -> dict[str, Array]:
    """Every tensor between the stages, in double precision."""
    w = {key: array.astype(np.float64) for key, array in given.items()}
    points = voxels.astype(np.float64)
    mean = points[:, :, :3].sum(1, keepdims=True) / counts[:, None, None]
    centre = (coords + 0.5) * 0.32 + [-5.12, -3.84]
    decorated = np.concatenate([points, points[:, :, :3] - mean, points[:, :, :2] - centre[:, None]], -1)
    decorated *= (np.arange(32) < counts[:, None])[..., None]
    found = {"features": np.maximum(decorated @ w["pfn.weight"].T + w["pfn.bias"], 0).max(1)}
    x = found["canvas"] = np.zeros((32, NY, NX))
    x[:, coords[:, 1], coords[:, 0]] = found["features"].T
    scales = []
    for block, (depth, stride) in enumerate(((4, 1), (6, 2), (6, 2))):
        for i in range(depth):
            name = f"blocks.{block}.{i}"
            x = np.maximum(convolve(x, w[f"{name}.weight"], w[f"{name}.bias"], 1 if i else stride), 0)
        resize = upsample if block else convolve
        scales.append(np.maximum(resize(x, w[f"de.{block}.weight"], w[f"de.{block}.bias"]), 0))
    found["neck"] = np.concatenate(scales)
    shared = np.maximum(convolve(found["neck"], w["shared.weight"], w["shared.bias"]), 0)
    for name in MAPS:
        own = np.maximum(convolve(shared, w[f"{name}.0.weight"], w[f"{name}.0.bias"]), 0)
        found[name] = convolve(own, w[f"{name}.weight"], w[f"{name}.bias"])
    return found


def near(found: Array, expected: Array) -> bool:
    assert found.shape == expected.shape
    return bool(np.abs(found - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max()))


@pytest.mark.slow
def test_every_stage_computes_the_published_architecture(
    stages: dict[str, CompiledStage], weights: dict[str, Array]
) -> None:
    generator = np.random.default_rng(3)
    points = generator.uniform([-5.5, -4.2, -4, 0], [5.5, 4.2, 6, 1], (3000, 4)).astype(np.float32)
    points[:400] = points[0] + generator.normal(0, 0.05, (400, 4))  # full pillars
    function = get_model("centerpoint.voxelise", {"range": RANGE}).function
    assert function is not None
    voxels, counts, coords = function(points)
    assert counts.max() == 32 and counts.min() < 32 and len(counts) > 400
    expected = by_hand(voxels, counts, coords, weights)

    (features,) = stages["pfn"](voxels, counts, coords)
    assert near(features, expected["features"])
    canvas = stages["scatter"](features, coords)
    neck = stages["backbone"](*canvas)
    maps = stages["head"](*neck)
    for name, array, kind in (
        ("canvas", canvas[0], stages["scatter"].outputs[0]),
        ("neck", neck[0], stages["backbone"].outputs[0]),
        *((name, array, kind) for name, array, kind in zip(MAPS, maps, stages["head"].outputs, strict=True)),
    ):
        plain = convert(array, kind, TensorType(kind.shape, "fp32", "NCHW"))
        assert near(plain[0], expected[name]), name
        assert np.abs(expected[name]).max() > 0.1
