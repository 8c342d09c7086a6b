"""Tensors between stages where both sides can have them: bytes copied, counted by stand-ins and in memcpy."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.executor.gpu_standin import noted
from tests.executor.one_stage import OUTPUTS, detections, run, tensor
from tests.executor.test_cuda_program import gpu, program
from tests.executor.test_cuda_program import stage as cuda_stage
from tests.executor.test_engine_stage import ENGINE, dla, engine, onnx_model, onnxruntime_library, tensorrt
from tools.verify import board_root

STANDINS = Path(__file__).parent / "standins"
ROWS = 36
GIVEN = np.arange(ROWS * 7, dtype=np.float32).reshape(ROWS, 7) / 32
BYTES, BOXES = GIVEN.nbytes, 112
FRAMES = 5  # with those that warm up
__all__ = ["dla", "gpu", "tensorrt"]  # fixtures


def floats(name: str = "x", dtype: str = "fp32") -> dict[str, Any]:
    return tensor(name, dtype, ROWS, 7)


MAKER = {"kind": "convert", "inputs": [{"from": "s", "port": 0, **floats()}]}
"""A stage of the processor whose output is what a sensor gave."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of stand-ins, and of what counts copies."""
    folder = tmp_path_factory.mktemp("libraries")
    if not shutil.which("g++") or not shutil.which("gcc"):
        pytest.skip("no gcc")
    made = {"rknn": "librknnrt.so", "opencl": "libOpenCL.so.1", "onnxruntime_qnn": "libonnxruntime.so"}
    for name, library in made.items():
        command = ["g++", "-std=c++17", "-shared", "-fPIC", "-w", str(STANDINS / f"{name}.cpp")]
        subprocess.run([*command, "-o", str(folder / library), "-ldl"], check=True)
    counter = str(Path(__file__).parent / "counting_copies.c")
    command = ["gcc", "-O1", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-shared", "-fPIC", counter]
    subprocess.run([*command, "-o", str(folder / "counting.so")], check=True)
    return folder


def copies(executor: Path, folder: Path, libraries: Path, stage: Mapping[str, Any], **env: Any) -> int:
    """Run a stage that takes what another one made of the frames; return the calls of memcpy with a tensor's size."""
    first, size, given = env.pop("first", MAKER), env.pop("size", BYTES), env.pop("given", GIVEN)
    env = {"STANDIN_LOG": str(folder / "log"), "COPIES": str(folder / "copies"), "COPY_BYTES": str(size), **env}
    done = run(executor, folder, stage, given, first=first, LD_PRELOAD=str(libraries / "counting.so"), **env)
    assert (done.returncode, done.stderr) == (0, "")
    return int((folder / "copies").read_text())


def rknn(folder: Path, libraries: Path, kind: int = 0, dtype: str = "fp32") -> dict[str, Any]:
    model = folder / "model.rknn"
    model.write_text(
        f"input x {kind} {GIVEN.size}\noutput labels 6 4\noutput boxes {kind} 28\noutput scores {kind} 4\n"
    )
    stage = engine("rknn", model, str(libraries / "librknnrt.so"))
    return {**stage, "inputs": [{"from": "first", "port": 0, **floats(dtype=dtype)}]}


def right(folder: Path, added: float = 1) -> None:
    first = detections(folder)[0]
    assert np.array_equal(np.float32(first["boxes"]).ravel(), GIVEN.ravel()[:28] + np.float32(added))
    assert np.array_equal(np.float32(first["scores"]), GIVEN.ravel()[:4] + np.float32(added))


@pytest.mark.parametrize(("kind", "dtype"), [(0, "fp32"), (1, "fp16")])
def test_the_npu_of_rockchip_has_inputs_and_outputs_where_they_lie(
    executor: Path, libraries: Path, kind: int, dtype: str, tmp_path: Path
) -> None:
    maker = {"kind": "convert", "inputs": [{"from": "s", "port": 0, **floats(dtype=dtype)}]}
    stage = rknn(tmp_path, libraries, kind, dtype)
    assert copies(executor, tmp_path, libraries, stage, first=maker, size=GIVEN.size * (4 >> kind)) == 0
    right(tmp_path)
    calls = noted(tmp_path / "log")
    assert not [call for call in calls if call.startswith(("copied", "imported"))]
    bound = [call for call in calls if call.startswith("bound in")]
    assert len(set(bound)) > 2  # of frames in turn, and of its own


def test_outputs_of_the_npu_are_not_copied(executor: Path, libraries: Path, tmp_path: Path) -> None:
    assert copies(executor, tmp_path, libraries, rknn(tmp_path, libraries), size=BOXES) == 2  # into the records


def test_bytes_for_the_npu_are_written_where_it_takes_them(executor: Path, libraries: Path, tmp_path: Path) -> None:
    """Of a model in int8, by the steps and the zero of the model."""
    assert copies(executor, tmp_path, libraries, rknn(tmp_path, libraries, 2)) == 0
    first = detections(tmp_path)[0]
    steps = (np.rint(GIVEN.ravel()[:28] * 8 + 3) - 3) / 8  # of the stand-in
    assert np.array_equal(np.float32(first["boxes"]).ravel(), steps + 1)
    assert "copied" not in (tmp_path / "log").read_text()


def test_what_an_npu_made_is_a_dma_buf_for_the_next_model(executor: Path, libraries: Path, tmp_path: Path) -> None:
    model = tmp_path / "first.rknn"
    model.write_text(f"input x 0 {GIVEN.size}\noutput y 0 {GIVEN.size}\n")
    first = {**engine("rknn", model, str(libraries / "librknnrt.so")), "outputs": [floats("y")]}
    second = rknn(tmp_path, libraries)
    assert copies(executor, tmp_path, libraries, second, first=first) == FRAMES  # of the sensor's frames
    right(tmp_path, 2)
    calls = noted(tmp_path / "log")
    assert "copied" not in "".join(calls) and 1 < calls.count(f"imported {BYTES}") <= FRAMES


def test_without_shared_memory_the_npu_s_library_copies(executor: Path, libraries: Path, tmp_path: Path) -> None:
    copies(executor, tmp_path, libraries, rknn(tmp_path, libraries), STANDIN_COPIES="1")
    right(tmp_path)
    calls = noted(tmp_path / "log")
    assert calls.count(f"copied {BYTES}") == calls.count(f"copied {BOXES}") == FRAMES
    assert not [call for call in calls if call.startswith("bound")]


@pytest.mark.parametrize(("stride", "copied"), [("0", 0), ("36", 0), ("64", FRAMES)])
def test_rows_with_gaps_are_left_to_the_npu_s_library(
    executor: Path, libraries: Path, stride: str, copied: int, tmp_path: Path
) -> None:
    stage = rknn(tmp_path, libraries)
    stage["inputs"] = [{**stage["inputs"][0], "layout": "NHWC", "shape": [1, 7, 1, 36]}]
    copies(executor, tmp_path, libraries, stage, STANDIN_STRIDE=stride)
    right(tmp_path)
    assert noted(tmp_path / "log").count(f"copied {BYTES}") == copied


@pytest.mark.parametrize("shares", [True, False])
def test_qualcomm_s_dsp_has_tensors_where_they_lie(
    executor: Path, libraries: Path, shares: bool, tmp_path: Path
) -> None:
    """Without libcdsprpc.so the provider refuses the allocator, and copies."""
    given = np.arange(28, dtype=np.float32).reshape(4, 7)
    options = {"provider": "QNNExecutionProvider", "provider_library": "libonnxruntime_providers_qnn.so"}
    options |= {"enable_htp_shared_memory_allocator": "1"}
    stage = engine("onnxruntime", onnx_model(tmp_path), str(libraries / "libonnxruntime.so"), **options)
    stage["inputs"] = [{"from": "first", "port": 0, **tensor("x", "fp32", 4, 7)}]
    maker = {"kind": "convert", "inputs": [{"from": "s", "port": 0, **tensor("x", "fp32", 4, 7)}]}
    env = {} if shares else {"STANDIN_COPIES": "1"}
    copies(executor, tmp_path, libraries, stage, first=maker, given=given, STANDIN_ORT=onnxruntime_library(), **env)
    assert np.array_equal(np.float32(detections(tmp_path)[0]["boxes"]), given + 1)
    calls = noted(tmp_path / "log")
    kinds = ("shared", "copied") if shares else ("copied", "shared")
    assert calls.count(f"{kinds[0]} 112") == 2 * FRAMES and calls.count(f"{kinds[0]} 16") == 2 * FRAMES
    assert not [call for call in calls if call.startswith(kinds[1])]


KERNELS = """
__kernel void detect(__global const float *x, __global float *boxes, __global float *scores, __global int *labels) {
  const int i = get_global_id(0);
  boxes[i] = x[i] + 1;
  if (i < 4) scores[i] = x[i] + 1, labels[i] = (int)x[i] + 1;
}
__kernel void add(__global const float *x, __global float *y) { y[get_global_id(0)] = x[get_global_id(0)] + 1; }
"""


def opencl(folder: Path, kernel: str, count: int, outputs: list[dict[str, Any]]) -> dict[str, Any]:
    """Write the launch list of one kernel; return its stage, without inputs."""
    (folder / "kernels.cl").write_text(KERNELS)
    (folder / "weights.bin").write_bytes(b"")
    sizes = [4 * int(np.prod(output["shape"])) for output in outputs]
    offsets = [sum(-(-size // 256) * 256 for size in sizes[:i]) for i in range(len(sizes))]
    places = [{"in": "results", "offset": offset} for offset in offsets]
    launch = {"kernel": kernel, "code": 0, "grid": [count, 1, 1], "block": [1, 1, 1], "shared": 0}
    document = {
        "format": "socsched-launches",
        "version": 1,
        "arch": "opencl",
        "code": ["kernels.cl"],
        "weights": "weights.bin",
        "memory": BYTES,
        "constants": 0,
        "results": offsets[-1] + sizes[-1],
        "inputs": [{"in": "memory", "offset": 0, "bytes": BYTES, "row_bytes": 0, "fill": 0}],
        "outputs": [{"offset": offset, "bytes": size} for offset, size in zip(offsets, sizes, strict=True)],
        "launches": [{**launch, "arguments": [{"in": "memory", "offset": 0}, *places]}],
    }
    (folder / f"{kernel}.json").write_text(json.dumps(document))
    kinds = [{**output, "on_host": True} for output in outputs]
    return {"kind": "opencl", "programs": [f"{kernel}.json"], "outputs": kinds}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the socket at which kernels are built and run."""
    socket = tmp_path_factory.mktemp("device") / "socket"
    board_root.Accelerator().serve(socket)
    return str(socket)


@pytest.mark.needs("OpenCL")
@pytest.mark.parametrize("why", ["", "STANDIN_COPIES", "STANDIN_MOVES"])
@pytest.mark.parametrize("chain", [False, True])
def test_a_mobile_gpu_has_tensors_where_they_lie(
    executor: Path, libraries: Path, device: str, why: str, chain: bool, tmp_path: Path
) -> None:
    """Made by a stage of the processor, or of the GPU itself; copied where it has a memory of its own, or moves it."""
    taken = [{"from": "first", "port": 0, **floats()}]
    stage = {**opencl(tmp_path, "detect", 28, OUTPUTS), "inputs": taken}
    first: Mapping[str, Any] = MAKER
    if chain:
        first = {**opencl(tmp_path, "add", GIVEN.size, [floats("y")]), "inputs": MAKER["inputs"]}
    env = {"STANDIN_SOCKET": device, "LD_LIBRARY_PATH": str(libraries), **({why: "1"} if why else {})}
    copied = copies(executor, tmp_path, libraries, stage, first=first, **env)
    right(tmp_path, 2 if chain else 1)
    calls = noted(tmp_path / "log")
    sensor = FRAMES if chain else 0  # whose frames lie in memory of their own
    if why:
        assert calls.count(f"copy in {BYTES}") == FRAMES + sensor and calls.count(f"copy out {BOXES}") == FRAMES
        return
    assert copied == calls.count(f"copy in {BYTES}") == sensor
    assert not [call for call in calls if call.startswith("copy out")]
    assert len([call for call in calls if call.startswith("map r")]) >= FRAMES


def test_a_jetson_s_kernels_write_where_the_host_reads(executor: Path, gpu: Path, tmp_path: Path) -> None:
    for integrated in ({}, {"STANDIN_INTEGRATED": "1"}):
        folder = tmp_path / str(len(integrated))
        folder.mkdir()
        env: dict[str, Any] = {"LD_LIBRARY_PATH": str(gpu / "driver"), "STANDIN_LOG": str(folder / "log"), **integrated}
        done = run(executor, folder, cuda_stage(program(folder, gpu)), **env)
        assert (done.returncode, done.stderr) == (0, "")
        copied = [call for call in noted(folder / "log") if call.startswith("copy out")]
        assert len(copied) == (0 if integrated else FRAMES)
    one, other = (detections(tmp_path / name) for name in "01")
    assert one == other


@pytest.mark.parametrize("integrated", [False, True])
def test_tensorrt_on_a_jetson_takes_and_gives_the_host_s_memory(
    executor: Path, dla: Path, tensorrt: str, libraries: Path, integrated: bool, tmp_path: Path
) -> None:
    (tmp_path / "model.engine").write_text(ENGINE.replace("x 0 112", f"x 0 {BYTES}"))
    stage = engine("board", tmp_path / "model.engine", tensorrt, core="0")
    stage["inputs"] = [{"from": "first", "port": 0, **floats()}]
    env = {"LD_LIBRARY_PATH": str(dla / "driver"), **({"STANDIN_INTEGRATED": "1"} if integrated else {})}
    copied = copies(executor, tmp_path, libraries, stage, **env)
    right(tmp_path, 0)
    noticed = [call for call in noted(tmp_path / "log") if call.startswith("copy ")]
    assert (copied == 0, noticed == []) == (integrated, integrated)
