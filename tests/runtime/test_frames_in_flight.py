"""Several frames in flight, under every executor: detections do not change, and as many are under way as asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recorded import Recorded
from run_plans import MS, WARMUP_FRAMES, Scripted, executed, plan, roomy, run, sleep, task

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.executor.settings import EXECUTORS, PLANNED
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
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
    trace = executed(
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
    if executor in PLANNED:
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
    assert [backend.calls.count(name) for name in "ab"] == [8 + 2 * WARMUP_FRAMES] * 2, "either stream runs both"
    backend = Scripted(lambda *_: sleep(2))
    run(made, backend, frames=8, pace="asap", options=Options("shared-queue", 2))
    assert [backend.calls.count(name) for name in "ab"] == [8 + 2 * WARMUP_FRAMES] * 2


def test_idle_lanes_take_jobs_of_like_ones_only_when_asked_to() -> None:
    made = plan(task("slow", "s"), task("rare", "t", lanes=(1,)), sensors={"s": MS, "t": 10**6 * MS})
    for steal, at_once in ((False, 1), (True, 2)):
        backend = Scripted(lambda name, _: sleep(4 if name == "slow" else 0))
        trace = run(made, backend, frames=40, pace="asap", options=Options(in_flight=3, steal=steal))
        assert sum(job.status == "done" for job in trace.jobs if job.task == "slow") == 40
        marks = [(job.start_ns, 1) for job in trace.jobs if job.task == "slow"]
        marks += [(job.finish_ns, -1) for job in trace.jobs if job.task == "slow"]
        depth = most = 0
        for _, step in sorted(marks):
            depth += step
            most = max(most, depth)
        assert most == at_once


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
