"""Several frames in flight: detections do not change, and memory is passed on and reused, not copied."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recorded import Recorded
from run_plans import MS, Scripted, plan, roomy, run, sleep, task

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime.collect import Collector
from socsched.runtime.dispatch_policy import EXECUTORS
from socsched.runtime.executor import execute
from socsched.runtime.options import Options
from socsched.trace.trace import Trace

FRAMES = 6


@pytest.fixture(scope="module")
def planned(detector: Recorded) -> tuple[Plan, Pipeline]:
    """Return PointPillars planned for this machine, its light stages on lanes of their own so that frames overlap."""
    pipe = detector.pipeline()
    made = make_plan(pipe, roomy(), work=stage_work)
    lanes = {"voxelise": (0,), "decode": (1,)}
    return replace(made, tasks=tuple(replace(t, lanes=lanes.get(t.name, t.lanes)) for t in made.tasks)), pipe


def found(planned: tuple[Plan, Pipeline], given: Recorded, options: Options) -> tuple[Trace, dict[int, Any]]:
    made, pipe = planned
    scans, weights = given.scans, given.weights
    trace = execute(
        made, pipe, scans=scans, weights=weights, frames=FRAMES, pace="asap", options=options, platform=roomy()
    )
    return trace, {frame: entry["detections"] for frame, entry in trace.details.items()}


@pytest.fixture(scope="module")
def reference(planned: tuple[Plan, Pipeline], detector: Recorded) -> dict[int, Any]:
    """Return the detections frame by frame, one stage after the other."""
    _trace, boxes = found(planned, detector, Options("sequential"))
    assert len(boxes) == FRAMES and all(boxes.values())
    assert len({str(found) for found in boxes.values()}) == len(detector.scans), "frames are distinguishable"
    return boxes


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.sampled(4)
def test_detections_are_the_same_whatever_the_executor_and_frames_in_flight(
    planned: tuple[Plan, Pipeline], detector: Recorded, reference: dict[int, Any], executor: str, in_flight: int
) -> None:
    trace, boxes = found(planned, detector, Options(executor, in_flight, steal=executor == "event-chained"))
    assert boxes == reference, "bit for bit"
    assert all(job.status == "done" for job in trace.jobs)


def test_a_run_does_not_end_before_its_detections_are_kept(
    planned: tuple[Plan, Pipeline], detector: Recorded, reference: dict[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Collector.add

    def slow(self: Collector, frame: int, stage: str, outputs: Mapping[str, Any]) -> None:
        time.sleep(0.3 * (frame == FRAMES - 1))
        add(self, frame, stage, outputs)

    monkeypatch.setattr(Collector, "add", slow)
    assert found(planned, detector, Options())[1] == reference


def overlapping(trace: Trace, last: str) -> int:
    """Return the most frames under way at once: released, and not through `last` yet."""
    marks = [(time, 1) for time in trace.releases["s"]]
    marks += [(job.finish_ns, -1) for job in trace.jobs if job.task == last]
    depth = most = 0
    for _, step in sorted(marks):
        depth += step
        most = max(most, depth)
    return most


@pytest.mark.parametrize("in_flight", [1, 2, 4])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.sampled(4)
def test_as_many_frames_as_asked_for_are_under_way_and_none_is_lost(executor: str, in_flight: int) -> None:
    made = plan(*(task(n, b, lanes=(i,), queue=0) for i, (n, b) in enumerate(zip("abcd", "sabc", strict=True))),
                sensors={"s": MS})  # fmt: skip
    backend = Scripted(lambda *_: sleep(3))
    trace = run(made, backend, frames=12, pace="asap", options=Options(executor, in_flight))
    assert sorted(job.frame for job in trace.jobs if job.task == "d" and job.status == "done") == list(range(12))
    assert overlapping(trace, "d") <= in_flight
    if executor == "event-chained":
        assert overlapping(trace, "d") == in_flight, "stages on different lanes work on different frames"


def test_sequential_runs_one_job_at_a_time_and_the_plan_runs_several() -> None:
    made = plan(*(task(n, b, lanes=(i,)) for i, (n, b) in enumerate(zip("abc", "sab", strict=True))), sensors={"s": MS})

    def most_at_once(executor: str) -> int:
        trace = run(made, Scripted(lambda *_: sleep(3)), frames=8, pace="asap", options=Options(executor, 3))
        marks = sorted([(p.start_ns, 1) for p in trace.slices] + [(p.end_ns, -1) for p in trace.slices])
        depth = most = 0
        for _, step in marks:
            depth += step
            most = max(most, depth)
        return most

    assert most_at_once("sequential") == 1
    assert most_at_once("event-chained") == 3
    assert most_at_once("stream-per-frame") == 3
    assert most_at_once("shared-queue") > 1


def test_a_frame_keeps_its_thread_under_stream_per_frame_and_any_thread_serves_a_shared_queue() -> None:
    made = plan(task("a", "s"), task("b", "a", lanes=(1,)), sensors={"s": MS})
    backend = Scripted(lambda *_: sleep(2))
    run(made, backend, frames=8, pace="asap", options=Options("stream-per-frame", 2))
    assert backend.threads["a"] == backend.threads["b"] == {"stream[0]", "stream[1]"}
    backend = Scripted(lambda *_: sleep(2))
    run(made, backend, frames=8, pace="asap", options=Options("shared-queue", 2))
    assert backend.threads["a"] | backend.threads["b"] == {"queue[0]", "queue[1]"}


def test_idle_lanes_take_jobs_of_like_ones_only_when_asked_to() -> None:
    made = plan(task("slow", "s"), task("rare", "t", lanes=(1,)), sensors={"s": MS, "t": 10**6 * MS})
    for steal, threads in ((False, {"cpu[0]"}), (True, {"cpu[0]", "cpu[1]"})):
        backend = Scripted(lambda name, _: sleep(4 if name == "slow" else 0))
        trace = run(made, backend, frames=40, pace="asap", options=Options(in_flight=3, steal=steal))
        assert backend.threads["slow"] == threads
        assert sum(job.status == "done" for job in trace.jobs if job.task == "slow") == 40


def test_joins_survive_frames_that_overtake_each_other() -> None:
    """With a thread a frame, frame 1 may be joined before frame 0; neither is lost."""
    made = plan(task("left", "s"), task("right", "s", lanes=(1,)), task("join", "left", "right", lanes=(2,)),
                sensors={"s": MS})  # fmt: skip
    slow = iter(range(10**6))

    def script(name: str, number: int) -> None:
        sleep(6 if name == "left" and next(slow) % 2 == 0 else 1)

    for executor in ("stream-per-frame", "shared-queue"):
        trace = run(made, Scripted(script), frames=12, pace="asap", options=Options(executor, 3))
        assert sorted(job.frame for job in trace.jobs if job.task == "join") == list(range(12))


def test_an_unknown_executor_is_refused() -> None:
    made = plan(task("a", "s"), sensors={"s": MS})
    with pytest.raises(UsageError, match="magic"):
        run(made, Scripted(), frames=1, options=Options("magic"))


class _Tapped:
    """Records where the tensors lie that enter and leave each compiled stage."""

    title, real = "tapped", True

    def __init__(self) -> None:
        self.taken: dict[str, list[int]] = {}
        self.left: dict[str, list[int]] = {}

    def prepare(self, task: Any, stage: Any, setting: Any) -> Any:
        from socsched.compiler.loading import stages as runtime
        from socsched.runtime.backends.tvm_cpu import TvmCpuBackend

        call = TvmCpuBackend().prepare(task, stage, setting)
        plain_to_tvm = runtime.to_tvm

        def tapped(values: Mapping[str, Any]) -> Any:
            seen: list[int] = []

            def to_tvm(array: Any, tensor: Any, name: str) -> Any:
                operand = plain_to_tvm(array, tensor, name)
                seen.append(np.from_dlpack(operand).ctypes.data)
                return operand

            runtime.to_tvm = to_tvm
            try:
                outputs = call(values)
            finally:
                runtime.to_tvm = plain_to_tvm
            self.taken.setdefault(task.name, []).extend(seen)
            self.left.setdefault(task.name, []).extend(p.array.ctypes.data for p in outputs.values())
            return outputs

        return tapped


def test_tensors_are_handed_on_without_copies_into_memory_that_exists(
    planned: tuple[Plan, Pipeline], detector: Recorded
) -> None:
    made, pipe = planned
    backend = _Tapped()
    given = {"scans": detector.scans[:1], "weights": detector.weights, "backends": {"network": backend}}
    execute(made, pipe, frames=8, pace="asap", platform=roomy(), **given)
    assert set(backend.taken["backbone"]) <= set(backend.left["scatter"]), "the backbone reads what scatter wrote"
    assert set(backend.taken["head"]) <= set(backend.left["backbone"])
    runs = len(backend.left["backbone"]) // len(set(backend.left["backbone"]))
    assert runs >= 3, "one frame at a time: its memory is that of frames before"


def test_memory_of_stages_is_reused_for_any_number_of_frames(
    planned: tuple[Plan, Pipeline], detector: Recorded
) -> None:
    made, pipe = planned
    backend = _Tapped()
    options = Options(in_flight=3)
    given = {"scans": detector.scans[:1], "weights": detector.weights, "backends": {"network": backend}}
    execute(made, pipe, frames=15, pace="asap", options=options, platform=roomy(), **given)
    for name in ("backbone", "scatter"):
        # outputs come from one pool with a stage's inner buffers, so a few more places than frames are seen
        assert len(backend.left[name]) >= 18 and len(set(backend.left[name])) <= 2 * options.in_flight + 2, name
