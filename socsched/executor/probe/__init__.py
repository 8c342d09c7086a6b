"""The probe: what runs on this machine, measured on this machine, before plans for it rest on guesses.

It takes a few seconds and is kept in the cache with what it holds for: processor, governor, kernels and their versions.
It is repeated where one of these has changed, after a month, where it was disturbed and the machine now does less,
after a minute where its turns differ, and where a chain of additions takes another time than ten minutes ago or earlier
(the clock).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

from socsched.cache import alone, unusable
from socsched.compiler.store import digest
from socsched.cost.kernel_times import COPY, PACK, READ, UNPACK
from socsched.descriptor import host
from socsched.descriptor.host import Conditions, HostProbe
from socsched.descriptor.kernel_times import KernelTime, KernelTimes, alike, ways
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import ONNXRUNTIME, OWN
from socsched.errors import MachineError
from socsched.executor.probe import calls, functions, onnx_runtime, own
from socsched.executor.probe.calls import Calls, copy
from socsched.executor.probe.own import Program
from socsched.files import file_digest
from socsched.progress import tell

# What two programs that compute at once on two cores cost each other: networks alone, and beside a copy.

SLICE_S, TURNS = 0.04, 2
_STREAM = 1 << 26
"""Bytes of a copy that no cache holds."""


def time_pairs(programs: Sequence[Program], cpus: Sequence[int]) -> tuple[float, list[float]]:
    """Return a copy's bandwidth beyond every cache (bytes/s), and how much slower networks run beside one."""
    beside = copy(_STREAM)
    slower = [_time(one.launches, cpus, beside) / _time(one.launches, cpus) for one in programs]
    return 2.0 * _STREAM / _time(beside, cpus) * 1e9, [max(factor, 1.0) for factor in slower]


def contention(demand: float, slower: Sequence[float], capacity: float) -> dict[str, float]:
    """Return the parameters of the linear model that factors show under a bandwidth of `capacity` (bytes/s).

    Only what runs beside a network counts: most of what its own kernels move stays in caches.
    """
    mean = statistics.mean(slower)
    error = statistics.mean(abs(mean - factor) / factor for factor in slower)
    found = {"dram_you": (mean - 1) / min(demand / capacity, 1.0), "constant": 1.0, "error": error}
    return {"l2_me": 0.0, "l2_you": 0.0, "dram_me": 0.0, **{name: round(value, 3) for name, value in found.items()}}


def _time(calls: Calls, cpus: Sequence[int], beside: Calls | None = None) -> float:
    """Return the time (ns) of all calls, one after another, on the first processor; the least of some turns."""
    some = cpus if beside else cpus[:1]
    return min(float(calls.times(some, SLICE_S / TURNS, beside, least=3, most=60).low.sum()) for _ in range(TURNS))


LASTS_S = 30 * 86_400
SERVES_S = 600
"""Age up to which the clock counts as the same: on a busy machine it seems another to every process."""
UNSTEADY_S = 60
"""Age up to which a probe whose turns differ serves."""
STEADY, SHARED_STEADY, SETTLED_S = 0.06, 0.12, 4.3
"""Median difference between two turns up to which they agree, of one thread's times and of several threads'; time since
the first began within which the last one ends, unless it is the second."""
CLOCK = 0.08
"""Relative difference of the chain's time with which clocks count as others."""
DISTURBED = 0.9
"""Share of their time that the threads of an undisturbed probe had a processor."""
SECONDS, MEMORY_S = 0.4, 0.006
"""Time for a turn of the kernels of one runtime, and for copies of one size."""
_CHAIN, _CHAIN_S = 200_000, 0.02
_CACHED, _SIZES, _LARGEST = 1 << 18, (1 << 20, 1 << 22, 1 << 24), 1 << 26
_STEPS = ("compiling kernels", "kernels and copies", "host functions", "two at once")


def ensure(integers: bool = False) -> HostProbe | None:
    """Return the probe of this machine, measured now if the one in the cache does not hold; None where that fails.

    Plans without it are those of `--quick`.  `integers`: with kernels in int8, which few plans need.
    """
    if not host.probed():
        return None
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # would wait for its parent for ever
        raise MachineError("a script began anew in a process that it started", 'use `if __name__ == "__main__":`')
    key = host.probe_key()
    with alone(host.KIND):  # two probes at once would measure each other, and each process plan with its own
        known = host.recalled(key)
        valid = known is not None and holds(known)
        try:
            probe = known if known is not None and valid else measure()
            probe = with_integers(probe) if integers and len(_precisions(probe)) == 1 else probe
            probe = lying(probe)
        except (MachineError, OSError) as error:
            unusable(f"this machine is not measured: {error}")
            return None
        if probe is not known:
            host.kept(key, probe)
    return probe


