"""Networks from ONNX files: the same results as ONNX Runtime, and work that agrees with the shapes in the file."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx_files import FILES, Builder, pillar_net  # noqa: E402
from recorded import SHARED  # noqa: E402

from socsched.cli import root  # noqa: E402
from socsched.compiler.artifact import Artifact  # noqa: E402
from socsched.compiler.builder import compile_stage  # noqa: E402
from socsched.compiler.layouts import convert  # noqa: E402
from socsched.compiler.loading.stages import load  # noqa: E402
from socsched.compiler.toolchains.onnx_model import to_onnx  # noqa: E402
from socsched.cost.model import CostModel  # noqa: E402
from socsched.cost.roofline import efficiency, kind_of  # noqa: E402
from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.errors import InputError, UsageError  # noqa: E402
from socsched.graph.expand import layer_types  # noqa: E402
from socsched.graph.operators import TensorType  # noqa: E402
from socsched.models.onnx_import import load as read  # noqa: E402
from socsched.models.registry import get_model  # noqa: E402
from socsched.models.work import stage_work  # noqa: E402

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("onnx")
    return {name: make(folder / f"{name}.onnx") for name, make in FILES.items()}


def stage(path: Path, **params: Any) -> Stage:
    return Stage("net", "net", "onnx", params={"file": str(path), **params}, precisions=("fp32", "fp16"))


def oracle(path: Path | bytes, arrays: list[Array]) -> list[Array]:
    """Return what ONNX Runtime computes of the inputs in the file's order."""
    source = path if isinstance(path, bytes) else str(path)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return list(session.run(None, {i.name: array for i, array in zip(session.get_inputs(), arrays, strict=True)}))


def image_for(path: Path) -> Array:
    """Return a random image of the size of a file's only input, one where the batch is open."""
    (source,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in source.shape]
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def agree(path: Path, arrays: list[Array], tolerance: float = 1e-5) -> Artifact:
    """Compile a file for this machine, compare every output with ONNX Runtime's, and return the artefact."""
    artifact = compile_stage(stage(path), get_platform("host").engines[0], "fp32", threads=1)
    compiled = load(artifact)
    operands = [
        convert(array, TensorType(array.shape, tensor.dtype, "NCHW"), tensor) if tensor.layout else array
        for array, tensor in zip(arrays, compiled.inputs, strict=True)
    ]
    wanted = oracle(path, arrays)
    for result, tensor, expected in zip(compiled(*operands), compiled.outputs, wanted, strict=True):
        if len(expected.shape) == 4:
            result = convert(result, tensor, TensorType(expected.shape, "fp32", "NCHW"))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(np.asarray(result).reshape(expected.shape), expected, atol=tolerance * scale, rtol=0)
    return artifact


@pytest.mark.parametrize("name", FILES)
@pytest.mark.sampled(5)
def test_outputs_equal_onnx_runtime(name: str, files: dict[str, Path]) -> None:
    artifact = agree(files[name], [image_for(files[name])], 1e-4)
    slow = any("general schedules" in note for note in artifact.notes)
    assert slow == (name not in ("trunk", "padded", "resnet")), "plain convolutions have rules of their own"


@pytest.mark.parametrize("name", FILES)
def test_every_layer_kind_has_its_operator(name: str, files: dict[str, Path]) -> None:
    """Networks from files through our layers and out again: the oracle sees no difference."""
    network, weights = read(files[name])
    made, array = to_onnx(network, weights, layer_types(network)), image_for(files[name])
    onnx.checker.check_model(made, full_check=True)
    for ours, theirs in zip(oracle(made.SerializeToString(), [array]), oracle(files[name], [array]), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * max(np.abs(theirs).max(), 1e-3)


def language(path: Path) -> Path:
    """Token embeddings, both forms of GELU as operators, a norm over two axes without a bias: opset 20."""
    b = Builder(9)
    x = b.op("Gather", b.constant(b.normal(50, 16)), "tokens", axis=0)
    x = b.op("Gelu", x)
    x = b.op("LayerNormalization", x, b.constant(b.normal(6, 16)), axis=1)
    x = b.op("Pow", b.op("Gelu", x, approximate="tanh"), b.constant(np.array([3], np.float32)))
    source = onnx.helper.make_tensor_value_info("tokens", onnx.TensorProto.INT64, [1, 6])
    sink = onnx.helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph(b.nodes, "language", [source], [sink], b.weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9), str(path))
    return path


