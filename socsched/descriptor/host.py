"""The platform `host`: this machine, detected and measured at run time, in the same types as a platform file.

Memory bandwidth and arithmetic rate are measured; what Linux hides (power without RAPL, boost clocks in a virtual
machine) is assumed, with the reasoning and a large error in the figure.  The speed of stages is *not* measured: the
planner predicts it from these figures, so that a run can contradict the prediction.

Facts about this machine, read from Linux and measured in about a second: what `host.py` builds a platform from.

No privileges are needed.  Virtual machines may hide the true clock and the power sensor; what cannot be read is left
empty, never guessed.
"""

from __future__ import annotations

import hashlib
import os
import platform as _platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from socsched.cache import keep, recall
from socsched.descriptor import host_gpus
from socsched.descriptor.fields import Source
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.platform import (
    ONNXRUNTIME,
    OWN,
    Contention,
    Dram,
    Engine,
    EngineMode,
    Figure,
    FunctionCost,
    Platform,
    PowerMode,
    Precision,
    Preemption,
    Runtime,
)

# What the probe of this machine has measured, kept in the cache: kernels, host functions, memory, contention.
#
# `executor.probe` measures; `host` builds the platform from it.

FORMAT = 3
KIND = "host-probe"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement holds for, and what the machine did meanwhile.

    `versions`: of the kernels and of ONNX Runtime; `chain_ns`: time of a fixed chain of additions, which follows the
    clock; `load`: load average; `share`: of the time that the measuring threads had a processor; `taken_s`: when it was
    done (Unix time); `seconds`: how long it took, compiled; `steady`: its turns agree.
    """

    model: str
    cores: int
    governor: str
    versions: Mapping[str, str]
    chain_ns: float
    load: float
    share: float
    taken_s: float
    seconds: float
    steady: bool = True

    @property
    def date(self) -> str:
        """Return the day of the measurement."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.taken_s))


@dataclass(frozen=True, slots=True)
class HostProbe:
    """Measured kernels by runtime, host functions by name, and rates of copying (bytes read plus written a second).

    `contention`: parameters of the model "linear" (`cost.contention`), as pairs on two cores show them.
    """

    conditions: Conditions
    kernels: tuple[KernelTimes, ...]
    functions: Mapping[str, FunctionCost]
    copy_one: float
    copy_all: float
    contention: Mapping[str, float] = field(default_factory=dict)


def recalled(key: str) -> HostProbe | None:
    """Return the probe that the cache has for a machine (`host.key`), None if there is none that can be read."""
    stored = recall(KIND, key)
    try:
        return _probe(stored) if stored.pop("format") == FORMAT else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def kept(key: str, probe: HostProbe) -> None:
    """Keep a probe in the cache."""
    keep(KIND, key, {"format": FORMAT, **asdict(probe)})


def _probe(stored: dict[str, Any]) -> HostProbe:
    kernels = tuple(
        KernelTimes(**{**times, "kernels": tuple(KernelTime(**one) for one in times["kernels"]), "elsewhere": ()})
        for times in stored.pop("kernels")
    )
    functions = {name: _function(cost) for name, cost in stored.pop("functions").items()}
    return HostProbe(Conditions(**stored.pop("conditions")), kernels, functions, **stored)


def _function(stored: dict[str, Any]) -> FunctionCost:
    per_million = {name: Figure(**figure) for name, figure in stored["per_million"].items()}
    return FunctionCost(Figure(**stored["time_ns"]), stored["work"], per_million, units=stored["units"])


VECTORS = (
    ("avx512f", "AVX-512", 512),
    ("avx2", "AVX2", 256),
    ("avx", "AVX", 256),
    ("sve", "SVE", 128),
    ("asimd", "NEON", 128),
)
"""CPU flag, common name, vector bits assumed; the first flag present counts (SVE: at least 128 bits)."""

