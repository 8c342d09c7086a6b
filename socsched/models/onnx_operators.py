"""Translation of every ONNX operator: one small function per operator, which emits layers into a translation.

Operators that move, choose or reduce values are in `onnx_shape_operators`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.models.onnx_composed import (
    depth_to_space,
    einsum,
    lp_normalization,
    lrn,
    mish,
    over_rows,
    prelu,
    reduce_l2,
    space_to_depth,
    swish,
)
from socsched.models.onnx_graph import Node
from socsched.models.onnx_repeats import concat, gather_elements, repeat
from socsched.models.onnx_shape_operators import (
    Handler,
    argmax,
    gather,
    grid_sample,
    pad,
    reduce,
    reshape,
    resize,
    same,
    scalar,
    scatter_nd,
    slice_,
    split,
    topk,
    transpose,
)

if TYPE_CHECKING:
    from socsched.models.onnx_layers import Translation


def _pads(t: Translation, node: Node, kernel: list[int], stride: list[int], dilation: list[int]) -> Any:
    """Return the padding as one number where all sides agree, else (top, left, bottom, right)."""
    pads = [int(p) for p in node.attrs.get("pads", [0] * 4)]
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""):
        raise t.refused(f"padding {auto} is not known", "state pads")
    if auto == "VALID":
        return 0
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        size = (1, *t.graph.tensor(node.inputs[0]).shape[2:])[-2:]
        pads = [0] * 4
        for i in range(2):
            reach = (kernel[i] - 1) * dilation[i] + 1
            if node.op == "ConvTranspose":  # enough to make the output a multiple of the input
                total = max(reach - stride[i], 0)
            else:
                total = max((-(-size[i] // stride[i]) - 1) * stride[i] + reach - size[i], 0)
            small, large = total // 2, total - total // 2
            pads[i], pads[i + 2] = (small, large) if auto == "SAME_UPPER" else (large, small)
    return pads[0] if len(set(pads)) == 1 else tuple(pads)


def _pair(values: Any, default: int = 1) -> list[int]:
    found = [int(v) for v in values] if values else [default, default]
    return found


def _one(values: list[int]) -> Any:
    return values[0] if values[0] == values[1] else tuple(values)


def _conv(t: Translation, node: Node) -> None:
    weight = t.constant(node, 1, "the weight")
    bias = t.constant(node, 2, "the bias")
    transposed = node.op == "ConvTranspose"
    if weight is None or weight.ndim not in (3, 4) or (weight.ndim == 3 and transposed):
        raise t.refused("only convolutions over one or two dimensions are known", "fold the others into the batch")
    row = weight.ndim == 3
    if row:
        weight, node = weight[:, :, None], _as_image(node)
    kernel, stride = list(weight.shape[2:]), _pair(node.attrs.get("strides"))
    dilation, groups = _pair(node.attrs.get("dilations")), int(node.attrs.get("group", 1))
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    more = _pair(node.attrs.get("output_padding"), 0)
    if transposed and "output_shape" in node.attrs:
        raise t.refused("output_shape is not known", "pick kernel = stride, or state pads that give the size")
    if transposed and any(size >= step for size, step in zip(more, stride, strict=True)):
        raise t.refused(f"an output_padding of {more} with strides of {stride}", "state one below the stride")
    attrs: dict[str, Any] = {"stride": _one(stride), "padding": _pads(t, node, kernel, stride, dilation)}
    if groups != 1:
        attrs["groups"] = groups
    if dilation != [1, 1]:
        attrs["dilation"] = _one(dilation)
    if transposed and any(more):
        attrs["output_padding"] = _one(more)
    params = {"weight": t.param(weight), "bias": t.param(np.zeros(channels) if bias is None else bias)}
    _stated_steps(t, node, params["weight"], 1 if transposed else 0, channels)
    if row:
        over_rows(t, node, "conv2d", params, **attrs)
        return
    t.emit(node, "conv2d_transpose" if transposed else "conv2d", [t.source(node.inputs[0])], weights=params, **attrs)


def _as_image(node: Node) -> Node:
    """Return a convolution over one dimension with the attributes of one over images that are one row high."""
    attrs = dict(node.attrs)
    for name in ("strides", "dilations"):
        if attrs.get(name):
            attrs[name] = [1, *attrs[name]]
    if attrs.get("pads"):
        attrs["pads"] = [0, attrs["pads"][0], 0, attrs["pads"][1]]
    return replace(node, attrs=attrs)


def _stated_steps(t: Translation, node: Node, weight: str, axis: int, channels: int) -> None:
    """Note the steps of a convolution's weights that the file stores as integers."""
    stored = t.graph.steps.get(node.inputs[1])
    if stored is None:
        return
    if stored.axis not in (-1, axis):
        raise t.refused(f"weights with a scale along axis {stored.axis} are not read", "use one per output channel")
    t.steps[weight] = stored.steps * channels if stored.axis < 0 else stored.steps