def test_a_language_model_from_tokens(tmp_path: Path) -> None:
    path = language(tmp_path / "language.onnx")
    agree(path, [np.array([[3, 0, 49, 7, 7, 12]])])
    lookup = stage_work(stage(path), "fp32").operators[0]
    assert lookup.kind == "gather" and lookup.weight_bytes == 6 * 16 * 4, "rows that are read, not the whole table"


@pytest.mark.parametrize("name", [name for name in FILES if name != "same_padding"])  # ONNX infers no computed pads
def test_operations_are_those_of_the_file(name: str, files: dict[str, Path]) -> None:
    """Two per multiply-add of convolutions and dense layers, counted from the shapes ONNX infers."""
    model = onnx.load(str(files[name]))
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        if not dim.HasField("dim_value"):
            dim.dim_value = 1
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    constants = {w.name: tuple(w.dims) for w in model.graph.initializer}
    shapes = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*model.graph.input, *model.graph.value_info, *model.graph.output)
    }
    wanted = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            wanted += 2 * int(np.prod(shapes[node.output[0]])) * int(np.prod(constants[node.input[1]][1:]))
        elif node.op_type == "ConvTranspose":
            wanted += 2 * int(np.prod(shapes[node.input[0]])) * int(np.prod(constants[node.input[1]][1:]))
        elif node.op_type in ("Gemm", "MatMul") and node.input[1] in constants:
            rows = int(np.prod(shapes[node.input[0]][:-1]))
            wanted += 2 * rows * int(np.prod(constants[node.input[1]]))
    work = stage_work(stage(files[name]), "fp32")
    heavy = [op for op in work.operators if op.kind in ("conv2d", "conv2d_transpose", "dense")]
    assert sum(op.flops for op in heavy) == wanted
    bare = [op for op in work.operators if op.kind == "batch_norm"]
    assert not bare, "every batch norm here follows a convolution"


def test_depthwise_convolutions_are_charged_as_such(files: dict[str, Path]) -> None:
    work = stage_work(stage(files["mobilenet"]), "fp32")
    kinds = [kind_of(op) for op in work.operators if op.kind == "conv2d"]
    assert kinds.count("depthwise") == 2 and kinds.count("conv2d") == 7
    npu = get_platform("rk3588").engine("npu0").precisions["int8"]
    assert efficiency(npu, "depthwise").value == 0.13 < efficiency(npu, "conv2d").value
    cpu = get_platform("rk3588").engine("a55").precisions["fp32"]
    assert efficiency(cpu, "depthwise") == efficiency(cpu, "add"), "memory speed by default"


def test_accelerators_judge_networks_from_files(files: dict[str, Path]) -> None:
    orin = get_platform("jetson-agx-orin-64gb")
    model = CostModel(orin, orin.mode("MAXN"), stage_work)
    assert {"dla0", "gpu", "cpu0"} <= {c.engine for c in model.candidates(stage(files["trunk"]))}
    other = replace(stage(files["mobilenet"]), name="other")
    refused = {r.engine: r.reason for r in model.refused(other) if r.precision == "fp16"}
    assert "operator hard_swish is not supported: not offered by TensorRT for DLA" in refused["dla0"]


def several(path: Path, make: Any, inputs: dict[str, tuple[int, list[int]]]) -> Path:
    """Write a file with several inputs (name -> element type, shape); `make` returns output name -> element type."""
    b = Builder()
    sources = [onnx.helper.make_tensor_value_info(name, *given) for name, given in inputs.items()]
    outputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in make(b).items()]
    graph = onnx.helper.make_graph(b.nodes, "net", sources, outputs, b.weights)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def best(b: Builder) -> dict[str, int]:
    values, places = b.op("TopK", "x", b.constant(np.array([5])), outputs=2, axis=-1)
    return {values: 1, places: 7, b.op("ArgMax", "x", axis=-1, keepdims=0): 7}


