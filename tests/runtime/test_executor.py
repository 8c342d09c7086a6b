from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_plans import HERE, MS, WARMUP_FRAMES, Scripted, executed, pipeline, plan, run, sleep, task, workers

from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.errors import InputError, UsageError
from socsched.planning.plan import ChainResult, Plan
from socsched.runtime import inputs
from socsched.runtime.errors import StageFailed
from socsched.runtime.frames import FrameReport
from socsched.runtime.input_files import InputFiles
from socsched.runtime.inputs import Nothing
from socsched.runtime.options import Options


def test_stages_follow_each_other_frame_after_frame() -> None:
    made = plan(task("a", "s"), task("b", "a", lanes=(1, 2)), sensors={"s": 5 * MS})
    backend = Scripted()
    trace = run(made, backend, frames=3)
    assert sorted(backend.calls) == ["a"] * (3 + WARMUP_FRAMES) + ["b"] * (3 + WARMUP_FRAMES)
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    assert jobs.keys() == {(name, frame) for name in "ab" for frame in range(3)}
    for frame in range(3):
        assert jobs["b", frame].activation_ns == jobs["a", frame].finish_ns
    assert trace.releases["s"] == [0, 5 * MS, 10 * MS]
    assert backend.threads == {"a": {"stage a"}, "b": {"stage b"}}
    assert trace.duration_ns >= 15 * MS and trace.kind == "measured"
    for job in trace.jobs:
        assert job.status == "done"
        assert job.activation_ns <= job.start_ns <= job.finish_ns and job.exec_ns == job.finish_ns - job.start_ns
        assert job.activation_ns >= job.frame * 5 * MS
    assert not workers()


def test_a_stage_slower_than_its_sensor_drops_what_does_not_fit() -> None:
    held = threading.Event()

    def script(name: str, number: int) -> None:
        if number == WARMUP_FRAMES:  # the first traced frame lasts until all are released
            held.wait(10)

    made = plan(task("t", "s", queue=1), task("clock", lanes=(1,), period_ns=40 * MS), sensors={"s": 10 * MS})

    def release(name: str, number: int) -> None:
        if name == "clock" and number == WARMUP_FRAMES + 1:  # at 40 ms
            held.set()
        elif name == "t":
            script(name, number)

    trace = run(made, Scripted(release), frames=5)
    # frame 4 comes at about the instant frame 0 ends, so both fates are right for it
    assert [job.status for job in trace.jobs if job.task == "t"][:4] == ["done", "done", "dropped", "dropped"]
    assert [note.frame for note in trace.instants if note.kind == "drop"][:2] == [2, 3]
    assert max(depth for _, depth in trace.counters["queue.t"]) == 1


def test_duration_ends_the_releases_and_timers_run_at_their_own_rate() -> None:
    made = plan(task("slow", period_ns=20 * MS), task("fast", lanes=(1,), period_ns=5 * MS, offset_ns=MS))
    trace = run(made, Scripted(), duration_ns=40 * MS)
    assert len(trace.releases["slow"]) == 2 and len(trace.releases["fast"]) == 8
    assert trace.duration_ns >= 40 * MS
    assert all(job.status == "done" for job in trace.jobs)


def test_a_run_that_its_input_ends_says_so_and_loops_if_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros(1))
    files = InputFiles({}, [(file, 0)] * 3, Nothing())
    monkeypatch.setattr(inputs, "sources", lambda *_: {"s": files})
    made = plan(task("a", "s"), sensors={"s": 5 * MS})
    ended = run(made, Scripted(), duration_ns=40 * MS)
    assert len(ended.releases["s"]) == 3
    reported = capsys.readouterr().err
    assert "3 frames of s" in reported and "15 ms of 40 ms" in reported and "--loop" in reported
    looped = run(made, Scripted(), duration_ns=40 * MS, loop=True)
    assert len(looped.releases["s"]) == 8
    assert "--loop" not in capsys.readouterr().err


