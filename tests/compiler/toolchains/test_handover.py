"""Hand-over to vendors' toolchains: the model computes what ours does, scripts are sound, fallbacks are reported."""

from __future__ import annotations

import ast
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from chains import chain

from socsched.compiler.builder import compile_stage, network_of
from socsched.compiler.toolchains import tensorrt as tensorrt
from socsched.compiler.toolchains.hand_over import DESCRIPTION, hand_over, has_toolchain
from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.compiler.toolchains.package import Package, check_scales
from socsched.compiler.toolchains.qnn import aimet_encodings
from socsched.compiler.toolchains.tensorrt import releases, shared, tensorrt_cache, version_number
from socsched.descriptor.catalog import get_platform, platform_names
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, InputError, MachineError, UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part
from socsched.models.weights import draw_weights
from tools.generate.releases import releases_table

Array = np.ndarray[Any, Any]
Make = Callable[..., Engine]
BACKBONE = Stage("backbone", "backbone", "pointpillars.backbone")
HEAD = Stage("head", "head", "pointpillars.head")
CAMERA = Stage("detect", "detect", "camera.detector")
CENTER_BACKBONE = Stage("cbackbone", "cbackbone", "centerpoint.backbone")
CENTER_HEAD = Stage("chead", "chead", "centerpoint.head")
STAGES = (BACKBONE, HEAD, CAMERA, CENTER_BACKBONE, CENTER_HEAD)


def engine(platform: str, name: str) -> Engine:
    return get_platform(platform).engine(name)


@pytest.fixture(scope="module")
def dla() -> Engine:
    """Return the DLA of Orin, TensorRT 8.6.2."""
    return engine("jetson-agx-orin-64gb", "dla0")


def unit_scales(stage: Stage) -> dict[str, float]:
    network = network_of(stage)[1]
    names = [*network.inputs, *(layer.name for layer in network.layers)]
    return {name: (index + 1) / 127 for index, name in enumerate(names)}


def run_onnx(path: Path | bytes, inputs: dict[str, Array]) -> list[Array]:
    source = str(path) if isinstance(path, Path) else path
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


LONG = {"pointpillars.backbone", "centerpoint.backbone", "centerpoint.head", "camera.detector"}
MARKED = [pytest.param(s, id=s.model, marks=pytest.mark.slow if s.model in LONG else ()) for s in STAGES]


@pytest.mark.parametrize("stage", MARKED)
def test_the_model_computes_what_our_stage_does(dla: Engine, make_engine: Make, tmp_path: Path, stage: Stage) -> None:
    model, network = network_of(stage)
    document = hand_over(stage, dla, "fp16", tmp_path)
    onnx.checker.check_model(str(tmp_path / "model.onnx"), full_check=True)
    generator = np.random.default_rng(3)
    inputs = {n: generator.normal(size=t.shape).astype(np.float32) for n, t in network.inputs.items()}
    found = run_onnx(tmp_path / "model.onnx", inputs)
    ports = {p.name: inputs[n] for p, n in zip(model.inputs, network.inputs, strict=True)}
    ours = chain([compile_stage(stage, make_engine())], ports)
    assert [entry["port"] for entry in document["outputs"]] == [port.name for port in model.outputs]
    for entry, array in zip(document["outputs"], found, strict=True):
        expected = ours[entry["port"]]
        assert np.abs(array - expected).max() <= 1e-4 * np.abs(expected).max(), entry["name"]


@pytest.mark.slow
def test_a_part_is_a_model_of_its_own(dla: Engine, tmp_path: Path) -> None:
    middle = ("blocks.1.3.relu", "de.0.relu")
    inputs = {"canvas": np.random.default_rng(0).normal(size=(1, 64, 496, 432)).astype(np.float32)}
    hand_over(BACKBONE, dla, "fp16", tmp_path / "whole")
    first = hand_over(BACKBONE, dla, "fp16", tmp_path / "first", part=Part((), middle))
    second = hand_over(BACKBONE, dla, "fp16", tmp_path / "second", part=Part(middle, ()))
    assert first["part"] == ":blocks.1.3.relu+de.0.relu"
    assert {e["name"] for e in second["inputs"]} == {e["name"] for e in first["outputs"]}
    values = run_onnx(tmp_path / "first" / "model.onnx", inputs)
    handed = {e["name"]: v for e, v in zip(first["outputs"], values, strict=True)}
    found = run_onnx(tmp_path / "second" / "model.onnx", handed)[0]
    expected = run_onnx(tmp_path / "whole" / "model.onnx", inputs)[0]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_layer_without_operator_is_named() -> None:
    layers = (Layer("canvas", "scatter", ("features", "coords"), attrs={"ny": 4, "nx": 4}),)
    inputs = {"features": TensorType((-1, 2), "fp32"), "coords": TensorType((-1, 2), "int32")}
    network = Network("scatter", inputs, layers, ("canvas",))
    with pytest.raises(CompileError, match=r"layer 'canvas': scatter has no ONNX operator"):
        to_onnx(network, {}, {"canvas": TensorType((1, 2, 4, 4), "fp32", "NCHW")}, 10)