def chosen(b: Builder) -> dict[str, int]:
    """Return the rows of the largest maxima, as detection heads choose queries."""
    _, places = b.op("TopK", b.op("ReduceMax", "x", axes=[2], keepdims=0), b.constant(np.array([3])), outputs=2, axis=1)
    spread = b.op("Unsqueeze", places, b.constant(np.array([2])))
    return {b.op("GatherElements", "x", b.op("Tile", spread, b.constant(np.array([1, 1, 4]))), axis=1): 1}


def joined(b: Builder) -> dict[str, int]:
    """Return computed values between constants, as a class token is joined with patches."""
    first, second, third = (b.constant(b.normal(1, size, 4)) for size in (1, 2, 3))
    return {b.op("Concat", first, second, "x", third, "y", axis=1): 1}


def folded(b: Builder) -> dict[str, int]:
    """Return a value plus a table that the file computes from constants."""
    outer = b.op("Einsum", b.constant(b.normal(5)), b.constant(b.normal(7)), equation="i,j->ij")
    rows = [b.constant(np.array([[3], [1]])), b.constant(b.normal(2, 7))]
    return {b.op("Add", "x", b.op("ScatterND", outer, *rows)): 1}


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (chosen, {"x": (1, [1, 8, 4])}),
        (joined, {"x": (1, [1, 5, 4]), "y": (1, [1, 2, 4])}),
        (folded, {"x": (1, [5, 7])}),
        (lambda b: {b.op("Gather", "x", "i", axis=1): 1}, {"x": (1, [3, 5, 7]), "i": (7, [2, 1])}),
        (best, {"x": (1, [1, 8, 100])}),
        (lambda b: {b.conv(b.op("Cast", "x", to=1), 3, 8): 1}, {"x": (2, [1, 3, 9, 9])}),
        (lambda b: {b.op("Add", b.op("Cast", "x", to=1), "y"): 1}, {"x": (6, [5, 7]), "y": (1, [5, 7])}),
        (lambda b: {b.op("GridSample", "x", "g"): 1}, {"x": (1, [1, 8, 12, 17]), "g": (1, [1, 5, 6, 2])}),
        (lambda b: {b.op("ScatterND", "x", "i", "u"): 1}, {"x": (1, [5, 7]), "i": (7, [2, 1]), "u": (1, [2, 7])}),
    ],
    ids=["chosen", "joined", "folded", "rows", "best", "bytes", "integers", "grid", "scatter"],
)
def test_operators_of_detection_heads_equal_onnx_runtime(make: Any, inputs: Any, tmp_path: Path) -> None:
    path = several(tmp_path / "net.onnx", make, inputs)
    random = np.random.default_rng(1)
    arrays = [
        random.uniform(-1, 1, shape).astype(np.float32)
        if kind == 1
        else random.permutation(4)[: shape[0], None]
        if kind == 7
        else random.integers(0, 200, shape).astype({2: np.uint8, 6: np.int32}[kind])
        for kind, shape in inputs.values()
    ]
    agree(path, arrays)