def test_reports_come_for_every_chain_end_in_the_callers_thread() -> None:
    seen: list[tuple[FrameReport, str]] = []
    made = plan(task("a", "s"), task("b", "a", deadline_ns=1), sensors={"s": 5 * MS})
    run(made, Scripted(), frames=2, on_frame=lambda report: seen.append((report, threading.current_thread().name)))
    assert [(report.chain, report.frame, report.met) for report, _ in seen] == [("to b", 0, False), ("to b", 1, False)]
    assert {name for _, name in seen} == {threading.current_thread().name}
    assert seen[1][0].response_ns == seen[1][0].finish_ns - 5 * MS


def test_chains_that_end_in_one_stage_are_reported_each_once_for_every_frame_of_their_source() -> None:
    sink = task("sink", period_ns=4 * MS, reads=("slow",), lanes=(1,))
    made = plan(task("slow", "s"), sink, sensors={"s": 12 * MS})
    chains = tuple(
        ChainResult(name, (source, "sink"), 100 * MS, 0, None, None, ()) for name, source in (("x", "s"), ("y", "sink"))
    )
    seen: list[FrameReport] = []
    run(replace(made, chains=chains), Scripted(), duration_ns=36 * MS, on_frame=seen.append)
    reported = {name: [report.frame for report in seen if report.chain == name] for name in "xy"}
    assert reported["y"] == list(range(9))
    assert reported["x"] == sorted(set(reported["x"])) and set(reported["x"]) <= {0, 1, 2} and reported["x"]


def test_a_failing_stage_ends_the_run_and_keeps_the_trace() -> None:
    def script(name: str, number: int) -> None:
        if name == "b" and number == WARMUP_FRAMES + 1:
            raise ValueError("no such box")

    made = plan(task("a", "s"), task("b", "a"), sensors={"s": 2 * MS})
    with pytest.raises(StageFailed, match=r"stage 'b' failed on frame 1: ValueError: no such box") as caught:
        run(made, Scripted(script), frames=50)
    trace = caught.value.trace
    assert caught.value.exit_code == 3
    assert [job.status for job in trace.jobs if job.task == "b"][:2] == ["done", "unfinished"]
    assert len(trace.releases["s"]) < 50
    assert [(note.subject, note.frame) for note in trace.instants if note.kind == "fault"] == [("b", 1)]
    assert not workers()


def test_a_stage_that_fails_while_warming_up_is_named_too() -> None:
    def script(name: str, number: int) -> None:
        raise InputError("wrong weights")

    with pytest.raises(StageFailed, match="stage 'a' failed"):
        run(plan(task("a", "s"), sensors={"s": MS}), Scripted(script), frames=1)
    assert not workers()


def test_a_stage_that_cannot_be_prepared_says_so_with_its_own_error() -> None:
    class Broken(Scripted):
        def prepare(self, *_: Any) -> Any:
            raise InputError("weights: pfn.bias is missing")

    with pytest.raises(InputError, match=r"pfn\.bias"):
        run(plan(task("a", "s"), sensors={"s": MS}), Broken(), frames=1)
    assert not workers()


def test_an_interrupt_ends_the_run_with_a_usable_trace() -> None:
    def script(name: str, number: int) -> None:
        if number == WARMUP_FRAMES + 2:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    trace = run(plan(task("a", "s"), sensors={"s": 2 * MS}), Scripted(script), duration_ns=60_000 * MS)
    assert 3 <= len(trace.releases["s"]) < 30_000
    # on a busy machine some frames find the queue full, but those that ran before the interrupt count
    assert sum(job.status == "done" for job in trace.jobs) >= 2
    assert [note.text for note in trace.instants if note.kind == "fault"] == ["interrupted by the user"]
    assert trace.duration_ns < 60_000 * MS
    assert signal.getsignal(signal.SIGINT) is before
    assert not workers()


def test_a_load_without_model_takes_the_planned_processor_time_and_says_so() -> None:
    made = plan(task("tracker", cost_ns=3 * MS, period_ns=20 * MS))
    trace = executed(made, pipeline(made), platform=HERE, frames=3)
    assert all(job.exec_ns >= 3 * MS for job in trace.jobs)
    assert {piece.name for piece in trace.slices} == {"tracker (synthetic load)"}


