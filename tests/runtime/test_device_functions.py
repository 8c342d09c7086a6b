"""Host functions on devices: which code runs them, and what they find on an OpenCL engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recorded import Recorded
from run_plans import executed, roomy

from socsched.compiler.builder import border_precision
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, FunctionCost, Platform
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime.backends import Setting, sort_of

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
    return detections(planned, detector, {})


def detections(planned: tuple[Plan, Platform, Pipeline], given: Recorded, backends: dict[str, Any]) -> dict[int, Any]:
    made, here, pipe = planned
    trace = executed(
        made, pipe, platform=here, scans=given.scans[:SCANS], weights=given.weights, frames=SCANS, pace="asap",
        backends=backends,
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
    """The executor runs the kernels through OpenCL's library; nothing of Python's is called."""
    assert detections(moved(planned, FUNCTIONS, OPENCL), detector, {}) == reference


@pytest.mark.slow
@pytest.mark.needs("OpenCL")
def test_pointpillars_s_with_its_functions_on_an_opencl_engine(detector: Recorded) -> None:
    pipe, here = get_pipeline("pointpillars-s"), roomy()
    made = make_plan(pipe, here, work=stage_work)
    given = replace(detector, weights=None)  # those included
    planned = (made, here, pipe)
    found = detections(moved(planned, FUNCTIONS, OPENCL), given, {})
    assert found == detections(planned, given, {})


def test_functions_are_routed_by_the_code_of_their_engine_s_target(planned: Any) -> None:
    def sorts(target: dict[str, Any]) -> dict[str, str]:
        made, here, pipe = moved(planned, FUNCTIONS, target)
        setting = Setting(made, pipe, here, {}, None)
        return {t.name: sort_of(t, setting) for t in made.tasks if t.name in FUNCTIONS}

    assert sorts(OPENCL) == dict.fromkeys(FUNCTIONS, "opencl")
    assert sorts(CUDA) == dict.fromkeys(FUNCTIONS, "cuda")
    assert sorts({"kind": "simulated"}) == dict.fromkeys(FUNCTIONS, "function")


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
