"""Results of frames in a file that grows, and samples of meters."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from socsched.runtime import collect as frames_file
from socsched.runtime.collect import FramesFile, read_frames, settle
from socsched.runtime.meters import SamplingMeter


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


def test_samples_are_handed_over_once() -> None:
    with SamplingMeter(lambda: {"power_mw": 1.0}, 0.001) as meter:
        start, steps = time.monotonic_ns(), []
        for _ in range(20):
            time.sleep(0.005)
            steps += meter.counters(start).get("power_mw", [])
    times = [at for at, _ in steps]
    assert len(times) >= 20 and times == sorted(set(times))