def test_a_plan_for_another_platform_is_refused_with_what_to_do() -> None:
    made = replace(plan(task("a", "s"), sensors={"s": MS}), platform="jetson-agx-orin-64gb")
    with pytest.raises(UsageError, match="jetson") as caught:
        executed(made, frames=1, platform=None)
    assert "-p host" in caught.value.hint


def lidar() -> tuple[Plan, Pipeline]:
    made = plan(task("voxelise", "lidar"), task("tracker", "voxelise"), sensors={"lidar": 5 * MS})
    pipe = Pipeline(
        "toy",
        "toy",
        (Sensor("lidar", "lidar", 5 * MS, columns=("x", "y", "z", "intensity")),),
        (
            Stage("voxelise", "", "pointpillars.voxelise", ("lidar",)),
            Stage("tracker", "", None, ("voxelise",)),
        ),
        (Chain("toy", ("lidar", "tracker"), 100 * MS),),
    )
    return made, pipe


def scans(folder: Path) -> list[Path]:
    good = np.zeros((4, 4), np.float32)
    spoilt = good.copy()
    spoilt[2, 1] = np.nan
    contents = {"0": good.tobytes(), "1": b"", "2": good.tobytes()[:-3], "3": spoilt.tobytes(), "4": good.tobytes()}
    for name, content in contents.items():
        (folder / f"{name}.bin").write_bytes(content)
    return [folder / f"{name}.bin" for name in contents]


def test_unusable_scans_are_reported_and_dropped_and_the_run_goes_on(tmp_path: Path, capsys: Any) -> None:
    made, pipe = lidar()
    trace = executed(made, pipe, platform=HERE, scans=scans(tmp_path))
    reported = capsys.readouterr().err
    assert all(f"{name}.bin" in reported for name in "123") and "0.bin" not in reported
    assert [job.frame for job in trace.jobs if job.task == "tracker"] == [0, 4]
    assert len(trace.releases["lidar"]) == 5
    assert [note.frame for note in trace.instants if note.kind == "input"] == [1, 2, 3]
    assert [note.frame for note in trace.instants if note.kind == "drop"] == [1, 2, 3]
    assert trace.details[0]["points"] == 4 and "NaN" in trace.details[3]["problem"]


def test_scans_are_repeated_only_if_more_frames_are_requested(tmp_path: Path) -> None:
    made, pipe = lidar()
    files = [scans(tmp_path)[0], scans(tmp_path)[4]]
    assert len(executed(made, pipe, platform=HERE, scans=files).releases["lidar"]) == 2
    assert len(executed(made, pipe, platform=HERE, scans=files, duration_ns=1000 * MS).releases["lidar"]) == 2
    trace = executed(made, pipe, platform=HERE, scans=files, frames=3)
    assert [trace.details[frame]["input"] for frame in range(3)] == ["0.bin", "4.bin", "0.bin"]


def test_figures_of_voxels_are_recorded_on_request(tmp_path: Path) -> None:
    made, pipe = lidar()
    good = [scans(tmp_path)[0]]
    plain = executed(made, pipe, platform=HERE, scans=good)
    assert "voxels_sha256" not in plain.details[0]
    reported = executed(made, pipe, platform=HERE, scans=good, stats=True, pace="asap").details[0]
    assert (reported["points"], reported["pillars"], reported["points_in_pillars"]) == (4, 1, 4)
    assert len(reported["voxels_sha256"]) == 64


def test_a_shielded_job_starts_in_the_end_though_nothing_else_happens() -> None:
    hard = task("hard", "a", period_ns=100 * MS, criticality="hard")
    soft = task("soft", "b", lanes=(1,), period_ns=200 * MS, criticality="soft")
    made = plan(hard, soft, sensors={"a": 100 * MS, "b": 200 * MS})
    script = Scripted(lambda name, number: sleep(110) if name == "soft" else None)
    trace = run(made, script, duration_ns=250 * MS, options=Options(shield=True))
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    assert {job.status for job in jobs.values()} == {"done"}, "no job waits for a release that does not come"
    assert jobs["soft", 1].start_ns >= 400 * MS, "at 200 ms it would have been in the way of a frame at 300"
