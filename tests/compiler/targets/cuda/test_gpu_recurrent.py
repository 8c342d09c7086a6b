"""Recurrent layers as one kernel: the device function emulated against ONNX's reference, and what nvcc makes of it."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_sources import needs_nvcc, report, source_of

from socsched.compiler.targets.cuda.attention import completed
from socsched.compiler.targets.cuda.recurrent import constants, recurrent_kernel, spelt_out
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import OWN
from socsched.graph.counting import Steps
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Group
from socsched.graph.rules import offered, uncompiled_operators
from socsched.models.onnx_import import load
from socsched.models.work import stage_work

HERE = Path(__file__).parents[2]
CODE = Path(__file__).parents[4] / "socsched" / "compiler" / "targets" / "cuda"
LAYERS = [Steps(5, 3, 32, 3, False), Steps(4, 17, 16, 3, True), Steps(3, 16, 48, 4, False), Steps(4, 20, 32, 4, True)]
ROLES = {"recurrent": "R", "shift": "B", "state": "F", "cell": "C"}


def emulated(size: Steps, kept: bool, folder: Path) -> Any:
    """Return the device function for a layer, compiled for the processor."""
    values = {"HIDDEN_UNITS": size.hidden, "GATES_OF_A_UNIT": size.gates, "WEIGHTS_KEPT": int(kept)}
    library = folder / f"recurrent-{kept}.so"
    command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", f"-I{HERE}", f"-I{CODE}"]
    command += [f"-D{name}={value}" for name, value in values.items()]
    command += ["-o", str(library), str(HERE / "recurrent_emulator.cc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return ctypes.CDLL(str(library)).run


def reference(size: Steps, given: dict[str, Any]) -> Any:
    """Return all states of a layer as ONNX's reference computes them."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    kind = {3: "GRU", 4: "LSTM"}[size.gates]
    names = ["X", "W", "R", "B", "", "F", *(["C"] if kind == "LSTM" else [])]
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, names, ["Y"], hidden_size=size.hidden, **more)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name]
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph([node], "one", inputs, [output]))
    return ReferenceEvaluator(model).run(None, {name: given[name] for name in names if name})[0]


@pytest.mark.parametrize("size", LAYERS, ids=str)
def test_a_layer_equals_the_reference(size: Steps, tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    rows, inside = size.gates * size.hidden, 8

    def normal(*shape: int) -> Any:
        return (0.3 * generator.normal(size=shape)).astype(np.float16).astype(np.float32)

    given = {
        "X": normal(size.steps, size.batch, inside),
        "W": normal(1, rows, inside),
        "R": normal(1, rows, size.hidden),
    }
    given |= {
        "B": normal(1, 2 * rows),
        "F": normal(1, size.batch, size.hidden),
        "C": normal(1, size.batch, size.hidden),
    }
    roles = {role: name for role, name in ROLES.items() if name != "C" or size.gates == 4}
    packed, bias, first = constants(Group("l", "recurrent", (), "l", roles), given, size)
    products = (given["X"] @ given["W"][0].T).astype(np.float16)
    wanted = reference(size, given if not size.reversed else {**given, "X": given["X"][::-1]})[:, 0]
    wanted = wanted[::-1] if size.reversed else wanted
    for kept in (False, True):
        found = np.full((size.steps, size.batch, size.hidden), np.nan, np.float16)
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (products, packed, bias, first, found)]
        assert emulated(size, kept, tmp_path)(*pointers, size.steps, size.batch, int(size.reversed)) == 0
        assert np.abs(found - wanted).max() <= 4e-3


def network(path: Path, kind: str, hidden: int, results: int, **more: Any) -> Path:
    """Write a recurrent layer with its last `results` results as outputs."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    directions, rows = 1 + (more.get("direction") == "bidirectional"), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind] * hidden
    zeros = {"w": (directions, rows, 8), "r": (directions, rows, hidden), "b": (directions, 2 * rows)}
    stored = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in zeros.items()]
    names = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, ["x", *zeros], names, hidden_size=hidden, **more)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 2, 8])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names[-results:]]
    onnx.save(helper.make_model(helper.make_graph([node], "one", [x], outputs, stored)), str(path))
    return path


@pytest.mark.parametrize(
    "kind, hidden, results, more, known",
    [
        ("GRU", 32, 1, {"linear_before_reset": 1}, True),
        ("GRU", 32, 2, {"linear_before_reset": 1, "direction": "reverse"}, True),
        ("GRU", 32, 1, {}, False),
        ("GRU", 24, 1, {"linear_before_reset": 1}, False),
        ("GRU", 512, 1, {"linear_before_reset": 1}, False),
        ("LSTM", 64, 3, {}, False),
        ("LSTM", 64, 2, {}, False),
        ("LSTM", 64, 1, {"direction": "bidirectional"}, False),
        ("RNN", 64, 1, {}, False),
    ],
)
def test_plans_offer_what_is_compiled(
    kind: str, hidden: int, results: int, more: dict[str, Any], known: bool, tmp_path: Path
) -> None:
    """Counting, rules and the compiler: for tensor cores in fp16, nowhere else."""
    file = network(tmp_path / "net.onnx", kind, hidden, results, **more)
    kinds = {group.kind for group in spelt_out(fuse_network(load(file)[0])).groups}
    assert ("onnx" not in kinds) == known
    stage = Stage("net", "net", model="onnx", params={"file": str(file)})
    for board, precision in (
        ("jetson-agx-orin-64gb", "fp16"),
        ("jetson-agx-orin-64gb", "fp32"),
        ("jetson-agx-xavier", "fp16"),
    ):
        engine, work = get_platform(board).engine("gpu"), stage_work(stage, precision)
        expected = known and (board, precision) == ("jetson-agx-orin-64gb", "fp16")
        own = OWN in {runtime.name for runtime in offered(replace(engine, runtimes=()), work)}
        assert (not uncompiled_operators(work, engine), own) == (expected, expected)


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_87", "sm_90", "sm_110"])
def test_layers_are_compiled_without_spills(arch: str, tmp_path: Path) -> None:
    sizes = [Steps(20, 64, hidden, gates, False) for hidden, gates in ((128, 3), (128, 4), (256, 3), (64, 4))]
    functions = {f"layer{number}": recurrent_kernel(size) for number, size in enumerate(sizes)}
    said = report(completed(source_of(functions)), tmp_path, arch)
    assert said.count("Used ") == 4 and said.count(" 0 bytes spill stores") == 4, said
