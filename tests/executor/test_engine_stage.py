"""Artefacts of vendors' compilers on the native executor: ONNX Runtime itself, and stand-ins for libraries of boards."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional import VENDORS

from socsched.compiler.vendor_compilers.environments import environment
from socsched.compiler.vendor_compilers.helper import Helper
from socsched.executor.build import cxx_compiler, find_executor
from socsched.executor.engines import describe_engine
from tests.executor.one_stage import INPUT, OUTPUTS, ROWS, detections, run, tensor

HERE = Path(__file__).parent
@pytest.fixture(scope="module")
def executor() -> Path:
    """Return the executor, built for this machine."""
    found = find_executor()
    if found is None:
        pytest.skip("no C++ compiler")
    return found


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
    model = tmp_path / "model.rknn"  # outputs in another order than the stage's
    model.write_text("input x 0 28\noutput labels 6 4\noutput boxes 1 28\noutput scores 0 4\n")
    done = run(executor, tmp_path, engine("rknn", model, rknn, core_mask="3"))
    assert (done.returncode, done.stderr) == (0, "")
    first = detections(tmp_path)[0]
    assert np.array_equal(np.float32(first["boxes"]), INPUT + 1)
    assert np.array_equal(np.float32(first["scores"]), INPUT.ravel()[:4] + 1)
    assert first["labels"] == [1, 1, 1, 1]
    assert (tmp_path / "log").read_text().splitlines()[:3] == ["cores 3", "format 3", "run 28"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("input y 0 28\noutput labels 6 4\noutput boxes 1 28\noutput scores 0 4\n", "x: no tensor of the model"),
        ("input x 0 27\noutput labels 6 4\noutput boxes 1 28\noutput scores 0 4\n", "x: the model's tensor has another size"),
        ("input x 0 28\noutput labels 0 4\noutput boxes 1 28\noutput scores 0 4\n", "labels: the model gives another data"),
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
    names = ["model_ctx.onnx", "model_ctx_qnn.bin"] if compiled else []
    document = {
        "stage": "detect",
        "toolchain": "QNN",
        "engine": "npu",
        "engine_kind": "npu",
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
    assert (done.returncode, done.stderr) == (0, "")
    first = detections(tmp_path)[0]
    assert np.allclose(np.float32(first["boxes"]), INPUT + 1, atol=0.01)
    assert np.allclose(np.float32(first["scores"]), INPUT[:, 0] + 1, atol=0.01)
    assert first["labels"] == [1, 1, 2, 3]
