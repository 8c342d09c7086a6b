"""Operator rules: each limit of the DLA from both sides, versions, and whole stages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cli import root
from socsched.compiler.targets.llvm.fuse import fuse, fuse_activations
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.operator_rules import find_rules, load_rules, rule_names, version_key
from socsched.descriptor.platform import Engine
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import Operator, StageWork, TensorType
from socsched.graph.rules import Decision, as_a_whole, check_operators, decide
from socsched.models.work import stage_work

DLA = get_platform("jetson-agx-orin-64gb").engine("dla0")
XAVIER = get_platform("jetson-agx-xavier").engine("dla0")
NPU = get_platform("rk3588").engine("npu0")


def at(version: str, engine: Engine = DLA) -> Engine:
    return replace(engine, operators=load_rules(find_rules(engine.operators.name)).of_version(version))


def asked(kind: str, engine: Engine = DLA, dtype: str = "fp16", **attrs: float) -> Decision:
    return decide(Operator(kind, kind, dtype, (), (), 0, 0, 0, attrs=attrs), engine)


CONV = {
    "kernel_h": 3,
    "kernel_w": 3,
    "stride_h": 1,
    "stride_w": 1,
    "pad": 1,
    "dilation": 1,
    "groups": 1,
    "out_channels": 64,
}
DECONV = {**CONV, "pad": 0, "kernel_h": 2, "kernel_w": 2, "stride_h": 2, "stride_w": 2}


@pytest.mark.parametrize(
    ("attribute", "inside", "outside"),
    [
        ("kernel_h", 32, 33), ("kernel_w", 32, 33), ("stride_h", 8, 9), ("stride_w", 8, 9), ("dilation", 32, 33),
        ("groups", 8192, 8193), ("out_channels", 8192, 8193),
    ],
)  # fmt: skip
def test_convolutions_at_their_limits(attribute: str, inside: float, outside: float) -> None:
    assert asked("conv2d", **{**CONV, attribute: inside}).runs
    refused = asked("conv2d", **{**CONV, attribute: outside})
    assert not refused.runs and refused.reasons == (f"conv2d: {attribute} is {outside:g}, allowed 1 to {inside:g}",)
    assert refused.sources == ("TensorRT headers NvInfer.h and NvInferRuntime.h, notes on DLA per layer",)


def test_htp_takes_whole_numbers_and_dimensions_that_its_compiler_takes() -> None:
    htp = get_platform("qcs8550").engine("npu")

    def of(kind: str, *shapes: tuple[int, ...], **attrs: float) -> Decision:
        first, *others = (TensorType(shape, "fp16") for shape in shapes)
        return decide(Operator(kind, kind, "fp16", (first,), tuple(others), 0, 0, 0, attrs=attrs), htp)

    assert asked("dense", htp, rank=4, out_rank=4).runs and not asked("dense", htp, rank=5, out_rank=5).runs
    assert asked("concat", htp, bits=64, rank=4).runs and not asked("concat", htp, bits=8, rank=4).runs
    assert asked("slice", htp, bits=8).runs and asked("reshape", htp, bits=8).runs
    assert asked("transpose", htp, bits=64, of_input=0).runs and not asked("transpose", htp, bits=64, of_input=1).runs
    assert asked("cast", htp, bits=0, out_bits=64, to_output=0).runs
    assert not asked("cast", htp, bits=0, out_bits=64, to_output=1).runs
    assert asked("cast", htp, bits=64, out_bits=64, to_output=1).runs
    assert not asked("cast", htp, bits=0, out_bits=8, to_output=1).runs
    window = (1, 8, 7, 8, 7, 32)  # of a Swin transformer: the batch of 1 is merged away
    assert of("reshape", (1, 56, 56, 32), window).runs and of("transpose", window, window).runs
    for refused in (
        of("relu", window, window),
        of("transpose", window, window[::-1]),
        of("reshape", (8,), (8, *window)),
    ):
        assert not refused.runs and "dimensions, at most 5 are supported" in refused.reasons[0]
    border = TensorType(window, "fp16")
    work = StageWork("whole", "fp16", (), (border,), (border,))
    assert [reason.split(":")[0] for reason in as_a_whole(work, htp)] == [
        f"an {s} of 1x8x7x8x7x32" for s in ("input", "output")
    ]


def test_padding_stays_below_the_kernel() -> None:
    assert asked("conv2d", **{**CONV, "kernel_h": 32, "kernel_w": 32, "pad": 31}).runs
    assert asked("conv2d", **{**CONV, "pad": 2}).runs
    assert asked("conv2d", **{**CONV, "pad": 3}).reasons == ("conv2d: pad is 3, must be below kernel_h, 3",)
    wide = {**CONV, "kernel_h": 1, "kernel_w": 7, "pad": 3, "pad_h": 0, "pad_w": 3}
    assert asked("conv2d", **wide).runs, "each side of the window has padding of its own"
    assert not asked("conv2d", **{**wide, "pad_w": 7, "pad": 7}).runs
    atrous = {**CONV, "pad": 4, "dilation": 4, "dilation_h": 4, "dilation_w": 4}
    assert asked("conv2d", **atrous).runs, "a dilated window spans 9"
    assert not asked("conv2d", **{**atrous, "pad": 9}).runs


def test_deconvolutions() -> None:
    assert asked("conv2d_transpose", **DECONV).runs
    same = {**DECONV, "kernel_h": 3, "kernel_w": 3, "pad": 1}
    assert asked("conv2d_transpose", **same).reasons == ("conv2d_transpose: pad is 1, allowed 0 to 0",)
    assert not asked("conv2d_transpose", **{**DECONV, "groups": 2}).runs
    for size in (22, 23, 32):
        square = {**DECONV, "kernel_h": size, "kernel_w": size}
        assert asked("conv2d_transpose", **square).runs == (size < 23), "square kernels of 23 to 32 are disabled"
    assert asked("conv2d_transpose", **{**DECONV, "kernel_h": 32, "kernel_w": 8}).runs
    assert asked("conv2d_transpose", **{**DECONV, "kernel_h": 1, "kernel_w": 96}).runs
    assert not asked("conv2d_transpose", **{**DECONV, "kernel_h": 1, "kernel_w": 97}).runs


def test_windows_axes_and_factors() -> None:
    assert asked("max_pool", kernel_h=8, kernel_w=8, window=8).runs
    assert not asked("max_pool", kernel_h=9, kernel_w=3, window=9).runs
    assert [asked("lrn", window=w).runs for w in (3, 4, 5, 7, 9, 11)] == [True, False, True, True, True, False]
    assert asked("concat", axis=1).runs and not asked("concat", axis=2).runs
    assert asked("resize2d", bilinear=0, scale=32).runs and not asked("resize2d", bilinear=0, scale=33).runs
    assert asked("resize2d", bilinear=1, scale=4).runs and not asked("resize2d", bilinear=1, scale=5).runs
    assert asked("softmax", axis_dim=1024, other_dims=5).runs and not asked("softmax", axis_dim=1025, other_dims=5).runs
    assert asked("softmax", axis_dim=8192, other_dims=1).runs and not asked("softmax", axis_dim=8193, other_dims=1).runs
    assert not asked("softmax", XAVIER, axis_dim=10).runs, "on Orin only"


def test_means_of_small_images_are_pooling() -> None:
    image = {"kernel_h": 7, "kernel_w": 7, "window": 7}
    for engine in (DLA, XAVIER):
        assert asked("global_avg_pool", engine, "int8", **image).runs
        assert asked("reduce_mean", engine, "int8", **image, spatial=1).runs
        assert not asked("global_avg_pool", engine, "int8", **{**image, "kernel_w": 9}).runs
        assert not asked("reduce_mean", engine, "int8", **{**image, "kernel_h": 9}, spatial=1).runs
        assert not asked("reduce_mean", engine, "int8", axis=1, window=7, spatial=0).runs, "over channels"
    assert "average pool of this window" in asked("global_avg_pool", **image).conditions[0]


def test_data_types() -> None:
    assert asked("sigmoid", dtype="int8").dtype == "fp16", "promoted inside"
    assert asked("sigmoid").dtype == "fp16" and asked("conv2d", dtype="int8", **CONV).dtype == "int8"
    assert not asked("slice", dtype="int8").runs and asked("slice").runs
    assert asked("conv2d", dtype="fp32", **CONV).reasons == ("precision fp32 is not one of fp16, int8",)
    silu = [asked("sigmoid", dtype="int8"), asked("multiply", dtype="int8")]
    assert all(part.runs for part in silu) and silu[0].dtype == "fp16"


def test_versions() -> None:
    assert version_key("8.6.12") > version_key("8.6.2") > version_key("8.5")
    assert asked("reduce_max").reasons == ("operator reduce_max is not supported: from TensorRT 8.6.12 on, 8.6.2 here",)
    assert asked("reduce_max", at("8.6.12")).runs and asked("divide", at("10.7")).runs
    assert load_rules(find_rules("nvdla-v2")).gap("11.2") and not load_rules(find_rules("nvdla-v2")).gap("11.4.1")


def test_limits_of_a_job() -> None:
    tensor = TensorType((1, 64, 8193, 4), "fp16", "NCHW")
    assert decide(Operator("relu", "relu", "fp16", (tensor,), (), 0, 0, 0), DLA).reasons == (
        "a dimension of 8193, at most 8192 is supported",
    )
    batch = TensorType((4097, 8, 4, 4), "fp16", "NCHW")
    assert "a batch of 4097" in decide(Operator("relu", "relu", "fp16", (batch,), (), 0, 0, 0), DLA).reasons[0]
    varying = TensorType((-1, 8, 4, 4), "fp16", "NCHW")
    assert "static shapes" in decide(Operator("relu", "relu", "fp16", (varying,), (), 0, 0, 0), DLA).reasons[0]
    heavy = Operator("conv", "conv2d", "fp16", (), (), 0, 0, 0, 2**29 + 1, CONV)
    assert not decide(heavy, DLA).runs and decide(replace(heavy, weight_bytes=2**29), DLA).runs


def test_conditions_are_reported_where_numbers_cannot_decide() -> None:
    assert any("convolution buffer" in text for text in asked("conv2d", **CONV).conditions)
    assert any("one range" in text for text in asked("add", dtype="int8").conditions)


def test_stages_of_pointpillars_and_resnet() -> None:
    stages = get_pipeline("perception-stack")
    for name in ("backbone", "head", "camera-detect"):
        assert check_operators(stage_work(stages.stage(name), "fp16"), DLA) == (), name
    for name in ("pfn", "scatter", "decode"):
        assert check_operators(stage_work(stages.stage(name), "fp16"), DLA), name
    assert "host code" in check_operators(stage_work(stages.stage("decode"), "fp16"), DLA)[0]


def test_cpus_and_gpus_take_everything() -> None:
    orin = get_platform("jetson-agx-orin-64gb")
    assert asked("anything", orin.engine("gpu")).runs and asked("function", orin.engine("cpu0"), "fp32").runs
    assert not asked("function", orin.engine("gpu")).runs


@pytest.mark.parametrize("name", rule_names())
def test_shipped_rules_load_in_their_version_and_cite_a_source_each(name: str) -> None:
    rules = load_rules(find_rules(name)).of_version()
    assert rules.name == name and rules.allowed and rules.version
    cases = [case for cases in rules.allowed.values() for case in cases]
    assert all(entry.source for entry in [*cases, *rules.refused.values()])
    assert rules.source and all(form.source for forms in rules.formats.values() for form in forms)


def test_the_command_answers(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["platforms", "rules", "jetson-agx-orin-64gb"]
    assert root.run([*ask, "conv2d", "kernel_h=3", "pad=1"]) == 0
    assert "runs" in capsys.readouterr().out
    assert root.run([*ask, "conv2d", "kernel_h=40"]) == 1
    assert "kernel_h is 40, allowed 1 to 32" in capsys.readouterr().out
    assert root.run([*ask, "--runtime-version", "11.1"]) == 2
    assert "has no DLA" in capsys.readouterr().err
    assert root.run([*ask, "conv2d", "kernel=3"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert root.run([*ask]) == 0
    assert "NvInfer.h" in capsys.readouterr().out


BROKEN = """\
schema_version: "1"
name: odd
title: odd rules
runtime: Tool
version: "1.0"
sources: {book: {title: a book}}
job: {source: book}
operators:
  conv2d:
    - {source: book, limits: {kernel_hh: [1, 3], kernel_w: [5, 3]}}
  relu:
    - {note: unsourced}
  tanh: []
  elu: [{source: bok}]