_GEMM = """
import time, numpy
from concurrent.futures import ThreadPoolExecutor
n = 1024
def work(_):
    a = numpy.full((n, n), 0.5, numpy.float32); b = a.copy(); c = a.copy(); best = 0.0
    end = time.perf_counter() + {seconds}
    while time.perf_counter() < end:
        start = time.perf_counter(); numpy.matmul(a, b, out=c)
        best = max(best, 2 * n**3 / (time.perf_counter() - start))
    return best
with ThreadPoolExecutor({threads}) as pool:
    print(sum(pool.map(work, range({threads}))))
"""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts found: `cores` usable CPU numbers, `clock_hz` 0 when hidden, rates in bytes/s and operations/s.

    `copy_one`/`copy_all`: bytes read plus bytes written per second by one and by all cores copying blocks larger than
    the last-level cache; `sgemm_one`/`sgemm_all`: fp32 operations per second of 1024^3 matrix products, one on one core
    and one on every core, each the fastest of many runs (0 when it could not be measured); `rapl`: readable package
    energy counters; `load`: the load average before they were measured.
    """

    model: str
    machine: str
    cores: tuple[int, ...]
    flags: tuple[str, ...]
    clock_hz: int
    clock_from: str
    cache_bytes: int
    memory_bytes: int
    copy_one: float
    copy_all: float
    sgemm_one: float
    sgemm_all: float
    rapl: tuple[str, ...]
    date: str
    versions: Mapping[str, str]
    load: float = 0.0

    @property
    def disturbed(self) -> float:
        """Return by how much rates may be above those measured, relative to them: what other programs took."""
        # of the cores' time, measuring threads got cores / (cores + load) at the least; up to a quarter is idle noise
        share = self.load / max(len(self.cores), 1)
        return min(share, 1.0) if share > _NOISE else 0.0


def probe(root: Path = Path("/")) -> HostFacts:
    """Return the facts about this machine; measuring takes about 1.5 s. `root` contains /proc and /sys."""
    import numpy

    load = os.getloadavg()[0]
    info = cpu_info(_read(root / "proc/cpuinfo"))
    cores = tuple(sorted(os.sched_getaffinity(0)))
    clock, clock_from = clock_hz(root, info)
    cache = last_level_cache(root)
    sgemm = [_sgemm(n, "avx512f" in info["flags"].split()) for n in (1, len(cores))]
    return HostFacts(
        model=info["model"],
        machine=_platform.machine(),
        cores=cores,
        flags=tuple(info["flags"].split()),
        clock_hz=clock,
        clock_from=clock_from,
        cache_bytes=cache,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        copy_one=copy_rate(1, cache),
        copy_all=copy_rate(len(cores), cache),
        sgemm_one=sgemm[0],
        sgemm_all=sgemm[1],
        rapl=tuple(map(str, rapl_domains(root))),
        date=time.strftime("%Y-%m-%d"),
        versions={"python": _platform.python_version(), "numpy": numpy.__version__, **_installed(ONNXRUNTIME)},
        load=load,
    )


def _installed(package: str) -> dict[str, str]:
    """Return the version of a Python package by its name, empty where it is not installed."""
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


def identity(root: Path = Path("/")) -> tuple[str, int]:
    """Return (CPU model, usable cores), which a stored detection must match; costs one file read."""
    return cpu_info(_read(root / "proc/cpuinfo"))["model"], len(os.sched_getaffinity(0))


def cpu_info(text: str) -> dict[str, str]:
    """Return model, flags and MHz from the text of /proc/cpuinfo (x86: model name, flags; Arm: part, Features)."""
    fields: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), []).append(value.strip())
    part = f"{_platform.machine()} CPU part {fields.get('cpu part', ['unknown'])[0]}"
    return {
        "model": fields.get("model name", [part])[0] or part,
        "flags": fields.get("flags", fields.get("features", [""]))[0],
        "mhz": str(max(map(float, fields.get("cpu mhz", ["0"])))),
    }


def vector(flags: tuple[str, ...]) -> tuple[str, int]:
    """Return the name and width in bits of the widest vector extension in `flags`; ("scalar", 32) without one."""
    for flag, name, bits in VECTORS:
        if flag in flags:
            return name, bits
    return "scalar", 32


def clock_hz(root: Path, info: Mapping[str, str]) -> tuple[int, str]:
    """Return the highest clock Linux reports and where it was read; (0, reason) when it reports none."""
    policies = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq")
    khz = [int(text) for text in map(_read, policies) if text.strip().isdigit()]
    if khz:
        return max(khz) * 1000, "cpufreq"
    if float(info["mhz"]) > 0:
        return round(float(info["mhz"]) * 1e6), "/proc/cpuinfo (no cpufreq: boost clocks are unknown)"
    return 0, "neither cpufreq nor /proc/cpuinfo states a clock"


def last_level_cache(root: Path) -> int:
    """Return the size of the largest cache of CPU 0 in bytes, 32 MiB when Linux does not report it."""
    factor = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
    texts = [_read(path).strip() for path in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")]
    sizes = [re.fullmatch(r"(\d+)([KMG]?)", text) for text in texts]
    return max((int(m[1]) * factor[m[2]] for m in sizes if m), default=32 * 2**20)


def rapl_domains(root: Path = Path("/")) -> list[Path]:
    """Return the package energy counters (Linux powercap, microjoules) readable by this user."""
    domains = sorted(root.glob("sys/class/powercap/*:[0-9]*/energy_uj"))
    return [path for path in domains if path.parent.name.count(":") == 1 and os.access(path, os.R_OK)]


def copy_rate(threads: int, cache_bytes: int, seconds: float = 0.2) -> float:
    """Return bytes read plus written per second while `threads` threads copy blocks beyond the last-level cache.

    The best of three rounds that last `seconds` in total: background load can only lower the rate.
    """
    from concurrent.futures import ThreadPoolExecutor

    import numpy

    size = max(2 * cache_bytes // threads, 16 * 2**20) // 4
    blocks = [(numpy.ones(size, numpy.float32), numpy.ones(size, numpy.float32)) for _ in range(threads)]

    def work(block: tuple[Any, Any]) -> float:
        copies, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3 or not copies:
            numpy.copyto(block[1], block[0])
            copies += 1
        return 2 * 4 * size * copies / (time.perf_counter() - start)

    with ThreadPoolExecutor(threads) as pool:
        return max(sum(pool.map(work, blocks)) for _ in range(3))


def _sgemm(threads: int, avx512: bool, seconds: float = 0.25) -> float:
    """Return the matrix-product rate, measured in a separate process because a BLAS reads its thread count once.

    Every core computes a separate product: without barriers, load on one core does not slow the others.
    """
    env = {**os.environ, **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")}
    if avx512:  # environments pin older kernels for reproducible sums; here the machine's full rate is wanted
        env["OPENBLAS_CORETYPE"] = "SkylakeX"
    command = [sys.executable, "-c", _GEMM.format(seconds=seconds, threads=threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    try:
        return float(done.stdout)
    except ValueError:
        return 0.0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


SWITCH, QUICK = "SOCSCHED_HOST", "quick"
ENGINE = "cpu"
_FORMAT = 4
_NOISE = 0.25
"""Load average of a core up to which a machine counts as idle."""
_LEAST_SCALING = 0.4
UNMEASURED = 0.6
"""Relative error of kernels' rates where no probe has measured them: those of another machine, per product rate."""
_DOT_PRODUCTS = {"avx512_vnni", "avx_vnni", "asimddp"}
"""Flags of processors that multiply bytes four at a time."""
_LAUNCH_NS, _SUBMIT_NS = 4_000, 100_000
_CORE_MW, _IDLE_CORE_MW, _BASE_MW = 5_000, 1_000, 10_000


