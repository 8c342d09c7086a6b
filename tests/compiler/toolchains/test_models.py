"""Q/DQ models in ONNX Runtime, targets of chips, and a small stage in the vendors' compilers and simulators."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from optional import VENDORS

from socsched.compiler.builder import network_of, shipped_scales, weights_for
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import per_layer
from socsched.compiler.toolchains.hand_over import hand_over, vendor_compiler
from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.compiler.toolchains.qdq import quantised
from socsched.compiler.toolchains.qnn import chip as htp
from socsched.compiler.toolchains.rknn import chip as rknn
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import CompileError, UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.runtime.backends.built_in import Simulated
from tests.onnx_sessions import exact_session

HEAD = get_pipeline("pointpillars-s").stage("head")
NPUS = {"rk3588": "npu0", "qcs8550": "npu", "sa8295p": "npu", "qcs6490": "npu"}


def head() -> tuple[onnx.ModelProto, dict[str, Scale]]:
    model, network = network_of(HEAD)
    scales = shipped_scales(model)
    assert scales is not None
    weights, _ = weights_for(model, network, None)
    return to_onnx(network, weights, layer_types(network)), per_layer(network, scales)


def compute(model: onnx.ModelProto, image: np.ndarray) -> list[np.ndarray]:
    session = exact_session(model.SerializeToString())
    return list(session.run(None, {session.get_inputs()[0].name: image}))


def neck(step: float) -> np.ndarray:
    return (np.random.default_rng(1).random((1, 192, 248, 216)) * step * 255).astype(np.float32)


def test_bytes_signed_or_not_give_the_same_numbers_near_fp32() -> None:
    model, scales = head()
    assert not scales["neck"].signed and scales["cls"].signed
    image = neck(scales["neck"].step)
    real, plain, shifted = compute(model, image), *(compute(quantised(model, scales, u), image) for u in (False, True))
    for name, want, one, two in zip(("cls", "reg", "dir"), real, plain, shifted, strict=True):
        step = scales[name].step
        apart = np.abs(one - two)
        assert apart.max() < 1.01 * step and (apart > step / 2).mean() < 1e-3, "ties may be rounded either way"
        assert np.allclose(one / step, np.rint(one / step), atol=1e-3) and np.abs(one / step).max() <= 128.01
        inside = np.abs(want) < 120 * step
        assert inside.any() and np.abs(one - want)[inside].mean() < 2 * step


@pytest.mark.parametrize("order", ["product halved", "x halved", "sum halved"])
def test_a_gelu_is_rounded_at_its_ends_alone_where_it_is_one_operator(order: str) -> None:
    layers = [
        Layer("in", "divide", ("x",), {"constant": "root"}),
        Layer("erf", "erf", ("in",)),
        Layer("sum", "add", ("erf",), {"constant": "one"}),
    ]
    if order == "product halved":
        layers += [Layer("xs", "multiply", ("x", "sum")), Layer("gelu", "multiply", ("xs",), {"constant": "half"})]
    elif order == "x halved":
        layers += [Layer("h", "multiply", ("x",), {"constant": "half"}), Layer("gelu", "multiply", ("h", "sum"))]
    else:
        layers += [Layer("h", "multiply", ("sum",), {"constant": "half"}), Layer("gelu", "multiply", ("x", "h"))]
    layers.append(Layer("end", "add", ("gelu",), {"constant": "one"}))
    values = {"root": np.sqrt(2.0), "one": 1.0, "half": 0.5}
    weights = {name: np.array([value], np.float32) for name, value in values.items()}
    network = Network("net", {"x": TensorType((1, 8), "fp32")}, tuple(layers), ("end",), dict.fromkeys(values, (1,)))
    model = to_onnx(network, weights, layer_types(network))
    scales = dict.fromkeys(["x", *(layer.name for layer in layers)], Scale(0.02, True))

    def rounded(whole: bool) -> list[str]:
        nodes = quantised(model, scales, True, whole).graph.node
        return [node.output[0] for node in nodes if node.op_type == "QuantizeLinear"]

    assert rounded(True) == ["x.bytes", "gelu.bytes", "end.bytes"]
    assert len(rounded(False)) == len(layers) + 1
    image = np.linspace(-1.5, 1.5, 8, dtype=np.float32).reshape(1, 8)
    (want,), (found,) = compute(model, image), compute(quantised(model, scales, True, True), image)
    assert np.abs(want - found).max() < 0.04


def test_values_inside_a_layer_of_several_operators_and_places_are_not_rounded() -> None:
    layers = (Layer("norm", "layer_norm", ("x",), {"scale": "s", "shift": "b"}, {"axis": -1, "epsilon": 1e-5}),)
    network = Network("net", {"x": TensorType((1, 4, 8), "fp32")}, layers, ("norm",), {"s": (8,), "b": (8,)})
    ones = np.ones(8, np.float32)
    model = to_onnx(network, {"s": ones, "b": ones}, layer_types(network))
    found = quantised(model, {"x": Scale(0.1, True), "norm": Scale(0.1, True)}, True)
    rounded = [node.output[0] for node in found.graph.node if node.op_type == "QuantizeLinear"]
    assert rounded == ["x.bytes", "norm.bytes"]
    with pytest.raises(CompileError, match=r"no scale for 'norm"):
        quantised(model, {"x": Scale(0.1, True)}, True)
    layers = (Layer("place", "argmax", ("x",), {}, {"axis": 1, "keepdims": False}),)
    model = to_onnx(network := replace(network, layers=layers, outputs=("place",)), {}, layer_types(network))
    found = quantised(model, {"x": Scale(0.1, True)}, True)
    assert [node.op_type for node in found.graph.node] == ["QuantizeLinear", "DequantizeLinear", "ArgMax"]


def test_chips() -> None:
    found = {name: dict(htp(get_platform(name).engine("npu"))) for name in ("qcs8550", "sa8295p", "qcs6490")}
    assert found == {
        "qcs8550": {"soc_model": 66, "htp_arch": 73, "vtcm_mb": 8},
        "sa8295p": {"soc_model": 39, "htp_arch": 68, "vtcm_mb": 8},
        "qcs6490": {"soc_model": 35, "htp_arch": 68, "vtcm_mb": 2},
    }
    npu = get_platform("rk3588").engine("npu1")
    assert rknn(npu) == {"platform": "rk3588"}
    assert vendor_compiler(get_platform("qrb5165").engine("npu")) is None, "its HTA is SNPE's"
    with pytest.raises(UsageError, match="name no chip that RKNN compiles for"):
        rknn(replace(npu, operators=replace(npu.operators, name="rknn-rk9999")))
    engine = get_platform("qcs8550").engine("npu")
    with pytest.raises(UsageError, match="no SoC with v73 and 3 MiB"):
        assert engine.sram is not None
        htp(replace(engine, sram=replace(engine.sram, value=3 * 2**20)))


def test_without_the_compiler_rknn_gets_a_script(tmp_path: Path) -> None:
    engine = get_platform("rk3588").engine("npu0")
    document = hand_over(HEAD, engine, "int8", tmp_path, scales=shipped_scales(network_of(HEAD)[0]))
    assert document["files"] == ["model.onnx", "quantised.onnx", "build.py"] and "compiled" not in document
    script = (tmp_path / "build.py").read_text()
    compile(script, "build.py", "exec")
    assert "target_platform='rk3588'" in script and "model='quantised.onnx'" in script
    onnx.checker.check_model(str(tmp_path / "quantised.onnx"))


@pytest.mark.parametrize("text", ["x\nimport os\n#", '"""\nimport os\n"""', "a\r\u2028import os"])
def test_no_text_of_a_descriptor_is_code_of_the_script(text: str, tmp_path: Path) -> None:
    engine = get_platform("rk3588").engine("npu0")
    hand_over(replace(HEAD, name=text, title=text), replace(engine, title=text, id=text), "fp16", tmp_path)
    tree = ast.parse((tmp_path / "build.py").read_text())
    assert [node.names[0].name for node in tree.body if isinstance(node, ast.Import)] == ["os"]


def real(platform: str, precision: str, folder: Path) -> None:
    """Compile the head for a chip, check the bundle's entry, and compare its simulator with ONNX Runtime."""
    engine, scales = get_platform(platform).engine(NPUS[platform]), shipped_scales(network_of(HEAD)[0])
    document = hand_over(HEAD, engine, precision, folder, scales=scales)
    made = document["compiled"]
    assert set(made["files"]) <= {path.name for path in folder.iterdir()} and made["bytes"] > 1e5 and made["versions"]
    if platform == "rk3588":
        rows = json.loads((folder / "layers.json").read_text())
        cycles = [row["cycles"]["npu"] for row in rows if row["name"].startswith("Conv")]
        macs = 192 * (18 + 42 + 12) * 248 * 216
        assert 0.25 < macs / sum(cycles) / (1024 if precision == "int8" else 512) <= 1.05
    model, exact = head()
    image = neck(exact["neck"].step)
    wanted = compute(quantised(model, exact, True) if precision == "int8" else model, image)
    stage = Simulated.of(HEAD, engine, precision)
    try:
        found = stage([image])
    finally:
        stage.close()
    for name, want in zip(("cls", "reg", "dir"), wanted, strict=True):
        apart = np.abs(found[name] - want) / (exact[name].step if precision == "int8" else np.abs(want).max() / 1000)
        assert found[name].shape == want.shape and apart.max() < 8 and apart.mean() < 1.5


@pytest.mark.needs("RKNN compiler")
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_rockchip(precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    real("rk3588", precision, tmp_path)


@pytest.mark.slow
@pytest.mark.needs("HTP compiler")
@pytest.mark.parametrize(
    ("platform", "precision"), [("qcs8550", "int8"), ("qcs8550", "fp16"), ("sa8295p", "int8"), ("qcs6490", "int8")]
)
def test_qualcomm(platform: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    real(platform, precision, tmp_path)
