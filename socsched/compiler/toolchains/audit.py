"""Operator rules compared with what the vendor's compiler answers, operator by operator.

A rule and an answer agree, contradict each other, or the answer is unknown: ONNX cannot state the operator alone, the
compiler crashed or took too long, or the operator runs under a condition that the probe does not meet.

A probe is a network of one operator that asks what a rule states, at each limit and around it.  It has the attributes
that the rules of `graph.rules` read, and builds an ONNX model with exactly these.  In int8 the model has Q/DQ; values
are about one, so any scale serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.toolchains.environments import Ended, Helper, Refused, environment
from socsched.compiler.toolchains.package import MODEL, Compiler
from socsched.compiler.toolchains.qdq import quantised
from socsched.descriptor.operator_rules import FACTS, OperatorRules
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError
from socsched.graph.expand import COMPARISONS
from socsched.graph.operators import Operator, TensorType
from socsched.graph.rules import decide
from socsched.models.onnx_operators import BINARY, REDUCTIONS, UNARY

AGREE, CONTRADICT, UNKNOWN = "agreement", "contradiction", "unknown"
SECONDS = 60.0
DTYPES = ("fp16", "int8")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the compiler said about a probe: `accepted` is None where it said nothing; `message` is its reason."""

    probe: Probe
    accepted: bool | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One probe with the rule's decision (`runs`) and the compiler's answer; `outcome` compares them."""

    kind: str
    dtype: str
    attrs: dict[str, float]
    runs: bool
    accepted: bool | None
    outcome: str
    reason: str


def ask(
    compiler: Compiler, engine: Engine, note: Callable[[int, int, str], None] = lambda *_: None
) -> tuple[list[Answer], dict[str, str]]:
    """Return the compiler's answers to every probe of an engine's rules, and its versions.

    Raises MachineError if the compiler is not installed and UsageError if it does not know the engine.
    """
    vendor, target = environment(compiler.environment), dict(compiler.target(engine))
    questions = list(probes(engine.operators, DTYPES))
    answers: list[Answer] = []
    helper = Helper(vendor)
    versions = helper.versions
    try:
        for number, probe in enumerate(questions):
            note(number, len(questions), probe.kind)
            model = probe.model(compiler.unsigned)
            if model is None:
                answers.append(Answer(probe, None, "cannot be asked alone"))
                continue
            (helper.folder / MODEL).write_bytes(model)
            try:
                said = helper.ask("ask", SECONDS, model=MODEL, target=target)
                answers.append(Answer(probe, *_meaning(said)))
            except Refused as error:
                answers.append(Answer(probe, None, str(error)[:200]))
            except Ended as error:
                answers.append(Answer(probe, None, f"the compiler did not survive it: {error}"[:200]))
                helper.close()
                helper = Helper(vendor)
    finally:
        helper.close()
    return answers, versions


def _meaning(said: dict[str, Any]) -> tuple[bool | None, str]:
    if said.get("accepted") and said.get("layers") == []:
        return None, "the compiler removed the operator"
    return bool(said["accepted"]), str(said.get("message", ""))[:200]


def compare(answers: Iterable[Answer], engine: Engine) -> list[Row]:
    """Return every answer next to the decision of the engine's rules."""
    rows = []
    for answer in answers:
        probe = answer.probe
        decision = decide(probe.operator(), engine)
        reason = answer.message if answer.accepted is not True else "; ".join(decision.reasons)
        if answer.accepted is None:
            outcome = UNKNOWN
        elif answer.accepted == decision.runs:
            outcome = AGREE
        elif decision.runs and decision.conditions:
            outcome, reason = UNKNOWN, f"runs if: {'; '.join(decision.conditions)}. Alone: {answer.message}"
        else:
            outcome = CONTRADICT
        rows.append(Row(probe.kind, probe.dtype, dict(probe.attrs), decision.runs, answer.accepted, outcome, reason))
    return rows


def recorded(answers: Iterable[Answer], versions: Mapping[str, str]) -> dict[str, Any]:
    """Return answers as plain data, for a file that tests replay."""
    rows = [
        {"kind": a.probe.kind, "dtype": a.probe.dtype, "attrs": dict(a.probe.attrs), "accepted": a.accepted}
        | ({"message": a.message} if a.message else {})
        for a in answers
    ]
    return {"versions": dict(versions), "answers": rows}