def _quantise(t: Translation, node: Node) -> None:
    """Note the scale of a value; its integers stand for the value itself."""
    step, zero = t.constant(node, 1, "the scale"), t.constant(node, 2, "the zero point")
    assert step is not None, "no scale"
    point = np.zeros((1,), np.uint8) if zero is None else zero.reshape(-1)
    if step.size != 1 or point.size != 1:
        raise t.refused("values with more than one scale are not read", "quantise activations by tensor")
    if point.dtype not in (np.uint8, np.int8):
        raise t.refused(f"values stored as {point.dtype} are not read", "quantise activations to eight bits")
    least = int(np.iinfo(point.dtype).min)
    if not (np.isfinite(step).all() and (step > 0).all()):
        raise t.refused("the scale is no positive number", "quantise the network again")
    if int(point[0]) - least not in (0, 128):
        raise t.refused(
            f"a zero point of {int(point[0])} is not read: values are stored about zero ({least + 128}) or from zero "
            f"on ({least})",
            "quantise activations symmetrically (ONNX Runtime: ActivationSymmetric)",
        )
    if node.op == "DequantizeLinear" and node.inputs[0] in t.graph.inputs:
        raise t.refused("an input that is already quantised is not read", "begin with QuantizeLinear")
    scale = (scalar(step.reshape(-1)), int(point[0]) - least == 128)
    same(t, node)
    name = node.inputs[0] if node.op == "QuantizeLinear" else node.outputs[0]
    t.scales.setdefault(node.outputs[0], scale)
    if t.scales.setdefault(name, scale) != scale:
        raise t.refused(f"{name!r} has two scales", "give every value one scale")


def _gemm(t: Translation, node: Node) -> None:
    if node.attrs.get("transA", 0) or float(node.attrs.get("alpha", 1.0)) != 1.0:
        raise t.refused("Gemm with transA or alpha is not known", "fold alpha into the weight; transpose A before")
    weight = t.constant(node, 1, "the weight")
    bias = t.constant(node, 2, "the bias")
    assert weight is not None, "no weight"
    if not node.attrs.get("transB", 0):
        weight = weight.T
    params = {"weight": t.param(weight)}
    if bias is not None:
        flat = np.broadcast_to(bias * float(node.attrs.get("beta", 1.0)), (1, weight.shape[0])).reshape(-1)
        params["bias"] = t.param(flat)
    t.emit(node, "dense", [t.source(node.inputs[0])], weights=params)


def _matmul(t: Translation, node: Node) -> None:
    weight = t.graph.constants.get(node.inputs[1])
    if weight is not None and weight.ndim == 2:
        t.emit(node, "dense", [t.source(node.inputs[0])], weights={"weight": t.param(weight.T)})
    else:
        t.emit(node, "matmul", [t.source(name) for name in node.inputs])


def _batch_norm(t: Translation, node: Node) -> None:
    scale, shift, mean, variance = (t.constant(node, i, "a batch norm's statistics") for i in range(1, 5))
    assert scale is not None and shift is not None and mean is not None and variance is not None
    factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    shape = (1, -1) + (1,) * (t.rank(node.inputs[0]) - 2)
    params = {"scale": t.param(factor.reshape(shape)), "shift": t.param((shift - mean * factor).reshape(shape))}
    t.emit(node, "batch_norm", [t.source(node.inputs[0])], weights=params)


def _layer_norm(t: Translation, node: Node) -> None:
    axis = t.axis(node, -1)
    scale, shift = t.constant(node, 1, "the scale"), t.constant(node, 2, "the bias")
    normalised = t.graph.tensor(node.inputs[0]).shape[axis:]
    assert scale is not None, "no scale"
    if any(given is not None and given.shape != normalised for given in (scale, shift)):
        raise t.refused(f"a scale or bias of another shape than {list(normalised)} is not known", "expand it")
    params = {"scale": t.param(scale), "shift": t.param(np.zeros(normalised) if shift is None else shift)}
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    t.emit(node, "layer_norm", [t.source(node.inputs[0])], weights=params, axis=axis, epsilon=epsilon)


