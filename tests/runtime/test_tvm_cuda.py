"""The CUDA backend against a fake device that works as late, and in as unusual an order, as its events allow."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice
from recorded import Recorded
from run_plans import roomy

from socsched.compiler.builder import compile_stage
from socsched.compiler.targets.cuda.convert import kernel_for
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import MachineError
from socsched.graph.operators import TensorType
from socsched.models.work import stage_work
from socsched.planning.plan import Plan, Task, Transition
from socsched.planning.search import make_plan
from socsched.runtime.backends.slots import Slots, lease
from socsched.runtime.backends.tvm_cuda import TvmCudaBackend
from socsched.runtime.dispatch_policy import EXECUTORS
from socsched.runtime.executor import execute
from socsched.runtime.options import Options
from socsched.trace.trace import Trace

ON_DEVICE = ("pfn", "scatter", "backbone", "head")
SCANS = 3


def with_device(made: Plan, here: Platform, criticality: str = "hard") -> tuple[Plan, Platform]:
    """Return the plan with its networks on a device, conversions before and behind, and a platform that has it."""
    engine = replace(here.engines[0], id="gpu", kind="gpu", units=1, target={"kind": "cuda", "arch": "sm_90"})
    planned = replace(made.engines[0], id="gpu", kind="gpu", lanes=1)
    tasks: list[Task] = []
    for task in made.tasks:
        if task.name in ON_DEVICE:
            task = replace(task, engine="gpu", lanes=(0,), criticality=criticality)
        if task.name == "pfn":
            tasks.append(replace(task, name="voxelise>pfn", kind="conversion", model=None))
            task = replace(task, after=("voxelise>pfn",))
        if task.name == "decode":
            last = next(t for t in tasks if t.name == "head")
            tasks.append(replace(last, name="head>decode", kind="conversion", model=None, after=("head",)))
            task = replace(task, after=("head>decode",), lanes=(1,))
        if task.name == "voxelise":
            task = replace(task, lanes=(0,))
        tasks.append(task)
    moves = (
        Transition("voxelise", "pfn", 0, "", "", "fp32", "fp32", "gpu", "voxelise>pfn", 0),
        Transition("head", "decode", 0, "NCHW16c", "NCHW", "fp32", "fp32", "gpu", "head>decode", 0),
    )
    changed = replace(made, tasks=tuple(tasks), transitions=moves, engines=(*made.engines, planned))
    return changed, replace(here, engines=(*here.engines, engine))


@pytest.fixture(scope="module")
def planned(detector: Recorded) -> tuple[Plan, Platform, Pipeline]:
    pipe = detector.pipeline()
    here = roomy()
    return (*with_device(make_plan(pipe, here, work=stage_work), here), pipe)


def compiled(task: Task, stage: Any, setting: Any) -> Any:
    """Compile for the processor, so that the fake device has something to run."""
    from socsched.runtime.backends.tvm_cpu import weights_of

    return compile_stage(stage, setting.platform.engines[0], "fp32", weights_of(setting), 1)


def run(
    planned: tuple[Plan, Platform, Pipeline], given: Recorded, device: FakeDevice, options: Options
) -> tuple[Trace, dict[int, Any]]:
    made, platform, pipe = planned
    trace = execute(
        made,
        pipe,
        platform=platform,
        scans=given.scans[:SCANS],
        weights=given.weights,
        frames=SCANS,
        pace="asap",
        options=options,
        backends={"cuda": TvmCudaBackend(device, compiled)},
    )
    return trace, {frame: found["detections"] for frame, found in trace.details.items()}


@pytest.fixture(scope="module")
def reference(planned: tuple[Plan, Platform, Pipeline], detector: Recorded) -> dict[int, Any]:
    """Return the detections of the CPU in the scans, one stage after the other, on one thread each as on the fake."""
    pipe = planned[2]
    made = make_plan(pipe, roomy(), work=stage_work)
    made = replace(made, tasks=tuple(replace(t, lanes=t.lanes[:1]) for t in made.tasks))
    scans = detector.scans[:SCANS]
    trace = execute(made, pipe, scans=scans, weights=detector.weights, pace="asap", alone=True, platform=roomy())
    boxes = {frame: found["detections"] for frame, found in trace.details.items()}
    assert len({str(found) for found in boxes.values()}) == SCANS, "frames are distinguishable"
    return boxes


@pytest.mark.parametrize(("executor", "in_flight"), [("event-chained", 1), *((name, 3) for name in EXECUTORS)])
@pytest.mark.sampled(3)
def test_frames_on_the_device_equal_the_reference(
    planned: Any, detector: Recorded, reference: dict[int, Any], executor: str, in_flight: int
) -> None:
    device = FakeDevice(seed=in_flight)
    trace, found = run(planned, detector, device, Options(executor, in_flight))
    assert found == reference
    assert all(job.status == "done" for job in trace.jobs)
    assert device.most_recording == 1, "recordings exclude each other"
    warm = max(2, in_flight + (executor == "event-chained"))
    assert device.launched == len(ON_DEVICE) * (SCANS + warm)
    for job in trace.jobs:
        assert job.start_ns <= job.finish_ns


def test_stages_are_chained_on_the_device_before_their_producers_have_ended(planned: Any, detector: Recorded) -> None:
    """The host does not wait between the first copy in and the last copy out, so everything is queued at once."""
    device = FakeDevice()
    deepest: list[int] = []
    plain = device.wait

    def wait(start: Any, end: Any) -> Any:
        deepest.append(sum(op.what in ON_DEVICE for op in device._queue))
        return plain(start, end)

    device.wait = wait  # type: ignore[method-assign]
    run(planned, detector, device, Options(in_flight=2))
    assert max(deepest) >= len(ON_DEVICE)
    blocked = FakeDevice()
    depths: list[int] = []
    plain_blocked = blocked.wait

    def wait_blocked(start: Any, end: Any) -> Any:
        depths.append(sum(op.what in ON_DEVICE for op in blocked._queue))
        return plain_blocked(start, end)

    blocked.wait = wait_blocked  # type: ignore[method-assign]
    run(planned, detector, blocked, Options("shared-queue", 2))
    assert max(depths) <= 3, "a thread that waits for its stage has one queued"


def test_tensors_cross_to_the_device_and_back_once_a_frame(planned: Any, detector: Recorded) -> None:
    device = FakeDevice()
    run(planned, detector, device, Options())
    frames = SCANS + 2
    assert device.copied == frames * (3 + 3), "voxels, counts, places in; scores, offsets, directions out"
    assert [w for w in device.done if w in ON_DEVICE] == list(ON_DEVICE) * frames, "one frame at a time, in order"


def test_streams_are_those_of_the_stages_weight_and_different_ones_wait_for_events(
    planned: Any, detector: Recorded, reference: dict[int, Any]
) -> None:
    made, platform, pipe = planned
    mixed = replace(
        made, tasks=tuple(replace(t, criticality="soft") if t.name in ("scatter", "head") else t for t in made.tasks)
    )
    for seed in range(2):
        device = FakeDevice(seed)
        _, found = run((mixed, platform, pipe), detector, device, Options(in_flight=3))
        assert found == reference
        assert {stream.criticality for stream in device.streams} == {"hard", "soft"}


def test_a_missing_event_would_be_seen(planned: Any, detector: Recorded, reference: dict[int, Any]) -> None:
    """The fake is an oracle only if it detects errors: without `follow`, frames are wrong."""
    made, platform, pipe = planned
    mixed = replace(
        made, tasks=tuple(replace(t, criticality="soft") if t.name in ("scatter", "head") else t for t in made.tasks)
    )
    device = FakeDevice(1)
    device.follow = lambda stream, event: None  # type: ignore[method-assign]
    try:
        _, found = run((mixed, platform, pipe), detector, device, Options(in_flight=3))
    except Exception:
        return
    assert found != reference


def test_a_stage_that_cannot_be_loaded_is_named(planned: Any, detector: Recorded) -> None:
    with pytest.raises(MachineError, match=r"'backbone' could not be prepared: RuntimeError: the device's code"):
        run(planned, detector, FakeDevice(fails="backbone"), Options())


def test_slots_are_reused_once_none_of_their_data_is_held() -> None:
    slots = Slots()
    first, second = slots.take(), slots.take()
    assert (first.number, second.number, slots.made) == (0, 1, 2)
    array = lease(np.arange(10), (first,))
    part = array[2:5].reshape(3, 1)
    del first, array
    gc.collect()
    assert slots.take().number == 2, "a view of the memory is about still"
    assert part[1, 0] == 3
    del part
    gc.collect()
    assert {slots.take().number for _ in range(1)} <= {0, 2}
    assert slots.made == 3


def test_frames_on_the_device_are_no_more_than_it_was_warmed_up_for(planned: Any, detector: Recorded) -> None:
    made, platform, pipe = planned
    for in_flight in (1, 3):
        backend = TvmCudaBackend(FakeDevice(), compiled)
        scans, weights = detector.scans[:1], detector.weights
        execute(made, pipe, platform=platform, scans=scans, weights=weights, frames=6, pace="asap",
                options=Options(in_flight=in_flight), backends={"cuda": backend})  # fmt: skip
        assert 1 <= backend.slots("voxelise>pfn").made <= max(in_flight + 1, 2), "no graph is made once frames count"


@pytest.mark.parametrize(
    ("given", "wanted", "kernel"),
    [
        (TensorType((5, 4), "fp32", ""), TensorType((5, 4), "fp16", ""), ("cast_fh", (0, 0))),
        (TensorType((1, 18, 6, 7), "fp16", "NHWC"), TensorType((1, 18, 6, 7), "fp32", "NCHW"), ("turn_hf", (42, 18))),
        (TensorType((1, 3, 6, 7), "fp32", "NCHW"), TensorType((1, 3, 6, 7), "fp16", "NHWC"), ("turn_fh", (3, 42))),
        (TensorType((1, 3, 6, 7), "fp16", "NHWC"), TensorType((1, 3, 6, 7), "fp32", "NHWC"), ("cast_hf", (0, 0))),
        (TensorType((1, 3, 6, 7), "fp16", "NCHW16c"), TensorType((1, 3, 6, 7), "fp32", "NCHW"), ("lay_hf", (3, 42))),
    ],
)
def test_conversions_are_casts_or_turned_matrices(given: Any, wanted: Any, kernel: Any) -> None:
    assert kernel_for(given, wanted) == kernel


def test_conversions_the_device_has_no_kernel_for_are_refused() -> None:
    with pytest.raises(MachineError, match=r"plan the conversion|no conversion"):
        kernel_for(TensorType((1, 3, 6, 7), "fp16", "NCHW16c+1"), TensorType((1, 3, 6, 7), "fp32", "NCHW"))
    with pytest.raises(MachineError):
        kernel_for(TensorType((4,), "int32", ""), TensorType((4,), "fp16", ""))


def test_a_device_that_hangs_takes_the_jobs_queued_behind_with_it(planned: Any, detector: Recorded) -> None:
    made, platform, pipe = planned
    device = FakeDevice()
    begun, freed, plain = threading.Event(), threading.Event(), device.wait
    gave_up: list[bool] = []

    def wait(start: Any, end: Any) -> Any:
        if begun.is_set():
            gave_up.append(not freed.wait(30))
        return plain(start, end)

    device.wait = wait  # type: ignore[method-assign]
    accounts: dict[str, Any] = {}
    scans, weights = detector.scans[:1], detector.weights
    options = Options(in_flight=3, hang_ns=2_000_000_000)
    try:
        execute(made, pipe, platform=platform, scans=scans, weights=weights, frames=8, pace="asap", options=options,
                accounts=accounts, backends={"cuda": TvmCudaBackend(device, compiled)},
                on_frame=lambda report: begun.set())  # fmt: skip
        assert not gave_up, (
            "the run ended while the device still hung: no thread that waits for it holds what others need"
        )
    finally:
        freed.set()
    account = accounts["lidar"]
    assert account["released"] == 8 == account["completed"] + account["dropped"] + account["aborted"]
    assert account["aborted"] >= 1
