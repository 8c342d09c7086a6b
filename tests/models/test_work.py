"""Operation counts and traffic against the layer table of the network, and the cache of analyses."""

from __future__ import annotations

from math import prod

import pytest

from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.operators import StageWork, TensorType
from socsched.models.work import stage_work


def work(model: str, precision: str = "fp32", **params: object) -> StageWork:
    return stage_work(Stage("stage", "stage", model, params=params), precision)


def table(pillars: int, ny: int = 496, nx: int = 432) -> dict[str, int]:
    """Multiply-adds by part of PointPillars, from its architecture alone."""
    macs = {"pfn": pillars * 32 * 9 * 64, "backbone": 0, "neck": 0}
    h, w, width = ny, nx, 64
    for index, (count, channels) in enumerate(((4, 64), (6, 128), (6, 256))):
        for position in range(count):
            if position == 0:
                h, w = h // 2, w // 2
            macs["backbone"] += 9 * width * channels * h * w
            width = channels
        macs["neck"] += (
            channels * 128 * (ny // 2) * (nx // 2) if index == 0 else channels * 128 * h * w * (2**index) ** 2
        )
    macs["head"] = 384 * (18 + 42 + 12) * (ny // 2) * (nx // 2)
    return macs


@pytest.mark.parametrize("pillars", [6000, 12345])
def test_operations_equal_the_layer_table(pillars: int) -> None:
    expected = table(pillars)
    assert work("pointpillars.pfn", pillars=pillars).flops == 2 * expected["pfn"]
    backbone = work("pointpillars.backbone", pillars=pillars)
    convs = sum(op.flops for op in backbone.operators if op.kind == "conv2d")
    assert convs == 2 * expected["backbone"]
    assert backbone.flops - convs == 2 * expected["neck"]
    assert work("pointpillars.head").flops == 2 * expected["head"]
    if pillars == 6000:  # the published table, in GFLOP
        assert [round(2e-9 * expected[part], 2) for part in expected] == [0.22, 59.24, 6.14, 2.96]


def test_backbone_operators() -> None:
    operators = work("pointpillars.backbone").operators
    assert [op.kind for op in operators] == ["conv2d"] * 16 + ["conv2d_transpose"] * 3 + ["concat"]
    first, last = operators[0], operators[-1]
    assert first.attrs | {"pad": 1, "stride_h": 2, "kernel_w": 3, "in_channels": 64, "relu": 1} == first.attrs
    assert first.outputs == (TensorType((1, 64, 248, 216), "fp32", "NCHW"),)
    assert first.read_bytes == 4 * 64 * 496 * 432 and first.write_bytes == 4 * 64 * 248 * 216
    assert last.bytes == 0  # written in place by the deconvolutions
    assert sum(op.weight_bytes for op in operators) == 4 * (4205056 + 598400)


def test_precision_scales_traffic_but_not_indices() -> None:
    full, half = work("pointpillars.pfn"), work("pointpillars.pfn", "fp16")
    index_bytes = 4 * 6000 * 3
    assert half.flops == full.flops
    assert 2 * (half.bytes - index_bytes) == full.bytes - index_bytes
    assert [t.dtype for t in half.inputs] == ["fp16", "int32", "int32"]
    assert half.outputs == (TensorType((6000, 64), "fp16"),)


def test_head_reads_its_input_once() -> None:
    operators = work("pointpillars.head", "fp16").operators
    assert [op.read_bytes for op in operators] == [2 * 384 * 248 * 216, 0, 0]


def test_scatter_writes_the_whole_canvas() -> None:
    canvas = work("pointpillars.scatter", pillars=10)
    assert canvas.operators[0].write_bytes == 4 * prod((64, 496, 432))
    assert canvas.operators[0].read_bytes == 10 * (64 * 4 + 2 * 4)


def test_camera_detector_is_resnet18_plus_head() -> None:
    """He et al. give 1.8 G multiply-adds at 224 x 224, of which the classifier we leave out is 0.5 M."""
    operators = work("camera.detector").operators
    macs = sum(op.flops for op in operators if op.kind == "conv2d") / 2
    scaled = (macs - 512 * 40 * 12 * 20) * (224 * 224) / (384 * 640)
    assert scaled == pytest.approx(1.814e9, rel=0.01)
    assert {op.kind for op in operators} == {"conv2d", "max_pool", "add"}


def test_stages_without_network() -> None:
    assert stage_work(Stage("s", "s", None), "fp32").operators == ()
    assert work("camera.preprocess").operators[0].kind == "function"
    with pytest.raises(UsageError, match="no built-in model"):
        work("camera.nothing")
