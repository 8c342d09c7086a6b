"""Errors for rejected ONNX files: the operator, the node, the operator set, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx_files import Builder  # noqa: E402

from socsched.errors import InputError  # noqa: E402
from socsched.models.onnx_import import load  # noqa: E402
from socsched.models.onnx_operators import HANDLERS, HELP  # noqa: E402

IMAGE = [1, 4, 8, 8]


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load(path)
    return caught.value


def single(folder: Path, make: Callable[[Builder], str]) -> Path:
    b = Builder()
    return b.save(folder / "net.onnx", IMAGE, [make(b)])


@pytest.mark.parametrize(
    ("make", "message", "helps"),
    [
        (lambda b: b.op("Celu", "image"), "Celu_0: operator Celu is not known (Celu, opset 17)", "LeakyRelu"),
        (lambda b: b.op("Pow", "image", b.constant(np.float32(1.5))), "only powers of 0.5, 2 and 3", "Exp"),
        (lambda b: b.op("Gather", "image", b.constant(np.array([8])), axis=2), "an index is outside of -8", "checker"),
        (
            lambda b: b.op("LayerNormalization", "image", b.constant(np.ones(1, np.float32))),
            "a scale or bias of another shape than [8] is not known",
            "expand",
        ),
        (lambda b: b.op("DepthToSpace", "image", blocksize=0), "DepthToSpace that is not understood", ""),
        (lambda b: b.op("SpaceToDepth", "image", blocksize=3), "8 x 8 pixels are not blocks of 3 x 3", "checker"),
        (lambda b: b.op("LRN", "image", size=-3), "a window of -3 over", "all channels"),
        (lambda b: b.op("LRN", "image", size=10**8 + 1), "a window of 100000001 over", "all channels"),
        (lambda b: b.op("LpNormalization", "image", axis=9), "there is no axis 9 among 4", "checker"),
        (
            lambda b: b.op("Tile", "image", b.constant(np.array([1, 2, 1, 1]))),
            "only sides of 1 are repeated",
            "Concat",
        ),
        (
            lambda b: b.op("GatherElements", "image", b.constant(np.zeros(IMAGE, np.int64)), axis=1),
            "constant places are not known",
            "Gather",
        ),
        (lambda b: b.op("Cast", "image", to=6), "a conversion of fp32 to int32 is not known", "fp32"),
        (
            lambda b: b.op("Einsum", "image", "image", equation="bchw,bkhv->bck"),
            "Einsum of bchw,bkhv to bck is not known",
            "several MatMul",
        ),
        (lambda b: b.op("Ceil", "image"), "operator Ceil is not known", "known are Abs, Add,"),
        (
            lambda b: b.op("NonZero", "image"),
            "operator NonZero is not known",
            "host code after the network",
        ),
        (
            lambda b: b.op("MaxPool", "image", kernel_shape=[2, 2], dilations=[2, 2]),
            "dilated pooling is not known (MaxPool, opset 17)",
            "larger window",
        ),
        (
            lambda b: b.op("Conv", "image", b.op("Relu", b.op("Identity", "image"))),
            "the weight must be a constant, 'v1_0' is computed (Conv, opset 17)",
            "initialisers",
        ),
        (
            lambda b: b.op(
                "ConvTranspose", "image", b.constant(b.normal(4, 2, 3, 3)), strides=[2, 2], output_padding=[2, 2]
            ),
            "an output_padding of [2, 2] with strides of [2, 2]",
            "below the stride",
        ),
        (
            lambda b: b.op("Pad", "image", b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])), mode="reflect"),
            "only padding with a constant is known",
            "zeros",
        ),
        (
            lambda b: b.op("Resize", "image", "", b.constant(np.array([1, 1, 2, 2], np.float32)), mode="cubic"),
            "resizing in mode cubic with half_pixel is not known (Resize, opset 17)",
            "nearest or linear",
        ),
        (
            lambda b: b.op("Mul", b.constant(np.float32(2)), b.constant(np.float32(3)), "image"),
            "it needs two inputs, one of which is no constant (Mul, opset 17)",
            "onnxsim",
        ),
        (
            lambda b: b.op("QuantizeLinear", "image", b.constant(np.full(4, 0.1, np.float32)), axis=1),
            "values with more than one scale are not read (QuantizeLinear, opset 17)",
            "by tensor",
        ),
        (
            lambda b: b.op("ConvInteger", "image", b.constant(np.ones((2, 4, 1, 1), np.int8))),
            "integers that are not made by DynamicQuantizeLinear are not read (ConvInteger, opset 17)",
            "statically",
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


def test_all_unknown_operators_at_once(tmp_path: Path) -> None:
    path = single(tmp_path, lambda b: b.op("Floor", b.op("Celu", b.op("Relu", b.op("Celu", "image")))))
    assert "Celu_0: operator Celu is not known; nor are Floor (Floor_3)" in str(refusal(path))


def test_one_dimension_is_refused_in_words(tmp_path: Path) -> None:
    b = Builder()
    pooled = b.op("MaxPool", "image", kernel_shape=[3])
    error = refusal(b.save(tmp_path / "flat.onnx", [1, 4, 16], [pooled]))
    assert "only two-dimensional pooling is known" in str(error) and "height of 1" in error.hint


def test_operators_of_other_domains(tmp_path: Path) -> None:
    node = helper.make_node("FusedThing", ["image"], ["y"], name="fused", domain="com.vendor")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, IMAGE) for name in ("image", "y")]
    graph = helper.make_graph([node], "net", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.vendor", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(tmp_path / "v.onnx"))
    error = refusal(tmp_path / "v.onnx")
    assert "fused: operator FusedThing is not known (FusedThing, com.vendor opset 3)" in str(error)
    assert "ONNX's own operators in place of those of com.vendor" in error.hint


def test_an_unforeseen_form_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprised(*args: object) -> None:
        raise KeyError("kernel_shape")

    monkeypatch.setitem(HANDLERS, "Relu", surprised)
    error = refusal(single(tmp_path, lambda b: b.op("Relu", "image")))
    assert "Relu_0: a form of Relu that is not understood: 'kernel_shape' (Relu, opset 17)" in str(error)


def test_help_is_only_for_what_is_not_read() -> None:
    assert not set(HELP) & set(HANDLERS)
    assert "LSTM" in HELP
    assert all(onnx.defs.has(op) or op == "Swish" for op in HELP)


def test_zeros_that_repeat_a_value_are_bounded(tmp_path: Path) -> None:
    b = Builder()
    repeated = b.op("Expand", "image", b.constant(np.array([2**25, 1, 1, 2])))
    path = b.save(tmp_path / "net.onnx", [1, 1, 1, 2], [repeated])
    assert "a value is repeated more than 16777216 times" in str(refusal(path))
