"""Ctrl-C: what was simulated so far is a valid, shorter result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import plan, task

from socsched.planning.io import save
from socsched.sim.build import load_kernel
from socsched.sim.simulate import run, simulate
from socsched.trace.metrics import result

CHECKOUT = Path(__file__).parents[2]


def interrupted_after(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel be interrupted between two stretches of events."""
    base = load_kernel("python")

    class Interrupted(base):  # type: ignore[misc, valid-type]
        seen = 0

        def run_events(self, most: int) -> bool:
            if self.seen == calls:
                signal.raise_signal(signal.SIGINT)
            self.seen += 1
            return bool(super().run_events(1000))

    monkeypatch.setattr("socsched.sim.simulate.load_kernel", lambda *_: Interrupted)
    # a shell that starts this in the background has the signal ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("record", [True, False])
def test_a_shorter_simulation_is_returned(monkeypatch: pytest.MonkeyPatch, record: bool) -> None:
    made = plan([task("a", 3, period_ns=10), task("b", 4, period_ns=14)])
    with monkeypatch.context() as patch:
        interrupted_after(2, patch)
        found = run(made, 10**9, record=record)
    assert found.interrupted and 2000 < found.duration_ns < 30_000
    # what is known is what a simulation of that length would know of its past
    whole = simulate(made, found.duration_ns)
    assert int(found.outcome.ints("done").sum()) >= sum(job.finish_ns >= 0 for job in whole.jobs)
    if record:
        assert found.trace is not None
        before = [job for job in found.trace.jobs if 0 <= job.finish_ns < found.duration_ns]
        assert before == [job for job in whole.jobs if 0 <= job.finish_ns < found.duration_ns]
        assert result(found.trace, made)["duration_ns"] == found.duration_ns


TELLING = """
import signal
import sys
from socsched.cli.root import run
from socsched.sim import simulate as engine

found = engine.load_kernel

def load_kernel(implementation, *rest):
    print("started", file=sys.stderr, flush=True)
    return found(implementation)

engine.load_kernel = load_kernel
# a background start of the tests may have set interrupts to be ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["taskset", "plan"])
def test_the_command_line_ends_with_a_result(tmp_path: Path, kind: str) -> None:
    """A hundred days, interrupted after a second: a whole result, and the exit code of its verdict."""
    if kind == "taskset":
        file = tmp_path / "set.taskset.json"
        file.write_text(json.dumps({"time_unit": "us", "tasks": [{"period": 100, "wcet": 30}]}))
    else:
        file = tmp_path / "plan.json"
        save(plan([task("a", 30_000, period_ns=100_000)]), file)
    command = [sys.executable, "-c", TELLING, "simulate", str(file), "--duration", "8640000 s", "--json"]
    # interpreted, so that little is recorded in a second
    environment = {**os.environ, "SOCSCHED_KERNEL": "python"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=CHECKOUT
    )
    try:
        assert process.stderr is not None and process.stderr.readline() == "started\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "interrupted" in errors and "Traceback" not in errors
    document = json.loads(output)
    if kind == "taskset":
        assert 0 < document["duration"] < 8640000 * 10**6
        row = document["tasks"][0]
        assert row["response_max"] == 30 and row["jobs_completed"] > 100
        # a period, and the nanosecond by which the duration leaves out the instant of its end
        assert abs(document["duration"] - 100 * row["jobs_released"]) < 101
    else:
        assert 0 < document["duration_ns"] < 8640000 * 10**9
        assert document["stages"]["a"]["jobs"] > 100
