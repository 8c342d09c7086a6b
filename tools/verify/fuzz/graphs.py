"""Mutations of networks: ONNX's operators as drawn or as its node tests have them, with a rule of the format broken."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from socsched.descriptor.catalog import get_platform
from socsched.models.onnx_import import load
from tools.verify.fuzz import corpus, mutate

WHOLE = (0, 1, -1, 2, 3, 7, -2, -9, 64, 2**20, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**31), -(2**62), -(2**63))
REAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3e38, float("nan"), float("inf"), float("-inf"))
WORDS = (
    b"", b"linear", b"nearest", b"cubic", b"SAME_UPPER", b"VALID", b"NOTSET", b"reflect", b"wrap", b"edge", b"none",
    b"add", b"max", b"CRD", b"reverse", b"bidirectional", b"Relu", b"tanh", b"half_pixel", b"tf_crop_and_resize",
    b"ij,jk->ik", b"i->", b"...", b"\xff", b"x" * 5000,
)  # fmt: skip
LOCATIONS = ("", "../x", "/etc/passwd", "-1", "4", "10" * 9, "onnx.data", ".")
KINDS = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 16, 17, 0, 21, 40)
"""Codes of data types: those of ONNX that are common, some that are not, and one that does not exist."""
BOARDS = ("jetson-agx-orin-64gb", "jetson-agx-xavier", "qcs8550", "rk3588", "host")


@cache
def _drawable() -> tuple[bytes, ...]:
    """Return the small networks of ONNX's node tests, and the seeds of the corpus."""
    from onnx.backend.test import loader

    tests = [path.read_bytes() for path in sorted(Path(loader.DATA_DIR, "node").glob("*/model.onnx"))]
    return (*(one for one in tests if len(one) < 50_000), *corpus.read()["onnx"] * 20)