def lying(probe: HostProbe) -> HostProbe:
    """Return a probe that knows how the processors lie to each other now, measured if they never lay so before."""
    cpus = sorted(os.sched_getaffinity(0))
    try:
        handover = calls.hand_over_ns(cpus)
    except MachineError:  # too busy to tell
        return probe
    tables = []
    for table in probe.kernels:
        lain = [one.handover for one in table.kernels if one.handover]
        if table.runtime == OWN and lain and not any(alike(one, handover) for one in lain):
            turns = _Turns([cpus], table.precision)
            turns.take()
            new = (one for one in turns.kernels if one.handover and not any(alike(one.handover, was) for was in lain))
            table = replace(table, kernels=(*table.kernels, *new))
        tables.append(table)
    same = all(one is other for one, other in zip(tables, probe.kernels, strict=True))
    return probe if same else replace(probe, kernels=tuple(tables))


def _precisions(probe: HostProbe) -> set[str]:
    return {one.precision for one in probe.kernels if one.runtime == OWN}


def prepare(stages: Sequence[Stage] = (), weights: Path | None = None) -> None:
    """Compile what measuring this machine takes, where it will be measured, and stages that will run on it."""
    if host.probed():
        own.prepare("fp32", stages, weights)


def holds(probe: HostProbe) -> bool:
    """Return whether a probe still says what this machine does."""
    was = probe.conditions
    now = _present()
    same = (was.model, was.cores, was.governor, dict(was.versions)) == (*now[:3], now[3])
    age = time.time() - was.taken_s
    if not same or not 0 <= age < LASTS_S:
        return False
    if was.share < DISTURBED and os.getloadavg()[0] < was.load / 2:
        return False
    if not was.steady and age > UNSTEADY_S:
        return False
    try:
        return age < SERVES_S or abs(_chain_ns() / was.chain_ns - 1) <= CLOCK
    except MachineError:  # too busy to tell, and to measure
        return True


def measure() -> HostProbe:
    """Return what this machine does now; MachineError without a C compiler."""
    cpus = sorted(os.sched_getaffinity(0))
    sets = [cpus[-count:] for count in dict.fromkeys((1, len(cpus)))]
    load = os.getloadavg()[0]
    _tell(0)
    own.prepare("fp32")
    _tell(1)
    start = time.monotonic()
    turns = _Turns(sets, "fp32")
    turns.take()
    date = time.strftime("%Y-%m-%d")
    foreign = onnx_runtime.time_networks(sets, SECONDS / 2)
    _tell(2)
    known = functions.time_functions()
    turns.settle()
    memory = [one for one in turns.kernels if one.family in (COPY, READ)]
    times = [KernelTimes(OWN, own.version(), date, "fp32", tuple(turns.kernels), own.block())]
    if foreign:
        times.append(KernelTimes(ONNXRUNTIME, onnx_runtime.version(), date, "fp32", (*foreign, *memory)))
    _tell(3)
    rates = [at.moved / at.time_ns * 1e9 for at in memory if at.family == COPY and at.moved == 2 * _LARGEST]
    if not rates:
        raise MachineError("the machine is too busy to time copies", "plan with --quick, or later")
    shared: Mapping[str, float] = {}
    if len(cpus) > 1:
        with suppress(MachineError):  # a machine too busy for this one keeps the other figures
            shared = contention(*time_pairs(turns.programs[:2], cpus[-2:]), max(rates))
    took = time.monotonic() - start
    conditions = Conditions(*_present(), _chain_ns(), load, turns.share, time.time(), took, turns.steady)
    return HostProbe(conditions, tuple(times), known, rates[0], max(rates), shared)


def with_integers(probe: HostProbe) -> HostProbe:
    """Return a probe with the times of our kernels in int8, measured now."""
    cpus = sorted(os.sched_getaffinity(0))
    _tell(0)
    own.prepare("int8")
    _tell(1)
    turns = _Turns([cpus[-count:] for count in dict.fromkeys((1, len(cpus)))], "int8")
    turns.take()
    turns.settle()
    first, shared = probe.kernels[0], (COPY, READ, PACK, UNPACK)
    memory = [one for one in first.kernels if one.family.partition(" of ")[0] in shared]
    kernels = [one for one in turns.kernels if one.family.partition(" of ")[0] not in shared]
    table = replace(first, date=time.strftime("%Y-%m-%d"), precision="int8", kernels=(*kernels, *memory))
    return replace(probe, kernels=(*probe.kernels, table))


