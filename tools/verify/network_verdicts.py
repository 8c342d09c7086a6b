"""Whether `lint`, `plan` and `compile` say the same of random networks of ONNX's operators, for every engine.

Usage: python -m tools.verify.network_verdicts [--count 500] [--first 0] [--boards A,B] [--build N] [--keep FOLDER]

A network has one to three inputs of one to five dimensions, of floats, bytes, whole numbers or truth values, sizes left
open or not, several outputs, operators with and without kernels, and now and then one that no one knows.  For every
kind of engine and data type of a board, what has a cost is compiled: handed over to a vendor's toolchain with all its
scripts, or taken by our compiler; what has none is refused by `compile` too, and named by `lint`.  Every --build'th
network is also planned, pinned to the engine, and built for CPUs.  A network that is not read ends with the same
message, naming every node at once, in all three.  Printed: contradictions with the network's number; exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.compiler.builder import compile_stage, network_of, precisions, require_kernels
from socsched.compiler.toolchains.hand_over import hand_over, has_toolchain
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import SocschedError
from socsched.graph.rules import as_a_whole, check_operators
from socsched.lint.check import accelerators, lint_file
from socsched.models.precision import settled
from socsched.models.work import stage_work

BOARDS = ("jetson-agx-orin-64gb", "jetson-agx-xavier", "qcs8550", "rk3588", "host")
PRECISIONS = ("fp32", "fp16", "int8")
FLOAT, UINT8, INT32, INT64, BOOL = 1, 2, 6, 7, 9
_NUMPY = {FLOAT: np.float32, UINT8: np.uint8, INT32: np.int32, INT64: np.int64, BOOL: np.bool_}
Value = tuple[str, tuple[int, ...], int]
"""Name, shape and data type of a value."""


@dataclass
class Drawn:
    """A network under construction: nodes, constants and values, of which those without a reader become outputs."""

    random: Random
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def constant(self, array: Any, dtype: int = INT64) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, _NUMPY[dtype]), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add a constant of drawn numbers; return its name."""
        generator = np.random.default_rng(self.random.randrange(2**32))
        return self.constant(generator.normal(0, 0.5, shape), FLOAT)

    def pick(self, *dtypes: int, rank: int | None = None, least: int = 0) -> Value:
        """Return a value of one of the data types (any if none is named) and ranks; IndexError if there is none."""
        fitting = [
            value
            for value in self.values
            if (not dtypes or value[2] in dtypes)
            and (rank is None or len(value[1]) == rank)
            and len(value[1]) >= least
            and all(value[1])
        ]
        return self.random.choice(fitting)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        """Add a node with the results that ONNX's shape inference gives it; ValueError where it has none of these."""
        from onnx import helper, shape_inference

        names = [f"v{len(self.nodes)}_{place}" for place in range(outputs)]
        domain = "acme" if kind == "Magic" else ""
        node = helper.make_node(kind, list(inputs), names, name=f"{kind}_{len(self.nodes)}", domain=domain, **attrs)
        known = [helper.make_tensor_value_info(name, dtype, shape) for name, shape, dtype in self.values]
        used = [value for value in known if value.name in inputs]
        graph = helper.make_graph(
            [node], "one", used, [], [one for one in self.constants if one.name in inputs],
        )  # fmt: skip
        inferred = shape_inference.infer_shapes(_model(graph), strict_mode=True, data_prop=True)
        types = {value.name: value.type.tensor_type for value in inferred.graph.value_info}
        if kind == "Magic":
            shape, dtype = next((s, d) for n, s, d in self.values if n == inputs[0])
            added = [(names[0], shape, dtype)]
        else:
            added = [(n, tuple(d.dim_value for d in types[n].shape.dim), types[n].elem_type) for n in names]
        if any(dtype not in _NUMPY or len(shape) > 6 or np.prod(shape) > 20000 for _, shape, dtype in added):
            raise ValueError(kind)
        self.nodes.append(node)
        self.read |= set(inputs)
        self.values += added


def _model(graph: Any) -> Any:
    from onnx import helper

    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _each(*kinds: str, **attrs: Any) -> Callable[[Drawn], None]:
    return lambda g: g.op(g.random.choice(kinds), g.pick(FLOAT)[0], **attrs)


