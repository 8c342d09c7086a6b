"""A program that was not measured is priced beside one that was, class by class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.cost.model import beside_measured
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import ONNXRUNTIME, OWN, Runtime
from socsched.graph.counting import operators
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import StageWork, TensorType


def _work(*layers: Layer) -> StageWork:
    params = {"w": (256, 256), "k": (64, 64, 3, 3)}
    inputs = {"x": TensorType((64, 256), "fp32"), "i": TensorType((1, 64, 56, 56), "fp32", "NCHW")}
    net = Network("net", inputs, layers, tuple(layer.name for layer in layers), params)
    return StageWork("net", "fp32", operators(fuse_network(net), "fp32"), (), ())


DENSE = Layer("d", "dense", ("x",), {"weight": "w"})
CONV = Layer("c", "conv2d", ("i",), {"weight": "k"}, {"stride": 1, "padding": 1})


@pytest.mark.parametrize("layers", [(DENSE,), (CONV,), (DENSE, CONV)])
def test_the_ratio_is_that_of_the_classes_weighted_by_time(layers: tuple[Layer, ...]) -> None:
    (engine, *_) = get_platform("host").engines
    ours = engine.precisions["fp32"].efficiency
    shares = {"gemm": ours["gemm"], "winograd": replace(ours["winograd"], value=ours["winograd"].value / 4)}
    runtime = Runtime(ONNXRUNTIME, efficiency={**ours, **shares})
    assert beside_measured(replace(engine, kernel_times=()), runtime, _work(*layers), "fp32", 1) == runtime
    kernels = tuple(
        KernelTime(name, 1, 1.0, 1.0, 1.0, 1000.0) for name in ("dense", "3x3 in tiles of 4", "elementwise")
    )
    measured = replace(engine, kernel_times=(KernelTimes(OWN, "", "", "fp32", kernels),))
    found = beside_measured(measured, runtime, _work(*layers), "fp32", 1).ratio
    assert found is not None
    low, high = (1.0 if DENSE in layers else 4.0), (4.0 if CONV in layers else 1.0)
    assert found.value == pytest.approx(low) if low == high else low < found.value < high
