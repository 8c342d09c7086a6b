"""Artefacts of vendors' compilers on the native executor: ONNX Runtime, and stand-ins for libraries of boards."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional import VENDORS

from socsched.compiler.toolchains.environments import Helper, environment
from socsched.errors import UsageError
from socsched.executor.build import SOURCES, cxx_compiler
from socsched.executor.vendor_stages import describe_engine
from tests.executor.gpu_standin import build_driver, noted
from tests.executor.one_stage import INPUT, OUTPUTS, ROWS, detections, run, tensor
from tests.executor.test_cuda_program import gpu, program
from tests.executor.test_cuda_program import stage as cuda_stage

HERE = Path(__file__).parent
BOARD = SOURCES.parent / "board"
__all__ = ["gpu"]  # a fixture


def onnx_model(folder: Path) -> Path:
    """Write a model whose outputs are x + 1, its first column, and that as whole numbers."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Add", ["x", "one"], ["boxes"]),
        helper.make_node("Gather", ["boxes", "first"], ["scores"], axis=1),
        helper.make_node("Cast", ["scores"], ["labels"], to=TensorProto.INT32),
    ]
    outputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [ROWS, 7]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [ROWS]),
        helper.make_tensor_value_info("labels", TensorProto.INT32, [ROWS]),
    ]
    constants = [
        numpy_helper.from_array(np.float32(1), "one"),
        numpy_helper.from_array(np.int64(0), "first"),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, 7])]
    graph = helper.make_graph(nodes, "net", given, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    return folder / "model.onnx"


def onnxruntime_library() -> str:
    spec = find_spec("onnxruntime")
    assert spec is not None and spec.origin is not None
    (found,) = (Path(spec.origin).parent / "capi").glob("libonnxruntime.so.*")
    return str(found)


def engine(adapter: str, artefact: Path, library: str, **options: str) -> dict[str, Any]:
    return {
        "kind": "engine",
        "adapter": adapter,
        "artefact": str(artefact),
        "library": library,
        "options": options,
    }


def test_onnx_runtime_computes_a_stage(executor: Path, tmp_path: Path) -> None:
    done = run(executor, tmp_path, engine("onnxruntime", onnx_model(tmp_path), onnxruntime_library(), threads="1"))
    assert (done.returncode, done.stderr) == (0, "")
    first, second = detections(tmp_path)
    assert np.array_equal(np.float32(first["boxes"]), INPUT + 1)
    assert np.array_equal(np.float32(first["scores"]), INPUT[:, 0] + 1)
    assert first["labels"] == [1, 1, 2, 3]
    assert {**first, "frame": 1} == second


BROKEN: Mapping[str, tuple[dict[str, Any], str]] = {
    "file": ({"artefact": "missing.onnx"}, "ONNX Runtime: "),
    "library": ({"library": "/nowhere/libonnxruntime.so"}, "/nowhere/libonnxruntime.so cannot be loaded"),
    "option": ({"options": {"provider": "NothingExecutionProvider"}}, "ONNX Runtime: "),
    "adapter": ({"adapter": "nothing"}, "no adapter is called nothing"),
    "plugin": (
        {"options": {"provider": "Nothing", "provider_library": "/nowhere/libprovider.so"}},
        "ONNX Runtime: ",
    ),
    "varies": (
        {"outputs": [tensor("boxes", "fp32", -1, 7), *OUTPUTS[1:]]},
        "its outputs vary in size",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_unusable_engines_are_refused_before_the_run(executor: Path, case: str, tmp_path: Path) -> None:
    changes, message = BROKEN[case]
    stage = engine("onnxruntime", onnx_model(tmp_path), onnxruntime_library())
    done = run(executor, tmp_path, {**stage, **changes})
    assert done.returncode in (2, 3) and message in done.stderr


def test_a_failing_engine_ends_in_the_accounting(executor: Path, tmp_path: Path) -> None:
    stage = engine("onnxruntime", onnx_model(tmp_path), onnxruntime_library())
    swapped = [OUTPUTS[0], {**OUTPUTS[1], "shape": [ROWS + 1]}, OUTPUTS[2]]
    done = run(executor, tmp_path, {**stage, "outputs": swapped})
    assert done.returncode == 3 and "stage detect failed in the warm-up: detect: ONNX Runtime" in done.stderr


RKNN = "input x 0 28\noutput labels 6 4\noutput boxes 1 28\noutput scores 0 4\n"


@pytest.fixture(scope="module")
def rknn(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler, made = cxx_compiler(), tmp_path_factory.mktemp("rknn") / "librknnrt.so"
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = str(HERE / "standins" / "rknn.cpp")
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", source, "-o", str(made)], check=True)
    return str(made)


def test_rknn_models_run_through_the_vendors_library(
    executor: Path, rknn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("STANDIN_COPIES", "1")  # else see test_shared_memory.py
    model = tmp_path / "model.rknn"  # outputs in another order than the stage's
    model.write_text(RKNN)
    done = run(executor, tmp_path, engine("rknn", model, rknn, core_mask="3"))
    assert (done.returncode, done.stderr) == (0, "")
    first = detections(tmp_path)[0]
    assert np.array_equal(np.float32(first["boxes"]), INPUT + 1)
    assert np.array_equal(np.float32(first["scores"]), INPUT.ravel()[:4] + 1)
    assert first["labels"] == [1, 1, 1, 1]
    calls = [call for call in noted(tmp_path / "log") if not call.startswith("copied")]
    assert calls[:4] == ["cores 3", "cores 3", "format 3", "run 28"]  # anew, since it shares no memory


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RKNN.replace("x", "y", 1), "x: no tensor of the model"),
        (RKNN.replace("28", "27", 1), "x: the model's tensor has another size"),
        (RKNN.replace("labels 6", "labels 0"), "labels: the model gives another data"),
        ("input x 0 28\noutput boxes 1 28\n", "has other inputs or outputs than it was built with"),
        ("nothing", "rknn_init failed with -1"),
        ("", "expected a file of 1 byte to 2 GiB"),
    ],
)  # fmt: skip
def test_other_rknn_models_are_refused(
    executor: Path, rknn: str, model: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    (tmp_path / "model.rknn").write_text(model)
    done = run(executor, tmp_path, engine("rknn", tmp_path / "model.rknn", rknn))
    assert done.returncode == 3 and message in done.stderr


@pytest.fixture(scope="module")
def dla(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with stand-ins for cuDLA and, in `driver`, for the driver."""
    folder = tmp_path_factory.mktemp("dla")
    if not shutil.which("g++"):
        pytest.skip("no g++")
    build_driver(folder)
    command = ["g++", "-std=c++17", "-shared", "-fPIC", str(HERE / "standins" / "cudla.cpp")]
    subprocess.run([*command, "-o", str(folder / "libcudla.so")], check=True)
    return folder


@pytest.mark.parametrize("value", [0.24, -0.26, 100.0, -100.0, 0.75])
def test_an_artefact_s_bytes_are_floats_for_the_executor(
    executor: Path, dla: Path, value: float, tmp_path: Path
) -> None:
    """Rounded to steps of 0.5, ties to even, within a byte."""
    (tmp_path / "model.dla").write_text("input x 28\noutput labels 16\noutput scores 4\noutput boxes 28\n")
    stage = engine("cudla", tmp_path / "model.dla", str(dla / "libcudla.so"), core="1")
    half = {"scale_bits": 0x3F000000}
    given = [{"from": "s", **tensor("x", "fp32", ROWS, 7), "port": 0, **half}]
    stage |= {"inputs": given, "outputs": [{**OUTPUTS[0], **half}, {**OUTPUTS[1], **half}, OUTPUTS[2]]}
    frame = np.full_like(INPUT, value)
    log = str(tmp_path / "log")
    done = run(executor, tmp_path, stage, given=frame, LD_LIBRARY_PATH=str(dla / "driver"), STANDIN_LOG=log)
    assert (done.returncode, done.stderr) == (0, "")
    steps = np.clip(np.rint(frame / np.float32(0.5)), -128, 127)
    assert np.array_equal(np.float32(detections(tmp_path)[0]["boxes"]), steps * np.float32(0.5))


LOADABLE = "input x 112\noutput labels 16\noutput scores 16\noutput boxes 112\n"


@pytest.mark.parametrize(
    ("loadable", "message"),
    [
        (LOADABLE, ""),
        (LOADABLE.replace("16", "17", 1), "labels: the loadable's tensor has another size"),
        (LOADABLE.replace("boxes", "cases"), "boxes: no tensor of the loadable"),
        (LOADABLE[:40], "has other inputs or outputs than it was built with"),
        ("nothing", "cudlaModuleLoadFromMemory failed with 12"),
    ],
)
def test_dla_loadables_run_on_a_cuda_stream(
    executor: Path, dla: Path, loadable: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "model.dla").write_text(loadable)
    stage = engine("cudla", tmp_path / "model.dla", str(dla / "libcudla.so"), core="1")
    log = tmp_path / "log"
    done = run(executor, tmp_path, stage, LD_LIBRARY_PATH=str(dla / "driver"), STANDIN_LOG=str(log))
    if message:
        assert done.returncode == 3 and message in done.stderr
        return
    assert (done.returncode, done.stderr) == (0, "")
    first = detections(tmp_path)[0]
    assert np.array_equal(np.float32(first["boxes"]), INPUT)
    assert np.array_equal(np.float32(first["scores"]), INPUT.ravel()[:4])
    calls = noted(log)
    assert calls.count("dla 1") == 1 and sorted(c for c in calls if c.startswith("reg")) == [
        "registered 112",
        "registered 112",
        "registered 16",
        "registered 16",
    ]
    assert calls.count("submitted 3") == 5


ENGINE = "input x 0 112\noutput labels 3 16\noutput scores 0 16\noutput boxes 0 112\n"


@pytest.fixture(scope="module")
def tensorrt(dla: Path) -> str:
    """Return TensorRT's adapter as the board's build step makes it, here against stand-ins of its classes."""
    environment = {**os.environ, "CXXFLAGS": f"-I{HERE / 'standins' / 'tensorrt'}", "LIBRARIES": " "}
    subprocess.run([str(BOARD / "build-adapter.sh"), str(SOURCES), str(dla)], check=True, env=environment)
    return str(dla / "libsocsched-tensorrt.so")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENGINE, ""),
        (ENGINE.replace("labels 3", "labels 0"), "labels: the engine has another data type"),
        (ENGINE.replace("output boxes", "output cases"), "boxes: no such input or output"),
        (ENGINE[:40], "has other inputs or outputs than it was built with"),
        ("nothing", "not an engine of this TensorRT and this device: magic tag does not match"),
    ],
)
def test_tensorrt_engines_run_through_an_adapter_built_on_the_board(
    executor: Path, dla: Path, tensorrt: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "model.engine").write_text(text)
    stage = engine("board", tmp_path / "model.engine", tensorrt, core="0")
    done = run(executor, tmp_path, stage, LD_LIBRARY_PATH=str(dla / "driver"), STANDIN_LOG=str(tmp_path / "log"))
    if message:
        assert done.returncode == 3 and message in done.stderr
        return
    assert (done.returncode, done.stderr) == (0, "")
    assert np.array_equal(np.float32(detections(tmp_path)[0]["boxes"]), INPUT)


def copied(log: Path) -> tuple[float, float]:
    """Return the bytes that a frame copies between the host and the GPU, and on the GPU."""
    calls = [line.split() for line in noted(log) if line.startswith("copy ")]
    sums = [sum(int(size) for _, way, size in calls if (way == "across") == on_gpu) for on_gpu in (False, True)]
    return sums[0] / 5, sums[1] / 5  # frames with those that warm up


@pytest.mark.parametrize("scale", [{}, {"scale_bits": 0x3E000000}])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("order", ["TensorRT, DLA", "DLA, TensorRT"])
def test_what_lies_on_the_gpu_does_not_cross_to_the_host(
    executor: Path, dla: Path, tensorrt: str, order: str, shared: bool, scale: Mapping[str, int], tmp_path: Path
) -> None:
    """A TensorRT engine takes the output of a DLA where it lies, bytes as well, and a DLA a copy made on the GPU."""
    size, kind = (28, 2) if scale else (112, 0)
    between = {**tensor("y", "fp32", ROWS, 7), **scale}
    files = (tmp_path / "first", tmp_path / "second")
    if order == "TensorRT, DLA":
        files[0].write_text(f"input x 0 112\noutput y {kind} {size}\n")
        files[1].write_text(LOADABLE.replace("x 112", f"y {size}"))
    else:
        files[0].write_text(f"input x 112\noutput y {size}\n")
        files[1].write_text(ENGINE.replace("x 0 112", f"y {kind} {size}"))
    first, stage = (
        engine("board", file, tensorrt)
        if one == "TensorRT"
        else engine("cudla", file, str(dla / "libcudla.so"), core="1")
        for one, file in zip(order.split(", "), files, strict=True)
    )
    first["outputs"] = [{**between, "on_gpu": shared, "on_host": not shared}]
    stage["inputs"] = [{"from": "first", "port": 0, **between}]
    log = tmp_path / "log"
    done = run(executor, tmp_path, stage, first=first, LD_LIBRARY_PATH=str(dla / "driver"), STANDIN_LOG=str(log))
    assert (done.returncode, done.stderr) == (0, "")
    across = size if shared and order == "TensorRT, DLA" else 0
    assert copied(log) == (112 + 144 + (0 if shared else 2 * size), across)
    if not scale:
        assert np.array_equal(np.float32(detections(tmp_path)[0]["boxes"]), INPUT)


@pytest.mark.parametrize("on_host", [False, True])
@pytest.mark.parametrize("adapter", ["board", "cudla"])
def test_what_kernels_give_is_taken_on_the_gpu(
    executor: Path, dla: Path, gpu: Path, tensorrt: str, adapter: str, on_host: bool, tmp_path: Path
) -> None:
    kernels = cuda_stage(program(tmp_path, gpu))
    boxes, scores, labels = kernels["outputs"]
    kernels["outputs"] = [{**boxes, "on_host": on_host}, {**scores, "on_host": False}, labels]
    (tmp_path / "model").write_text(ENGINE if adapter == "board" else LOADABLE)
    stage = engine(adapter, tmp_path / "model", tensorrt if adapter == "board" else str(dla / "libcudla.so"))
    stage["inputs"] = [{"from": "first", "port": 0, **tensor("x", "fp32", ROWS, 7)}]
    log = tmp_path / "log"
    done = run(executor, tmp_path, stage, first=kernels, LD_LIBRARY_PATH=str(dla / "driver"), STANDIN_LOG=str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert np.array_equal(np.float32(detections(tmp_path)[0]["boxes"]), INPUT + 1)
    assert noted(log).count("copy in 112") == 5  # of the sensor alone


def test_an_adapter_that_was_not_built_is_named(executor: Path, tmp_path: Path) -> None:
    done = run(executor, tmp_path, engine("board", tmp_path / "model.engine", str(tmp_path / "libadapter.so")))
    assert done.returncode == 3 and "libadapter.so: cannot be loaded" in done.stderr


def hand_over(toolchain: str, kind: str, **compiled: Any) -> dict[str, Any]:
    ports = [{**tensor("image", "int8", 1, 16, 8, 8), "layout": "NCHW16c", "port": "image", "scale": 0.5}]
    return {
        "stage": "detect",
        "toolchain": toolchain,
        "engine": "dla1",
        "engine_kind": kind,
        "precision": "int8",
        "version": "8.6.2",
        "inputs": ports,
        "outputs": [{**tensor("count", "int32", 1), "port": "count"}],
        **compiled,
    }


def test_adapters_follow_from_the_toolchain_of_a_hand_over() -> None:
    made = describe_engine(hand_over("TensorRT", "dla"), "detect/dla1-int8")
    assert (made["adapter"], made["artefact"], made["library"]) == (
        "cudla",
        "detect/dla1-int8/model.dla",
        "libcudla.so",
    )
    assert made["options"] == {"core": "1"} and made["inputs"][0]["layout"] == "NCHW16c"
    assert (made["inputs"][0]["dtype"], made["inputs"][0]["scale_bits"]) == ("fp32", 0x3F000000)
    made = describe_engine(hand_over("TensorRT", "dla", version="8.5.2"), "detect")  # whose trtexec writes engines
    assert (made["adapter"], made["artefact"], made["options"]) == ("board", "detect/model.engine", {"core": "1"})
    made = describe_engine(hand_over("TensorRT", "gpu"), "detect")
    assert (made["adapter"], made["artefact"]) == ("board", "detect/model.engine")
    made = describe_engine(hand_over("RKNN", "npu", compiled={"files": {"model.rknn": ""}}), "detect")
    assert (made["adapter"], made["artefact"]) == ("rknn", "detect/model.rknn")
    assert (made["inputs"][0]["dtype"], made["inputs"][0]["layout"]) == ("fp32", "NHWC")
    assert made["options"] == {"core_mask": "2"}
    assert made["outputs"][0]["dtype"] == "int32"
    with pytest.raises(UsageError, match="no adapter runs artefacts of SNPE"):
        describe_engine(hand_over("SNPE", "npu"), "detect")


@pytest.mark.needs("HTP compiler")
@pytest.mark.parametrize("compiled", [False, True])
def test_qualcomms_emulation_runs_a_model_and_its_context_binary(
    executor: Path, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime's provider for QNN, which is a library of its own, on x86-64."""
    monkeypatch.setenv("SOCSCHED_VENDORS", str(VENDORS))
    onnx_model(tmp_path)
    target = {"soc_model": 66, "htp_arch": 73, "vtcm_mb": 8}
    if compiled:
        with Helper(environment("qualcomm")) as helper:
            (helper.folder / "model.onnx").write_bytes((tmp_path / "model.onnx").read_bytes())
            for name in helper.ask("compile", model="model.onnx", target=target)["files"]:
                (tmp_path / name).write_bytes((helper.folder / name).read_bytes())
    names: list[str] = ["model_ctx.onnx", "model_ctx_qnn.bin"] if compiled else []
    document = {
        "stage": "detect",
        "toolchain": "QNN",
        "engine": "npu",
        "engine_kind": "npu",
        "precision": "fp16",
        "compiled": {"files": dict.fromkeys(names, ""), "target": target},
        "inputs": [{**tensor("x", "fp16", ROWS, 7), "port": "x"}],
        "outputs": [{**entry, "port": entry["name"]} for entry in OUTPUTS],
    }
    made = describe_engine(document, ".")
    packages = next((VENDORS / "qualcomm" / "lib").glob("python3.*/site-packages"))
    plugin = packages / "onnxruntime_qnn"
    made["library"] = str(next((packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*")))
    made["options"]["provider_library"] = str(plugin / "libonnxruntime_providers_qnn.so")
    made["options"]["backend_path"] = str(plugin / "libQnnHtp.so")
    if not compiled:
        made["artefact"] = "model.onnx"
    made["inputs"] = [{"from": "s", **made["inputs"][0], "port": 0}]
    done = run(executor, tmp_path, made)
    assert done.returncode == 0, done.stderr
    first = detections(tmp_path)[0]
    assert np.allclose(np.float32(first["boxes"]), INPUT + 1, atol=0.01)
    assert np.allclose(np.float32(first["scores"]), INPUT[:, 0] + 1, atol=0.01)
    assert first["labels"] == [1, 1, 2, 3]
