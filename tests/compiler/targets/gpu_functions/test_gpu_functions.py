"""LiDAR and camera functions as GPU kernels: programs, artefacts, random cases on an OpenCL device against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from socsched.compiler.builder import compile_stage, is_device_function
from socsched.compiler.targets.gpu_functions import decoders
from socsched.compiler.targets.gpu_functions.code import IMPLEMENTATIONS, program_of
from socsched.compiler.targets.gpu_functions.program import FUNCTIONS, FunctionRequest
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, UsageError
from socsched.models.elementary import sigmoid
from socsched.models.registry import get_model
from tools.verify import gpu_functions as verify
from tools.verify.gpu_code import Kernel
from tools.verify.opencl_device import Device
from tools.verify.opencl_stage import OpenClStage

Make = Callable[..., Engine]
OPENCL = {"kind": "opencl", "max_threads_per_block": 64}
SEED, COUNT = 5, 40
QUICK = ("voxelise", "anchors, few", "centres", "letterbox")
"""The other cases build the same kernels with other sizes."""


@pytest.fixture(scope="module")
def device() -> Device:
    return Device()


@pytest.mark.needs("OpenCL")
@pytest.mark.parametrize(
    "title",
    [
        *(pytest.param(title, marks=() if title in QUICK else pytest.mark.slow) for title in verify.CASES),
    ],
)
def test_random_cases_equal_numpy(title: str, device: Device, make_engine: Make) -> None:
    name, params = verify.CASES[title]
    gpu = make_engine(OPENCL, ("fp16", "fp32"), id="gpu")
    run = OpenClStage(compile_stage(Stage(title, title, name, params=params), gpu, "fp32"), device)
    rng = np.random.default_rng(SEED)
    assert [verify.compare(name, params, run, rng) for _ in range(COUNT)] == [""] * COUNT


@pytest.mark.needs("OpenCL")
def test_a_scan_above_both_limits(device: Device, make_engine: Make) -> None:
    name, params = verify.CASES["voxelise"]
    gpu = make_engine({"kind": "opencl"}, ("fp16", "fp32"), id="gpu")
    run = OpenClStage(compile_stage(Stage("v", "v", name, params=params), gpu, "fp32"), device)
    points = np.random.default_rng(1).uniform((0, -2.56, -3, 0), (5.12, 2.56, 1, 1), (20000, 4)).astype(np.float32)
    voxels, counts, coords = run(points)
    expected = verify.expected(name, params, [points])
    assert len(expected[1]) == 300 and expected[1].max() == 8
    assert all(np.array_equal(a, b) for a, b in zip((voxels, counts, coords), expected, strict=True))


@pytest.mark.needs("OpenCL")
def test_half_precision_changes_what_is_stored_only(device: Device, make_engine: Make) -> None:
    name, params = verify.CASES["voxelise"]
    gpu = make_engine(OPENCL, ("fp16", "fp32"), id="gpu")
    run = OpenClStage(compile_stage(Stage("v", "v", name, params=params), gpu, "fp16"), device)
    points = np.random.default_rng(2).uniform((0, -2.56, -3, 0), (5.12, 2.56, 1, 1), (900, 4)).astype(np.float32)
    voxels, counts, coords = run(points)
    expected = verify.expected(name, params, [points])
    rows = len(expected[1])
    assert voxels.dtype == np.float16 and np.array_equal(voxels[:rows], expected[0].astype(np.float16))
    assert np.array_equal(coords[:rows], expected[2]) and (coords[rows:] == -1).all() and not counts[rows:].any()


@pytest.mark.parametrize("score", [0.0, 0.1, 0.25, 0.35, 0.5, 0.999, 1.0])
def test_the_logit_threshold_selects_what_the_score_does(score: float) -> None:
    found = decoders.threshold(score)
    above, below = np.nextafter(found, np.float32(np.inf)), found
    if np.isfinite(found) and found > -800:
        assert sigmoid(np.array([above]))[0] > score >= sigmoid(np.array([below]))[0]
    else:
        assert score in (0.0, 1.0)


@pytest.mark.parametrize("dialect", ["cuda", "opencl"])
@pytest.mark.parametrize("title", list(verify.CASES))
def test_launches_fit_their_kernels(title: str, dialect: str) -> None:
    name, params = verify.CASES[title]
    program = program_of(FunctionRequest(get_model(name, params), "fp16", "NHWC", 128, 512))
    source = program.source(dialect)
    for launch in program.plan()["launches"]:
        head = source.split(f"KERNEL {launch['kernel']}(", 1)[1].split(")\n", 1)[0]
        assert head.count(",") + 1 == len(launch["arguments"])
        assert launch["items"][0] <= 512
    outputs = [program.buffers[index]["shape"] for index in program.outputs]
    assert all(isinstance(size, int) for shape in outputs for size in shape)


def test_every_implementation_belongs_to_a_model_and_is_declared() -> None:
    assert {get_model(name).device for name, _ in verify.CASES.values()} == set(IMPLEMENTATIONS) == set(FUNCTIONS)


def test_functions_stay_host_code_where_a_target_has_no_kernels(make_engine: Make) -> None:
    stage = Stage("v", "v", "pointpillars.voxelise")
    assert not is_device_function(stage, make_engine())
    assert is_device_function(stage, make_engine(OPENCL, id="gpu"))
    with pytest.raises(UsageError, match="is host code"):
        compile_stage(stage, make_engine())


def test_more_candidates_than_a_group_sorts_are_refused(make_engine: Make) -> None:
    stage = Stage("d", "d", "pointpillars.decode", params={"candidates": 5000})
    with pytest.raises(CompileError, match="the GPU's decoder takes 2048"):
        compile_stage(stage, make_engine(OPENCL, id="gpu"), "fp32")
    with pytest.raises(CompileError, match="int8"):
        compile_stage(stage, make_engine(OPENCL, id="gpu"), "int8")


def test_unknown_device_implementations_are_named(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(IMPLEMENTATIONS, "voxelise")
    model: Any = get_model("pointpillars.voxelise")
    with pytest.raises(CompileError, match="no implementation for GPUs"):
        program_of(FunctionRequest(model, "fp32", "NCHW"))


@pytest.mark.parametrize(
    ("arch", "kernel", "groups"),
    [
        ("sm_87", Kernel("k", 256, 32, 0, 0), 6),  # threads
        ("sm_87", Kernel("k", 32, 32, 0, 0), 16),  # groups
        ("sm_72", Kernel("k", 32, 78, 0, 128), 24),  # registers: six warps in each quarter
        ("sm_87", Kernel("k", 128, 32, 0, 30_000), 5),  # shared memory, with 1 KiB for the system
    ],
)
def test_the_groups_an_sm_holds_follow_from_what_runs_out_first(arch: str, kernel: Kernel, groups: int) -> None:
    assert kernel.groups(arch) == groups