def test_a_pipeline_names_a_file_in_its_folder(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = files["resnet"].parent
    (folder / "net.yaml").write_text(
        """\
schema_version: "1"
name: net
title: a network from a file
sensors: {camera: {kind: camera, period: 100 ms, bytes_per_frame: 73728 B}}
stages:
  classify: {title: classify, onnx: resnet.onnx, after: [camera]}
chains: {seen: {path: [camera, classify], deadline: 100 ms}}
"""
    )
    file = str(folder / "net.yaml")
    assert root.run(["pipelines", "check", file, "-p", "jetson-agx-orin-64gb"]) == 0
    assert root.run(["plan", file, "-p", "jetson-agx-orin-64gb", "--mode", "MAXN", "-q"]) == 0
    plan = folder / "plan.json"
    assert root.run(["plan", file, "-p", "host", "-q", "-o", str(plan)]) in (0, 1)
    capsys.readouterr()
    assert root.run(["run", str(plan), "--frames", "2", "--pipeline", file, "--json", "-q"]) in (0, 1)


def test_ports_are_renamed_to_fit_neighbours(files: dict[str, Path]) -> None:
    model = get_model("onnx", {"file": str(files["trunk"]), "inputs": {"image": "camera_input"}})
    assert [port.name for port in model.inputs] == ["camera_input"]
    assert model.inputs[0].type == TensorType((1, 3, 64, 96), "fp32", "NCHW")
    with pytest.raises(UsageError, match="the file has no 'imag'"):
        get_model("onnx", {"file": str(files["trunk"]), "inputs": {"imag": "x"}})


def test_what_cannot_be_read_is_named(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(InputError, match=r"missing\.onnx: cannot be read"):
        get_model("onnx", {"file": str(tmp_path / "missing.onnx")})
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"not a network" * 50)
    with pytest.raises(InputError, match=r"junk\.onnx: not a usable ONNX file"):
        get_model("onnx", {"file": str(junk)})


@pytest.mark.parametrize("real", [False, *([True] if SHARED else [])])
def test_a_pillar_feature_net_as_an_exporter_writes_it(real: bool, tmp_path: Path) -> None:
    """Weights are among the inputs of the graph, as of old, and the maximum over points is a chain of poolings."""
    path = SHARED / "npu_int8" / "pfn_fp32.onnx" if real and SHARED else pillar_net(tmp_path / "pfn.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    arrays = [np.random.default_rng(3).standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()]
    agree(path, arrays, 1e-4)


def branches(condition: Any, b: Builder) -> str:
    """Return the result of an If whose branches use a weight of their own, and one named like the file's."""
    graphs = {}
    for key, factor in (("then_branch", 2.0), ("else_branch", -3.0)):
        weight = onnx.numpy_helper.from_array(np.full((1,), factor, np.float32), "c0")
        nodes = [
            onnx.helper.make_node("Mul", ["x", "c0"], [f"{key}.m"]),
            onnx.helper.make_node("Relu", [f"{key}.m"], ["r"]),
        ]
        result = onnx.helper.make_tensor_value_info("r", 1, None)
        graphs[key] = onnx.helper.make_graph(nodes, key, [], [result], [weight])
    return str(b.op("If", condition, **graphs))


def by_shape(b: Builder) -> dict[str, int]:
    first = b.op("Gather", b.op("Shape", b.op("Relu", "x")), b.constant(np.array(1)))
    return {b.op("Add", branches(b.op("Equal", first, b.constant(np.array(5))), b), b.constant(b.normal(5))): 1}


@pytest.mark.parametrize("taken", [True, False, None], ids=["then", "else", "by-shape"])
def test_a_branch_that_the_file_decides_is_taken(taken: bool | None, tmp_path: Path) -> None:
    def make(b: Builder) -> dict[str, int]:
        return by_shape(b) if taken is None else {branches(b.constant(np.array(taken)), b): 1}

    path = several(tmp_path / "net.onnx", make, {"x": (1, [2, 5])})
    x = np.random.default_rng(1).uniform(-1, 1, (2, 5)).astype(np.float32)
    agree(path, [x])


def calling(path: Path, depth: int, calls: int = 1) -> Path:
    """Write a file whose function of each depth calls that of the next `calls` times; the last is Relu(x) + 1."""
    domain, opsets = "own", [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    last = [
        onnx.helper.make_node("Constant", [], ["one"], value_float=1.0),
        onnx.helper.make_node("Relu", ["a"], ["r"]),
        onnx.helper.make_node("Add", ["r", "one"], ["b"]),
    ]
    functions = [onnx.helper.make_function(domain, f"f{depth}", ["a"], ["b"], last, opsets)]
    for level in range(depth):
        names = ["a", *(f"t{n}" for n in range(calls - 1)), "b"]
        nodes = [
            onnx.helper.make_node(f"f{level + 1}", [names[n]], [names[n + 1]], domain=domain) for n in range(calls)
        ]
        functions.append(onnx.helper.make_function(domain, f"f{level}", ["a"], ["b"], nodes, opsets))
    value = [onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in ("x", "y")]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("f0", ["x"], ["y"], domain=domain)], "g", value[:1], value[1:]
    )
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def test_local_functions_are_written_out_and_their_growth_is_bounded(tmp_path: Path) -> None:
    path = calling(tmp_path / "net.onnx", 3, 2)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 3)).astype(np.float32)
    agree(path, [x])
    with pytest.raises(InputError, match="more than 20000 nodes, those of its functions included"):
        get_model("onnx", {"file": str(calling(tmp_path / "bomb.onnx", 40, 2))})
    recursive = onnx.load(str(path))
    recursive.functions[0].node[1].CopyFrom(onnx.helper.make_node("f0", ["a"], ["r"], domain="own"))
    (tmp_path / "recursive.onnx").write_bytes(recursive.SerializeToString())
    with pytest.raises(InputError, match="calls itself"):
        get_model("onnx", {"file": str(tmp_path / "recursive.onnx")})


