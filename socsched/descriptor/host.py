"""The platform `host`: this machine, detected and measured at run time, in the same types as a platform file.

Memory bandwidth and arithmetic rate are measured; what Linux hides (power without RAPL, boost clocks in a virtual
machine) is assumed, with the reasoning and a large error in the figure.  The speed of stages is *not* measured: the
planner predicts it from these figures, so that a run can contradict the prediction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from socsched.cache import keep, recall
from socsched.descriptor.host_probe import HostFacts, identity, probe, vector
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.platform import (
    Dram,
    Engine,
    EngineMode,
    Figure,
    Platform,
    PowerMode,
    Precision,
    Preemption,
    Source,
)

ENGINE = "cpu"
_FORMAT = 2
_LEAST_SCALING = 0.4
_LAUNCH_NS, _SUBMIT_NS = 4_000, 100_000
_CORE_MW, _IDLE_CORE_MW, _BASE_MW = 5_000, 1_000, 10_000


def detect(cache: bool = True) -> Platform:
    """Return this machine as platform ``host``.

    The measured facts are cached (`socsched.cache`), one file per CPU model and core count, with the date of the
    measurement, so that later plans use the same figures.  An unreadable file triggers a new measurement; with `cache`
    False the machine is always measured and the file left untouched.
    """
    model, cores = identity()
    key = hashlib.sha256(f"{model}/{cores}".encode()).hexdigest()[:12]
    facts = _facts(recall("host", key)) if cache else None
    if facts is None:
        facts = probe()
        if cache:
            keep("host", key, {"format": _FORMAT, **asdict(facts)})
    return build(facts)


def _facts(stored: Any) -> HostFacts | None:
    try:
        if stored.pop("format") != _FORMAT:
            return None
        for name in ("cores", "flags", "rapl"):
            stored[name] = tuple(stored[name])
        facts = HostFacts(**stored)
        usable = facts.copy_one > 0 and facts.copy_all > 0 and (facts.model, len(facts.cores)) == identity()
        return facts if usable else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def build(facts: HostFacts) -> Platform:
    """Return the platform that `facts` describe; pure, so that a stored detection reproduces the same plan."""
    name, bits = vector(facts.flags)
    clock = _clock(facts)
    dynamic = _power(_CORE_MW * len(facts.cores), "5 W a core at full load, as server and laptop cores draw")
    rate = max(facts.copy_one, facts.copy_all)
    bandwidth = _measured(rate, "numpy copy beyond the last-level cache, all cores, read plus written")
    cpu = Engine(
        id=ENGINE,
        kind="cpu",
        title=f"{facts.model} ({name})",
        units=len(facts.cores),
        unit="core",
        shares="unit",
        clock_hz=clock,
        precisions={"fp32": _precision(facts, bits, clock)},
        bandwidth=bandwidth,
        sram=Figure(facts.cache_bytes, "published", "linux", "last-level cache"),
        # the analysis models the executor, not Linux: under "none" each one runs jobs to completion
        preemption=Preemption("none", Figure(0, "derived", note="jobs run to completion unless a file says full")),
        launch_ns=Figure(_LAUNCH_NS, "derived", "vm", "one VM call and its allocations, 1.6 us + about 3 us", 0.5),
        submit_ns=Figure(_SUBMIT_NS, "assumed", note="waking a worker thread, loaded machine: 20-200 us", error=1.0),
        handoff_ns=Figure(0, "derived", note="one address space: outputs are handed over by reference"),
        converts=True,
        operators=OperatorRules(host_code=True),
        idle_mw=_power(_IDLE_CORE_MW * len(facts.cores), "1 W a core when idle"),
        dynamic_mw=dynamic,
        target=_target(facts),
    )
    return Platform(
        name="host",
        title=f"this machine: {facts.model}, {len(facts.cores)} cores",
        vendor="",
        engines=(cpu,),
        dram=_dram(facts, bandwidth),
        modes=(_mode(facts, clock, dynamic, bandwidth),),
        sources=_sources(facts),
    )


def _clock(facts: HostFacts) -> Figure:
    if facts.clock_hz:
        error = 0.0 if facts.clock_from == "cpufreq" else 0.7
        return Figure(facts.clock_hz, "published", "linux", f"read from {facts.clock_from}", error)
    return Figure(2_500_000_000, "assumed", note=f"{facts.clock_from}; 2.5 GHz is common", error=0.7)


def _precision(facts: HostFacts, bits: int, clock: Figure) -> Precision:
    if facts.sgemm_one > 0:
        ops = _measured(facts.sgemm_one / clock.value, "numpy sgemm 1024^3 on one core, per stated clock cycle", 0.1)
        # two threads of one core get half each; anything below that is background load
        scaling = min(max(facts.sgemm_all / (len(facts.cores) * facts.sgemm_one), _LEAST_SCALING), 1.0)
    else:
        note = f"two FMA pipes x {bits // 32} lanes x 2 operations; sgemm could not be measured"
        ops, scaling = Figure(2 * 2 * bits / 32, "derived", note=note, error=0.5), 0.9
    fewer = "Winograd multiplies 4 times less, and transforms: 500-700 of 240 GFLOP/s a core on AVX-512"
    note = f"of one core's rate times cores; sgemm keeps {scaling:.2f} of it on all cores"
    efficiency = {
        "conv": Figure(0.95 * scaling, "derived", "conv", f"direct rule 0.95 {note}", 0.25),
        "winograd": Figure(2.3 * scaling, "derived", "conv", f"{fewer}, 2.3 {note}", 0.3),
        "gemm": Figure(0.9 * scaling, "derived", "conv", f"1x1 layers 0.9 {note}", 0.25),
        "elementwise": Figure(0.05, "assumed", note="a load and a store an operation instead of FMA chains", error=1.0),
        "default": Figure(0.002, "assumed", note="index arithmetic, sorting, gather: 2 ns an operation", error=2.0),
    }
    return Precision("fp32", ops, "NCHW16c" if bits >= 128 else "NCHW", efficiency)


def _dram(facts: HostFacts, bandwidth: Figure) -> Dram:
    one = f"{facts.copy_one / 1e9:.1f} GB/s from one core"
    peak = Figure(bandwidth.value, "measured", "detect", f"no data sheet: the achievable figure stands in; {one}", 0.3)
    energy = Figure(100.0, "assumed", note="server DDR moves a byte for 50-200 pJ", error=1.0)
    size = Figure(facts.memory_bytes, "published", "linux", "memory this process may see")
    return Dram(peak, bandwidth, size, energy)


def _mode(facts: HostFacts, clock: Figure, dynamic: Figure, bandwidth: Figure) -> PowerMode:
    return PowerMode(
        name="default",
        aliases=(),
        id=0,
        default=True,
        cap_mw=None,
        base_mw=_power(_BASE_MW, "memory, board, fans"),
        dram=bandwidth,
        engines={ENGINE: EngineMode(len(facts.cores), round(clock.value), dynamic)},
        note=f"package energy counters: {'readable' if facts.rapl else 'none readable, so a run reports no power'}",
    )


def _target(facts: HostFacts) -> Mapping[str, Any]:
    return {"kind": "llvm", "host": True, "num-cores": len(facts.cores)}


def _sources(facts: HostFacts) -> dict[str, Source]:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(facts.versions.items()))
    return {
        "detect": Source(f"measured on this machine, {facts.date}, {versions}", "socsched.descriptor.host_probe"),
        "linux": Source("CPU description by Linux", "/proc/cpuinfo, /sys/devices/system/cpu"),
        "conv": Source("NCHW16c convolutions against the FMA peak of a core", "tools/bench/lowering.py --layers"),
        "vm": Source("TVM 0.27 virtual machine, cost of a call", "tools/bench/lowering.py"),
    }


def _measured(value: float, note: str, error: float = 0.15) -> Figure:
    return Figure(value, "measured", "detect", note, error)


def _power(value: int, why: str) -> Figure:
    return Figure(value, "assumed", note=f"no figures for this machine: {why}", error=1.0)
