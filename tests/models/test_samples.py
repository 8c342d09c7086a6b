"""Drawn inputs lie where the first layers of a network expect them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from socsched.models.registry import get_model
from socsched.models.samples import draw

Array = np.ndarray[Any, Any]


def drawn(
    file: Path,
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, list[int]]],
    weights: Mapping[str, Any],
    opset: int = 17,
) -> dict[str, Array]:
    """Return inputs of a network whose last node's first output is its output."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(nodes[-1].output[0], T.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), file)
    return draw(get_model("onnx", {"file": str(file)}), np.random.default_rng(0))


CONV = np.ones((4, 3, 3, 3), np.float32)
IMAGE = {"x": (T.FLOAT, [1, 3, 32, 32])}


def node(op: str, *names: str, **attrs: Any) -> Any:
    return helper.make_node(op, list(names[:-1]), [names[-1]], **attrs)


@pytest.mark.parametrize(
    ("nodes", "weights", "low", "high"),
    [
        ([], {}, -5, 5),
        ([node("Mul", "x", "s", "a")], {"s": np.float32(1 / 255)}, 0, 255),
        ([node("Div", "x", "s", "a")], {"s": np.float32(255)}, 0, 255),
        (
            [node("Sub", "x", "m", "b"), node("Div", "b", "s", "a")],
            {"m": np.array([123.7, 116.3, 103.5], np.float32).reshape(1, 3, 1, 1), "s": np.float32(58)},
            0,
            255,
        ),
        (
            [node("Sub", "x", "m", "b"), node("Div", "b", "s", "a")],
            {"m": np.float32(0.5), "s": np.float32(0.25)},
            -1,
            2,
        ),
    ],
)
def test_a_first_scale_decides(tmp_path: Path, nodes: list[Any], weights: Any, low: float, high: float) -> None:
    last = node("Conv", "a" if nodes else "x", "w", "y")
    x = drawn(tmp_path / "net.onnx", [*nodes, last], IMAGE, {**weights, "w": CONV})["x"]
    assert low <= x.min() < x.max() <= high and x.dtype == np.float32
    assert x.std() > (high - low) / 20


def test_a_file_with_scales_gets_the_range_of_its_integers(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "x", "s", "z", "q"),
        node("DequantizeLinear", "q", "s", "z", "d"),
        node("Conv", "d", "w", "y"),
    ]
    weights = {"s": np.float32(0.5), "z": np.uint8(128), "w": CONV}
    x = drawn(tmp_path / "net.onnx", nodes, IMAGE, weights)["x"]
    assert -64 <= x.min() < -55 and 55 < x.max() <= 63.5


def test_places_stay_below_the_size_that_they_index(tmp_path: Path) -> None:
    nodes = [node("Gather", "t", "x", "e"), node("Gather", "e", "k", "y", axis=1)]
    inputs = {"x": (T.INT64, [1, 40]), "k": (T.INT64, [9])}
    found = drawn(tmp_path / "net.onnx", nodes, inputs, {"t": np.zeros((17, 4), np.float32)})
    assert found["x"].dtype == np.int64 and found["x"].min() >= 0 and 10 < found["x"].max() < 17
    assert 0 <= found["k"].min() < found["k"].max() < 40


def test_bytes_positions_and_masks(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "b", "f", to=T.FLOAT),
        node("GridSample", "f", "g", "s"),
        node("Cast", "m", "o", to=T.FLOAT),
        node("Mul", "s", "o", "y"),
    ]
    inputs = {"b": (T.UINT8, [1, 3, 8, 8]), "g": (T.FLOAT, [1, 8, 8, 2]), "m": (T.INT64, [1, 3, 8, 8])}
    found = drawn(tmp_path / "net.onnx", nodes, inputs, {})
    assert found["b"].dtype == np.uint8 and found["b"].max() > 200
    assert -1 <= found["g"].min() < -0.9 and 0.9 < found["g"].max() <= 1
    assert set(np.unique(found["m"])) == {0, 1} and found["m"].mean() > 0.7


def test_draws_repeat(tmp_path: Path) -> None:
    first, second = (drawn(tmp_path / "net.onnx", [node("Conv", "x", "w", "y")], IMAGE, {"w": CONV}) for _ in range(2))
    assert np.array_equal(first["x"], second["x"])
