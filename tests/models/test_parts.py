"""Parts of networks as stages, and the work of stages."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

import pytest

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.errors import UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.operators import StageWork, TensorType
from socsched.graph.partition import prefixes
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import PartOf, cut_pipeline, part_of, parts_of, whole_stage
from socsched.models.registry import bindings, get_model
from socsched.models.work import stage_work
from socsched.planning.cutting.divisible import Sliced


def network_of(pipeline: Pipeline, stage: str) -> Network:
    """Return the network of a stage."""
    chosen = pipeline.stage(stage)
    factory = get_model(chosen.model or "", chosen.params).network
    assert factory is not None
    return factory()


def parts(pipeline: Pipeline, stage: str, *numbers: int) -> list[PartOf]:
    """Cut a stage after its units of these numbers."""
    network = network_of(pipeline, stage)
    types = layer_types(network)
    cuts = list(prefixes(network, types))
    return parts_of(stage, network, [cuts[number].after for number in numbers], types)


@pytest.fixture(scope="module")
def stack() -> Pipeline:
    return get_pipeline("perception-stack")


@pytest.mark.parametrize(("stage", "numbers"), [("backbone", (3, 9)), ("camera-detect", (6, 7, 14)), ("head", (0,))])
def test_parts_hold_every_layer_once_and_what_they_need_is_found(
    stack: Pipeline, stage: str, numbers: tuple[int, ...]
) -> None:
    found = parts(stack, stage, *numbers)
    cut = cut_pipeline(stack, {stage: found})
    layers: list[str] = []
    bound = bindings(cut)
    for part in found:
        made = cut.stage(part.name)
        layers += [layer.name for layer in network_of(cut, part.name).layers]
        providers = set(bound[part.name].values())
        reached, queue = set(made.after), list(made.after)
        while queue:
            name = queue.pop()
            more = set(cut.stage(name).after) - reached if name in {s.name for s in cut.stages} else set()
            reached |= more
            queue += more
        assert providers <= reached, "a part starts when all its tensors are there"
        assert part_of(made.params) == part and whole_stage(made) == replace(
            stack.stage(stage), after=made.after, queue=made.queue, title=made.title
        )
    assert sorted(layers) == sorted(layer.name for layer in network_of(stack, stage).layers)


def test_chains_go_through_linked_parts(stack: Pipeline) -> None:
    cut = cut_pipeline(
        stack, {"backbone": parts(stack, "backbone", 3, 9), "camera-detect": parts(stack, "camera-detect", 5)}
    )
    graph = task_graph(cut)
    for chain, whole in zip(cut.chains, stack.chains, strict=True):
        for before, name in pairwise(chain.path):
            stage = cut.stage(name)
            assert before in (*stage.after, *stage.reads)
        assert [segment.period_ns for segment in graph.segments(chain)] == [
            segment.period_ns for segment in task_graph(stack).segments(whole)
        ]
    readers = [stage for stage in cut.stages if "backbone.3" in stage.after]
    assert [stage.name for stage in readers] == ["head"]


def test_a_stage_with_the_name_of_a_part_is_refused(stack: Pipeline) -> None:
    found = parts(stack, "backbone", 3)
    taken = replace(stack, stages=(*stack.stages, replace(stack.stage("track"), name="backbone.2")))
    with pytest.raises(UsageError, match=r"backbone\.2"):
        cut_pipeline(taken, {"backbone": found})


@pytest.mark.parametrize(
    ("stage", "numbers", "precision"),
    [("backbone", (6, 12), "fp16"), ("camera-detect", (7, 14), "int8"), ("head", (0, 1), "fp16")],
)
def test_work_sliced_from_the_whole_is_what_the_compiler_reads_from_the_part(
    stack: Pipeline, stage: str, numbers: tuple[int, ...], precision: str
) -> None:
    found = parts(stack, stage, *numbers)
    cut = cut_pipeline(stack, {stage: found})
    sliced = Sliced(stage_work)
    for part in found:
        made = cut.stage(part.name)
        mine, compiled = sliced(made, precision), stage_work(made, precision)
        assert (mine.inputs, mine.outputs) == (compiled.inputs, compiled.outputs)
        assert [replace(op, name="") for op in mine.operators] == [replace(op, name="") for op in compiled.operators]


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