def _pair(dtypes: tuple[int, ...], *kinds: str) -> Callable[[Drawn], None]:
    """Return a node of two values of one type: of equal shapes, of a row of the first, or of a constant."""

    def draw(g: Drawn) -> None:
        name, shape, dtype = g.pick(*dtypes)
        same = [other for other, size, kind in g.values if kind == dtype and _broadcast(size, shape)]
        other = g.random.choice(same)
        if g.random.random() < 0.4:
            row = tuple(g.random.choice((1, size)) for size in shape[g.random.randrange(len(shape) + 1) :])
            other = g.weight(*row) if dtype == FLOAT else g.constant(np.ones(row), dtype)
        pair, kind = [name, other], g.random.choice(kinds)
        if kind != "PRelu":
            g.random.shuffle(pair)
        g.op(kind, *pair, **_attrs(fmod=1 if kind == "Mod" and dtype == FLOAT else None))

    return draw


def _attrs(**attrs: Any) -> dict[str, Any]:
    return {name: value for name, value in attrs.items() if value is not None}


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(one, other)
    except ValueError:
        return False
    return True


def _axes(g: Drawn, shape: tuple[int, ...]) -> list[int]:
    return sorted(g.random.sample(range(len(shape)), g.random.randint(1, len(shape))))


def _axis(g: Drawn, shape: tuple[int, ...]) -> int:
    return g.random.randrange(-len(shape), len(shape))


