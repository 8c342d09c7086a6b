"""The probe of this machine: which samples count, when it is repeated, and that what it times is what runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.descriptor import host
from socsched.descriptor.host import Conditions, HostProbe
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import Figure, FunctionCost
from socsched.errors import MachineError
from socsched.executor import probe
from socsched.executor.probe import calls, functions
from socsched.models.registry import get_model

PROBE = HostProbe(
    Conditions("cpu", 2, "performance", {"tvm": "a"}, 1000.0, 0.5, 1.0, 1e9, 4.0),
    (KernelTimes("tvm", "a", "2026-01-02", "fp32", (KernelTime("conv", 1, 1e6, 1e5, 1e4, 9e3),), 16),),
    {"voxelise": FunctionCost(Figure(3e5, "measured", "detect", "", 0.2), {"points": 100}, {}, units=1)},
    20e9,
    35e9,
    {"dram_me": 0.1},
)


def test_disturbed_samples_do_not_count_and_the_fastest_stands_in_for_too_few() -> None:
    wall = np.array([[100, 50], [100, 40], [104, 60], [900, 45], [100, 44]])
    used = np.array([[100, 20], [100, 20], [104, 20], [300, 20], [100, 20]])
    times = calls.undisturbed(wall, used, 1)
    assert times.low.tolist() == [100, 40]
    assert times.fine.tolist() == [4, 0]
    assert times.spread[1] == 1.0 and times.spread[0] < 0.05


def test_calls_beside_another_program_on_a_core_do_not_count() -> None:
    wall, used = np.full((5, 1), 100), np.array([[100], [100], [-100], [100], [-100]])
    wall[used < 0] = 60
    times = calls.undisturbed(wall, used, 1)
    assert (times.low[0], times.fine[0], times.share) == (100, 3, 500 / 420)
    assert calls.is_alone() in (True, False)


def test_two_threads_are_undisturbed_only_if_both_had_a_processor() -> None:
    wall = np.full((4, 1), 100)
    assert calls.undisturbed(wall, np.full((4, 1), 198), 2).fine[0] == 4
    assert calls.undisturbed(wall, np.full((4, 1), 150), 2).fine[0] == 0


def test_a_chain_twice_as_long_takes_longer_and_leaves_the_thread_as_it_was() -> None:
    cpus, policy = os.sched_getaffinity(0), os.sched_getscheduler(0)
    short, long = (float(calls.chain(n).times([max(cpus)], 0.01).low[0]) for n in (20_000, 400_000))
    assert long > short
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0)) == (cpus, policy)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_that_share_one_processor_end(threads: int) -> None:
    """Each waits for the others: as on a machine whose processors other programs of this class hold."""
    probing = f"""
import os
from socsched.executor.probe import calls
cpu = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, [cpu])
copy, chain = calls.copy(1 << 18), calls.chain(1000)
for _ in range(20):
    assert copy.times([cpu] * {threads}, 0.001, least=2, most=20).low[0] > 0
assert copy.times([cpu] * 2, 0.001, chain, least=2, most=20).low[0] > 0
"""
    subprocess.run([sys.executable, "-c", probing], check=True, timeout=60)


def test_threads_that_come_later_find_no_chunk_of_calls_before(tmp_path: Path) -> None:
    """Machines of more than two processors are timed on one, two, and then on more threads."""
    source = tmp_path / "counted.c"
    source.write_text("""
#include <stdatomic.h>
static _Atomic int visits[1024];
static _Atomic int open, stale;
int (*__TVMBackendParallelLaunch)(int (*)(int, void*, void*), void*, int);
static int chunk(int number, void* group, void* context) {
  (void)group;
  if (!open || context != &visits) stale = 1;
  visits[number]++;
  return 0;
}
int kernel(void* self, const void* arguments, int count, void* result) {
  (void)self, (void)arguments, (void)count, (void)result;
  open = 1;
  __TVMBackendParallelLaunch(chunk, &visits, 24);
  open = 0;
  for (int i = 0; i < 1024; i++)
    if (atomic_exchange(&visits[i], 0) != (i < 24)) stale = 1;
  return -stale;
}
""")
    probing = f"""
import ctypes, os
from socsched.executor.probe import calls
library = ctypes.CDLL({str(tmp_path / "counted.so")!r})
calls._harness().socsched_supply(ctypes.c_void_p(library._handle))
counted = (calls._Call * 1)()
counted[0].kernel = ctypes.cast(library.kernel, ctypes.c_void_p)
cpu = min(os.sched_getaffinity(0))
for threads in (2, 3, 5, 9, 2, 9):
    calls.Calls(["kernel"], counted, []).times([cpu] * threads, 0.001, least=2, most=20)
"""
    build = ["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "counted.so")]
    subprocess.run(build, check=True)
    subprocess.run([sys.executable, "-c", probing], check=True, timeout=60)


def test_calls_end_at_a_limit_however_few_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose other programs leave this one little: what was timed until then counts, nothing is an error."""
    cpu, long = [max(os.sched_getaffinity(0))], calls.chain(200_000)
    monkeypatch.setattr(calls, "GRACE_S", 0.02)
    start = time.monotonic()
    few = long.times(cpu, 0.0, least=1 << 20, most=1 << 20)
    assert few.low[0] > 0 and few.fine[0] < 1 << 19
    assert time.monotonic() - start < 30
    monkeypatch.setattr(calls, "GRACE_S", 0.0)
    with pytest.raises(MachineError, match="too busy"):
        long.times(cpu, 0.0)