# TensorRT.


def script_is_sound(folder: Path) -> None:
    if (folder / "build.sh").exists():
        shell_is_sound(folder)
    else:
        compile((folder / "build.py").read_text(), "build.py", "exec")


def shell_is_sound(folder: Path) -> None:
    assert subprocess.run(["sh", "-n", str(folder / "build.sh")]).returncode == 0
    assert os.access(folder / "build.sh", os.X_OK)


@pytest.mark.parametrize("text", ["x\ntouch PWNED\n#", "$(touch PWNED)", "`touch PWNED`", "a\r\x1b[2J"])
@pytest.mark.parametrize("board", ["jetson-agx-orin-64gb dla0", "qcs8550 npu"])
def test_no_text_of_a_descriptor_is_executed_by_a_script(board: str, text: str, tmp_path: Path) -> None:
    """The names of stages and engines are from untrusted files."""
    taker = engine(*board.split())
    evil = replace(taker, title=text, id=taker.id + text)
    hand_over(replace(CAMERA, name=text, title=text), evil, "fp16", tmp_path)
    lines = (tmp_path / "build.sh").read_text().splitlines()
    assert all(line.isprintable() for line in lines)
    plain = [line for line in lines if not line.startswith("#")]
    assert "PWNED" not in "".join(plain)
    if (tmp_path / "build.py").exists():
        import ast

        tree = ast.parse((tmp_path / "build.py").read_text())
        assert "PWNED" not in ast.unparse(tree)


def test_build_line_of_jetpack_6(dla: Engine, tmp_path: Path) -> None:
    document = hand_over(BACKBONE, dla, "fp16", tmp_path)
    shell_is_sound(tmp_path)
    text = (tmp_path / "build.sh").read_text()
    for flag in (
        "--onnx=model.onnx",
        "--useDLACore=$core",
        "--fp16",
        "--inputIOFormats=fp16:chw16",
        "--outputIOFormats=fp16:chw16",
        "--buildDLAStandalone",
        "--saveEngine=model.dla",
        "(JetPack 6)",
    ):
        assert flag in text, flag
    command = text[text.index('exec "') :]
    assert "--int8" not in command and "--allowGPUFallback" not in command and "--calib" not in command
    assert (document["toolchain"], document["version"], document["rules"]) == ("TensorRT", "8.6.2", "nvdla-v2")
    assert document["inputs"] == [
        {"name": "canvas", "port": "canvas", "shape": [1, 64, 496, 432], "dtype": "fp16", "layout": "NCHW16c"}
    ]
    assert any("convolution buffer" in condition for _, condition in document["conditions"])
    assert json.loads((tmp_path / DESCRIPTION).read_text()) == document
    assert {path.name for path in tmp_path.iterdir()} == {*document["files"], DESCRIPTION}


def test_build_line_of_jetpack_5_has_no_standalone_mode(tmp_path: Path) -> None:
    xavier = engine("jetson-agx-xavier", "dla0")
    hand_over(HEAD, xavier, "int8", tmp_path, scales=unit_scales(HEAD))
    shell_is_sound(tmp_path)
    text = (tmp_path / "build.sh").read_text()
    command = text[text.index('exec "') :]
    assert "--buildDLAStandalone" not in command and "--buildOnly" in command and "--saveEngine=model.engine" in command
    assert "--int8" in command and "--fp16" not in command
    assert "--inputIOFormats=int8:chw32" in command and "--calib=local-calibration.cache" in command
    assert "TensorRT 8.5.2 (JetPack 5.1.1)" in text and "DLA_STANDALONE" in (tmp_path / "build.py").read_text()