refused:
  relu: {source: book, note: twice}
"""


def test_a_faulty_rule_file_is_reported_where_it_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "odd.yaml").write_text(BROKEN)
    shipped = Path(__file__).parents[2] / "platforms" / "rk3588.yaml"
    board = tmp_path / "board.yaml"
    board.write_text(
        shipped.read_text().replace("name: rk3588", "name: board").replace("rules: rknn-rk3588", "rules: odd")
    )
    assert root.run(["platforms", "check", str(board)]) == 2
    said = capsys.readouterr().err
    found = {int(line) for line in re.findall(r"odd\.yaml:(\d+):", said)}
    assert found == {10, 11, 12, 13, 14}, said
    assert "did you mean 'kernel_h'?" in said and "[smallest, largest]" in said and "did you mean 'book'?" in said
    board.write_text(board.read_text().replace("rules: odd", "rules: rknn-rk3589"))
    assert root.run(["platforms", "check", str(board)]) == 2
    assert "unknown rule file 'rknn-rk3589'; did you mean 'rknn-rk3588'?" in capsys.readouterr().err


def test_what_a_rule_asks_of_the_graph_is_a_condition_for_an_operator_alone() -> None:
    assert "broadcast is 0, 1, 2" in asked("multiply", NPU).conditions[0]
    assert asked("multiply", NPU, broadcast=1).runs and not asked("multiply", NPU, broadcast=1).conditions
    assert "broadcast is 3, allowed 0, 1, 2" in asked("multiply", NPU, broadcast=3).reasons[0]
    (objection,) = asked("matmul", out_channels=8, operands=2).reasons
    assert "the second operand is a constant of the build" in objection


def test_an_operator_of_the_file_that_rules_refuse_is_refused_whatever_it_is_computed_as() -> None:
    tensor = TensorType((1, 8, 4, 4), "fp16", "NCHW")
    product = Operator("square", "multiply", "fp16", (tensor, tensor), (tensor,), 0, 0, 0)
    assert decide(product, DLA).runs
    power = decide(replace(product, node="pow"), DLA)
    assert not power.runs and power.rule == "pow" and decide(replace(product, node="mul"), DLA).rule == "multiply"


def _network(kind: str, shape: tuple[int, ...], swapped: bool) -> Network:
    order = {"swapped": True} if swapped else {}
    layers = (
        Layer("fc", "dense", ("x",), {"weight": "w"}),
        Layer("sum", kind, ("fc",), {"constant": "b"}, order),
        Layer("act", "relu", ("sum",)),
    )
    return Network("net", {"x": TensorType((*shape, 8), "fp32")}, layers, ("act",), {"w": (16, 8), "b": (16,)})


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 3, 5)])
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum", "subtract", "divide"])
def test_only_differences_and_quotients_have_a_first_operand(kind: str, shape: tuple[int, ...]) -> None:
    graphs = [fuse_network(_network(kind, shape, swapped)) for swapped in (False, True)]
    first = [graph.operations["sum"].weight_first for graph in graphs]
    assert first == ([False, True] if kind in ("subtract", "divide") else [False, False])
    for fused in (lambda graph: fuse(graph, {}), fuse_activations):
        kinds = [[group.kind for group in fused(graph).groups] for graph in graphs]
        assert kinds[0] == kinds[1]
        assert (kinds[0] == ["dense"]) == (kind == "add")
