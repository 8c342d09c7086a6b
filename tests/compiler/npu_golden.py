"""A real accelerator's int8 network and its golden layers: a PointPillars variant as parameters of the int8 kernels.

The file is ONNX with attributes of its own: weights [O, h, w, I] (of transposed convolutions turned by 180 degrees),
biases shifted left by `bias_offset`, sums shifted right by `offset` with halves rounded up, both a channel each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from socsched.compiler.quantize.fixed_point import RATIO_SHIFT, SHIFT, Scale
from socsched.compiler.quantize.network import Layer as Integers
from socsched.compiler.quantize.network import QuantisedGraph, Step
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Graph, Group
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]
FIRST = "Conv2d_18"
"""Its output is given; its own input is not."""


def load(file: Path, layers: Path) -> tuple[QuantisedGraph, Array, dict[str, Array]]:
    """Return the network from layer FIRST on, its input [1, C, H, W] as fp32, and the golden layers by name."""
    golden = dict(np.load(layers))
    nodes, weights = nodes_of(file)
    network = network_of(nodes, weights, golden[FIRST])
    quantised = integers_of(fuse_network(network), nodes, weights)
    plain = np.ascontiguousarray(golden[FIRST].transpose(2, 0, 1)[None], np.float32)
    return quantised, plain, {name: golden[name].transpose(2, 0, 1)[None] for name in network.outputs}


def nodes_of(path: Path) -> tuple[list[Any], dict[str, Array]]:
    model = onnx.load(str(path))
    weights = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    kept = [node for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose", "Concat")]
    return [node for node in kept if node.name != FIRST], weights


def attributes(node: Any) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def network_of(nodes: list[Any], weights: Mapping[str, Array], source: Array) -> Network:
    layers: list[Layer] = []
    params: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        a = attributes(node)
        if node.op_type == "Concat":
            layers.append(Layer(node.name, "concat", tuple(node.input), attrs={"axis": 1}))
            continue
        out, kh, kw, into = weights[node.input[1]].shape
        op = "conv2d" if node.op_type == "Conv" else "conv2d_transpose"
        params[node.input[1]] = (out, into, kh, kw) if op == "conv2d" else (into, out, kh, kw)
        params[node.input[2]] = (out,)
        name = node.name + ".sums" if a.get("nonlinear") else node.name
        window = {"stride": a["stride"][0], "padding": a["padding"][0]}
        layers.append(Layer(name, op, (node.input[0],), {"weight": node.input[1], "bias": node.input[2]}, window))
        if a.get("nonlinear"):
            layers.append(Layer(node.name, "relu", (name,)))
    shape = (1, source.shape[2], *source.shape[:2])
    outputs = tuple(node.name for node in nodes)
    return Network("npu", {FIRST: TensorType(shape, "fp32", "NCHW")}, tuple(layers), outputs, params)


def integers_of(graph: Graph, nodes: list[Any], weights: Mapping[str, Array]) -> QuantisedGraph:
    """The file's integers as the kernels' parameters: a shift by s is a multiplier of 2^(SHIFT - s)."""
    by_name = {node.name: node for node in nodes}
    signed = {node.name for node in nodes if node.op_type == "Conv" and not attributes(node).get("nonlinear")}
    scales = {name: Scale(1.0, name in signed) for name in (*graph.inputs, *by_name)}
    steps = [step_of(group, by_name[group.output], weights) for group in graph.groups]
    return QuantisedGraph(graph, tuple(steps), scales, frozenset())


def step_of(group: Group, node: Any, weights: Mapping[str, Array]) -> Step:
    a = attributes(node)
    if node.op_type == "Concat":
        factors = tuple(
            scale << (RATIO_SHIFT - shift) for scale, shift in zip(a["input_scale"], a["input_offset"], strict=True)
        )
        return Step(group, group.output, group.relu, None, factors)
    weight, bias = weights[node.input[1]], weights[node.input[2]].astype(np.int32)
    if node.op_type == "Conv":
        weight = weight.transpose(0, 3, 1, 2)
    else:
        weight = weight[:, ::-1, ::-1].transpose(3, 0, 1, 2)
    shift = np.broadcast_to(np.array(a["offset"]), bias.shape)
    multiplier = (1 << (SHIFT - shift)).astype(np.int32)
    layer = Integers(weight, bias << np.array(a["bias_offset"], np.int32), multiplier, np.ones(bias.shape, np.float32))
    return Step(group, group.output, group.relu, layer)