def network(seed: bytes, random: Random) -> bytes:
    """Return a network of random operators, of a node test or of the corpus, with one to three rules broken."""
    import onnx

    tests, _ = _drawable(), _board("host")
    if random.random() < 0.5:
        from tools.verify.network_verdicts import random_network

        with tempfile.TemporaryDirectory() as folder:
            data = random_network(random.randrange(10**6), Path(folder, "drawn.onnx")).read_bytes()
    else:
        data = random.choice(tests)
    if random.random() < 0.08:
        return mutate.raw(data, random)
    model = onnx.load_model_from_string(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        for _ in range(5):
            try:
                random.choice(CHANGES)(model, random)
                break
            except Exception:  # onnx's errors have no common class; the change does not apply to this network
                continue
    return bytes(model.SerializeToString())


def _node(model: Any, random: Random) -> Any:
    return random.choice(model.graph.node)


def _attribute(model: Any, random: Random) -> None:
    """Set an attribute out of its range, of another length, to another type or twice, or take it away."""
    node = random.choice([one for one in model.graph.node if one.attribute])
    one, kind = random.choice(node.attribute), random.randrange(8)
    if kind == 0:
        node.attribute.remove(one)
    elif kind == 1:
        node.attribute.append(one)
    elif kind == 2:
        _assign(one, _any_value(random))
    elif one.type == one.INT:
        one.i = random.choice(WHOLE)
    elif one.type == one.FLOAT:
        one.f = random.choice(REAL)
    elif one.type == one.INTS:
        _numbers(one.ints, WHOLE, random)
    elif one.type == one.FLOATS:
        _numbers(one.floats, REAL, random)
    elif one.type == one.STRING:
        one.s = random.choice(WORDS)
    elif one.type == one.TENSOR:
        _alter(one.t, random)


def _numbers(held: Any, choices: Any, random: Random) -> None:
    numbers = list(held)
    kind = random.randrange(5)
    if kind == 0:
        numbers = numbers[:-1]
    elif kind == 1:
        numbers += random.choices(choices, k=random.choice((1, 1, 5)))
    elif kind == 2:
        numbers = [random.choice(choices)] * len(numbers)
    elif numbers:
        numbers[random.randrange(len(numbers))] = random.choice(choices)
    held[:] = numbers


def _any_value(random: Random) -> Any:
    return random.choice(
        (
            random.choice(WHOLE), random.choice(REAL), random.choice(WORDS), random.choices(WHOLE, k=3),
            random.choices(REAL, k=2), [b"a", b"b"], _tensor(random, "t"),
        )
    )  # fmt: skip


def _assign(one: Any, value: Any) -> None:
    from onnx import helper

    one.CopyFrom(helper.make_attribute(one.name, value))


def _stated(model: Any, random: Random) -> None:
    """State an attribute that an operator has, or has not."""
    from onnx import defs, helper

    node = _node(model, random)
    names = ["axis", "axes", "pads", "group", "to", "mode", "keepdims", "kernel_shape", "dilations", "auto_pad"]
    if defs.has(node.op_type) and random.random() < 0.8:
        names = list(defs.get_schema(node.op_type).attributes) or names
    node.attribute.append(helper.make_attribute(random.choice(names), _any_value(random)))


def _values(model: Any) -> list[str]:
    made = [name for node in model.graph.node for name in node.output if name]
    return [*made, *(one.name for one in model.graph.input), *(one.name for one in model.graph.initializer)]


def _input(model: Any, random: Random) -> None:
    """Take away, leave out, exchange or replace inputs of a node: by others, its own result, or one that is nowhere."""
    node = random.choice([one for one in model.graph.node if one.input])
    at, kind = random.randrange(len(node.input)), random.randrange(7)
    if kind == 0:
        del node.input[at]
    elif kind == 1:
        node.input[at] = ""
    elif kind == 2:
        other = random.randrange(len(node.input))
        node.input[at], node.input[other] = node.input[other], node.input[at]
    elif kind == 3:
        node.input[at] = random.choice((node.output[0], "nowhere", model.graph.node[-1].output[0]))
    elif kind == 4:
        node.input.append(random.choice((*_values(model), "")))
    else:
        node.input[at] = random.choice(_values(model))


def _output(model: Any, random: Random) -> None:
    """Give a node more or fewer results, names that are taken or none; the network other outputs."""
    from onnx import helper

    node, kind = _node(model, random), random.randrange(7)
    if kind == 0:
        node.output.append("more")
    elif kind == 1:
        del node.output[random.randrange(len(node.output))]
    elif kind == 2:
        node.output[random.randrange(len(node.output))] = random.choice((*_values(model), ""))
    elif kind == 3:
        model.graph.output.append(helper.make_tensor_value_info(random.choice(_values(model)), 1, None))
    elif kind == 4:
        del model.graph.output[random.randrange(len(model.graph.output))]
    elif kind == 5:
        model.graph.output.append(random.choice(model.graph.output))
    else:
        random.choice(model.graph.output).name = random.choice((*_values(model), "", "nowhere"))


def _computed(model: Any, random: Random) -> None:
    """Make a constant an input of the network, or the result of a node on such an input."""
    from onnx import helper

    graph = model.graph
    tensor = random.choice(graph.initializer)
    graph.initializer.remove(tensor)
    name = tensor.name
    if random.random() < 0.6:
        name = f"{tensor.name}_given"
        kind = random.choice(("Identity", "Identity", "Abs", "Neg", "Cast"))
        more = {"to": tensor.data_type} if kind == "Cast" else {}
        graph.node.insert(0, helper.make_node(kind, [name], [tensor.name], name="given", **more))
    graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))


def _constant(model: Any, random: Random) -> None:
    """Make a computed value or an input a constant, as an initialiser or a node."""
    from onnx import helper

    graph = model.graph
    known = {one.name: [d.dim_value or 1 for d in one.type.tensor_type.shape.dim] for one in graph.input}
    name = random.choice([one for one in _values(model) if one not in {t.name for t in graph.initializer}])
    tensor = _tensor(random, name, known.get(name))
    for node in graph.node:
        for at, output in enumerate(node.output):
            if output == name:
                node.output[at] = f"{name}_before"
    for one in list(graph.input):
        if one.name == name and random.random() < 0.7:
            graph.input.remove(one)
    if random.random() < 0.5:
        graph.initializer.append(tensor)
    else:
        graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))