def test_the_shell_script_calls_trtexec_so(dla: Engine, tmp_path: Path) -> None:
    """Run against a stand-in: arguments arrive whole, and the cache bears the version of the trtexec that reads it."""
    hand_over(HEAD, dla, "int8", tmp_path / "out dir", scales=unit_scales(HEAD))
    stand_in = tmp_path / "trtexec"
    stand_in.write_text(
        '#!/bin/sh\necho "&&&& RUNNING TensorRT.trtexec [TensorRT v8603] # trtexec"\n'
        '[ "$1" = --help ] || printf "%s\\n" "$@" > args\n'
    )
    stand_in.chmod(0o755)
    environment = {**os.environ, "TRTEXEC": str(stand_in), "DLA_CORE": "1"}
    subprocess.run([str(tmp_path / "out dir" / "build.sh")], env=environment, check=True, capture_output=True)
    given = (tmp_path / "out dir" / "args").read_text().splitlines()
    assert given[0] == "--useDLACore=1" and given[-1] == "--saveEngine=model.dla"
    assert "--outputIOFormats=int8:chw32,int8:chw32,int8:chw32" in given
    local = (tmp_path / "out dir" / "local-calibration.cache").read_text()
    assert local.startswith("TRT-8603-EntropyCalibration2\nneck: 3c010204\n")


STAND_IN = """
import sys, types, os

class Recorder(types.SimpleNamespace):
    def __getattr__(self, name):
        return lambda *args: None

class Tensor:
    def __init__(self, name): self.name = name

class Layer:
    num_outputs = 1
    def __init__(self, name): self.name, self.output = name, Tensor(name)
    def get_output(self, index): return self.output

import onnx
MODEL = onnx.load(sys.argv[2])

class Network:
    def __init__(self):
        self.inputs = [Tensor(i.name) for i in MODEL.graph.input]
        self.layers = [Layer(n.name) for n in MODEL.graph.node]
        self.num_inputs, self.num_layers = len(self.inputs), len(self.layers)
    def get_input(self, index): return self.inputs[index]
    def get_layer(self, index): return self.layers[index]

class Config(Recorder):
    def set_flag(self, flag): self.__dict__.setdefault('flags', []).append(flag)
    def can_run_on_DLA(self, layer): return layer.name != os.environ.get('REFUSED')

class Builder(Recorder):
    num_DLA_cores = 2
    def __init__(self, logger): pass
    def create_network(self, flags): return Network()
    def create_builder_config(self): return Config()
    def build_serialized_network(self, network, config):
        print(sorted(config.flags), config.default_device_type, config.engine_capability)
        print([(t.name, t.dtype, t.allowed_formats) for t in network.inputs])
        print([getattr(l.output, 'dynamic_range', None) for l in network.layers][:1])
        return b'loadable'

class Parser(Recorder):
    num_errors = 0
    def __init__(self, network, logger): pass
    def parse_from_file(self, path): return os.path.exists(path)

trt = types.ModuleType('tensorrt')
trt.Logger = type('Logger', (), {'INFO': 0, 'WARNING': 1, '__init__': lambda self, level: None})
trt.Builder, trt.OnnxParser = Builder, Parser
trt.float16, trt.int8 = 'half', 'int8'
trt.BuilderFlag = types.SimpleNamespace(FP16='FP16', INT8='INT8', DIRECT_IO='DIRECT_IO')
trt.DeviceType = types.SimpleNamespace(DLA='DLA')
trt.EngineCapability = types.SimpleNamespace(DLA_STANDALONE='STANDALONE')
trt.NetworkDefinitionCreationFlag = types.SimpleNamespace(EXPLICIT_BATCH=0)
trt.TensorFormat = types.SimpleNamespace(CHW16=4, CHW32=5, DLA_LINEAR=8)
sys.modules['tensorrt'] = trt
sys.argv = [sys.argv[1]]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], 'exec'), {'__name__': '__main__', '__file__': sys.argv[0]})
"""


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("fp16", ["['DIRECT_IO', 'FP16'] DLA STANDALONE", "[('neck', 'half', 16)]", "[None]"]),
        ("int8", ["['DIRECT_IO', 'INT8'] DLA STANDALONE", "[('neck', 'int8', 32)]", "[(-2.0, 2.0)]"]),
    ],
)
def test_the_python_script_builds_so(dla: Engine, tmp_path: Path, precision: str, message: list[str]) -> None:
    """Run against a stand-in for TensorRT, which is nowhere to be had without a board."""
    hand_over(HEAD, dla, precision, tmp_path, scales=unit_scales(HEAD))
    compile((tmp_path / "build.py").read_text(), "build.py", "exec")
    command = [sys.executable, "-c", STAND_IN, str(tmp_path / "build.py"), str(tmp_path / "model.onnx")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == message and (tmp_path / "model.dla").read_bytes() == b"loadable"
    (tmp_path / "model.dla").unlink()
    refused = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "REFUSED": "reg"})
    assert refused.returncode == 1 and "the DLA cannot run: reg" in refused.stderr
    assert not (tmp_path / "model.dla").exists()