class _Turns:
    """Times of our kernels and of copies, taken again until two turns agree.

    What slows a whole machine for a second, as writing files after an installation does, shows in no single call: of
    one thread's times the least counts.  What several threads take to hand each other data changes from minute to
    minute on virtual machines, and belongs to it: of their times the lower median counts, with the spread of turns.
    """

    def __init__(self, sets: Sequence[Sequence[int]], precision: str) -> None:
        self.sets, self.precision = sets, precision
        self.share, self.steady, self._begun = 0.0, False, time.monotonic()
        self._turns: dict[Any, list[KernelTime]] = {}
        self.programs, self._memory = own.programs(precision), list(_memory())

    @property
    def kernels(self) -> list[KernelTime]:
        """Return the time of every kernel, for each way in which the processors lay."""
        found = []
        for turns in (some for known in self._turns.values() for some in ways(known)):
            fine = sorted([one for one in turns if one.calls] or turns, key=lambda one: one.time_ns)
            one = fine[0] if fine[0].threads == 1 else fine[(len(fine) - 1) // 2]
            shows = one.threads > 1 or not self.steady  # a machine that does not settle does so to plans' jobs too
            apart = (fine[-1].time_ns - fine[0].time_ns) / one.time_ns if shows else 0.0
            found.append(replace(one, spread=max(one.spread, apart)))
        return found

    def take(self) -> None:
        """Take a turn, and note whether it agrees with those before."""
        kernels, share = own.time_networks(self.programs, self.sets, SECONDS, self.precision)
        apart: dict[bool, list[float]] = {}
        count = Counter[Any]()
        for one in (*kernels, *_time_memory(self._memory, self.sets)):
            work = astuple(one)[:5]  # of several equal kernels the first is compared with the first
            turns = self._turns.setdefault((work, count[work]), [])
            count[work] += 1
            if mine := [turn.time_ns for turn in turns if alike(turn.handover, one.handover)]:
                off = abs(math.log(one.time_ns / min(mine)))
                apart.setdefault(one.threads > 1, []).append(off)
            turns.append(one)
        limits = {shared: SHARED_STEADY if shared else STEADY for shared in apart}
        self.steady = bool(apart) and all(statistics.median(apart[one]) <= limits[one] for one in apart)
        self.share = max(self.share, share)

    def settle(self) -> None:
        """Take turns until one agrees with those before."""
        took = 0.0
        while not took or time.monotonic() + took < self._begun + SETTLED_S:
            start = time.monotonic()
            self.take()
            took = time.monotonic() - start
            if self.steady:
                return


def _memory() -> Iterator[tuple[str, calls.Calls, float]]:
    """Yield copies and reads, from what a core's cache holds to what no cache holds, and the bytes they move."""
    for size in (_CACHED, *_SIZES, _LARGEST):
        yield COPY, calls.copy(size), 2.0 * size
        yield READ, calls.read(size), float(size)


def _time_memory(some: Sequence[tuple[str, calls.Calls, float]], cpus: Sequence[Sequence[int]]) -> Iterator[KernelTime]:
    """Yield the times of copying and of reading."""
    for name, call, moved in some:
        for processors in cpus:
            try:
                times = call.times(processors, MEMORY_S, least=4, most=60)
            except MachineError:  # too busy for this one: other sizes tell
                continue
            low, spread, fine = (float(one[0]) for one in times[:3])
            yield KernelTime(name, len(processors), 0.0, moved, 0.0, low, spread, int(fine))


def _present() -> tuple[str, int, str, dict[str, str]]:
    """Return processor, cores, governor and versions."""
    model, cores = host.identity()
    versions = {OWN: own.version(), ONNXRUNTIME: onnx_runtime.version(), "probe": _sources()}
    return model, cores, host.governor(), versions


@cache
def _sources() -> str:
    """Return what identifies this package: what it measures, and how."""
    return digest(*(file_digest(file) for file in sorted(calls.SOURCE.parent.iterdir()) if file.is_file()))[:12]


def _chain_ns() -> float:
    """Return the time of a fixed chain of additions."""
    cpu = max(os.sched_getaffinity(0))
    chain = calls.chain(_CHAIN)
    return min(float(chain.times([cpu], _CHAIN_S).low[0]) for _ in range(3))


def _tell(step: int) -> None:
    tell("measuring this machine", step, len(_STEPS), "steps", _STEPS[step])