def detect(cache: bool = True) -> Platform:
    """Return this machine as platform ``host``.

    The measured facts are cached (`socsched.cache`), one file per CPU model and core count, with the date of the
    measurement, so that later plans use the same figures. An unreadable file triggers a new measurement, and so does
    one of a busy machine that is less so now; with `cache` False the machine is always measured and the file left
    untouched.
    """
    key = probe_key()
    facts = _facts(recall("host", key)) if cache else None
    if facts is None or (facts.disturbed and os.getloadavg()[0] < facts.load / 2):
        facts = probe()
        if cache:
            keep("host", key, {"format": _FORMAT, **asdict(facts)})
    found = host_gpus.find(cache=cache) if host_gpus.has_compiler() else ()
    return host_gpus.added(build(facts, recalled(key) if cache and probed() else None), found)


def probe_key() -> str:
    """Return the key of this machine in the cache: its processor and number of cores."""
    model, cores = identity()
    return hashlib.sha256(f"{model}/{cores}".encode()).hexdigest()[:12]


def probed() -> bool:
    """Return whether plans for this machine rest on its probe: unless $SOCSCHED_HOST is "quick"."""
    return os.environ.get(SWITCH, "") != QUICK


def governor(root: Path = Path("/")) -> str:
    """Return the governors of the clocks, empty where Linux shows none."""
    found = {_read(path).strip() for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    return ",".join(sorted(found))


def _facts(stored: Any) -> HostFacts | None:
    try:
        if stored.pop("format") != _FORMAT:
            return None
        for name in ("cores", "flags", "rapl"):
            stored[name] = tuple(stored[name])
        facts = HostFacts(**stored)
        usable = (
            facts.copy_one > 0
            and facts.copy_all > 0
            and facts.load >= 0
            and (facts.model, len(facts.cores)) == identity()
        )
        return facts if usable else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def build(facts: HostFacts, measured: HostProbe | None = None) -> Platform:
    """Return the platform of `facts`, and of what was `measured`; pure, so that what is stored gives the same plan.

    Without a probe, figures of other machines stand for kernels and host functions, with intervals as wide as that is,
    and wider by what other programs took while the machine was measured.
    """
    name, bits = vector(facts.flags)
    clock = _clock(facts)
    if measured is not None:
        # a probe notices itself what disturbed it
        facts = replace(facts, copy_one=measured.copy_one, copy_all=measured.copy_all, load=0.0)
    dynamic = _power(_CORE_MW * len(facts.cores), "5 W a core at full load, as server and laptop cores draw")
    rate = max(facts.copy_one, facts.copy_all)
    how = "numpy copy beyond the last-level cache, all cores, read plus written"
    bandwidth = _measured(rate, how, 0.15 + facts.disturbed)
    precisions = _precisions(facts, bits, clock)
    cpu = Engine(
        id=ENGINE,
        kind="cpu",
        title=f"{facts.model} ({name})",
        units=len(facts.cores),
        unit="core",
        shares="unit",
        clock_hz=clock,
        precisions=precisions,
        bandwidth=bandwidth,
        sram=Figure(facts.cache_bytes, "published", "linux", "last-level cache"),
        # the analysis models the executor, not Linux: under "none" each one runs jobs to completion
        preemption=Preemption("none", Figure(0, "derived", note="jobs run to completion unless a file says full")),
        launch_ns=_launch(measured),
        submit_ns=_submit(measured),
        handoff_ns=Figure(0, "derived", note="one address space: outputs are handed over by reference"),
        converts=True,
        conversion=_conversion(facts),
        operators=OperatorRules(host_code=True),
        idle_mw=_power(_IDLE_CORE_MW * len(facts.cores), "1 W a core when idle"),
        dynamic_mw=dynamic,
        target=_target(facts),
        runtimes=_runtimes(facts, precisions),
        functions=measured.functions if measured else {},
        kernel_times=tuple(one.expected() for one in measured.kernels) if measured else (),
    )
    return Platform(
        name="host",
        title=f"this machine: {facts.model}, {len(facts.cores)} cores",
        vendor="",
        engines=(cpu,),
        dram=_dram(facts, bandwidth, measured),
        modes=(_mode(facts, clock, dynamic, bandwidth),),
        sources=_sources(facts),
    )


def _conversion(facts: HostFacts) -> Figure | None:
    """Return the bytes/s of one core that converts: planes and channels lie apart, which takes longer than a copy."""
    note = "0.4 of a copy by one core: 3 to 7 GB/s of 14 for images of 72 channels between layouts and fp16, fp32"
    return Figure(0.4 * facts.copy_one, "derived", "", note, 0.5) if facts.copy_one > 0 else None


def _launch(measured: HostProbe | None) -> Figure:
    if measured:
        return Figure(0, "derived", note="part of the kernels' measured times")
    return Figure(_LAUNCH_NS, "derived", "vm", "one VM call and its allocations, 1.6 us + about 3 us", 0.5)


def _submit(measured: HostProbe | None) -> Figure:
    if measured:
        return Figure(2_000, "assumed", note="a job's start once its thread is awake", error=1.0)
    return Figure(_SUBMIT_NS, "assumed", note="waking a worker thread, loaded machine: 20-200 us", error=1.0)


def _clock(facts: HostFacts) -> Figure:
    if facts.clock_hz:
        error = 0.0 if facts.clock_from == "cpufreq" else 0.7
        return Figure(facts.clock_hz, "published", "linux", f"read from {facts.clock_from}", error)
    return Figure(2_500_000_000, "assumed", note=f"{facts.clock_from}; 2.5 GHz is common", error=0.7)


def _precisions(facts: HostFacts, bits: int, clock: Figure) -> dict[str, Precision]:
    floats = _precision(facts, bits, clock)
    own = "four byte products in a lane of an instruction" if _DOT_PRODUCTS & set(facts.flags) else "widened to 16 bits"
    ops = floats.ops_per_cycle
    times = 4 if _DOT_PRODUCTS & set(facts.flags) else 1
    rate = Figure(times * ops.value, "derived", ops.source, f"{times} times fp32's: bytes are {own}", 0.3)
    note = "0.6 of the share that fp32 reaches: loads, rounding and packing keep their time"
    reached = {"conv": Figure(0.6 * floats.efficiency["conv"].value, "derived", "conv", note, 0.5)}
    for kind in ("gemm", "elementwise", "default"):
        figure = floats.efficiency[kind]
        why = "computed in fp32, or rounded in 32-bit lanes"
        reached[kind] = Figure(figure.value / times, "assumed", note=why, error=figure.error)
    # without calibration int8 changes results, so that no plan chooses it by itself
    return {"fp32": floats, "int8": Precision("int8", rate, floats.layout, reached, on_request=True)}


_SGEMM = "numpy sgemm 1024^3 on one core, per stated clock cycle"


def _precision(facts: HostFacts, bits: int, clock: Figure) -> Precision:
    if facts.sgemm_one > 0:
        ops = _measured(facts.sgemm_one / clock.value, _SGEMM, 0.1 + facts.disturbed)
        # two threads of one core get half each; anything below that is background load
        scaling = min(max(facts.sgemm_all / (len(facts.cores) * facts.sgemm_one), _LEAST_SCALING), 1.0)
    else:
        note = f"two FMA pipes x {bits // 32} lanes x 2 operations; sgemm could not be measured"
        ops, scaling = Figure(2 * 2 * bits / 32, "derived", note=note, error=0.5), 0.9
    fewer = "Winograd multiplies 4 times less, and transforms: 500-700 of 240 GFLOP/s a core on AVX-512"
    note = f"of one core's rate times cores; sgemm keeps {scaling:.2f} of it on all cores"
    doubt = UNMEASURED + facts.disturbed
    efficiency = {
        "conv": Figure(0.95 * scaling, "derived", "conv", f"direct rule 0.95 {note}", doubt),
        "winograd": Figure(2.3 * scaling, "derived", "conv", f"{fewer}, 2.3 {note}", doubt),
        "gemm": Figure(0.9 * scaling, "derived", "conv", f"1x1 layers 0.9 {note}", doubt),
        "elementwise": Figure(0.05, "assumed", note="a load and a store an operation instead of FMA chains", error=1.0),
        "default": Figure(0.002, "assumed", note="index arithmetic, sorting, gather: 2 ns an operation", error=2.0),
    }
    return Precision("fp32", ops, "NCHW16c" if bits >= 128 else "NCHW", efficiency)


def _runtimes(facts: HostFacts, precisions: Mapping[str, Precision]) -> tuple[Runtime, ...]:
    """Return our kernels and, where its package is installed, ONNX Runtime, once a data type: its shares differ."""
    release = facts.versions.get(ONNXRUNTIME, "")
    found = [Runtime(OWN)]
    for name in _OF_OURS if release else ():
        shares, ours = {}, precisions[name].efficiency
        tiles = _TILES if name == "int8" and _TILE_FLAG in facts.flags else {}
        for kind, (factor, error) in (_OF_OURS[name] | tiles).items():
            how = "AMX" if kind in tiles else "AVX-512"
            note = f"{factor:g} of our kernels' {ours[kind].value:.3g}, onnxruntime 1.31 on {how}"
            shares[kind] = Figure(factor * ours[kind].value, "derived", "networks", note, error)
        without = ("pillar_features", "scatter")
        found.append(Runtime(ONNXRUNTIME, release, efficiency=shares, without=without, precisions=(name,)))
    return tuple(found)


_OF_OURS = {
    "fp32": {
        "conv": (0.8, 0.3),
        "winograd": (0.35, 0.3),
        "gemm": (1.0, 0.3),
        "elementwise": (1.2, 1.0),
        "default": (2.0, 2.0),
    },
    "int8": {"conv": (0.85, 0.3), "gemm": (2.0, 0.3), "elementwise": (3.0, 1.0), "default": (2.0, 2.0)},
}
"""Shares of the peak that ONNX Runtime reaches, relative to those of our kernels, and their errors.

Where both are about equal, the figures lean to ONNX Runtime, which is what users compare with."""
_TILE_FLAG, _TILES = "amx_int8", {"conv": (2.1, 0.5), "gemm": (5.0, 0.5)}
"""Processors that multiply tiles of bytes: ONNX Runtime does, which took 0.28 to 0.5 of what the shares above say."""


def _dram(facts: HostFacts, bandwidth: Figure, measured: HostProbe | None) -> Dram:
    one = f"{facts.copy_one / 1e9:.1f} GB/s from one core"
    peak = Figure(bandwidth.value, "measured", "detect", f"no data sheet: the achievable figure stands in; {one}", 0.3)
    energy = Figure(100.0, "assumed", note="server DDR moves a byte for 50-200 pJ", error=1.0)
    size = Figure(facts.memory_bytes, "published", "linux", "memory this process may see")
    shared = measured.contention if measured else {}
    contention = Contention("linear", shared, "detect") if shared else Contention("")
    return Dram(peak, bandwidth, size, energy, contention=contention)


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
        "detect": Source(f"measured on this machine, {facts.date}, {versions}", "socsched.descriptor.host"),
        "linux": Source("CPU description by Linux", "/proc/cpuinfo, /sys/devices/system/cpu"),
        "conv": Source("NCHW16c convolutions against the FMA peak of a core", "tools/bench/lowering.py, since removed"),
        "networks": Source("networks with either program", "tools/bench/networks.py"),
        "vm": Source("TVM 0.27 virtual machine, cost of a call", "tools/bench/lowering.py, since removed"),
    }


def _measured(value: float, note: str, error: float = 0.15) -> Figure:
    return Figure(value, "measured", "detect", note, error)


def _power(value: int, why: str) -> Figure:
    return Figure(value, "assumed", note=f"no figures for this machine: {why}", error=1.0)