OPSET = 17
CHANNELS, SIZE = 32, 16
STEP = Scale(1 / 32, True)
_WINDOWS = {"kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "pad": 0, "dilation": 1}


@dataclass(frozen=True, slots=True)
class Probe:
    """One question: an operator with these attributes in this data type."""

    kind: str
    dtype: str
    attrs: Mapping[str, float] = field(default_factory=dict)

    def operator(self) -> Operator:
        """Return the operator as the rules see it."""
        image = TensorType((1, int(self.attrs.get("in_channels", CHANNELS)), SIZE, SIZE), self.dtype, "NCHW")
        return Operator(self.kind, self.kind, self.dtype, (image,), (image,), 0, 0, 0, attrs=self.attrs)

    def model(self, unsigned: bool) -> bytes | None:
        """Return the ONNX file, None for an operator that ONNX or Q/DQ cannot state alone."""
        build = _BUILDERS.get(self.kind)
        if build is None:
            return None
        model, values = build(self.attrs).model()
        if self.dtype == "int8":
            whole = {one.name for one in model.graph.value_info if one.type.tensor_type.elem_type != 1}
            names = [*values, *(name for node in model.graph.node for name in node.output if name not in whole)]
            try:
                model = quantised(model, dict.fromkeys(names, STEP), unsigned)
            except CompileError:
                return None
        data: bytes = model.SerializeToString()
        return data


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """An operator of a probe: operands are others, arrays for constants, lists for images of a shape, "" for none."""

    op: str
    operands: Sequence[Any]
    attrs: Mapping[str, Any]
    more: Sequence[str] = ()

    def model(self) -> tuple[Any, list[str]]:
        """Return the ONNX model that ends with this operator, and its inputs."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        nodes, constants, inputs = list[Any](), list[Any](), list[Any]()
        names: dict[int, str] = {}

        def named(operand: Any) -> str:
            if isinstance(operand, str) or id(operand) in names:
                return operand if isinstance(operand, str) else names[id(operand)]
            if isinstance(operand, _Node):
                given, name = [named(one) for one in operand.operands], f"n{len(nodes)}"
                nodes.append(helper.make_node(operand.op, given, [name, *operand.more], name=name, **operand.attrs))
            elif isinstance(operand, list):
                name = f"x{len(inputs)}"
                inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, operand))
            else:
                name = f"c{len(constants)}"
                constants.append(numpy_helper.from_array(np.ascontiguousarray(operand), name))
            return names.setdefault(id(operand), name)

        value = helper.make_tensor_value_info(named(self), TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "probe", inputs, [value], constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made), [one.name for one in inputs]


Attrs = Mapping[str, float]


def _node(op: str, *operands: Any, **attrs: Any) -> _Node:
    return _Node(op, operands, attrs)


def _image(channels: float = CHANNELS, height: float = SIZE, width: float = 0) -> list[int]:
    return [1, int(channels), int(height), int(width or height)]


def _weights(*shape: int) -> Any:
    return (np.random.default_rng(0).standard_normal(shape) / 8).astype(np.float32)


def _whole(*numbers: int) -> Any:
    return np.asarray(numbers, np.int64)


def _window(attrs: Attrs) -> tuple[dict[str, Any], int]:
    """Return the attributes of a sliding window, and an image size that holds a few positions of it."""
    a = {**_WINDOWS, **{name: int(value) for name, value in attrs.items()}}
    kernel, strides = [a["kernel_h"], a["kernel_w"]], [a["stride_h"], a["stride_w"]]
    pads = [a.get("pad_h", a["pad"]), a.get("pad_w", a["pad"])]
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "dilations": [a["dilation"]] * 2}
    return window, max(SIZE, (max(kernel) - 1) * a["dilation"] + 1 + 3 * max(strides))


def _conv(attrs: Attrs) -> _Node:
    window, size = _window(attrs)
    channels, groups = int(attrs.get("in_channels", CHANNELS)), int(attrs.get("groups", 1))
    weights = _weights(channels, channels // groups, *window["kernel_shape"])
    return _node("Conv", _image(channels, size), weights, group=groups, **window)


def _transposed(attrs: Attrs) -> _Node:
    window, _ = _window(attrs)
    weights = _weights(CHANNELS, CHANNELS, *window["kernel_shape"])
    return _node("ConvTranspose", _image(CHANNELS, 12 + max(window["pads"])), weights, **window)


def _pool(op: str, attrs: Attrs) -> _Node:
    window, size = _window(attrs)
    dilations = window.pop("dilations")
    window.update({"dilations": dilations} if op == "MaxPool" else {"count_include_pad": 1})
    return _node(op, _image(attrs.get("in_channels", CHANNELS), size), **window)


def _batch_norm(attrs: Attrs) -> _Node:
    channels = int(attrs.get("in_channels", CHANNELS))
    ones = np.ones(channels, np.float32)
    return _node("BatchNormalization", _image(channels), ones * 1, ones * 0.5, ones * 0.25, ones)


def _resize(attrs: Attrs) -> _Node:
    scale, linear = attrs.get("scale", 2), bool(attrs.get("bilinear"))
    scales = np.asarray([1.0, 1.0, attrs.get("scale_h", scale), attrs.get("scale_w", scale)], np.float32)
    ways: tuple[Any, ...] = (
        ("linear", "half_pixel", {}) if linear else ("nearest", "asymmetric", {"nearest_mode": "floor"})
    )
    mode, places, more = ways
    return _node("Resize", _image(), "", scales, mode=mode, coordinate_transformation_mode=places, **more)


def _softmax(attrs: Attrs) -> _Node:
    axis, shape = int(attrs.get("axis", 1)), [1, CHANNELS, 4, 4]
    shape[axis] = int(attrs.get("axis_dim", CHANNELS))
    return _node("Softmax", shape, axis=axis)


def _reduced(op: str, attrs: Attrs) -> _Node:
    axes = [2, 3] if attrs.get("spatial") else [1]
    if op == "ReduceSum":
        return _node(op, _image(), _whole(*axes), keepdims=1)
    return _node(op, _image(), axes=axes, keepdims=1)


def _layer_norm(attrs: Attrs) -> _Node:
    """Write the operator out, as hand-overs do: before opset 17 ONNX has none."""
    image, ones = [1, 64, CHANNELS], np.ones(CHANNELS, np.float32)
    centred = _node("Sub", image, _node("ReduceMean", image, axes=[2], keepdims=1))
    variance = _node("ReduceMean", _node("Pow", centred, np.float32(2)), axes=[2], keepdims=1)
    deviation = _node("Sqrt", _node("Add", variance, np.float32(1e-5)))
    scaled = _node("Mul", _node("Div", centred, deviation), ones)
    return _node("Add", scaled, ones * 1)


def _chosen(op: str, attrs: Attrs) -> _Node:
    """Return a comparison and the choice that depends on it, since a network's results are no truth values."""
    one, other = _image(), _image()
    return _node("Where", _node(op, one, other), one, other)


def _logical(op: str, attrs: Attrs) -> _Node:
    one, other = _image(), _image()
    truths = [_node("Less", one, other), _node("Greater", one, other)][: 1 if op == "Not" else 2]
    return _node("Where", _node(op, *truths), one, other)


def _scatter(attrs: Attrs) -> _Node:
    image = _image()
    return _node("ScatterND", image, np.asarray([[[0, 0, 1]]], np.int64).reshape(1, 3), [1, SIZE])


_FURTHER = {"hard_sigmoid": "HardSigmoid", "elu": "Elu", "neg": "Neg", "reciprocal": "Reciprocal"}
_UNARY = {kind: op for op, kind in UNARY.items() if kind not in ("logical_not", "isnan")} | _FURTHER
_PAIRS = {kind: op for op, kind in BINARY.items() if not kind.startswith("logical")}
_COMPARED = {kind: op for kind, op in _PAIRS.items() if kind in COMPARISONS} | {"where": "Less"}
_BINARY = {kind: op for kind, op in _PAIRS.items() if kind not in COMPARISONS}
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_not": "Not"}
_REDUCTIONS = {kind: op for op, kind in REDUCTIONS.items()}
_BUILDERS: Mapping[str, Callable[[Attrs], _Node]] = {
    **{kind: partial(lambda op, attrs: _node(op, _image()), op) for kind, op in _UNARY.items()},
    **{
        kind: partial(lambda op, a: _node(op, *(_image(a.get("in_channels", CHANNELS)) for _ in range(2))), op)
        for kind, op in _BINARY.items()
    },
    **{kind: partial(_reduced, op) for kind, op in _REDUCTIONS.items()},
    **{kind: partial(_chosen, op) for kind, op in _COMPARED.items()},
    **{kind: partial(_logical, op) for kind, op in _LOGICAL.items()},
    "conv2d": _conv,
    "conv2d_transpose": _transposed,
    "dense": lambda attrs: _node("Gemm", [1, 64], _weights(32, 64), transB=1),
    "matmul": lambda attrs: _node("MatMul", [1, 2, 32, 64], [1, 2, 64, 32]),
    "max_pool": partial(_pool, "MaxPool"),
    "avg_pool": partial(_pool, "AveragePool"),
    "global_avg_pool": lambda attrs: _node(
        "GlobalAveragePool", _image(attrs.get("in_channels", CHANNELS), attrs.get("window", 8))
    ),
    "clip": lambda attrs: _node("Clip", _image(), np.float32(0), np.float32(6)),
    "leaky_relu": lambda attrs: _node("LeakyRelu", _image(), alpha=0.1),
    "prelu": lambda attrs: _node("PRelu", _image(), _weights(CHANNELS, 1, 1)),
    "lrn": lambda attrs: _node("LRN", _image(), size=5),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "concat": lambda attrs: _node("Concat", _image(), _image(), axis=1),
    "resize2d": _resize,
    "softmax": _softmax,
    "slice": lambda attrs: _node("Slice", _image(), *(_whole(number) for number in (0, CHANNELS // 2, 1, 1))),
    "pad": lambda attrs: _node("Pad", _image(), _whole(0, 0, 1, 1, 0, 0, 1, 1), np.float32(0)),
    "reshape": lambda attrs: _node("Reshape", _image(), _whole(1, CHANNELS * 2, SIZE // 2, SIZE)),
    "transpose": lambda attrs: _node("Transpose", _image(), perm=[0, 2, 3, 1]),
    "gather": lambda attrs: _node("Gather", _image(), _whole(1, 0, 3), axis=1),
    **dict.fromkeys(("scatter", "scatter_nd"), _scatter),
    "grid_sample": lambda attrs: _node("GridSample", _image(), [1, 8, 8, 2], mode="bilinear"),
    "other_conv": lambda attrs: _node("Conv", [1, CHANNELS, 4, SIZE, SIZE], _weights(CHANNELS, CHANNELS, 3, 3, 3)),
    "topk": lambda attrs: _Node("TopK", ([1, 256], _whole(16)), {"axis": 1}, ("places",)),
    "cast": lambda attrs: _node("Cast", _node("Cast", _image(), to=6), to=1),
    "argmax": lambda attrs: _node("Cast", _node("ArgMax", _image(), axis=1), to=1),
    "power": lambda attrs: _node("Pow", _image(), np.float32(3)),
    "instance_norm": lambda attrs: _node("InstanceNormalization", _image(), _weights(CHANNELS), _weights(CHANNELS)),
}

_SHAPES: dict[str, tuple[Mapping[str, float], ...]] = {
    "conv2d": (
        {**_WINDOWS, "kernel_h": 1, "kernel_w": 1},
        {**_WINDOWS, "stride_h": 2, "stride_w": 2, "pad": 1},
        {**_WINDOWS, "dilation": 2},
        {**_WINDOWS, "groups": CHANNELS},
        {**_WINDOWS, "in_channels": 3},
        {**_WINDOWS, "kernel_h": 32, "kernel_w": 32},
        {**_WINDOWS, "kernel_h": 255, "kernel_w": 3},
        {**_WINDOWS, "kernel_h": 32, "kernel_w": 32, "pad": 31},
        {**_WINDOWS, "stride_h": 8, "stride_w": 8},
        {**_WINDOWS, "dilation": 64},
        {**_WINDOWS, "pad": 1},
    ),
    "conv2d_transpose": (
        {**_WINDOWS, "kernel_h": 1, "kernel_w": 1},
        {**_WINDOWS, "kernel_h": 2, "kernel_w": 2, "stride_h": 2, "stride_w": 2},
        {**_WINDOWS, "kernel_h": 4, "kernel_w": 4, "stride_h": 2, "stride_w": 2, "pad": 1},
        {**_WINDOWS, "kernel_h": 32, "kernel_w": 32, "stride_h": 2, "stride_w": 2, "pad": 15},
        {**_WINDOWS, "kernel_h": 4, "kernel_w": 4, "stride_h": 2, "stride_w": 2},
    ),
    **{
        f"{name}_pool": (
            {**_WINDOWS, "kernel_h": 2, "kernel_w": 2, "stride_h": 2, "stride_w": 2},
            {**_WINDOWS, "kernel_h": 64, "kernel_w": 64},
            {**_WINDOWS, "kernel_h": 9, "kernel_w": 9, "pad": 8},
            {**_WINDOWS, "stride_h": 9, "stride_w": 9},
            {**_WINDOWS, "in_channels": 8193},
            *([{**_WINDOWS, "dilation": 2}] if name == "max" else []),
            {**_WINDOWS, "pad": 1},
        )
        for name in ("max", "avg")
    },
    "global_avg_pool": ({"window": 344, "kernel_h": 344, "kernel_w": 344}, {"in_channels": 8193}, {}),
    "maximum": ({"in_channels": 8193}, {}),
    "batch_norm": ({"in_channels": 8193}, {}),
    "resize2d": (
        *({"scale": scale, "bilinear": way} for scale in (3, 9) for way in (0, 1)),
        {"scale": 2, "bilinear": 0},
        {"scale": 2, "bilinear": 1},
    ),
    "softmax": ({"axis": 3, "axis_dim": CHANNELS}, {"axis": 1, "axis_dim": 65536}, {"axis": 1, "axis_dim": CHANNELS}),
    **{f"reduce_{name}": ({"axis": 1}, {"spatial": 1}) for name in ("max", "mean", "sum")},
}
"""Ordinary shapes of operators whose rules depend on them; the others are asked once."""


def probes(rules: OperatorRules, dtypes: tuple[str, ...]) -> Iterator[Probe]:
    """Yield the questions about a rule file: each operator as networks have it, and at and around each limit."""
    for kind in (*(rules.allowed or {}), *rules.refused):
        shapes = _SHAPES.get(kind, ({},))
        for dtype in dtypes:
            questions: dict[tuple[tuple[str, float], ...], Mapping[str, float]] = {}
            for attrs in (*shapes, *_edges(rules, kind, shapes[-1])):
                questions.setdefault(tuple(sorted(attrs.items())), attrs)
            yield from (Probe(kind, dtype, attrs) for attrs in questions.values())


def _edges(rules: OperatorRules, kind: str, base: Mapping[str, float]) -> Iterator[Mapping[str, float]]:
    """Yield attributes at each limit of an operator's rules, and just outside of it."""
    for case in (rules.allowed or {}).get(kind, ()):
        # A probe is one operator alone: what a rule asks of the graph around it cannot be asked so.
        for name, (low, high) in ((n, limit) for n, limit in case.limits.items() if n not in FACTS):
            for value in (low - 1, low, high, high + 1):
                if value >= (0 if "pad" in name else 1) and (attrs := _with(kind, base, name, value)) is not None:
                    yield attrs
        for name, values in ((n, allowed) for n, allowed in case.values.items() if n not in FACTS):
            for value in sorted({*values, *(v + 1 for v in values), max(1, min(values) - 1)}):
                if (attrs := _with(kind, base, name, value)) is not None:
                    yield attrs


def _with(kind: str, base: Mapping[str, float], name: str, value: float) -> Mapping[str, float] | None:
    """Return `base` with one attribute changed, and with what must change with it; None for what ONNX cannot state."""
    attrs = {**base, name: value}
    if name in ("pad_h", "pad_w"):
        return None  # a window padded on both sides alike has `pad` only
    if name == "pad":
        attrs["kernel_h"] = attrs["kernel_w"] = max(attrs.get("kernel_h", 3), value + 1)
    if name in ("stride_h", "stride_w"):
        attrs["stride_h"] = attrs["stride_w"] = value
        if kind == "conv2d_transpose":
            attrs["kernel_h"] = attrs["kernel_w"] = max(attrs.get("kernel_h", 3), value)
    if name in ("kernel_h", "kernel_w"):
        attrs["pad"] = min(attrs.get("pad", 0), value - 1)
    if name in ("scale_h", "scale_w"):
        attrs["scale"] = max(value, attrs.get("scale", 1))
        attrs.setdefault("scale_h", attrs.get("scale", 2))
        attrs.setdefault("scale_w", attrs.get("scale", 2))
    if name == "window":  # of a global pool: the side of the image, its larger one in the rules
        attrs["kernel_h"] = attrs["kernel_w"] = value
    return attrs