@pytest.mark.parametrize("version", ["10.8.0", "11.2.0", "11.4.0"])
def test_no_hand_over_for_releases_without_dla(dla: Engine, tmp_path: Path, version: str) -> None:
    newer = replace(dla, operators=replace(dla.operators, version=version))
    with pytest.raises(UsageError, match=rf"TensorRT {re.escape(version)} has no DLA"):
        hand_over(HEAD, newer, "fp16", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_strongly_typed_hand_over(dla: Engine, tmp_path: Path, precision: str) -> None:
    newer = replace(dla, operators=replace(dla.operators, version="11.4.1"))
    hand_over(HEAD, newer, precision, tmp_path, scales=unit_scales(HEAD) if precision == "int8" else None)
    assert not (tmp_path / "build.sh").exists() and not (tmp_path / "calibration.cache").exists()
    program = (tmp_path / "build.py").read_text()
    assert "INT8" not in program and "BuilderFlag.FP16" not in program
    assert program.index("set_builder_config") < program.index("REPORT_CAPABILITY_DLA") < program.index("parse_from")
    model = onnx.load(str(tmp_path / "model.onnx"))
    onnx.checker.check_model(model, full_check=True)
    kinds = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    assert kinds == {onnx.TensorProto.FLOAT16 if precision == "fp16" else onnx.TensorProto.INT8}
    points = {node.input[2] for node in model.graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    zeros = [onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer if entry.name in points]
    assert bool(zeros) == (precision == "int8") and not any(np.any(zero) for zero in zeros), "symmetric"


def test_the_typed_script_uses_names_that_tensorrt_11_has(dla: Engine, tmp_path: Path) -> None:
    """The names are those found in the library of the wheel tensorrt-cu13-bindings 11.4.0.106."""
    newer = replace(dla, operators=replace(dla.operators, version="11.4.1"))
    hand_over(HEAD, newer, "fp16", tmp_path)
    tree = ast.parse((tmp_path / "build.py").read_text())
    variables = {"trt", "builder", "config", "network", "parser", "tensor"}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, (ast.Name, ast.Attribute))
        and (node.value.id if isinstance(node.value, ast.Name) else getattr(node.value.value, "id", "")) in variables
    }
    known = json.loads(Path("tests/data/tensorrt_symbols.json").read_text())["names"]
    assert used and used <= set(known), used - set(known)


def test_the_table_of_releases_has_no_gap_and_is_the_one_in_the_docs() -> None:
    rows = releases()
    assert [row.until for row in rows[:-1]] == [row.since for row in rows[1:]] and not rows[-1].until
    assert all(row.sources and (bool(row.modules) == (row.dla != "none")) for row in rows)
    assert releases_table() in Path("docs/tensorrt.md").read_text(), "python -m tools.generate.releases"


# Qualcomm.


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_lines_for_htp(tmp_path: Path, precision: str) -> None:
    htp = next(e for e in get_platform("qcs8550").engines if e.operators.runtime == "QNN")
    document = hand_over(BACKBONE, htp, precision, tmp_path, scales=unit_scales(BACKBONE))
    shell_is_sound(tmp_path)
    text = (tmp_path / "build.sh").read_text()
    for part in ("qnn-onnx-converter", "qnn-model-lib-generator", "qnn-context-binary-generator", "libQnnHtp.so"):
        assert part in text
    assert ("--quantization_overrides encodings.json" in text) == (precision == "int8")
    assert ("--float_bw 16" in text) == (precision == "fp16")
    assert json.loads((tmp_path / "htp.json").read_text()) == {"devices": [{"dsp_arch": "v73"}]}
    assert document["inputs"][0]["layout"] == "NHWC"


