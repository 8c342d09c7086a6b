"""Int8 networks as ONNX files with QuantizeLinear and DequantizeLinear: read back, and run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from int8_reference import compute, outputs  # noqa: E402
from qdq_networks import SOURCES  # noqa: E402

from socsched.compiler.builder import compile_stage, shipped_scales  # noqa: E402
from socsched.compiler.layouts import convert  # noqa: E402
from socsched.compiler.loading.stages import load as load_stage  # noqa: E402
from socsched.compiler.quantize.network import QuantisedGraph, quantise  # noqa: E402
from socsched.compiler.quantize.scales import read_scales, write_scales  # noqa: E402
from socsched.compiler.toolchains.qdq import to_qdq  # noqa: E402
from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.graph.expand import fuse_network  # noqa: E402
from socsched.graph.operators import TensorType  # noqa: E402
from socsched.models.registry import get_model  # noqa: E402
from tests.onnx_sessions import exact_session  # noqa: E402


def read_back(path: Path) -> QuantisedGraph:
    model = get_model("onnx", {"file": str(path)})
    assert model.network is not None and model.weights is not None
    scales = shipped_scales(model)
    assert scales is not None
    write_scales(path.with_suffix(".json"), scales)
    assert read_scales(path.with_suffix(".json")) == scales
    return quantise(fuse_network(model.network()), model.weights(), scales)


def assert_same_integers(one: QuantisedGraph, other: QuantisedGraph) -> None:
    for ours, theirs in zip(one.steps, other.steps, strict=True):
        assert (ours.exact, ours.relu, ours.factors) == (theirs.exact, theirs.relu, theirs.factors)
        assert bool(ours.residual) == bool(theirs.residual) and (ours.layer is None) == (theirs.layer is None)
        if ours.layer is not None and theirs.layer is not None:
            leaves = ours.output in one.floats  # as sums, which are not requantised
            for name in ("weight", "bias") if leaves else ("weight", "bias", "multiplier"):
                np.testing.assert_array_equal(getattr(ours.layer, name), getattr(theirs.layer, name))


@pytest.mark.parametrize("signed", [False, True], ids=["uint8", "int8"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_file_holds_the_integers_of_the_network(name: str, signed: bool, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path)
    quantised, weights = source.quantised(), source.weights
    made = to_qdq(quantised, weights, signed)
    onnx.checker.check_model(made, full_check=True)
    onnx.save(made, str(tmp_path / "first.onnx"))
    found = read_back(tmp_path / "first.onnx")
    assert_same_integers(quantised, found)
    model = get_model("onnx", {"file": str(tmp_path / "first.onnx")})
    assert model.weights is not None
    onnx.save(to_qdq(found, model.weights(), signed), str(tmp_path / "second.onnx"))
    again = read_back(tmp_path / "second.onnx")
    assert_same_integers(found, again)
    for ours, theirs in zip(found.steps, again.steps, strict=True):
        if ours.layer is not None and theirs.layer is not None:
            np.testing.assert_array_max_ulp(ours.layer.factor, theirs.layer.factor, 2)


@pytest.mark.parametrize("signed", [False, True], ids=["uint8", "int8"])
@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ("resnet", "yolo")])
def test_onnx_runtime_computes_the_same_integers(name: str, signed: bool, tmp_path: Path) -> None:
    """Every operator alone, on the bytes that ONNX Runtime has: all but halves, and sums as near as fp32 resolves."""
    source = SOURCES[name](tmp_path)
    quantised, weights = source.quantised(), source.weights
    model = to_qdq(quantised, weights, signed)
    random = np.random.default_rng(3)
    arrays = {
        value: random.standard_normal(tensor.shape).astype(np.float32)
        for value, tensor in quantised.graph.network.inputs.items()
    }
    stored = [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(value, onnx.TensorProto.INT8 if signed else onnx.TensorProto.UINT8, None)
        for value in stored
    )
    session = exact_session(model.SerializeToString())
    found = dict(zip([value.name for value in session.get_outputs()], session.run(None, arrays), strict=True))
    values = {}
    for value in stored:
        key = value.removesuffix(".bytes").replace(".", "_")
        zero = (128 if quantised.scales[key].signed else 0) - (128 if signed else 0)
        values[key] = found[value].astype(np.int64) - zero
    count = differing = 0
    for step in quantised.steps:
        if step.output in values:
            away = np.abs(compute(quantised, step, values) - values[step.output])
            assert away.max() <= 1, step.output
            count, differing = count + away.size, differing + int((away > 0).sum())
    print(name, count, differing)
    assert differing <= count * 1e-4, f"{differing} of {count}"


def test_a_quantised_file_runs_as_a_stage(tmp_path: Path) -> None:
    source = SOURCES["trunk"](tmp_path)
    quantised, weights = source.quantised(), source.weights
    path = tmp_path / "net.onnx"
    onnx.save(to_qdq(quantised, weights), str(path))
    stage = Stage("net", "net", "onnx", params={"file": str(path)}, precisions=("int8",))
    artifact = compile_stage(stage, get_platform("host").engines[0], "int8", threads=1)
    assert not any("no calibration data" in note for note in artifact.notes)
    image = np.random.default_rng(5).standard_normal((1, 3, 64, 96)).astype(np.float32)
    compiled = load_stage(artifact)
    (result,) = compiled(convert(image, TensorType(image.shape, "fp32", "NCHW"), compiled.inputs[0]))
    (expected,) = outputs(read_back(path), {"input0": image})
    ours = convert(result, compiled.outputs[0], TensorType(expected.shape, "fp32", "NCHW"))
    np.testing.assert_array_equal(ours, expected)
