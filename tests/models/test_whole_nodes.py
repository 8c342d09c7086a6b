"""Operators that no layer computes: read, refused or taken alike by rules and hand-overs; a sample of node tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_files import Builder  # noqa: E402

from socsched.compiler.toolchains.hand_over import prepare  # noqa: E402
from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.errors import OpenShape, SocschedError, UnknownOperator, UsageError  # noqa: E402
from socsched.graph.expand import layer_types  # noqa: E402
from socsched.graph.rules import check_operators  # noqa: E402
from socsched.models.onnx_import import load, model  # noqa: E402
from socsched.models.work import stage_work  # noqa: E402
from tools.verify.network_verdicts import judge as judge_network  # noqa: E402
from tools.verify.network_verdicts import random_network  # noqa: E402
from tools.verify.onnx_nodes import cases, judge  # noqa: E402

BOARDS = ("jetson-agx-orin-64gb", "qcs8550")


@pytest.mark.parametrize("seed", (6, 9, 14, 28))
def test_lint_plan_and_compile_agree_on_random_networks(tmp_path: Path, seed: int) -> None:
    """Five hundred of them: python -m tools.verify.network_verdicts."""
    path = random_network(seed, tmp_path / "net.onnx")
    verdicts = [one for name in BOARDS for one in judge_network(path, get_platform(name), False, tmp_path)]
    assert verdicts and not [one for one in verdicts if one.contradiction]


def test_a_row_of_values_leaves_a_dla_as_an_image(tmp_path: Path) -> None:
    b = Builder()
    flat = b.op("Flatten", b.op("GlobalAveragePool", b.conv("image", 3, 8)))
    file = b.save(tmp_path / "net.onnx", [1, 3, 8, 8], [b.op("Gemm", flat, b.constant(b.normal(8, 5)))])
    stage = Stage("net", "net", model="onnx", params={"file": str(file)})
    prepared = prepare(stage, get_platform(BOARDS[0]).engine("dla0"), "fp16")
    (output,) = prepared.package.outputs.values()
    assert (output.shape, output.layout) == ((1, 5, 1, 1), "NCHW16c")
    assert [d.dim_value for d in prepared.onnx.graph.output[0].type.tensor_type.shape.dim] == [1, 5, 1, 1]


def test_a_constant_that_leaves_takes_no_name_of_a_weight(tmp_path: Path) -> None:
    """Batch norms are folded before, and what they held is gone."""
    b = Builder()
    y = b.conv(b.conv("image", 3, 8), 8, 4)
    leaving = b.constant(np.arange(2, dtype=np.float32))
    shape = [1, 3, 8, 8]
    _, expected = load(b.save(tmp_path / "plain.onnx", shape, [y]))
    network, weights = load(b.save(tmp_path / "more.onnx", shape, [y, b.op("Identity", leaving)]))
    assert all(np.array_equal(array, weights[name]) for name, array in expected.items())
    assert len(weights) == len(expected) + 1 and network.params[network.layers[-1].weights["c0"]] == (2,)


def test_what_crosses_a_dlas_border_has_four_dimensions(tmp_path: Path) -> None:
    b = Builder()
    file = b.save(tmp_path / "net.onnx", [4, 8, 8], [b.op("Relu", "image")])
    stage = Stage("net", "net", model="onnx", params={"file": str(file)})
    engine = get_platform(BOARDS[0]).engine("dla0")
    (reason, *_) = check_operators(stage_work(stage, "fp16"), engine)
    assert reason == "an input of 4x8x8: its inputs have 4 dimensions"
    with pytest.raises(UsageError, match="an input of 4x8x8"):
        prepare(stage, engine, "fp16")


def test_a_sample_of_the_node_tests_passes() -> None:
    """All of them: python -m tools.verify.onnx_nodes."""
    chosen = [case for number, case in enumerate(cases("test_[a-g]*")) if number % 40 == 7]
    failures = [judge(*case[:5], own=False) for case in chosen]
    assert len(chosen) > 8 and sum(not one.failure for one in failures) >= 0.75 * len(chosen), failures


def test_sizes_by_name_are_planned_at_their_bound(tmp_path: Path) -> None:
    b = Builder()
    file = str(b.save(tmp_path / "open.onnx", ["N", 3, "H", 16], [b.conv("image", 3, 8)]))
    (port,) = model({"file": file, "dims": {"N": "1..4", "H": 8}}).inputs
    assert port.type.shape == (4, 3, 8, 16)
    with pytest.raises(OpenShape):
        model({"file": file, "dims": {"N": 4}})
    for wrong in ({"Q": 4}, {"N": "4..1"}, {"N": "many"}, 7):
        with pytest.raises(SocschedError):
            model({"file": file, "dims": wrong})


def test_places_of_a_table_are_looked_up_on_reading(tmp_path: Path) -> None:
    """As Swin's biases by relative position leave the exporter."""
    b = Builder()
    table = b.normal(6, 4)
    rows = b.op("GatherND", b.constant(table), b.constant(np.array([[[5], [0]], [[2], [2]]])))
    apart = b.op("GatherND", b.constant(table), b.constant(np.array([[1], [0], [3], [2], [0], [1]])), batch_dims=1)
    joined = b.op("Add", b.op("Mul", "image", rows), b.op("ReduceSum", apart, keepdims=1))
    network, weights = load(b.save(tmp_path / "net.onnx", [2, 2, 4], [joined]))
    assert "onnx" not in {layer.op for layer in network.layers}
    held = {tuple(array.shape): array for array in weights.values()}
    assert np.array_equal(held[(2, 2, 4)], table[[[5, 0], [2, 2]]])