def test_a_machine_too_busy_for_some_calls_is_measured_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = calls.Calls.times

    def times(self: calls.Calls, cpus: Sequence[int], *more: Any, **options: Any) -> calls.Times:
        if len(cpus) > 1 or self.names == ["socsched_chain"]:
            raise MachineError("too busy")
        return taken(self, cpus, *more, **options)

    monkeypatch.setattr(calls.Calls, "times", times)
    cpu = max(os.sched_getaffinity(0))
    found = list(probe._time_memory(list(probe._memory()), [[cpu], [cpu, cpu]]))
    assert {one.threads for one in found} == {1} and {one.family for one in found} == {"copy", "read"}
    monkeypatch.setattr(probe, "_present", lambda: ("cpu", 2, "performance", {"tvm": "a"}))
    old = replace(PROBE.conditions, taken_s=time.time() - 3600)
    assert probe.holds(replace(PROBE, conditions=old)), "nobody can tell, and another would not be better"


def test_what_is_kept_is_what_was_measured(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path))
    host.kept("key", PROBE)
    assert host.recalled("key") == PROBE
    assert host.recalled("other") is None


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"model": "another"}, False),
        ({"governor": "powersave"}, False),
        ({"versions": {"tvm": "b"}}, False),
        ({"taken_s": time.time() - 40 * 86_400}, False),
        ({"chain_ns": 1200.0, "taken_s": time.time() - 3600}, False),
        ({"chain_ns": 1200.0}, True),  # of a process just before, on a machine whose clock seems to change
        ({"share": 0.5, "load": 1e6}, False),
        ({"share": 0.5, "load": 0.0}, True),
    ],
)
def test_a_probe_holds_while_machine_versions_and_clock_are_the_same(
    changes: dict[str, object], holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_present", lambda: ("cpu", 2, "performance", {"tvm": "a"}))
    monkeypatch.setattr(probe, "_chain_ns", lambda: 1000.0)
    known = replace(PROBE.conditions, taken_s=time.time() - 60)
    assert probe.holds(replace(PROBE, conditions=replace(known, **changes))) is holds  # type: ignore[arg-type]


def test_processes_that_begin_together_measure_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would plan with a probe of its own, which the others disturbed."""
    measured = []

    def measure() -> HostProbe:
        measured.append(1)
        time.sleep(0.2)
        return PROBE

    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path))
    monkeypatch.setattr(host, "probed", lambda: True)
    monkeypatch.setattr(host, "probe_key", lambda: "key")
    monkeypatch.setattr(probe, "measure", measure)
    monkeypatch.setattr(probe, "holds", lambda known: known == PROBE)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: probe.ensure(), range(4))) == [PROBE] * 4
    assert len(measured) == 1


def test_without_the_probe_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.SWITCH, host.QUICK)
    monkeypatch.setattr(probe, "measure", lambda: pytest.fail("measured"))
    assert probe.ensure() is None


def test_contention_is_what_the_pairs_show() -> None:
    found = probe.contention(30e9, [1.2, 1.4], 40e9)
    assert found["dram_me"] == 0 and found["dram_you"] == pytest.approx(0.4)
    assert found["error"] == pytest.approx((0.1 / 1.2 + 0.1 / 1.4) / 2, abs=1e-3)
    assert probe.contention(50e9, [1.0], 40e9)["dram_you"] == 0


def test_functions_get_other_frames_each_call_and_count_the_pixels_that_lie_between() -> None:
    maps = functions.anchor_maps(get_model("pointpillars.decode", {"range": [0, -39.68, -3, 34.56, 39.68, 1]}), 80)
    frames = functions.shifted(maps)
    assert len({frame[0].tobytes() for frame in frames}) == len(frames) > 4
    assert all(frame[1] is maps[1] for frame in frames)
    sizes = {(384, 640): 2, (384, 384): 2, (544, 960): 4, (480, 800): 4}  # 3, 5, 2, 2.4 columns to one
    for (height, width), each in sizes.items():
        model = get_model("camera.preprocess", {"input_height": height, "input_width": width})
        assert model.operators[0].attrs["neighbours"] == each * height * width


def test_the_interval_of_a_decoder_reaches_frames_without_candidates() -> None:
    def taken(anchors: float, candidates: float) -> tuple[dict[str, float], float]:
        return {"anchors": anchors, "candidates": candidates}, 0.01 + 6e-7 * anchors + 6e-4 * candidates

    sizes = [taken(anchors, candidates) for anchors in (3e5, 1e5) for candidates in (100.0, 50.0, 250.0)]
    for empty, least in ((0.19, 0.19), (0.01, 0.125), (0.3, 0.25)):
        cost = functions._cost(functions.GROWS["anchor-decode"], sizes, empty)
        assert cost.time_ns.value == pytest.approx(0.25e6, rel=0.01)
        assert cost.time_ns.error == pytest.approx((1 + functions.DATA) * 0.25 / least - 1, abs=0.01)
    points = [({"points": n, "pillars": n / 3}, 1e-5 * n) for n in (2e4, 1e4, 3e4)]
    assert functions._cost(functions.GROWS["voxelise"], points).time_ns.error == pytest.approx(functions.DATA, abs=0.01)
    pixels = [({"output_pixels": n}, 1e-5 * n) for n in (2e4, 1e4, 3e4)]
    normalised = functions._cost(functions.GROWS["camera-normalise"], pixels)
    assert normalised.time_ns.error == pytest.approx(functions.SIZED, abs=0.01)
