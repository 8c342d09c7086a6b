"""The share of the machine taken by other processes: from artificial counters, and with a process that spins."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from socsched.runtime.background_load import STAT, Neighbours

TICK = os.sysconf("SC_CLK_TCK")


def stat(busy: int) -> str:
    """Return counters (ticks) with `busy` in six columns of busy time and much idleness."""
    return f"cpu  {busy} {busy} {busy} 99999 7777 {busy} {busy} {busy} 0 0\ncpu0 1 2 3\n"


def test_busy_time_that_is_not_ours_belongs_to_other_processes() -> None:
    texts, own, now = iter([stat(0), stat(10 * TICK)]), iter([5.0, 35.0]), iter([100.0, 120.0])
    neighbours = Neighbours(lambda: next(texts), lambda: next(own), lambda: next(now))
    assert neighbours.taken() == pytest.approx((60 - 30) / 20)


def test_nothing_is_known_without_the_counters() -> None:
    def missing() -> str:
        raise FileNotFoundError

    assert Neighbours(missing).taken() is None
    assert Neighbours(lambda: "nonsense").taken() is None


@pytest.mark.skipif(not STAT.exists(), reason="no /proc/stat")
def test_only_work_of_other_processes_is_counted() -> None:
    neighbours = Neighbours()
    before = time.process_time()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        while time.process_time() - before < 1.0:
            pass
        found = neighbours.taken()
        process.kill()
    assert found is not None and found > 0.1, "one process spins, however little it gets"
