"""Errors for rejected ONNX files: the operator, the node, the operator set, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx_files import Builder  # noqa: E402

from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.errors import InputError  # noqa: E402
from socsched.graph.rules import check_operators  # noqa: E402
from socsched.models.onnx_import import load  # noqa: E402
from socsched.models.onnx_operators import HANDLERS  # noqa: E402
from socsched.models.work import stage_work  # noqa: E402

IMAGE = [1, 4, 8, 8]


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load(path)
    return caught.value


def reasons(path: Path) -> dict[str, str]:
    """Return why no layer computes an operator, by its name, of those that are taken as they are."""
    return {layer.name: layer.attrs["reason"] for layer in load(path)[0].layers if layer.op == "onnx"}


def single(folder: Path, make: Callable[[Builder], str]) -> Path:
    b = Builder()
    return b.save(folder / "net.onnx", IMAGE, [make(b)])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda b: b.op("Hardmax", "image"), "no kernel for Hardmax"),
        (lambda b: b.op("NonZero", "image"), "no kernel for NonZero"),
        (
            lambda b: b.op("LayerNormalization", "image", b.constant(np.ones(1, np.float32))),
            "a scale or bias of another shape than [8] is not known",
        ),
        (lambda b: b.op("Tile", "image", b.constant(np.array([1, 2, 1, 1]))), "only sides of 1 are repeated"),
        (
            lambda b: b.op("GatherElements", "image", b.constant(np.zeros(IMAGE, np.int64)), axis=1),
            "constant places are not known",
        ),
        (
            lambda b: b.op("Einsum", "image", "image", equation="bchw,bkhv->bck"),
            "Einsum of bchw,bkhv to bck is not known",
        ),
        (
            lambda b: b.op("MaxPool", "image", kernel_shape=[2, 2], dilations=[2, 2]),
            "dilated pooling is not known (MaxPool, opset 17)",
        ),
        (
            lambda b: b.op("Pad", "image", b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])), mode="reflect"),
            "only padding with a constant is known",
        ),
        (
            lambda b: b.op("Resize", "image", "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="cubic"),
            "resizing in mode cubic with half_pixel is not known (Resize, opset 17)",
        ),
        (
            lambda b: b.op("ConvInteger", b.op("Cast", "image", to=3), b.constant(np.ones((2, 4, 1, 1), np.int8))),
            "no kernel for ConvInteger",
        ),
        (lambda b: b.op("Mod", "image", b.constant(np.float32(3)), fmod=1), "sign of the dividend"),
    ],
)
def test_a_node_without_a_layer_is_taken_as_it_is_with_the_reason(
    tmp_path: Path, make: Callable[[Builder], str], reason: str
) -> None:
    """The same words stand in `lint`, `plan` and `compile` where an engine has no runtime that computes it."""
    path = single(tmp_path, make)
    assert reason in "; ".join(reasons(path).values())
    work = stage_work(Stage("s", "s", model="onnx", params={"file": str(path)}), "fp32")
    cpu = replace(get_platform("jetson-agx-orin-64gb").engine("cpu0"), runtimes=())
    (refused,) = check_operators(work, cpu)
    assert all(f"{name}: " in refused or f"{name}, " in refused for name in reasons(path)) and reason in refused


@pytest.mark.parametrize(
    ("make", "message", "helps"),
    [
        (lambda b: b.op("Gather", "image", b.constant(np.array([8])), axis=2), "an index is outside of -8", "checker"),
        (lambda b: b.op("SpaceToDepth", "image", blocksize=3), "8 x 8 pixels are not blocks of 3 x 3", "checker"),
        (lambda b: b.op("MaxPool", "image", kernel_shape=[9, 9], strides=[2, 2]), "it makes [1, 4, 0, 0]", "checker"),
        (
            lambda b: b.op("ConvTranspose", "image", b.constant(np.zeros((0, 8, 3, 3), np.float32))),
            "weights for 0 channels of input, which has 4 (ConvTranspose, opset 17)",
            "checker",
        ),
        (
            lambda b: b.op("Conv", "image", *map(b.constant, np.zeros((2, 8, 4, 3, 3), np.float32))),
            "a bias of [8, 4, 3, 3] for 8 channels of output (Conv, opset 17)",
            "checker",
        ),
        (lambda b: b.op("LpNormalization", "image", axis=9), "there is no axis 9 among 4", "checker"),
        (
            lambda b: b.op("QuantizeLinear", "image", b.constant(np.full(4, 0.1, np.float32)), axis=1),
            "values with more than one scale are not read (QuantizeLinear, opset 17)",
            "by tensor",
        ),
    ],
)
def test_a_refusal_says_where_and_what_helps(
    tmp_path: Path, make: Callable[[Builder], str], message: str, helps: str
) -> None:
    error = refusal(single(tmp_path, make))
    assert "net.onnx: " in str(error) and message in str(error)
    assert helps in error.hint
    assert error.exit_code == 2


def test_operators_of_other_domains_are_named_all_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("FusedThing", ["image"], ["a"], name="fused", domain="com.vendor"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("OtherThing", ["image"], ["y"], name="other", domain="com.vendor"),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, IMAGE) for name in ("image", "y")]
    graph = helper.make_graph(nodes, "net", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.vendor", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(tmp_path / "v.onnx"))
    error = refusal(tmp_path / "v.onnx")
    assert "fused: FusedThing: the types of its results are not known (com.vendor opset 3)" in str(error)
    assert "other: OtherThing: " in str(error) and "relu" not in str(error)
    assert "ONNX's own operators" in error.hint


def test_an_unforeseen_form_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprised(*args: object) -> None:
        raise KeyError("kernel_shape")

    monkeypatch.setitem(HANDLERS, "Relu", surprised)
    path = single(tmp_path, lambda b: b.op("Relu", "image"))
    assert reasons(path) == {"Relu_0": "a form of Relu that is not understood: 'kernel_shape'"}


def test_zeros_that_repeat_a_value_are_bounded(tmp_path: Path) -> None:
    b = Builder()
    repeated = b.op("Expand", "image", b.constant(np.array([2**25, 1, 1, 2])))
    path = b.save(tmp_path / "net.onnx", [1, 1, 1, 2], [repeated])
    assert "a value is repeated more than 16777216 times" in reasons(path)["Expand_0"]


def _same_name(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


def _circle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[0] = model.graph.node[1].output[0]


def _group(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("auto_pad", 1))


def _inputs(model: onnx.ModelProto) -> None:
    del model.graph.node[0].input[1:]


def _twice(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_same_name, "'v0_0' names two values"),
        (_twice, "'v1_0' names two values"),
        (_circle, "that reads what follows from it"),
        (_group, "Conv_0: is no Conv of opset 17: Mismatched attribute type"),
        (_inputs, "has input size 1 not in range"),
        (lambda model: model.graph.ClearField("output"), "it has no outputs"),
    ],
)
def test_what_no_runtime_reads_is_refused_by_name(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    b = Builder()
    path = b.save(tmp_path / "net.onnx", IMAGE, [b.op("Relu", b.conv("image", 4, 4, norm=False))])
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    error = refusal(path)
    assert message in str(error) and ("checker" in error.hint or "cut off" in error.hint)