def _tensor(random: Random, name: str, shape: Any = None) -> Any:
    from onnx import numpy_helper

    shape = shape or random.choice(([], [1], [4], [2, 3], [1, 4, 8, 8], [0], [1, 4, 8], [2, 0, 3]))
    if np.prod(shape) > 10**5 or min(shape, default=0) < 0:
        shape = [1]
    kind = random.choice(("f4", "f4", "f4", "i8", "i4", "u1", "i1", "?", "f2", "f8", "u8", "U3", "c8"))
    array = np.full(shape, random.choice((0, 1, 2, 3, 100)), kind if kind != "U3" else object)
    if kind == "U3":
        array = array.astype(str).astype(object)
    elif kind.startswith("f") and random.random() < 0.3:
        array = np.full(shape, random.choice(REAL), kind)
    return numpy_helper.from_array(array, name)


def _weights(model: Any, random: Random) -> None:
    """Give a constant another rank, sizes, type, values or place."""
    tensor = random.choice(model.graph.initializer)
    if tensor.external_data and random.random() < 0.5:
        random.choice(tensor.external_data).value = random.choice(LOCATIONS)
    else:
        _alter(tensor, random)


def _alter(tensor: Any, random: Random) -> None:
    from onnx import numpy_helper

    kind, name = random.randrange(9), tensor.name
    if kind == 0 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice((0, -1, 1, 3, 2**20, 2**31, 2**62))
    elif kind == 1:
        tensor.data_type = random.choice(KINDS)
    elif kind == 2:
        tensor.raw_data = mutate.raw(tensor.raw_data, random)
    elif kind == 3:
        tensor.CopyFrom(_tensor(random, name))
    else:
        array = np.array(numpy_helper.to_array(tensor))
        if kind == 4:
            array = array.astype(random.choice(("f2", "f8", "i4", "i8", "u1", "i1", "?", "f4")))
        elif kind == 5:
            array = random.choice((array[None], array.reshape(-1), array[..., None], array[:0], array.reshape(-1)[0]))
        elif kind == 6 and array.size:
            array.reshape(-1)[random.randrange(array.size)] = random.choice(WHOLE if array.dtype.kind in "iu" else REAL)
        elif kind == 7:
            array = np.full_like(array, random.choice(WHOLE if array.dtype.kind in "iu" else REAL))
        else:
            array = np.concatenate([array, array], -1) if array.ndim else array[None, None]
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(array), name))


def _type(model: Any, random: Random) -> None:
    """Give an input another type, rank or sizes: open, negative, huge, unknown, or of no tensor."""
    graph = model.graph
    one = random.choice((*graph.input, *graph.input, random.choice(graph.output)))
    tensor, kind = one.type.tensor_type, random.randrange(9)
    if kind == 0:
        tensor.elem_type = random.choice(KINDS)
    elif kind == 1:
        tensor.ClearField("shape")
    elif kind == 2:
        one.ClearField("type")
    elif kind == 3:
        one.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif kind == 4:
        tensor.shape.dim.add().dim_value = random.choice((1, 2, 0))
    elif kind == 5:
        del tensor.shape.dim[random.randrange(len(tensor.shape.dim))]
    elif kind == 6:
        random.choice(tensor.shape.dim).dim_param = random.choice(("N", "batch", "", "height", "N+1"))
    elif kind == 7:
        random.choice(tensor.shape.dim).ClearField("value")
    else:
        random.choice(tensor.shape.dim).dim_value = random.choice((0, -1, 1, 2, 3, 17, 2**20, 2**31, 2**62))


def _operator(model: Any, random: Random) -> None:
    """Make a node another operator, of this or another domain, or its name another."""
    from onnx import defs

    node = _node(model, random)
    kind = random.randrange(6)
    if kind == 0:
        node.domain = random.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "acme", "com.microsoft.nchwc"))
    elif kind == 1:
        node.name = random.choice((*mutate.TEXTS[:9], "x" * 10_000)).encode("utf-8", "ignore").decode()
    else:
        own = [one.op_type for one in model.graph.node]
        names = [one.name for one in defs.get_all_schemas() if not one.domain]
        node.op_type = random.choice((random.choice(names), random.choice(own), "Nope"))


def _order(model: Any, random: Random) -> None:
    """Repeat nodes, put them in another order, or let two read each other's results."""
    nodes = model.graph.node
    kind = random.randrange(3)
    if kind == 0:
        nodes.append(random.choice(nodes))
    elif kind == 1:
        shuffled = random.sample(list(nodes), len(nodes))
        copies = [type(one).FromString(one.SerializeToString()) for one in shuffled]
        del nodes[:]
        nodes.extend(copies)
    else:
        one, other = random.choice(nodes), random.choice(nodes)
        one.input[0], other.input[0] = other.output[0], one.output[0]


