from __future__ import annotations

import time

import numpy as np
import pytest

from socsched.compiler.layouts import convert
from socsched.graph.operators import TensorType
from socsched.runtime.backends import Placed, gather, plain, to_layout
from socsched.runtime.backends.built_in import burn
from socsched.runtime.collect import tensor_figures

PLAIN = TensorType((1, 20, 3, 5), "fp32", "NCHW")
BLOCKED = TensorType((1, 20, 3, 5), "fp32", "NCHW16c+1")


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(1).standard_normal(PLAIN.shape).astype(np.float32)


def test_a_tensor_in_the_required_layout_is_passed_on_unchanged(image: np.ndarray) -> None:
    laid = Placed(convert(image, PLAIN, BLOCKED), BLOCKED)
    assert to_layout(laid, BLOCKED) is laid.array
    assert plain(image) is image


def test_tensors_are_brought_into_the_layout_the_next_stage_wants(image: np.ndarray) -> None:
    laid = Placed(convert(image, PLAIN, BLOCKED), BLOCKED)
    assert np.array_equal(plain(laid), image)
    assert np.array_equal(to_layout(image, BLOCKED), laid.array)
    half = to_layout(laid, TensorType(PLAIN.shape, "fp16", "NCHW"))
    assert half.dtype == np.float16 and np.allclose(half, image, atol=2e-3)


def test_inputs_are_gathered_in_port_order(image: np.ndarray) -> None:
    values = {"a": {"x": image}, "b": {"y": Placed(convert(image, PLAIN, BLOCKED), BLOCKED)}}
    first, second = gather({"y": "b", "x": "a"}, values)
    assert np.array_equal(first, image) and second is image
    (laid,) = gather({"x": "a"}, values, (BLOCKED,))
    assert laid.shape == (1, 2, 5, 7, 16)


def test_a_load_uses_the_requested_processor_time() -> None:
    before = time.thread_time_ns()
    burn(3_000_000)
    assert time.thread_time_ns() - before >= 3_000_000


def test_figures_are_computed_in_double_precision() -> None:
    values = np.full(10_000_000, 0.1, np.float32)
    figures = tensor_figures(values)
    assert figures["mean"] == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert figures["l2"] == pytest.approx(float(np.float32(0.1)) * 10_000_000**0.5, rel=1e-9)
    assert tensor_figures(np.zeros((0, 64), np.float32)) == {
        "shape": [0, 64], "mean": 0.0, "std": 0.0, "min": 0.0, "max": 0.0, "l2": 0.0,
    }  # fmt: skip
