"""TensorRT's plugins for detections, written as ONNX's operators: against a plain suppression of boxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.graph.rules import check_operators  # noqa: E402
from socsched.models.onnx_file import is_taken_as_it_is  # noqa: E402
from socsched.models.onnx_import import model as read_model  # noqa: E402
from socsched.models.onnx_integers import without_plugins  # noqa: E402
from socsched.models.work import stage_work  # noqa: E402

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A node and what it has to do."""

    op: str
    attrs: dict[str, Any]
    batch: int = 1
    boxes: int = 30
    classes: int = 4
    opset: int = 17
    rank: int = 3
    most: int = 10
    background: int = -1
    overlap: float = 0.45
    least: float = 0.4
    agnostic: bool = False
    centres: bool = False
    activated: bool = False
    clipped: bool = False
    of_each: int = 10**6

    @property
    def batched(self) -> bool:
        return self.op != "EfficientNMS_TRT"


def efficient(**more: Any) -> dict[str, Any]:
    return {"score_threshold": 0.4, "iou_threshold": 0.45, "plugin_version": "1", **more}


def batched(**more: Any) -> dict[str, Any]:
    return {"scoreThreshold": 0.4, "iouThreshold": 0.45, "keepTopK": 10, "numClasses": 4, "shareLocation": 1, **more}


CASES = [
    Case("EfficientNMS_TRT", efficient(max_output_boxes=10), opset=13),
    Case("EfficientNMS_TRT", efficient(max_output_boxes=200, background_class=0, score_activation=1, box_coding=1,
         class_agnostic=1), 2, opset=11, most=200, background=0, agnostic=True, centres=True, activated=True),
    Case("EfficientNMS_TRT", efficient(max_output_boxes=10, box_coding=1), opset=18, rank=4, centres=True),
    Case("BatchedNMS_TRT", batched(topK=8, backgroundLabelId=-1, clipBoxes=1), rank=4, clipped=True, of_each=8),
    Case("BatchedNMSDynamic_TRT", batched(topK=100, clipBoxes=0, scoreThreshold=0.95), 2, opset=20, rank=4, least=0.95),
]  # fmt: skip


def file_of(case: Case, path: Path) -> Path:
    """Write a network of one node."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if case.batched else TensorProto.INT32
    shape = [case.batch, case.boxes, *[1] * (case.rank - 3), 4]
    results = {
        "count": (TensorProto.INT32, [case.batch, 1]),
        "found": (TensorProto.FLOAT, [case.batch, case.most, 4]),
        "best": (TensorProto.FLOAT, [case.batch, case.most]),
        "label": (kind, [case.batch, case.most]),
    }
    node = helper.make_node(case.op, ["boxes", "scores"], list(results), "nms", domain="TRT", **case.attrs)
    inputs = {"boxes": shape, "scores": [case.batch, case.boxes, case.classes]}
    graph = helper.make_graph(
        [node],
        "detections",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in inputs.items()],
        [helper.make_tensor_value_info(name, *what) for name, what in results.items()],
    )
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("TRT", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def overlap(one: Array, other: Array) -> float:
    """Return intersection over union."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    both = float(np.prod(np.maximum(sides, 0)))
    return both / float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - both)


def reference(case: Case, boxes: Array, scores: Array) -> list[Array]:
    """Return the plugin's results, detection by detection."""
    scores = 1 / (1 + np.exp(-scores)) if case.activated else scores
    if case.centres:
        boxes = np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], -1)
    count, found = np.zeros((case.batch, 1)), np.zeros((case.batch, case.most, 4))
    best, label = np.zeros((case.batch, case.most)), np.full((case.batch, case.most), -1.0 * case.batched)
    for one in range(case.batch):
        kept: list[tuple[int, int]] = []
        begun = [0] * case.classes
        for box, of in sorted(np.ndindex(case.boxes, case.classes), key=lambda place: -scores[one][place]):
            begun[of] += 1
            if of == case.background or scores[one, box, of] <= case.least or begun[of] > case.of_each:
                continue
            rivals = [other for other, its in kept if case.agnostic or its == of]
            if all(overlap(boxes[one, box], boxes[one, other]) <= case.overlap for other in rivals):
                kept.append((box, of))
        count[one] = len(kept[: case.most])
        for place, (box, of) in enumerate(kept[: case.most]):
            found[one, place] = np.clip(boxes[one, box], 0, 1) if case.clipped else boxes[one, box]
            best[one, place], label[one, place] = scores[one, box, of], of
    return [count, found, best, label]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op}-{case.opset}")
def test_detections_are_those_of_a_plain_suppression(case: Case, tmp_path: Path) -> None:
    file = file_of(case, tmp_path / "net.onnx")
    written = without_plugins(onnx.load(str(file)))
    onnx.checker.check_model(written)
    generator = np.random.default_rng(5)
    corner, size = generator.random((2, case.batch, case.boxes, 2))
    size = 0.05 + size / 2
    boxes = np.concatenate([corner, size if case.centres else corner + size], -1).astype(np.float32)
    scores = generator.random((case.batch, case.boxes, case.classes), np.float32)
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    given = boxes[:, :, None] if case.rank == 4 else boxes
    found = session.run(None, {"boxes": given, "scores": scores})
    wanted = reference(case, boxes, scores)
    assert wanted[0].min() > 0
    assert all(np.allclose(one, other, atol=1e-6) for one, other in zip(found, wanted, strict=True))
    assert [array.dtype for array in found] == [
        np.int32,
        np.float32,
        np.float32,
        np.float32 if case.batched else np.int32,
    ]


def test_they_are_read_as_other_operators(tmp_path: Path) -> None:
    file = file_of(CASES[0], tmp_path / "net.onnx")
    assert not is_taken_as_it_is(file)
    ports = read_model({"file": str(file)}).outputs
    assert [port.type.shape for port in ports] == [(1, 1), (1, 10, 4), (1, 10), (1, 10)]
    stage = Stage("net", "net", model="onnx", params={"file": str(file)})
    assert not [one for one in stage_work(stage, "fp32").operators if one.attrs.get("plugin")]


def test_a_plugin_that_is_not_written_out_has_no_engine_without_tensorrt(tmp_path: Path) -> None:
    """Boxes of their own for every class."""
    attrs = {**batched(), "shareLocation": 0}
    file = file_of(Case("BatchedNMS_TRT", attrs, classes=1, rank=4), tmp_path / "net.onnx")
    assert is_taken_as_it_is(file)
    stage = Stage("net", "net", model="onnx", params={"file": str(file)})
    engine = next(one for one in get_platform("host").engines if one.runtimes)
    (reason, *_) = check_operators(stage_work(stage, "fp32"), engine)
    assert "no kernel for TRT BatchedNMS_TRT" in reason