def _reduce(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    kinds = ["Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare", "LogSum"]
    g.op(f"Reduce{g.random.choice(kinds)}", name, g.constant(_axes(g, shape)), keepdims=g.random.randint(0, 1))


def _along(*kinds: str) -> Callable[[Drawn], None]:
    def draw(g: Drawn) -> None:
        name, shape, _ = g.pick(FLOAT, least=1)
        g.op(g.random.choice(kinds), name, axis=_axis(g, shape))

    return draw


def _chosen(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    g.op(g.random.choice(("ArgMax", "ArgMin")), name, axis=_axis(g, shape), keepdims=g.random.randint(0, 1))


def _reshape(g: Drawn) -> None:
    name, shape, _ = g.pick()
    sizes, left = [], int(np.prod(shape))
    for _ in range(g.random.randint(0, 4)):
        size = g.random.choice([n for n in range(1, min(left, 64) + 1) if left % n == 0])
        sizes.append(size)
        left //= size
    sizes.insert(g.random.randrange(len(sizes) + 1), g.random.choice((left, -1)))
    g.op("Reshape", name, g.constant(sizes))


def _transpose(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    g.op("Transpose", name, perm=g.random.sample(range(len(shape)), len(shape)))


def _unsqueeze(g: Drawn) -> None:
    name, shape, _ = g.pick()
    g.op("Unsqueeze", name, g.constant([g.random.randint(0, len(shape))]))


def _squeeze(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    g.op("Squeeze", name, g.constant([g.random.choice([place for place, size in enumerate(shape) if size == 1])]))


def _flatten(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    g.op("Flatten", name, axis=g.random.randint(0, len(shape)))


def _concat(g: Drawn) -> None:
    name, shape, dtype = g.pick(least=1)
    axis = g.random.randrange(len(shape))
    rest = [
        n for n, s, d in g.values if d == dtype and len(s) == len(shape) and _without(s, axis) == _without(shape, axis)
    ]
    g.op("Concat", name, *g.random.choices(rest, k=g.random.randint(1, 2)), axis=axis)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _split(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    axis = g.random.choice([place for place, size in enumerate(shape) if size > 1])
    first = g.random.randint(1, shape[axis] - 1)
    g.op("Split", name, g.constant([first, shape[axis] - first]), axis=axis, outputs=2)


def _slice(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    axis = g.random.choice([place for place, size in enumerate(shape) if size > 1])
    if g.random.random() < 0.2:
        bounds: tuple[int, int, int] = (-1, -(2**31), -1)
    else:
        begin = g.random.randrange(shape[axis])
        bounds = (begin, g.random.choice((begin + 1, shape[axis], 2**31)), g.random.choice((1, 1, 2)))
    g.op("Slice", name, *(g.constant([number]) for number in (bounds[0], bounds[1], axis, bounds[2])))


def _gather(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    axis = g.random.randrange(len(shape))
    places = [[g.random.randrange(shape[axis]) for _ in range(2)] for _ in range(2)]
    g.op("Gather", name, g.constant(g.random.choice((places, places[0], places[0][0]))), axis=axis)


def _looked_up(g: Drawn) -> None:
    """Gather rows at places that an input states."""
    g.op("Gather", g.weight(120, 6), g.pick(INT64, INT32)[0], axis=0)


def _elements(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    axis = g.random.randrange(len(shape))
    places = np.zeros(shape, np.int64)
    kind = g.random.choice(("GatherElements", "ScatterElements"))
    if kind == "GatherElements":
        g.op(kind, name, g.constant(places), axis=axis)
    else:
        g.op(kind, name, g.constant(places), name, axis=axis, reduction=g.random.choice(("add", "max", "mul")))


def _nd(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    places = g.constant([[0], [shape[0] - 1]])
    if g.random.random() < 0.5:
        g.op("GatherND", name, places)
    else:
        g.op("ScatterND", name, places, g.weight(2, *shape[1:]), **_attrs(reduction=g.random.choice((None, "add"))))


def _expand(g: Drawn) -> None:
    name, shape, _ = g.pick()
    g.op("Expand", name, g.constant([2, *(g.random.choice((1, size)) for size in shape)]))


def _tile(g: Drawn) -> None:
    name, shape, _ = g.pick(least=1)
    g.op("Tile", name, g.constant([g.random.choice((1, 1, 2)) for _ in shape]))


def _pad(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    pads = [g.random.choice((0, 0, 1)) for _ in range(2 * len(shape))]
    g.op("Pad", name, g.constant(pads), mode=g.random.choice(("constant", "constant", "reflect", "edge")))


def _trilu(g: Drawn) -> None:
    g.op("Trilu", g.pick(FLOAT, least=2)[0], upper=g.random.randint(0, 1))


def _cumsum(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    g.op("CumSum", name, g.constant(_axis(g, shape)))


def _topk(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    axis = g.random.randrange(len(shape))
    g.op("TopK", name, g.constant([g.random.randint(1, shape[axis])]), axis=axis, outputs=2)


def _nonzero(g: Drawn) -> None:
    g.op("NonZero", g.pick(FLOAT, BOOL, least=1)[0])


def _cast(g: Drawn) -> None:
    g.op("Cast", g.pick()[0], to=g.random.choice((FLOAT, FLOAT, INT64, INT32, BOOL, UINT8)))


def _where(g: Drawn) -> None:
    name, shape, _ = g.pick(BOOL)
    same = [n for n, s, d in g.values if d == FLOAT and _broadcast(s, shape)]
    one = g.random.choice(same)
    g.op("Where", name, one, g.random.choice((one, g.constant(-1e4, FLOAT))))


def _conv(g: Drawn) -> None:
    dims = g.random.choice((1, 2, 2, 2, 3))
    name, shape, _ = g.pick(FLOAT, rank=dims + 2)
    channels, kernel, made = shape[1], g.random.choice((1, 3)), g.random.choice((4, 8))
    groups = g.random.choice((1, 1, channels))
    made = made if made % groups == 0 else channels
    how: dict[str, Any] = {"pads": [kernel // 2] * 2 * dims, "strides": [g.random.choice((1, 1, 2))] * dims}
    if g.random.random() < 0.2:
        g.op("ConvTranspose", name, g.weight(channels, made, *[kernel] * dims), **how)
    else:
        g.op("Conv", name, g.weight(made, channels // groups, *[kernel] * dims), g.weight(made), group=groups, **how)


def _pool(g: Drawn) -> None:
    dims = g.random.choice((1, 2, 2, 3))
    name = g.pick(FLOAT, rank=dims + 2)[0]
    kind = g.random.choice(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"))
    if kind.startswith("Global"):
        g.op(kind, name)
    else:
        g.op(kind, name, kernel_shape=[2] * dims, strides=[g.random.choice((1, 2))] * dims)


def _product(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, least=1)
    rows = [
        n for n, s, d in g.values if d == FLOAT and len(s) > 1 and s[-2] == shape[-1] and _broadcast(s[:-2], shape[:-2])
    ]
    other = g.random.choice(rows) if rows and g.random.random() < 0.5 else g.weight(shape[-1], 6)
    g.op("MatMul", name, other)


def _gemm(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=2)
    g.op("Gemm", name, g.weight(5, shape[1]), g.weight(5), transB=1)


def _einsum(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=3)
    g.op("Einsum", name, g.weight(4, shape[2]), equation="abc,dc->adb")


def _norm(g: Drawn) -> None:
    kind = g.random.choice(("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LRN"))
    name, shape, _ = g.pick(FLOAT, rank=None if kind != "LRN" else 4, least=2 if kind == "LayerNormalization" else 3)
    if kind == "LayerNormalization":
        g.op(kind, name, g.weight(shape[-1]), g.weight(shape[-1]))
    elif kind == "LRN":
        g.op(kind, name, size=3)
    else:
        more = [g.weight(shape[1]), g.constant(np.ones(shape[1]), FLOAT)] if kind == "BatchNormalization" else []
        g.op(kind, name, g.weight(shape[1]), g.weight(shape[1]), *more)


def _recurrent(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=3)
    kind, gates = g.random.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    units, both = g.random.choice((4, 16, 16, 32)), g.random.random() < 0.2
    directions, rows = 1 + both, gates * units
    more = {"direction": "bidirectional" if both else g.random.choice(("forward", "reverse")), "hidden_size": units}
    more |= {"linear_before_reset": 1} if kind == "GRU" and g.random.random() < 0.7 else {}
    operands = [g.weight(directions, rows, shape[2]), g.weight(directions, rows, units)]
    if g.random.random() < 0.6:
        operands.append(g.weight(directions, 2 * rows))
    if len(operands) > 2 and g.random.random() < 0.5:
        operands += ["", *(g.weight(directions, shape[1], units) for _ in range(1 + (kind == "LSTM")))]
    g.op(kind, name, *operands, outputs=g.random.randint(1, 2 + (kind == "LSTM")), **more)


def _resize(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=g.random.choice((3, 4, 4, 5)))
    scales = g.constant([1, 1, *[2] * (len(shape) - 2)], FLOAT)
    g.op("Resize", name, "", scales, mode=g.random.choice(("nearest", "linear", "cubic")))


def _moved(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=4)
    if shape[1] % 4 == 0 and g.random.random() < 0.5:
        g.op("DepthToSpace", name, blocksize=2)
    elif shape[2] % 2 == 0 and shape[3] % 2 == 0:
        g.op("SpaceToDepth", name, blocksize=2)
    else:
        g.op("Identity", name)


def _sampled(g: Drawn) -> None:
    name, shape, _ = g.pick(FLOAT, rank=4)
    g.op("GridSample", name, g.constant(np.zeros((shape[0], 3, 4, 2)), FLOAT))


def _boxes(g: Drawn) -> None:
    g.op("NonMaxSuppression", g.weight(1, 6, 4), g.weight(1, 2, 6), g.constant([3]), g.constant([0.5], FLOAT))
    g.op("RoiAlign", g.pick(FLOAT, rank=4)[0], g.weight(2, 4), g.constant([0, 0]), output_height=2, output_width=2)


def _shape(g: Drawn) -> None:
    g.op("Shape", g.pick(least=1)[0])


def _rounded(g: Drawn) -> None:
    name = g.pick(FLOAT)[0]
    step, zero = g.constant(0.05, FLOAT), g.constant(g.random.choice((128, 128, 100)), UINT8)
    g.op("QuantizeLinear", name, step, zero)
    g.op("DequantizeLinear", g.values[-1][0], step, zero)


def _unknown(g: Drawn) -> None:
    for _ in range(g.random.randint(1, 3)):
        g.op("Magic", g.pick(FLOAT)[0])


DRAWS: tuple[tuple[int, Callable[[Drawn], None]], ...] = (
    (6, _each("Relu", "Sigmoid", "Tanh", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Softplus", "LeakyRelu", "Clip")),
    (4, _each("Selu", "Celu", "Abs", "Neg", "Exp", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sin", "Cos", "Log",
              "Elu", "Mish", "ThresholdedRelu", "Sign", "Softsign", "Identity", "Dropout")),
    (1, _each("IsNaN", "IsInf")),
    (5, _pair((FLOAT,), "Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "Mod", "PRelu")),
    (2, _pair((INT64, INT32), "Add", "Mul", "Sub", "Max")),
    (2, _pair((FLOAT,), "Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")),
    (1, _pair((BOOL,), "And", "Or", "Xor")),
    (1, lambda g: g.op("Not", g.pick(BOOL)[0])),
    (2, _along("Softmax", "LogSoftmax", "Hardmax")), (2, _reduce), (1, _chosen), (2, _reshape), (2, _transpose),
    (1, _unsqueeze), (1, _squeeze), (1, _flatten), (2, _concat), (2, _split), (2, _slice), (2, _gather),
    (1, _looked_up), (1, _elements), (1, _nd), (1, _expand), (1, _tile), (1, _pad), (1, _trilu), (1, _cumsum),
    (1, _topk), (1, _nonzero), (2, _cast), (1, _where), (6, _conv), (3, _pool), (3, _product), (1, _gemm), (1, _einsum),
    (2, _norm), (1, _recurrent), (1, _resize), (1, _moved), (1, _sampled), (1, _boxes), (1, _shape), (1, _rounded),
)  # fmt: skip
"""How often a kind of node is drawn, and how."""
SHAPES: tuple[tuple[int, ...], ...] = (
    (8,),
    (4, 8),
    (1, 4, 8),
    (1, 4, 8, 8),
    (1, 4, 8, 8),
    (2, 4, 8, 8),
    (1, 4, 4, 8, 8),
)


def random_network(seed: int, path: Path) -> Path:
    """Write a network, the same for the same seed."""
    import onnx
    from onnx import helper

    random = Random(seed)
    g = Drawn(random)
    dtypes = (FLOAT, FLOAT, FLOAT, FLOAT, UINT8, INT64, BOOL)
    for place in range(random.choice((1, 1, 1, 2, 3))):
        g.inputs.append((f"in{place}", random.choice(SHAPES), FLOAT if place == 0 else random.choice(dtypes)))
    g.values += g.inputs
    weights, kinds = zip(*DRAWS, strict=True)
    for _ in range(random.randint(1, 7)):
        draw = _unknown if random.random() < 0.01 else random.choices(kinds, weights)[0]
        for _ in range(5):
            try:
                draw(g)
                break
            except (IndexError, ValueError, onnx.shape_inference.InferenceError, KeyError):
                draw = random.choices(kinds, weights)[0]
    ends = [value for value in g.values if value[0] not in g.read and value not in g.inputs]
    if not ends:
        g.op("Relu", g.inputs[0][0])
        ends = g.values[-1:]
    open_ = random.choice(("", "", "N")) if all(len(shape) > 1 for _, shape, _ in g.inputs) else ""

    def info(value: Value, free: str) -> Any:
        name, shape, dtype = value
        return helper.make_tensor_value_info(name, dtype, [free or shape[0], *shape[1:]] if shape else [])

    outputs = [helper.make_tensor_value_info(name, dtype, None) for name, _, dtype in ends]
    inputs = [info(value, open_ if value[1][0] == 1 else "") for value in g.inputs if value[0] in g.read]
    onnx.save(_model(helper.make_graph(g.nodes, f"drawn{seed}", inputs, outputs, g.constants)), str(path))
    return path


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said of one network on one engine; `contradiction` is empty where all agree."""

    engine: str
    precision: str
    outcome: str
    contradiction: str = ""


def judge(path: Path, board: Platform, build: bool, folder: Path) -> Iterator[Verdict]:
    """Yield what lint, plan and compile say of a network, for each kind of engine and data type of a board."""
    try:
        pipeline = settled(onnx_pipeline(path, 1000))
        (stage,) = pipeline.stages
        works = {p: stage_work(stage, p) for p in PRECISIONS}
    except SocschedError as error:
        yield _unread(path, board, error)
        return
    model = CostModel(board, board.modes[0], stage_work)
    said = {(e, p) for one in lint_file(str(path), board.name) for e in one.engines for p in one.precisions}
    judged = accelerators(board)
    alike: dict[str, None] = {}
    for engine in board.engines:
        kind = repr((engine.operators, engine.runtimes, engine.target.get("kind"), tuple(engine.precisions)))
        if kind in alike or _toolless(engine) or not (engine.operators.allowed is None or engine.operators.allowed):
            continue
        alike[kind] = None
        for precision in (p for p in PRECISIONS if p in engine.precisions):
            refused = check_operators(works[precision], engine)
            verdict = _one(pipeline, board, engine, precision, model, build, folder)
            linted = precision in stage.precisions and any(engine.id in one.names for one in judged)
            if not verdict.contradiction and linted and bool(refused) != ((engine.id, precision) in said):
                verdict = replace(verdict, contradiction=f"lint says otherwise: {refused}")
            yield verdict


def _toolless(engine: Engine) -> bool:
    """Return whether no tool makes code for an engine, which `compile` says of any network."""
    return engine.target.get("kind") == "simulated" and not has_toolchain(engine)


def _unread(path: Path, board: Platform, error: SocschedError) -> Verdict:
    """Return whether plan and lint refuse a network that is not read with the same words and exit code."""
    try:
        plan = plan_with(onnx_pipeline(path, 1000), board, None, PlanOptions(explain=False, refine=False))
        return Verdict("", "", "not read", f"plan is {plan.verdict}: {[v.requirement for v in plan.violations]}")
    except SocschedError as other:
        if (str(other), other.exit_code) != (str(error), error.exit_code):
            return Verdict("", "", "not read", f"plan says {other}, compile {error}")
    said = [one.message for one in lint_file(str(path), board.name)]
    return Verdict("", "", "not read", "" if str(error) in said else f"lint says {said}, compile {error}")


def _one(
    pipeline: Pipeline, board: Platform, engine: Engine, precision: str, model: CostModel, build: bool, folder: Path
) -> Verdict:
    (stage,) = pipeline.stages
    stage = replace(stage, precisions=PRECISIONS, stated="asked for")
    costs = [cost for cost in model.candidates(stage) if (cost.engine, cost.precision) == (engine.id, precision)]
    why = "; ".join(str(one) for one in model.refused(stage) if (one.engine, one.precision) == (engine.id, precision))
    if build and precision in pipeline.stages[0].precisions:  # a file in int8 is planned as that alone
        options = PlanOptions(
            pins=(f"{stage.name}={engine.id}",), precisions=(precision,), cuts=False, explain=False, refine=False,
        )  # fmt: skip
        plan = plan_with(pipeline, board, None, options)
        if bool(plan.tasks) != bool(costs):
            said = [violation.requirement for violation in plan.violations]
            return Verdict(engine.id, precision, "planned", f"plan says {plan.verdict} {said}, costs {why}")
    names = {cost.runtime for cost in costs} or {runtime.name for runtime in engine.runtimes} or {""}
    compiled = {name: _compile(stage, engine, precision, name, build, folder) for name in sorted(names)}
    if costs and any(compiled.values()):
        return Verdict(engine.id, precision, "planned", f"planned, not compiled: {compiled}")
    if not costs and not all(compiled.values()):
        return Verdict(engine.id, precision, "refused", f"compiled, not planned: {why}")
    return Verdict(engine.id, precision, "planned" if costs else "refused")


def _compile(stage: Stage, engine: Engine, precision: str, runtime: str, build: bool, folder: Path) -> str:
    """Return why a stage is not compiled for an engine, empty if it is."""
    _, network = network_of(stage)
    try:
        if has_toolchain(engine, runtime):
            names = [*network.inputs, *(layer.name for layer in network.layers)]
            hand_over(stage, engine, precision, folder / "handed", scales=dict.fromkeys(names, 0.05), runtime=runtime)
        elif build and engine.target.get("kind") == "llvm":
            compile_stage(stage, engine, precision)
        else:
            work = stage_work(stage, precision)
            against = as_a_whole(work, engine)
            if against or precision not in precisions(engine):
                return "; ".join(against) or f"no compilation in {precision}"
            require_kernels(work, engine)
            if engine.target.get("kind") == "cuda" and any(operator.tensor_cores for operator in work.operators):
                compile_stage(stage, engine, precision)
    except SocschedError as error:
        return str(error) or "refused"
    return ""


def main() -> int:
    """Judge the networks on the boards and print what is contradictory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--build", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    boards = [get_platform(name) for name in asked.boards.split(",")]
    outcomes: Counter[str] = Counter()
    contradictions = 0
    with TemporaryDirectory() as scratch:
        for seed in range(asked.first, asked.first + asked.count):
            path = random_network(seed, (asked.keep or Path(scratch)) / f"drawn{seed}.onnx")
            for board in boards:
                for verdict in judge(path, board, asked.build > 0 and seed % asked.build == 0, Path(scratch)):
                    outcomes[verdict.outcome] += 1
                    if verdict.contradiction:
                        contradictions += 1
                        where = f"{board.name} {verdict.engine} {verdict.precision}"
                        print(f"{seed} {where}: {verdict.contradiction}"[:3000], flush=True)
    print(f"{asked.count} networks: {dict(outcomes)}, {contradictions} contradictions")
    return int(contradictions > 0)


if __name__ == "__main__":
    sys.exit(main())
