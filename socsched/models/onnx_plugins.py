"""TensorRT's plugins for detections, written as ONNX's own operators: what they compute is then known everywhere.

EfficientNMS_TRT and BatchedNMS_TRT (NVIDIA/TensorRT, plugin/efficientNMSPlugin and plugin/batchedNMSPlugin, README of
each) suppress boxes and leave a fixed number of detections in the order of their scores, with zeros behind the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_EFFICIENT, _BATCHED = "EfficientNMS_TRT", ("BatchedNMS_TRT", "BatchedNMSDynamic_TRT")
_OLDEST = 11
"""Opset from which ONNX has all operators that are needed."""
_REDUCED = {"ReduceSum": 13, "ReduceMin": 18}
"""Opset from which the axes of a reduction are an input."""


def without_plugins(model: Any) -> Any:
    """Return a model with the plugins that can be written as other operators written so; the others remain."""
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)
    nodes = list(model.graph.node)
    if opset < _OLDEST or not any(_is_known(node) for node in nodes):
        return model
    written = type(model)()
    written.CopyFrom(model)
    del written.graph.node[:]
    for place, node in enumerate(nodes):
        if _is_known(node):
            written.graph.node.extend(_Written(node, f"{node.name or node.op_type}.{place}", opset).nodes)
        else:
            written.graph.node.append(node)
    return written


def _is_known(node: Any) -> bool:
    """Return whether a node is such a plugin, in a form that is written out: boxes that all classes share."""
    attrs = {item.name: item for item in node.attribute}
    if len(node.input) != 2 or len(node.output) != 4:
        return False
    if node.op_type == _EFFICIENT:
        return True
    return node.op_type in _BATCHED and "shareLocation" in attrs and attrs["shareLocation"].i == 1


class _Written:
    """The nodes of one plugin."""

    def __init__(self, node: Any, prefix: str, opset: int) -> None:
        from onnx import helper

        self.prefix, self.opset, self.nodes = prefix, opset, list[Any]()
        attrs = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        efficient = node.op_type == _EFFICIENT
        most = int(attrs.get("max_output_boxes" if efficient else "keepTopK", 100))
        agnostic, centres = bool(attrs.get("class_agnostic", 0)), int(attrs.get("box_coding", 0))
        background = int(attrs.get("background_class" if efficient else "backgroundLabelId", -1))
        scores = self.scores(node.input[1], bool(attrs.get("score_activation", 0)), background)
        boxes = self.op("Reshape", node.input[0], self.whole([0, -1, 4]))
        classes = self.size(scores, 2)
        if agnostic:  # every class of a box is a candidate of its own
            apart = self.op("Reshape", boxes, self.whole([0, -1, 1, 4]))
            shape = self.op("Concat", self.whole([1, 1]), classes, self.whole([1]), axis=0)
            boxes = self.op("Reshape", self.op("Expand", apart, shape), self.whole([0, -1, 4]))
            scores = self.op("Reshape", scores, self.whole([0, 1, -1]))
        else:
            scores = self.op("Transpose", scores, perm=[0, 2, 1])
            if "topK" in attrs:
                scores = self.best(scores, int(attrs["topK"]))
        limits = (float(attrs.get("iou_threshold" if efficient else "iouThreshold", 0.5)),
                  float(attrs.get("score_threshold" if efficient else "scoreThreshold", 0.0)))  # fmt: skip
        top, index, count = self.chosen(boxes, scores, most, limits, centres)
        places, valid = self.size(scores, 2), self.op("Cast", self.op("Greater", top, self.real([0.0])), to=1)
        found = self.boxes(boxes, self.op("Mod", index, places), centres, bool(attrs.get("clipBoxes", not efficient)))
        label = self.op("Mod", index, classes) if agnostic else self.op("Div", index, places)
        label = self.op("Mul", self.op("Cast", label, to=1), valid)
        if efficient:
            self.op("Cast", label, to=6, output=node.output[3])
        else:  # what is no detection is of class -1
            self.op("Add", label, self.op("Sub", valid, self.real([1.0])), output=node.output[3])
        self.op("Cast", count, to=6, output=node.output[0])
        self.op("Mul", found, self.op("Reshape", valid, self.whole([0, -1, 1])), output=node.output[1])
        self.op("Identity", top, output=node.output[2])

    def op(self, kind: str, *inputs: str, output: str = "", **attrs: Any) -> str:
        """Add a node; return the name of its first result."""
        from onnx import helper

        name = output or f"{self.prefix}.{len(self.nodes)}"
        outputs = [name, f"{name}.places"] if kind == "TopK" else [name]
        label = f"{self.prefix}.{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, name=label, **attrs))
        return name

    def whole(self, numbers: Sequence[int]) -> str:
        """Return a constant of whole numbers."""
        return self.constant(7, numbers)

    def real(self, numbers: Sequence[float]) -> str:
        """Return a constant of real numbers."""
        return self.constant(1, numbers)

    def constant(self, code: int, numbers: Sequence[float]) -> str:
        from onnx import helper

        return self.op("Constant", value=helper.make_tensor("value", code, [len(numbers)], numbers))

    def size(self, value: str, axis: int) -> str:
        """Return the size of a value along an axis, [1]."""
        return self.op("Gather", self.op("Shape", value), self.whole([axis]))

    def reduced(self, kind: str, value: str, axis: int) -> str:
        """Return a reduction along an axis, which is kept."""
        if self.opset >= _REDUCED[kind]:
            return self.op(kind, value, self.whole([axis]), keepdims=1)
        return self.op(kind, value, axes=[axis], keepdims=1)

    def scores(self, given: str, activated: bool, background: int) -> str:
        """Return the scores [batch, boxes, classes] with zeros for the background."""
        scores = self.op("Sigmoid", given) if activated else given
        if background < 0:
            return scores
        ones = self.op("ConstantOfShape", self.size(scores, 2))
        marked = self.op("ScatterElements", ones, self.whole([background]), self.real([1.0]), axis=0)
        return self.op("Mul", scores, self.op("Sub", self.real([1.0]), marked))

    def best(self, scores: str, most: int) -> str:
        """Return the scores with zeros for all but so many of each class."""
        floats = [self.op("Cast", one, to=1) for one in (self.whole([most]), self.size(scores, 2))]
        kept = self.op("Cast", self.op("Min", *floats), to=7)
        last = self.reduced("ReduceMin", self.op("TopK", scores, kept, axis=-1), 2)
        below = self.op("Cast", self.op("Less", scores, last), to=1)
        return self.op("Mul", scores, self.op("Sub", self.real([1.0]), below))

    def chosen(
        self, boxes: str, scores: str, most: int, limits: tuple[float, float], centres: int
    ) -> tuple[str, str, str]:
        """Return the scores of the detections and their places among all scores [batch, most], and their number."""
        bounds = (self.whole([most]), *(self.real([limit]) for limit in limits))
        kept = self.op("NonMaxSuppression", boxes, scores, *bounds, center_point_box=centres)
        none = self.op("ConstantOfShape", self.op("Shape", scores))
        alone = self.op("ScatterND", none, kept, self.op("GatherND", scores, kept))
        flat = self.op("Reshape", alone, self.whole([0, -1]))
        top = self.op("TopK", self.op("Pad", flat, self.whole([0, 0, 0, most])), self.whole([most]), axis=1)
        counted = self.op("Cast", self.op("Greater", top, self.real([0.0])), to=1)
        return top, f"{top}.places", self.reduced("ReduceSum", counted, 1)

    def boxes(self, boxes: str, places: str, centres: int, clipped: bool) -> str:
        """Return the boxes at places [batch, most] as corners."""
        if centres:
            middle, half = (self.op("Gather", boxes, self.whole(pair), axis=2) for pair in ((0, 1), (2, 3)))
            half = self.op("Mul", half, self.real([0.5]))
            boxes = self.op("Concat", self.op("Sub", middle, half), self.op("Add", middle, half), axis=2)
        if clipped:
            low, high = self.real([0.0]), self.real([1.0])
            boxes = self.op("Min", self.op("Max", boxes, low), high)
        rows = self.op("Expand", self.op("Reshape", places, self.whole([0, -1, 1])), self.whole([1, 1, 4]))
        return self.op("GatherElements", boxes, rows, axis=1)