def _group_norm(t: Translation, node: Node) -> None:
    shape = t.graph.tensor(node.inputs[0]).shape
    scale, shift = t.constant(node, 1, "the scale"), t.constant(node, 2, "the bias")
    assert scale is not None and shift is not None, "no scale or bias"
    groups = int(node.attrs["num_groups"]) if node.op == "GroupNormalization" else shape[1]
    if groups < 1 or shape[1] % groups:
        raise t.refused(f"{shape[1]} channels cannot be divided into {groups} groups", "check it with onnx.checker")
    if scale.size == groups != shape[1]:  # one a group before opset 21
        scale, shift = (np.repeat(given, shape[1] // groups) for given in (scale, shift))
    if scale.shape != (shape[1],) or shift.shape != (shape[1],):
        raise t.refused(f"a scale or bias of another length than {shape[1]}", "check it with onnx.checker")
    params = {"scale": t.param(scale), "shift": t.param(shift)}
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    t.emit(node, "group_norm", [t.source(node.inputs[0])], weights=params, groups=groups, epsilon=epsilon)


def _neg(t: Translation, node: Node) -> None:
    t.emit(node, "multiply", [t.source(node.inputs[0])], weights={"constant": t.param(np.float32(-1))})


def _reciprocal(t: Translation, node: Node) -> None:
    weights = {"constant": t.param(np.float32(1))}
    t.emit(node, "divide", [t.source(node.inputs[0])], weights=weights, swapped=True)


def _gelu(t: Translation, node: Node) -> None:
    """Emit x / 2 (1 + erf(x / sqrt 2)), or its approximation by tanh."""

    def with_constant(op: str, source: str, value: float) -> str:
        return t.emit(node, op, [source], weights={"constant": t.param(np.float32(value))})

    x = t.source(node.inputs[0])
    if node.attrs.get("approximate", "none") == "tanh":
        cube = t.emit(node, "multiply", [t.emit(node, "multiply", [x, x]), x])
        bent = t.emit(node, "add", [x, with_constant("multiply", cube, 0.044715)])
        gate = t.emit(node, "tanh", [with_constant("multiply", bent, np.sqrt(2 / np.pi))])
    else:
        gate = t.emit(node, "erf", [with_constant("multiply", x, np.sqrt(0.5))])
    both = t.emit(node, "multiply", [x, with_constant("add", gate, 1.0)])
    with_constant("multiply", both, 0.5)


def _pow(t: Translation, node: Node) -> None:
    exponent = t.constant(node, 1, "the exponent")
    value = scalar(exponent) if exponent is not None and exponent.size == 1 else 0.0
    x = t.source(node.inputs[0])
    if value == 0.5:
        t.emit(node, "sqrt", [x])
    elif value in (2.0, 3.0):
        square = t.emit(node, "multiply", [x, x])
        if value == 3.0:
            t.emit(node, "multiply", [square, x])
    else:
        raise t.refused("only powers of 0.5, 2 and 3 are known", "write other powers with Exp and Mul")


def _cast(t: Translation, node: Node) -> None:
    types = [t.graph.tensor(name).dtype for name in (node.inputs[0], node.outputs[0])]
    if types[0] in ("uint8", "int8", "int32", "int64") and types[1] in ("fp32", "fp16"):
        t.emit(node, "cast", [t.source(node.inputs[0])])  # what cameras deliver
        return
    if types[0] != types[1] and not all(dtype in ("fp32", "fp16") for dtype in types):
        raise t.refused(f"a conversion of {types[0]} to {types[1]} is not known", "export in fp32 throughout")
    same(t, node)  # the planner chooses the precision


def _unary(op: str, **defaults: float) -> Handler:
    def handle(t: Translation, node: Node) -> None:
        attrs: dict[str, Any] = {name: float(node.attrs.get(name, value)) for name, value in defaults.items()}
        t.emit(node, op, [t.source(node.inputs[0])], **attrs)

    return handle


def _clip(t: Translation, node: Node) -> None:
    bounds = []
    for index, name, default in ((1, "min", -3.4e38), (2, "max", 3.4e38)):
        given = t.constant(node, index, "the bound")
        bounds.append(scalar(given) if given is not None else float(node.attrs.get(name, default)))
    t.emit(node, "clip", [t.source(node.inputs[0])], low=bounds[0], high=bounds[1])


def _binary(op: str) -> Handler:
    def handle(t: Translation, node: Node) -> None:
        known = [name for name in node.inputs if name in t.graph.constants]
        if not known:
            t.emit(node, op, [t.source(name) for name in node.inputs])
            return
        other = next((name for name in node.inputs if name not in t.graph.constants), "")
        if len(node.inputs) != 2 or not other:
            raise t.refused("it needs two inputs, one of which is no constant")
        swapped = node.inputs[0] == known[0]
        params = {"constant": t.param(t.graph.constants[known[0]])}
        t.emit(node, op, [t.source(other)], weights=params, **({"swapped": True} if swapped else {}))

    return handle


def _pool(t: Translation, node: Node) -> None:
    kernel, stride = _pair(node.attrs["kernel_shape"]), _pair(node.attrs.get("strides"))
    dilation = _pair(node.attrs.get("dilations"))
    if dilation != [1, 1]:
        raise t.refused("dilated pooling is not known", "replace it by a pooling of a larger window")
    if len(kernel) != 2:
        raise t.refused("only two-dimensional pooling is known", "write a one-dimensional one with a height of 1")
    attrs: dict[str, Any] = {"kernel": _one(kernel), "stride": _one(stride)}
    attrs["padding"] = _pads(t, node, kernel, stride, dilation)
    if node.attrs.get("ceil_mode"):
        attrs["ceil"] = True
    if node.op == "AveragePool" and node.attrs.get("count_include_pad"):
        attrs["count_padding"] = True
    t.emit(node, "max_pool" if node.op == "MaxPool" else "avg_pool", [t.source(node.inputs[0])], **attrs)


def _softmax(t: Translation, node: Node) -> None:
    t.emit(node, "softmax", [t.source(node.inputs[0])], axis=t.axis(node, -1))


HANDLERS: dict[str, Handler] = {
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "BatchNormalization": _batch_norm,
    "Relu": _unary("relu"),
    "Sigmoid": _unary("sigmoid"),
    "Tanh": _unary("tanh"),
    "Exp": _unary("exp"),
    "Sqrt": _unary("sqrt"),
    "Erf": _unary("erf"),
    "Gelu": _gelu,
    "Pow": _pow,
    "LayerNormalization": _layer_norm,
    "Gather": gather,
    "LeakyRelu": _unary("leaky_relu", alpha=0.01),
    "HardSigmoid": _unary("hard_sigmoid", alpha=0.2, beta=0.5),
    "HardSwish": _unary("hard_swish"),
    "PRelu": prelu,
    "Mish": mish,
    "Swish": swish,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Einsum": einsum,
    "ReduceL2": reduce_l2,
    "LpNormalization": lp_normalization,
    "LRN": lrn,
    "Elu": _unary("elu", alpha=1.0),
    "Softplus": _unary("softplus"),
    "Log": _unary("log"),
    "Abs": _unary("abs"),
    "Neg": _neg,
    "Reciprocal": _reciprocal,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    "ArgMax": argmax,
    "TopK": topk,
    "GridSample": grid_sample,
    "ScatterND": scatter_nd,
    "Clip": _clip,
    "Add": _binary("add"),
    "Sub": _binary("subtract"),
    "Mul": _binary("multiply"),
    "Div": _binary("divide"),
    "Max": _binary("maximum"),
    "Min": _binary("minimum"),
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _unary("global_avg_pool"),
    "ReduceMean": reduce("reduce_mean"),
    "ReduceMax": reduce("reduce_max"),
    "ReduceSum": reduce("reduce_sum"),
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Resize": resize,
    "Upsample": resize,
    "Softmax": _softmax,
    "Reshape": reshape,
    "Flatten": reshape,
    "Squeeze": reshape,
    "Unsqueeze": reshape,
    "Transpose": transpose,
    "Pad": pad,
    "Expand": repeat,
    "Tile": repeat,
    "GatherElements": gather_elements,
    "Cast": _cast,
    "QuantizeLinear": _quantise,
    "DequantizeLinear": _quantise,
    "Identity": same,
    "Dropout": same,
}
