"""A neural network as a DAG of layers, independent of any compiler; `compiler.passes` turn it into Relax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.graph.operators import TensorType


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: `op` with named `inputs` (earlier layers or network inputs), `weights` by role, and attributes.

    Ops and attributes: conv2d (stride, padding, dilation, groups; weight OIHW, bias), conv2d_transpose (the same;
    weight IOHW, bias), dense (weight [out, in], bias), relu, reduce_max (axis), concat (axis), max_pool and avg_pool
    (kernel, stride, padding, ceil, count_padding), add, pillar_features, scatter (see models.pointpillars.network).
    Of networks from files also: matmul, batch_norm (weights scale, shift), layer_norm (axis, the first one normalised;
    epsilon; weights scale, shift), sigmoid, tanh, exp, sqrt, erf, leaky_relu (alpha), hard_sigmoid (alpha, beta),
    hard_swish, elu (alpha), softplus, log, abs, cast (integers to floats), group_norm
    (groups, epsilon; weights scale, shift), argmax (axis,
    keepdims), topk (axis, k, largest, result: values or indices), grid_sample (mode, padding, align; input and grid),
    scatter_nd (data, indices, updates), clip (low, high), subtract, multiply, divide, maximum, minimum (any of these
    and add with a weight `constant` instead of the second input; swapped when it is the first), global_avg_pool,
    reduce_mean, reduce_sum (axis, keepdims), slice (axes, begin, end, step), gather (axis, indices; or axis and a
    weight `table` that the input indexes; or axis, and places as second input), resize2d (size, bilinear,
    coordinates, rounding), reshape (shape), transpose (order), softmax (axis), pad (pads, value).
    Stride, dilation and kernel are one number or (height, width), padding one number or (top, left, bottom, right).
    constant (no inputs: the weight `value` as dtype, where a layer takes computed values only),
    onnx (an operator of a file as it stands: operator, domain, opset, attributes; operands, each an index of inputs, a
    role of weights or of stored, or "" for none; types, the dtypes of weights; stored, the constants that fp32 does not
    hold; first, the layer of the same operator's first result, "" for that one; results, result, shape, dtype, flops;
    rule, its name in engines' rules; varies, whether the result's size depends on values, of which shape is the
    largest; reason, why no other layer computes it).
    `node` names the file's own operator that the layer is, or is a part of (pow, gelu); runtimes judge that one.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    weights: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    node: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in topological order; `params` gives every weight's shape, `outputs` names layers."""

    name: str
    inputs: Mapping[str, TensorType]
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    params: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def pair(value: Any) -> tuple[int, int]:
    """Return one number or (height, width) as both."""
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def sides_of(padding: Any) -> tuple[int, int, int, int]:
    """Return padding as (top, left, bottom, right)."""
    if isinstance(padding, int):
        return (padding,) * 4
    sides = tuple(int(side) for side in padding)
    return (sides[0], sides[1], sides[0], sides[1]) if len(sides) == 2 else (sides[0], sides[1], sides[2], sides[3])