def test_the_qnn_script_runs_its_tools(tmp_path: Path) -> None:
    htp = next(e for e in get_platform("qcs8550").engines if e.operators.runtime == "QNN")
    hand_over(HEAD, htp, "int8", tmp_path / "out", scales=unit_scales(HEAD))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("qnn-onnx-converter", "qnn-model-lib-generator", "qnn-context-binary-generator"):
        (tools / name).write_text(f'#!/bin/sh\nprintf "%s " {name} "$@" >> log; echo >> log\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "QNN_SDK_ROOT": "/opt/sdk"}
    subprocess.run([str(tmp_path / "out" / "build.sh")], env=environment, check=True, capture_output=True)
    log = (tmp_path / "out" / "log").read_text().splitlines()
    order = ["qnn-onnx-converter", "qnn-model-lib-generator", "qnn-context-binary-generator"]
    assert [line.split()[0] for line in log] == order
    assert "--input_layout neck NCHW" in log[0] and "--backend /opt/sdk/lib/x86_64-linux-clang/libQnnHtp.so" in log[2]
    backend = json.loads((tmp_path / "out" / "build" / "backend.json").read_text())["backend_extensions"]
    assert backend["shared_library_path"] == "/opt/sdk/lib/x86_64-linux-clang/libQnnHtpNetRunExtensions.so"
    assert (tmp_path / "out" / "build" / "inputs.txt").read_text() == "build/input0.raw\n"
    assert (tmp_path / "out" / "build" / "input0.raw").stat().st_size == 4 * 384 * 248 * 216


def test_lines_for_hta(tmp_path: Path) -> None:
    hta = next(e for e in get_platform("qrb5165").engines if e.operators.runtime == "SNPE")
    hand_over(HEAD, hta, "int8", tmp_path, scales=unit_scales(HEAD))
    shell_is_sound(tmp_path)
    text = (tmp_path / "build.sh").read_text()
    assert "snpe-onnx-to-dlc" in text and "snpe-dlc-quantize" in text and "--enable_hta" in text


# Scales.


def test_cache_in_tensorrt_s_form() -> None:
    text = tensorrt_cache({"images": 1 / 127, "x": 0.5}, "8.6.2")
    header, *lines = text.splitlines()
    assert header == "TRT-8602-EntropyCalibration2"
    read = {n: struct.unpack("!f", bytes.fromhex(v))[0] for n, v in (line.split(": ") for line in lines)}
    assert read == {"images": np.float32(1 / 127), "x": 0.5}
    assert [version_number(v) for v in ("8.5.2", "10.3.0", "10.7")] == [8502, 100300, 100700]


def test_tensors_that_share_a_range() -> None:
    """Concatenation and pooling: inputs and result; addition: its inputs; convolutions keep their own."""
    image = TensorType((1, 2, 4, 4), "fp32", "NCHW")
    layers = (
        Layer("a", "conv2d", ("x",), {"weight": "w"}, {}),
        Layer("p", "max_pool", ("a",), attrs={}),
        Layer("b", "conv2d", ("p",), {"weight": "w"}, {}),
        Layer("sum", "add", ("b", "p")),
        Layer("cat", "concat", ("sum", "x"), attrs={"axis": 1}),
    )
    network = Network("n", {"x": image}, layers, ("cat",), {"w": (2, 2, 1, 1)})
    found = shared(network, {"x": 1, "a": 5, "p": 2, "b": 7, "sum": 3, "cat": 2})
    assert found == {"a": 7, "p": 7, "b": 7, "sum": 3, "cat": 3, "x": 3}


def test_encodings_cover_every_tensor() -> None:
    network = network_of(HEAD)[1]
    weights = draw_weights(network)
    document = json.loads(aimet_encodings(network, weights, unit_scales(HEAD)))
    assert set(document["activation_encodings"]) == {"neck", "cls", "reg", "dir"}
    encodings = document["param_encodings"]["reg.weight"]
    assert len(encodings) == 42
    steps = np.array([entry["scale"] for entry in encodings])
    assert np.allclose(steps * 127, np.abs(weights["reg.weight"]).max(axis=(1, 2, 3)))
    entry = document["activation_encodings"]["neck"][0]
    assert entry["min"] == entry["offset"] * entry["scale"] and entry["max"] == 127 * entry["scale"]


def test_int8_needs_all_scales(dla: Engine, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scale for 4 of 4 tensors: neck, cls, reg, dir"):
        hand_over(HEAD, dla, "int8", tmp_path / "out")
    with pytest.raises(InputError, match="scale of 'reg' is 0"):
        check_scales(network_of(HEAD)[1], {**unit_scales(HEAD), "reg": 0.0})
    assert not (tmp_path / "out").exists()


# What would fall back.


def test_fallbacks_are_reported_before_anything_is_written(dla: Engine, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        hand_over(Stage("pfn", "pfn", "pointpillars.pfn"), dla, "fp16", tmp_path / "out")
    assert caught.value.exit_code == 2
    first, *lines = str(caught.value).splitlines()
    assert "would not run entirely on dla0 in fp16; 1 of 1 operators would fall back" in first
    assert "features: operator pillar_features is not supported: a maximum over 32 points" in lines[0]
    assert "[NVIDIA Deep Learning Accelerator software, table of ONNX operators by DLA release" in lines[0]
    with pytest.raises(UsageError, match=r"precision fp32|takes fp16 or int8, not fp32"):
        hand_over(HEAD, dla, "fp32", tmp_path / "out")
    assert not (tmp_path / "out").exists()


TOOLCHAINS = (
    ("jetson-agx-orin-32gb", "dla0"), ("jetson-agx-xavier", "dla0"), ("qcs6490", "npu"), ("qcs8550", "npu"),
    ("qcs8275", "npu"), ("qrb5165", "npu"), ("rk3576", "npu0"), ("rk3588", "npu0"),
    ("sa8295p", "npu"),
)  # fmt: skip
"""One engine of every version of a toolchain that there is."""


def test_every_toolchain_is_tried() -> None:
    engines = [e for platform in platform_names() for e in get_platform(platform).engines if has_toolchain(e)]
    shipped = {(e.operators.name, e.operators.version) for e in engines}
    tried = [engine(*where).operators for where in TOOLCHAINS]
    assert sorted((rules.name, rules.version) for rules in tried) == sorted(shipped)


@pytest.mark.parametrize(("platform", "name"), TOOLCHAINS)
@pytest.mark.sampled(4)
def test_every_stage_is_handed_over_or_refused_in_words(tmp_path: Path, platform: str, name: str) -> None:
    """All stages but the big ones on all shipped accelerators: a sound folder, or reasons and no folder."""
    target = engine(platform, name)
    small = ("pointpillars.pfn", "pointpillars.scatter", "pointpillars.head", "centerpoint.pfn", "centerpoint.head")
    handed = 0
    for model in (*small, "camera.detector"):
        stage = Stage(model, model, model)
        for precision in target.precisions:
            folder = tmp_path / model / precision
            try:
                document = hand_over(stage, target, precision, folder, scales=unit_scales(stage))
            except UsageError as error:
                assert ("would fall back" in str(error) or f"not {precision}" in str(error)) and not folder.exists()
                continue
            handed += 1
            script_is_sound(folder)
            assert {path.name for path in folder.iterdir()} == {*document["files"], DESCRIPTION}
            assert {entry["dtype"] for entry in document["inputs"]} == {precision}
            onnx.checker.check_model(str(folder / "model.onnx"))
    assert handed >= 3


def test_which_engines_get_a_hand_over(dla: Engine, make_engine: Make, tmp_path: Path) -> None:
    assert has_toolchain(dla) and not has_toolchain(make_engine())
    with pytest.raises(UsageError, match="no vendor toolchain is known"):
        hand_over(HEAD, make_engine(), "fp16", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        hand_over(HEAD, dla, "fp16", tmp_path / "file" / "out")


def test_a_dla_takes_images_only(dla: Engine) -> None:
    layers = (Layer("y", "dense", ("x",), {"weight": "w"}),)
    network = Network("n", {"x": TensorType((1, 8), "fp32")}, layers, ("y",), {"w": (4, 8)})
    package = Package("n", dla, "fp16", network, {}, {"x": TensorType((1, 8), "fp16")}, {}, {})
    with pytest.raises(UsageError, match=r"no DLA format for a border tensor \[1, 8\]"):
        tensorrt.write(package)
