"""Long runs: detections go to a file, events to a journal, and neither stays in memory."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_plans import MS, Scripted, plan, run, task

from socsched.runtime import frames_file, session
from socsched.runtime.collect import Collector
from socsched.runtime.frames_file import FramesFile, read_frames, settle
from socsched.runtime.meters import SamplingMeter
from socsched.runtime.options import Options
from socsched.trace.trace import Trace

CLASSES = {"b": ("car", "van"), "camera": ("sign",)}


def outputs(count: int, prefix: str = "") -> dict[str, Any]:
    draw = np.random.default_rng(count)
    return {
        f"{prefix}boxes": draw.normal(size=(count, 7)).astype(np.float32),
        f"{prefix}scores": draw.random(count, np.float32),
        f"{prefix}labels": np.zeros(count, np.int64) if prefix else np.arange(count) % 2,
    }


def collected(file: FramesFile | None, figures: bool) -> Trace:
    trace = Trace("measured", 0, 0)
    with Collector(trace, figures, CLASSES, file) as collector:
        for frame in (0, 2, 1):
            collector.add(frame, "b", outputs(20 + frame))
            collector.note(frame, input=f"{frame}.bin", points=frame)
            if figures:
                collector.add(frame, "pfn", {"features": np.full((2, 3), frame)})
                collector.add(frame, "scatter", {"canvas": np.full((2, 3), -frame)})
        collector.add(1, "camera", outputs(3, "image_"))
        collector.note(4, problem="NaN")
    return trace


@pytest.mark.parametrize("figures", [False, True])
def test_the_file_says_what_memory_would_have_held(tmp_path: Path, figures: bool) -> None:
    expected = collected(None, figures).details
    assert not collected(FramesFile(tmp_path / "frames.jsonl"), figures).details
    lines = (tmp_path / "frames.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(json.dumps(expected[frame])) for frame in (0, 1, 2, 4)]


def test_parts_of_a_frame_are_put_together_and_torn_lines_left_out(tmp_path: Path) -> None:
    file = tmp_path / "frames.jsonl"
    parts = ['{"frame": 1, "a": 1}', '{"frame": 0, "tensors": {"x": 1}}', '{"frame": 0, "tensors": {"y": 2}}', '{"fra']
    file.write_text("\n".join(parts))
    expected = [{"frame": 0, "tensors": {"x": 1, "y": 2}}, {"frame": 1, "a": 1}]
    assert list(read_frames(file)) == expected
    with FramesFile(tmp_path / "none.jsonl"):
        pass
    assert not (tmp_path / "none.jsonl").exists(), "nothing was found"
    settle(file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == expected


def test_a_slow_disk_makes_writers_wait_and_a_full_one_releases_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames_file, "_BACKLOG", 4)
    file = FramesFile(tmp_path / "frames.jsonl")  # its thread is not started: nothing is written
    thread = threading.Thread(target=lambda: [file.add(n, {}) for n in range(6)], daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive() and len(file._parts) == 4
    file._file = open("/dev/full", "w")  # noqa: SIM115
    file._write()
    thread.join(5)
    assert not thread.is_alive() and isinstance(file.error, OSError)


def test_a_run_with_files_reports_the_same_and_keeps_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "class_names", lambda pipeline: CLASSES)
    made = plan(task("a", "s"), task("b", "a", lanes=(1,), deadline_ns=0), sensors={"s": 5 * MS})
    script = Scripted(lambda name, number: outputs(5) if name == "b" else {})
    kept: list[int] = []

    def look(report: Any) -> None:
        kept.append(sum(map(len, (traces[-1].jobs, traces[-1].slices, traces[-1].instants, traces[-1].details))))
        kept[-1] += sum(len(rows) for lists in (traces[-1].releases, traces[-1].counters) for rows in lists.values())

    traces: list[Trace] = []

    def traced(*given: Any) -> Trace:
        traces.append(Trace(*given))
        return traces[-1]

    monkeypatch.setattr(session, "Trace", traced)
    options = Options(journal=tmp_path / "journal.jsonl", frames=tmp_path / "frames.jsonl")
    accounts: dict[str, dict[str, int]] = {}
    trace = run(made, script, frames=400, options=options, accounts=accounts, on_frame=look)
    assert accounts["s"]["released"] == 400 == len(trace.releases["s"]) and len(kept) > 300
    assert len(trace.jobs) == 800 and [job.frame for job in trace.jobs if job.task == "a"] == list(range(400))
    done = [job for job in trace.jobs if job.status == "done"]
    assert sorted((trace.jobs[s.job].task, s.start_ns) for s in trace.slices) == sorted(
        (j.task, j.start_ns) for j in done
    )
    rows = len(trace.jobs) + len(trace.slices) + len(trace.instants) + 400
    assert max(kept) < rows / 2, "a second or so of two"
    found = list(read_frames(tmp_path / "frames.jsonl"))
    assert [entry["frame"] for entry in found] == sorted(job.frame for job in done if job.task == "b")
    assert all(len(entry["detections"]) == 5 for entry in found) and not trace.details


def test_samples_are_handed_over_once() -> None:
    with SamplingMeter(lambda: {"power_mw": 1.0}, 0.001) as meter:
        start, steps = time.monotonic_ns(), []
        for _ in range(20):
            time.sleep(0.005)
            steps += meter.counters(start).get("power_mw", [])
    times = [at for at, _ in steps]
    assert len(times) >= 20 and times == sorted(set(times))
