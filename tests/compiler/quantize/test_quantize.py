"""Scales: arithmetic of the rule, calibration from data, their file, and their effect on an artefact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.quantize.calibrate import Histogram, Observer, calibrate, calibrate_pipeline, seeded_samples
from socsched.compiler.quantize.fixed_point import (
    LARGEST_MULTIPLIER,
    SHIFT,
    Scale,
    bounds,
    multiplier,
    quantise,
    requantise,
)
from socsched.compiler.quantize.scales import (
    FILE,
    Means,
    Scales,
    per_tensor,
    read_pipeline_scales,
    read_scales,
    write_pipeline_scales,
    write_scales,
)
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.operator_rules import OperatorRule, OperatorRules
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, DescriptorError, UsageError
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights

Array = np.ndarray[Any, Any]
Make = Callable[..., Engine]
HEAD = Stage("head", "head", "pointpillars.head")


def test_the_rule_in_numbers() -> None:
    """Halves go up, whatever the sign; results saturate; a power of two is a rounding shift."""
    sums = np.array([5, 6, 7, -5, -6, -7, 10**6, -(10**6)])
    quarter = multiplier(0.25)
    assert quarter == 1 << (SHIFT - 2)
    assert requantise(sums, quarter, Scale(1.0, True)).tolist() == [1, 2, 2, -1, -1, -2, 127, -128]
    assert requantise(sums, quarter, Scale(1.0, False)).tolist() == [1, 2, 2, 0, 0, 0, 255, 0]
    assert quantise(np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9]), Scale(1.0, True)).tolist() == [0, 2, 2, 0, 127, -128]


@settings(max_examples=200)
@given(st.integers(1, LARGEST_MULTIPLIER), st.integers(-(2**31) + 1, 2**31 - 1), st.booleans())
def test_clipping_sums_first_changes_nothing_and_fits_32_bits(factor: int, total: int, signed: bool) -> None:
    scale, m = Scale(1.0, signed), np.array([factor], np.int32)
    low, high = bounds(m, scale)
    clipped = int(np.clip(total, low[0], high[0]))
    assert requantise(np.array([clipped]), m, scale) == requantise(np.array([total]), m, scale)
    zero = 128 if signed else -128  # what is added for how bytes are stored
    assert abs(clipped * factor + (1 << (SHIFT - 1)) + (zero << SHIFT)) < 2**31


def test_histogram_clips_outliers_only_where_that_pays() -> None:
    generator = np.random.default_rng(0)
    flat, peaked = Histogram(), Histogram()
    flat.add(generator.uniform(0, 3, 100_000))
    assert flat.scale().step * 255 == pytest.approx(3, rel=0.05) and not flat.scale().signed
    peaked.add(np.abs(generator.normal(size=2_000_000)))
    peaked.add(np.array([40.0]))  # beyond the first range, which doubles
    assert 5 < peaked.scale().step * 255 < 20
    peaked.add(np.array([-0.1]))
    assert peaked.scale().signed and not peaked.scale(signed=False).signed
    assert peaked.counts.sum() == 2_000_002


def test_histogram_finds_the_least_error() -> None:
    values = np.random.default_rng(1).laplace(size=50_000).astype(np.float32)
    histogram = Histogram()
    histogram.add(values)

    def error(scale: Scale) -> float:
        return float(((quantise(values, scale) * scale.step - values) ** 2).mean())

    chosen = histogram.scale()
    others = [Scale(chosen.step * factor, True) for factor in (0.5, 0.8, 1.25, 2.0)]
    assert all(error(chosen) < error(other) for other in others)


def test_nothing_but_zeros_has_a_scale() -> None:
    histogram = Histogram()
    histogram.add(np.zeros(10))
    histogram.add(np.array([np.nan, np.inf]))
    assert histogram.scale().step > 0


@pytest.mark.slow
def test_calibration_sees_signs_and_shares_a_concatenations_scale() -> None:
    network = backbone_network(ny=16, nx=24)
    weights = draw_weights(network, 0)
    scales = calibrate(network, weights, seeded_samples(network))
    assert scales.values["canvas"].signed and not scales.values["blocks_0_0_relu"].signed
    assert scales.values["de_1_relu"] == scales.values["neck"]
    assert set(scales.means["blocks_1_0_relu"].real) != {0.0} and len(scales.means["neck"].real) == 384
    again = calibrate(network, weights, seeded_samples(network))
    assert again.digest == scales.digest


@pytest.mark.slow
def test_bias_correction_removes_a_systematic_error() -> None:
    """A background of one value a channel, between two steps: without correction every pixel is off alike."""
    layer = Layer("c", "conv2d", ("x",), {"weight": "c.weight", "bias": "c.bias"}, {"stride": 1, "padding": 0})
    shape = TensorType((1, 32, 9, 9), "fp32", "NCHW")
    network = Network("net", {"x": shape}, (layer,), ("c",), {"c.weight": (16, 32, 3, 3), "c.bias": (16,)})
    weights = draw_weights(network, 0)
    background = np.random.default_rng(0).uniform(0, 0.2, (1, 32, 1, 1))
    x = np.broadcast_to(background, shape.shape).astype(np.float32).copy()
    x[0, 0, 0, 0] = 20  # makes the step coarse
    found = []
    for means in (True, False):
        scales = calibrate(network, weights, [{"x": x}])
        found.append(_errors(network, weights, Scales(scales.values, "", scales.means if means else {}), x))
    assert found[0] < 0.2 * found[1]


def _errors(network: Network, weights: dict[str, Array], scales: Scales, x: Array) -> float:
    import int8_reference as reference

    from socsched.compiler.quantize.network import quantise

    graph = fuse_network(network)
    observer = Observer(network, weights)
    (exact,), (found,) = observer({"x": x}), reference.outputs(quantise(graph, weights, scales), {"x": x})
    return float(np.abs(exact - found)[:, :, 3:, 3:].mean())


def test_the_file_keeps_everything(tmp_path: Path) -> None:
    scales = Scales({"a": Scale(0.1, True), "b": Scale(1 / 3, False)}, "given", {"a": Means((0.5, 1.0), (0.25, 1.0))})
    write_scales(tmp_path / "s.json", scales)
    assert read_scales(tmp_path / "s.json") == scales
    (tmp_path / "t.json").write_text(json.dumps({"source": "x", "values": {"a": {"step": 0, "signed": True}}}))
    with pytest.raises(UsageError, match=r"t\.json:1:.*: values\.a\.step: expected a number above 0, got 0"):
        read_scales(tmp_path / "t.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_scales(tmp_path / "absent.json")


@pytest.mark.slow
def test_scales_of_a_pipeline_and_of_vendors_tools(tmp_path: Path) -> None:
    """Both forms of the file are read; tensors inside a fused layer have the scale of its output."""
    network = backbone_network(ny=16, nx=24)
    scales = calibrate(network, draw_weights(network, 0), seeded_samples(network))
    write_pipeline_scales(tmp_path / "s.json", {"backbone": scales})
    assert read_pipeline_scales(tmp_path / "s.json") == {"backbone": scales}
    plain = per_tensor(network, scales)
    assert list(plain) == ["canvas", *(layer.name for layer in network.layers)]
    assert plain["canvas"] == scales.values["canvas"].step
    assert plain["de.1"] == plain["de.1.relu"] == pytest.approx(scales.values["neck"].step * 255 / 127)
    (tmp_path / "t.json").write_text(json.dumps({"backbone": plain}))
    again = read_pipeline_scales(tmp_path / "t.json")["backbone"]
    assert again.values["de_1_relu"] == Scale(plain["de.1.relu"], True) and not again.means
    for text in ("[]", "{}", '{"backbone": 3}', '{"backbone": {"a": "b"}}'):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(DescriptorError, match="expected"):
            read_pipeline_scales(tmp_path / "t.json")


def test_scales_are_part_of_the_artefact(make_engine: Make) -> None:
    engine = make_engine({"kind": "simulated"}, ("int8",), OperatorRules(allowed={"conv2d": (OperatorRule("conv2d"),)}))
    values = {name: Scale(0.05, name != "neck") for name in ("neck", "cls", "reg", "dir")}
    first = compile_stage(HEAD, engine, "int8", scales=Scales(values))
    other = compile_stage(HEAD, engine, "int8", scales=Scales({**values, "neck": Scale(0.1, False)}))
    assert first.key != other.key and first.precision == "int8"
    assert read_scales(first.folder / FILE) == Scales(values) and FILE in first.files
    assert first.inputs[0].dtype == "fp32" and [t.dtype for t in first.outputs] == ["fp32"] * 3
    assert "border tensors fp32" in first.notes[-1]
    with pytest.raises(CompileError, match="no scale for cls"):
        compile_stage(HEAD, engine, "int8", scales=Scales({"neck": Scale(0.1, False)}))


@pytest.mark.slow
def test_without_data_the_default_is_reported_and_close(make_engine: Make) -> None:
    artifact = compile_stage(HEAD, make_engine(), "int8")
    assert any("seeded normal inputs: no calibration data" in note for note in artifact.notes)
    network = head_network()
    (sample,) = seeded_samples(network, 1)
    whole = TensorType(sample["neck"].shape, "fp32", "NCHW")
    full, eight = (load(a) for a in (compile_stage(HEAD, make_engine()), artifact))
    for exact, found in zip(*(s(convert(sample["neck"], whole, s.inputs[0])) for s in (full, eight)), strict=True):
        assert np.abs(found - exact).mean() < 0.02 * exact.std()


def test_stages_of_coordinates_stay_fp32(make_engine: Make) -> None:
    stage = Stage("pfn", "pfn", "pointpillars.pfn")
    eight, full = (compile_stage(stage, make_engine(), precision) for precision in ("int8", "fp32"))
    generator = np.random.default_rng(0)
    voxels = generator.normal(size=(5, 32, 4)).astype(np.float32)
    given = voxels, np.full(5, 32, np.int32), np.zeros((5, 2), np.int32)
    assert np.array_equal(load(eight)(*given)[0], load(full)(*given)[0])
    assert any("computed in fp32" in note for note in eight.notes)


def test_impossible_requests_are_reported(make_engine: Make) -> None:
    with pytest.raises(CompileError, match="no compilation in int8 for cuda"):
        compile_stage(HEAD, make_engine({"kind": "cuda", "arch": "sm_72"}), "int8")
    with pytest.raises(CompileError, match="no compilation in int8 for opencl"):
        compile_stage(HEAD, make_engine({"kind": "opencl"}), "int8")
    with pytest.raises(UsageError, match="nothing to calibrate with"):
        calibrate(head_network(4, 4), draw_weights(head_network(4, 4)), [])
    with pytest.raises(UsageError, match="nothing to calibrate with"):
        calibrate_pipeline(get_pipeline("pointpillars"), {}, [])


def test_inputs_of_whole_numbers_are_calibrated_with_places_that_exist(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    kernel = numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "k")
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Gather", ["y", "places"], ["z"], axis=2),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8]),
        helper.make_tensor_value_info("places", TensorProto.INT64, [40]),
    ]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 16, 40, 8])
    graph = helper.make_graph(nodes, "n", inputs, [output], [kernel])
    path = tmp_path / "n.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    model = get_model("onnx", {"file": str(path)})
    assert model.network is not None and model.weights is not None
    network = model.network()
    samples = seeded_samples(network, 2)
    image, places = network.inputs
    for sample in samples:
        assert sample[image].dtype == np.float32
        assert sample[places].dtype == np.int64 and set(sample[places]) <= set(range(8))
    calibrate(network, model.weights(), samples)
