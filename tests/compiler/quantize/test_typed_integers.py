"""Strongly typed int8 models for TensorRT 11: ONNX Runtime computes the integers of our int8 network from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from int8_reference import compute  # noqa: E402
from qdq_networks import SOURCES, Source  # noqa: E402

from socsched.compiler.quantize.fixed_point import Scale  # noqa: E402
from socsched.compiler.quantize.network import QuantisedGraph, quantise, quantise_weight  # noqa: E402
from socsched.compiler.quantize.scales import Scales, key_of, per_tensor  # noqa: E402
from socsched.compiler.toolchains.onnx_model import to_onnx  # noqa: E402
from socsched.compiler.toolchains.package import Package  # noqa: E402
from socsched.compiler.toolchains.tensorrt import shared, typed_model  # noqa: E402
from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.graph.expand import fuse_network, layer_types  # noqa: E402
from tests.onnx_sessions import exact_session  # noqa: E402


def typed(source: Source) -> Any:
    """Return the model that a DLA gets, with every int8 tensor as an output."""
    network, dla = source.network, get_platform("jetson-agx-orin-64gb").engine("dla0")
    steps = per_tensor(network, source.scales)
    package = Package("net", dla, "int8", network, source.weights, {}, {}, steps)
    model = typed_model(package, to_onnx(network, source.weights, layer_types(network)))
    onnx.checker.check_model(model, full_check=True)
    known = {value.name for value in model.graph.output}
    stored = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, None) for name in stored if name not in known
    )
    return model


def ours(source: Source) -> QuantisedGraph:
    """Return our int8 network with the scales of a DLA: symmetric, shared where a DLA shares ranges."""
    steps = shared(source.network, per_tensor(source.network, source.scales))
    graph = fuse_network(source.network)
    weights = {
        name: tuple(quantise_weight(source.weights[name], 1 if group.kind == "conv2d_transpose" else 0)[1].tolist())
        for group in graph.groups
        if (name := group.weights.get("weight"))
    }
    scales = Scales({key_of(name): Scale(step, True) for name, step in steps.items()}, weights=weights, partial=True)
    return quantise(graph, source.weights, scales, float_outputs=False)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ("resnet", "yolo")])
def test_onnx_runtime_computes_our_integers(name: str, tmp_path: Path) -> None:
    """Every operator alone, on the bytes that ONNX Runtime has; only sums within 1e-5 of a half may differ, by one."""
    source = SOURCES[name](tmp_path)
    model, quantised = typed(source), ours(source)
    random = np.random.default_rng(4)
    values = {name: random.integers(-128, 128, t.shape, np.int8) for name, t in source.network.inputs.items()}
    session = exact_session(model.SerializeToString())
    names = [value.name for value in session.get_outputs()]
    made = dict(zip(names, session.run(None, values), strict=True))
    integers = {key_of(k.removesuffix(".bytes")): v.astype(np.int64) for k, v in {**values, **made}.items()}
    assert {step.output for step in quantised.steps} <= set(integers)
    count = differing = 0
    for step in quantised.steps:
        assert not step.exact
        away = np.abs(compute(quantised, step, integers) - integers[step.output])
        assert away.max() <= 1, step.output
        count, differing = count + away.size, differing + int((away > 0).sum())
    print(name, count, differing)
    assert differing <= count * 1e-4, f"{differing} of {count}"