def _names(model: Any, random: Random) -> None:
    """Let a constant or an input have a name that is taken, or none."""
    graph = model.graph
    one = random.choice((*graph.initializer, *graph.input))
    one.name = random.choice((*_values(model), ""))


def _version(model: Any, random: Random) -> None:
    """State another operator set or form of the file."""
    from onnx import helper

    kind = random.randrange(4)
    if kind == 0:
        model.ir_version = random.choice((0, 1, 3, 6, 8, 13, 99, -1))
    elif kind == 1:
        del model.opset_import[:]
    elif kind == 2:
        model.opset_import.append(helper.make_opsetid(random.choice(("", "acme", "com.microsoft")), 1))
    else:
        model.opset_import[0].version = random.choice((*range(1, 27), 0, -1, 2**40))


def _inside(model: Any, random: Random) -> None:
    """Put a node into the branch of an If, the body of a Loop, or a function."""
    from onnx import TensorProto, helper

    graph, kind = model.graph, random.randrange(3)
    at = random.randrange(len(graph.node))
    node = type(graph.node[at]).FromString(graph.node[at].SerializeToString())
    results = [helper.make_tensor_value_info(name, 1, None) for name in node.output]
    if kind == 0:
        copy = helper.make_graph([node], "branch", [], results)
        name = random.choice(("taken", random.choice(_values(model))))
        graph.initializer.append(helper.make_tensor("taken", TensorProto.BOOL, [], [random.random() < 0.5]))
        new = helper.make_node("If", [name], list(node.output), then_branch=copy, else_branch=copy)
    elif kind == 1:
        inner = type(node).FromString(node.SerializeToString())
        for place, name in enumerate(inner.output):
            inner.output[place] = f"{name}_turn"
        ends = [helper.make_tensor_value_info(name, 1, None) for name in ("on", *inner.output)]
        starts = [helper.make_tensor_value_info("turn", 7, []), helper.make_tensor_value_info("on", 9, [])]
        count = random.choice((0, 1, 2, 3, -1, 10_000, 2**40))
        graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [count]))
        body = helper.make_graph([inner], "body", starts, ends)
        new = helper.make_node("Loop", ["turns", ""], list(node.output), body=body)
    else:
        sets = list(model.opset_import)
        inputs = [name for name in dict.fromkeys(node.input) if name]
        inner = [node]
        if random.random() < 0.2:
            inner.append(helper.make_node("Mine", inputs, ["again"], domain="own"))
        function = helper.make_function("own", "Mine", inputs, list(node.output), inner, sets)
        model.functions.append(function)
        model.opset_import.append(helper.make_opsetid("own", 1))
        new = helper.make_node("Mine", inputs, list(node.output), domain="own", name="called")
    graph.node[at].CopyFrom(new)


CHANGES: tuple[Callable[[Any, Random], None], ...] = (
    *[_attribute] * 5, *[_stated] * 2, *[_input] * 4, *[_computed] * 3, *[_constant] * 2, *[_weights] * 5,
    *[_type] * 3, *[_operator] * 3, _output, _order, _names, _version, _inside,
)  # fmt: skip


@cache
def _board(name: str) -> Any:
    """Return a board; this machine is looked at once, not in every process that judges files."""
    return get_platform(name)


def judged(file: Path) -> None:
    """Read a network, then lint, plan and hand it over for the engines of a board; AssertionError where these differ.

    The board follows from the file.  Of one file in 256 the stage for this machine is built too.
    """
    from tools.verify.network_verdicts import judge

    weights = file.with_name("onnx.data")
    if not weights.exists():
        weights.write_bytes(corpus.read()["beside"][0])
    digest = sha256(file.read_bytes()).digest()
    build = digest[1] == 0
    board = _board("host" if build else BOARDS[digest[0] % len(BOARDS)])
    nothing = {"SOCSCHED_VENDORS": "/nonexistent", "SOCSCHED_HOST": "quick"}  # vendors' compilers have their own checks
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, nothing):
        for verdict in judge(file, board, build, Path(folder)):
            assert not verdict.contradiction, f"{board.name} {verdict.engine} {verdict.precision}: {verdict}"
    load(file)
