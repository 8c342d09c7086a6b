"""Host functions on devices: an OpenCL engine, and the CUDA backend on a fake device that runs the OpenCL kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice
from recorded import Recorded
from run_plans import roomy

from socsched.compiler.builder import compile_stage
from socsched.compiler.functions import border_precision, compile_function
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine, FunctionCost, Platform
from socsched.graph.operators import TensorType
from socsched.models.work import stage_work
from socsched.planning.plan import Plan, Task, Transition
from socsched.planning.search import make_plan
from socsched.runtime.backends.choose import sort_of
from socsched.runtime.backends.device_jobs import Download
from socsched.runtime.backends.on_device import OnDevice, Staging
from socsched.runtime.backends.opencl import OpenClBackend
from socsched.runtime.backends.slots import Slots
from socsched.runtime.backends.tvm_cuda import TvmCudaBackend
from socsched.runtime.executor import execute
from socsched.runtime.options import Options

FUNCTIONS = ("voxelise", "decode")
SCANS = 3
OPENCL = {"kind": "opencl", "max_threads_per_block": 64}
CUDA = {"kind": "cuda", "arch": "sm_87"}


@pytest.fixture(scope="module")
def planned(detector: Recorded) -> tuple[Plan, Platform, Pipeline]:
    pipe, here = detector.pipeline(), roomy()
    made = make_plan(pipe, here, work=stage_work)
    return replace(made, tasks=tuple(replace(t, lanes=t.lanes[:1]) for t in made.tasks)), here, pipe


@pytest.fixture(scope="module")
def reference(planned: tuple[Plan, Platform, Pipeline], detector: Recorded) -> dict[int, Any]:
    """Return the detections of the CPU."""
    return detections(planned, detector, {}, Options())


def detections(
    planned: tuple[Plan, Platform, Pipeline], given: Recorded, backends: dict[str, Any], options: Options
) -> dict[int, Any]:
    made, here, pipe = planned
    trace = execute(
        made, pipe, platform=here, scans=given.scans[:SCANS], weights=given.weights, frames=SCANS, pace="asap",
        options=options, backends=backends,
    )  # fmt: skip
    assert all(job.status == "done" for job in trace.jobs)
    return {frame: found["detections"] for frame, found in trace.details.items()}


def moved(
    planned: tuple[Plan, Platform, Pipeline], names: tuple[str, ...], target: dict[str, Any]
) -> tuple[Plan, Platform, Pipeline]:
    """Return the plan with the stages `names` on a GPU."""
    made, here, pipe = planned
    rules = replace(here.engines[0].operators, host_code=False)
    gpu = replace(here.engines[0], id="gpu", kind="gpu", units=1, target=target, operators=rules)
    tasks = tuple(replace(t, engine="gpu", lanes=(0,)) if t.name in names else t for t in made.tasks)
    engines = (*made.engines, replace(made.engines[0], id="gpu", kind="gpu", lanes=1))
    return replace(made, tasks=tasks, engines=engines), replace(here, engines=(*here.engines, gpu)), pipe


@pytest.mark.needs("OpenCL")
def test_functions_on_an_opencl_engine_find_the_boxes_of_the_cpu(
    planned: Any, detector: Recorded, reference: dict[int, Any]
) -> None:
    backend = OpenClBackend()
    assert detections(moved(planned, FUNCTIONS, OPENCL), detector, {"opencl": backend}, Options()) == reference
    assert backend._device is not None, "the kernels ran"


@pytest.mark.slow
@pytest.mark.needs("OpenCL")
def test_pointpillars_s_with_its_functions_on_an_opencl_engine(detector: Recorded) -> None:
    pipe, here = get_pipeline("pointpillars-s"), roomy()
    made = make_plan(pipe, here, work=stage_work)
    given = replace(detector, weights=None)  # those included
    planned = (made, here, pipe)
    found = detections(moved(planned, FUNCTIONS, OPENCL), given, {"opencl": OpenClBackend()}, Options())
    assert found == detections(planned, given, {}, Options())


def for_fake(task: Task, stage: Stage, setting: Any) -> Any:
    """Return functions as OpenCL kernels and networks as code for the processor: what the fake device runs."""
    if task.name in FUNCTIONS:
        engine = replace(setting.platform.engine("gpu"), target=OPENCL)
        return compile_function(stage, engine, "fp32")
    from socsched.runtime.backends.tvm_cpu import weights_of

    return compile_stage(stage, setting.platform.engines[0], "fp32", weights_of(setting), 1)


@pytest.mark.needs("OpenCL")
@pytest.mark.parametrize(
    "names",
    [("voxelise", "pfn", "scatter", "backbone", "head", "decode"), ("voxelise", "pfn"), ("decode",)],
    ids=["all", "first", "last"],
)
def test_functions_in_the_device_s_chain_find_the_boxes_of_the_cpu(
    planned: Any, detector: Recorded, reference: dict[int, Any], names: tuple[str, ...]
) -> None:
    """Tensors leave the device without a conversion here: rows that a function left unused are cut off."""
    for seed in range(2):
        backend = TvmCudaBackend(FakeDevice(seed), for_fake)
        found = detections(moved(planned, names, CUDA), detector, {"cuda": backend}, Options(in_flight=2))
        assert found == reference


def test_functions_are_routed_by_the_code_of_their_engine_s_target(planned: Any) -> None:
    def sorts(target: dict[str, Any]) -> dict[str, str]:
        made, here, pipe = moved(planned, FUNCTIONS, target)
        setting: Any = type("Setting", (), {"plan": made, "platform": here, "pipeline": pipe, "bound": {}})
        return {t.name: sort_of(t, setting) for t in made.tasks if t.name in FUNCTIONS}

    assert sorts(OPENCL) == dict.fromkeys(FUNCTIONS, "opencl")
    assert sorts(CUDA) == dict.fromkeys(FUNCTIONS, "cuda")
    assert sorts({"kind": "simulated"}) == dict.fromkeys(FUNCTIONS, "function")


def test_unused_rows_are_cut_off_at_the_end_of_a_copy_to_the_host(planned: Any) -> None:
    _, _here, pipe = planned
    device = FakeDevice()
    stream, slot = device.stream("hard"), Slots().take()
    start, event = device.event(), device.event()
    device.mark(start, stream)
    device.mark(event, stream)
    counts, coords = device.memory((6,), np.int32), device.memory((6, 2), np.int32)
    counts.array[:] = [3, 1, 2, 0, 0, 0]
    coords.array[:] = -1
    made = {
        name: OnDevice(
            buffer, TensorType(buffer.array.shape, "int32"), event, stream, (slot,), None, device, ("counts", counts)
        )
        for name, buffer in (("counts", counts), ("coords", coords))
    }
    setting: Any = type(
        "Setting", (), {"pipeline": pipe, "bound": {"pfn": {"counts": "voxelise", "coords": "voxelise"}}}
    )
    move = Transition("voxelise", "pfn", 0, "", "", "fp32", "fp32", "gpu", "voxelise>pfn", 0)
    queued = Download(device, stream, move, setting).launch({"voxelise": made})
    queued.wait()
    assert {name: len(tensor.array) for name, tensor in queued.outputs.items()} == {"counts": 3, "coords": 3}
    assert made["coords"].fetch().array.shape == (3, 2)


def test_rows_of_a_scan_that_a_function_must_not_see_are_no_numbers() -> None:
    device = FakeDevice()
    stream, slot = device.stream("hard"), Slots().take()
    staging = Staging(device, stream, fill=float("nan"))
    for rows in (9, 4):
        scan = np.ones((rows, 4), np.float32)
        lying = staging.brought(scan, TensorType((-1, 4), "fp32"), "points", (slot,))
        start, end = device.event(), device.event()
        device.mark(start, stream)
        device.mark(end, stream)
        device.wait(start, end)
        assert np.isfinite(lying.buffer.array[:rows]).all() and np.isnan(lying.buffer.array[rows:]).all()


def test_a_function_s_code_has_the_data_type_of_the_networks_around_it(planned: Any) -> None:
    made, here, pipe = moved(planned, FUNCTIONS, CUDA)
    plain = next(e for e in here.engines if e.id == "gpu")
    cost: Any = FunctionCost(time_ns=None, work={}, dtypes=("fp32", "fp16"))  # type: ignore[arg-type]
    gpu: Engine = replace(plain, functions={"voxelise": cost, "anchor-decode": replace(cost, dtypes=("fp32",))})
    halves = {t.name: ("gpu", "fp16" if t.name in ("pfn", "head") else "fp32") for t in made.tasks}
    chosen = {name: pipe.stage(name) for name in FUNCTIONS}
    assert border_precision(chosen["voxelise"], pipe, gpu, halves) == "fp16"
    assert border_precision(chosen["voxelise"], pipe, plain, halves) == "fp32", "the engine declares nothing"
    assert border_precision(chosen["decode"], pipe, gpu, halves) == "fp32", "maps are converted for it"
    int8 = {**halves, "pfn": ("gpu", "int8")}
    assert border_precision(chosen["voxelise"], pipe, gpu, int8) == "fp32", "an int8 network's tensors are fp32"