# `params: shapes`: open dimensions are set, stated ones are kept.


@pytest.fixture
def open_sizes(tmp_path: Path) -> Path:
    """Return a network whose image may have any size."""
    build = Builder()
    return build.save(tmp_path / "open.onnx", ["n", 3, "h", "w"], [build.conv("image", 3, 8, stride=2)])


def test_open_sizes_are_set(open_sizes: Path) -> None:
    for height, width in ((64, 32), (32, 96)):
        model = get_model("onnx", {"file": str(open_sizes), "shapes": {"image": [1, 3, height, width]}})
        assert model.inputs[0].type.shape == (1, 3, height, width)
        assert model.outputs[0].type.shape == (1, 8, height // 2, width // 2)


def test_without_them_the_message_says_how_to_set_them(open_sizes: Path) -> None:
    with pytest.raises(InputError) as caught:
        get_model("onnx", {"file": str(open_sizes)})
    assert "the shape of 'image' is not fixed" in str(caught.value)
    assert "params: {shapes: {INPUT: [1, 3, 384, 640]}, dims" in caught.value.hint


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"image": [1, 4, 32, 32]}, r"image is \[\?, 3, \?, \?\], not \[1, 4, 32, 32\]"),
        ({"image": [1, 3, 32]}, "not "),
        ({"picture": [1, 3, 32, 32]}, "no input 'picture'"),
        ({"image": [1, 3, 0, 32]}, "expected a list of sizes"),
        ({"image": [1, 3, 10**9, 32]}, "expected a list of sizes"),
        ({"image": "1x3"}, "expected a list of sizes"),
        ([1, 3, 32, 32], "expected a list of sizes|shapes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, says: str, open_sizes: Path) -> None:
    with pytest.raises((InputError, UsageError), match=says):
        get_model("onnx", {"file": str(open_sizes), "shapes": shapes})


@pytest.mark.parametrize("side", [-1, 0, 2**40])
def test_a_slice_of_sides_that_cannot_be_ends_in_a_message(side: int, tmp_path: Path) -> None:
    """onnx's own shape inference of the whole file ends the process for a slice of a negative side."""
    build = Builder()
    cut = build.op("Slice", "image", build.constant(np.array([1, 1])), build.constant(np.array([9, 9])))
    file = build.save(tmp_path / "cut.onnx", [side, 3, 16, 16], [build.conv(cut, 3, 8)])
    program = f"from socsched.models.registry import get_model; get_model('onnx', {{'file': {str(file)!r}}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert re.search(r"errors\.(InputError|OpenShape): cut.onnx: ", done.stderr)