FUSED: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("FusedConv", [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    ("FusedConv", [(1, 3, 8, 8), (4, 3, 3, 3), (4,), (1, 4, 6, 6)], {"activation": "Relu"}),
    ("FusedConv", [(1, 3, 8, 8), (4, 3, 3, 3), (4,)], {"activation": "Clip", "activation_params": [0.0, 0.5]}),
    ("FusedConv", [(1, 3, 8, 8), (4, 3, 3, 3)], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    ("FusedMatMul", [(2, 3, 4, 5), (2, 3, 6, 5)], {"transB": 1, "alpha": 0.125}),
    ("FusedMatMul", [(2, 5, 4), (2, 5, 6)], {"transA": 1}),
    ("FusedMatMul", [(4, 2, 5), (5, 2, 6)], {"transBatchA": 1, "transBatchB": 1}),
    ("FusedMatMul", [(4, 3, 2, 5), (6, 3, 2, 5)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
    ("Gelu", [(2, 7)], {}),
    ("BiasGelu", [(2, 7), (7,)], {}),
    ("FastGelu", [(2, 7), (7,)], {}),
    ("FastGelu", [(2, 7)], {}),
    ("QuickGelu", [(2, 7)], {}),
    ("FusedGemm", [(2, 5), (5, 3), (3,)], {"activation": "Relu", "alpha": 0.5}),
    ("FusedGemm", [(5, 2), (3, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.2, "transA": 1, "transB": 1}),
    ("SkipLayerNormalization", [(1, 4, 8), (1, 4, 8), (8,), (8,), (8,)], {"epsilon": 1e-5}),
]


@pytest.mark.parametrize(("op", "shapes", "attrs"), FUSED)
def test_what_onnx_runtime_fuses_is_taken_apart(op: str, shapes: Any, attrs: Any, tmp_path: Path) -> None:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(1)
    arrays = [generator.normal(0, 1, shape).astype(np.float32) for shape in shapes]
    free = 2 if op in ("FusedMatMul", "BiasSoftmax", "SkipLayerNormalization") or len(shapes) == 4 else 1
    names = [f"x{place}" for place in range(len(shapes))]
    inputs = [place for place in range(len(shapes)) if place < free and not (op == "FusedConv" and place)]
    inputs += [3] if op == "FusedConv" and len(shapes) == 4 else []
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attrs)
    typed = [helper.make_tensor_value_info(names[place], TensorProto.FLOAT, shapes[place]) for place in inputs]
    held = [numpy_helper.from_array(arrays[n], names[n]) for n in range(len(shapes)) if n not in inputs]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", typed, [result], held), opset_imports=opsets, ir_version=8)
    given = [arrays[place] for place in inputs]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {names[place]: arrays[place] for place in inputs})
    verdict = judge(op, model, given, wanted, 1e-4, False)
    assert not verdict.failure and not verdict.whole


@pytest.mark.parametrize("axis", (3, -1, 1))
def test_a_fused_softmax_is_that_of_a_sum(axis: int, tmp_path: Path) -> None:
    """ONNX Runtime has it on GPUs alone; over more sides than the last it is another function."""
    b = Builder()
    b.op("BiasSoftmax", "image", b.constant(b.normal(2, 1, 1, 5)), axis=axis, is_inner_broadcast=1)
    b.nodes[-1].domain = "com.microsoft"
    file = b.save(tmp_path / "net.onnx", [2, 3, 4, 5], ["v0_0"])
    if axis == 1:
        with pytest.raises(UnknownOperator, match="BiasSoftmax_0"):
            load(file)
    else:
        assert [layer.op for layer in load(file)[0].layers] == ["add", "softmax"]


@pytest.mark.parametrize("mode", ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"))
def test_a_constant_that_is_resized_is_computed_on_reading(mode: str, tmp_path: Path) -> None:
    """The masks of detectors: no runtime of an accelerator resizes truth values or whole numbers."""
    import onnxruntime

    b = Builder()
    mask = b.constant(np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6))
    for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        sizes = b.constant(np.array([1, 1, 3, 9]))
        more = {"coordinate_transformation_mode": mode, "nearest_mode": rounding}
        file = b.save(
            tmp_path / f"{rounding}.onnx",
            [1, 1, 3, 9],
            [b.op("Add", "image", b.op("Resize", mask, "", "", sizes, **more))],
        )
        assert not {"resize2d", "onnx"} & {layer.op for layer in load(file)[0].layers}
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        image = np.zeros((1, 1, 3, 9), np.float32)
        verdict = judge(mode, onnx.load(file), [image], session.run(None, {"image": image}), 1e-6, False)
        assert not verdict.failure, rounding


def test_whole_numbers_stay_whole_numbers(tmp_path: Path) -> None:
    """Of a table at computed places, and of a value that is repeated: as levels and classes of detectors."""
    b = Builder()
    places = b.op("ArgMax", "image", axis=1, keepdims=0)
    classes = b.op("Gather", b.constant(np.array([7, 2**24 + 1, 3])), places)
    rows = b.op("Expand", b.op("Unsqueeze", classes, b.constant(np.array([0]))), b.constant(np.array([3, 4])))
    none = b.op("Slice", "image", b.constant(np.array([0])), b.constant(np.array([0])), b.constant(np.array([0])))
    kept = b.op("Concat", "image", none, axis=0)
    file = b.save(tmp_path / "net.onnx", [4, 3], [classes, rows, kept])
    proto = onnx.load(file)
    for place in (0, 1):
        proto.graph.output[place].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(proto, file)
    network, _ = load(file)
    types = layer_types(network)
    assert [types[name].dtype for name in network.outputs] == ["int64", "int64", "fp32"]
    image = np.random.default_rng(1).normal(0, 1, (4, 3)).astype(np.float32)
    index = np.array([7, 2**24 + 1, 3])[image.argmax(1)]
    assert not judge("whole", proto, [image], [index, np.tile(index, (3, 1)), image], 1e-6, False).failure


def test_a_batch_norm_with_computed_statistics_is_no_vendors(tmp_path: Path) -> None:
    """Rockchip's and Qualcomm's compilers end on it; a CPU's ONNX Runtime computes it."""
    b = Builder()
    mean = b.op("GlobalAveragePool", "image")
    mean = b.op("Reshape", mean, b.constant(np.array([3])))
    ones = b.constant(np.ones(3, np.float32))
    file = b.save(tmp_path / "net.onnx", [1, 3, 8, 8], [b.op("BatchNormalization", "image", ones, ones, mean, ones)])
    work = stage_work(Stage("net", "net", model="onnx", params={"file": str(file)}), "fp16")
    for board, engine in (("rk3588", "npu0"), ("qcs8550", "npu")):
        assert any("operands" in reason for reason in check_operators(work, get_platform(board).engine(engine)))
    fp32 = stage_work(Stage("net", "net", model="onnx", params={"file": str(file)}), "fp32")
    assert not check_operators(fp32, get_platform("rk3588").engine("a760"))


def test_a_convolution_of_a_constant_has_no_scale_to_read_it_by(tmp_path: Path) -> None:
    """In bytes ONNX Runtime computes it in floats: plan and compile agree on a CPU that has it."""
    b = Builder()
    row = b.op("Conv", b.constant(b.normal(1, 4, 8)), b.constant(b.normal(4, 4, 1)), b.constant(b.normal(4)))
    file = b.save(tmp_path / "net.onnx", [1, 4, 8], [row, b.op("Relu", "image")])
    verdicts = list(judge_network(file, get_platform("rk3588"), False, tmp_path))
    assert verdicts and not [one for one in verdicts if one.contradiction]
