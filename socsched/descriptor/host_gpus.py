"""The CUDA GPUs of this machine as engines of the platform `host`: found through libcuda alone, measured once.

Rates of arithmetic follow from architecture, SMs and clock (CUDA C++ Programming Guide, "Arithmetic Instructions", and
the architectures' white papers); memory, link and launches are measured by `cuda_probe`, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from socsched.cache import cache_dir, keep, recall
from socsched.descriptor import cuda_probe
from socsched.descriptor.fields import Source
from socsched.descriptor.fit import PASS_KINDS, Fit, Parameters
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.platform import (
    Division,
    Engine,
    EngineMode,
    Figure,
    FunctionCost,
    Link,
    Platform,
    Precision,
    Preemption,
)

OLDEST = 70
"""First compute capability whose GPUs are engines."""
_FORMAT = 3
_SECONDS = 20.0
_NODES = ("nvidia[0-9]*", "nvhost-gpu", "nvgpu/igpu0/ctrl", "dxg")
_RATES = {
    70: 1024,
    75: 1024,
    80: 2048,
    86: 1024,
    87: 2048,
    89: 1024,
    90: 2560,
    100: 4096,
    103: 4096,
    110: 2048,
    120: 1024,
}
"""fp16 operations with fp32 sums of an SM and cycle, by mma.sync, a multiply-add being two."""
_FP32 = {70: 128, 75: 128, 80: 128, 87: 256}
"""Those in fp32 on CUDA cores; 256 where not listed."""
_TENSOR_CODE = 80
"""First capability whose tensor cores our rules use; code for older ones is that of general schedules."""
_LAUNCH_NS, _FILL_NS, _SUBMIT_NS, _HANDOFF_NS, _LINK_NS, _GRAPH_NS = 2_000, 1_200, 12_000, 5_000, 10_000, 100_000
_KERNELS = "476 products and convolutions of 19 networks on an H200"
_RATIOS = Parameters(
    conv=0.44, pointwise=1.0, winograd=0.98, grouped=0.6, gemm=0.91, matmul=0.66, vector=0.009, exp=6.6, onchip=1.05,
    norm=3.8, ride=0.01, move=0.95, fill=3.0, layer=0.99, weights=0.7, job=1e-3,
)  # fmt: skip
"""Of our kernels in fp16, fitted to the graphs of 16 networks on an H200: left out in turn they are off by 9 % in the
mean, 15 % for four of five, 27 % at most; half of them by the other half 11 %."""
_SPEED, _FLOATS = 132 * 1_980_000, ("fp32", "fp16")
"""SMs times kHz of the GPU on which `_FUNCTIONS` were measured, and the data types that they read and write."""
_FUNCTIONS: dict[str, tuple[float, int, dict[str, float], dict[str, float]]] = {
    "voxelise": (30, 6, {"points": 18000, "pillars": 5500}, {"points": 300}),
    "anchor-decode": (45, 8, {"anchors": 321408, "candidates": 100}, {"anchors": 100}),
}
"""Function: microseconds of a job, kernels, the work it holds for, and microseconds of a million items more."""
_SM_MW, _IDLE_MW = 3_000, 20_000


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as found: clocks in kHz, sizes in bytes, measured rates in bytes/s and times in ns, 0 where unknown."""

    index: int
    name: str
    memory: int
    sms: int
    clock_khz: int
    l2_bytes: int
    integrated: int
    major: int
    minor: int
    bus_bits: int
    memory_khz: int
    shared_bytes: int
    copied: float
    uploaded: float
    downloaded: float
    launch_ns: float
    submit_ns: float
    copy_ns: float = 0
    problem: str = ""

    @property
    def capability(self) -> int:
        """Return the compute capability, 90 for 9.0."""
        return 10 * self.major + self.minor


def find(root: Path = Path("/"), cache: bool = True, seconds: float = _SECONDS) -> tuple[Gpu, ...]:
    """Return this machine's GPUs from compute capability 7.0 on; none where no driver answers within `seconds`.

    `root` contains /dev: without a device of NVIDIA's the driver is not asked.  What was found is kept for machine and
    $CUDA_VISIBLE_DEVICES.
    """
    nodes = sorted(str(node.relative_to(root)) for pattern in _NODES for node in (root / "dev").glob(pattern))
    if not nodes:
        return ()
    key = "-".join([*nodes, os.environ.get("CUDA_VISIBLE_DEVICES", "all"), os.uname().nodename]).replace("/", ".")
    stored = recall("host-gpus", key) if cache else None
    gpus = _read(stored.get("gpus")) if isinstance(stored, dict) and stored.get("format") == _FORMAT else None
    if gpus is None:
        gpus = _read(probe(seconds)[0])
        if cache and gpus is not None:
            keep("host-gpus", key, {"format": _FORMAT, "gpus": [asdict(gpu) for gpu in gpus]})
    return tuple(gpu for gpu in gpus or () if gpu.capability >= OLDEST and gpu.sms > 0)


def has_compiler() -> bool:
    """Return whether nvcc or NVRTC's packages are here: else a GPU runs no network, and plans had better not use it."""
    if shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc"):
        return True
    folders = (*os.environ.get("SOCSCHED_CUDA", "").split(os.pathsep), *sys.path)
    places = (*map(Path, filter(None, folders)), *(cache_dir() / "tools").glob("nvidia-cuda-nvrtc-*"))
    return any(next(place.glob("nvidia/*/lib/libnvrtc.so*"), None) for place in places)


def described(gpu: Gpu) -> str:
    """Return what a GPU is, in a few words."""
    rate = f", {gpu.copied / 1e9:.0f} GB/s" if gpu.copied else ""
    size = f"{gpu.sms} SM at {gpu.clock_khz / 1000:.0f} MHz, {gpu.memory / 2**30:.0f} GiB{rate}"
    return f"{gpu.name} (sm_{gpu.capability}, {size})"


def probe(seconds: float = _SECONDS) -> tuple[Any, str]:
    """Return what `cuda_probe` prints, and the reason where it prints nothing usable."""
    command = [sys.executable, "-I", "-S", str(Path(cuda_probe.__file__))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)  # type: ignore[call-overload]
    try:
        out, problem = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # not waited for: a process inside a driver that hangs may not end
        return None, f"the driver did not answer within {seconds:.0f} s"
    try:
        return json.loads(out), ""
    except ValueError:
        lines = problem.strip().splitlines() or [f"the driver ended the program ({process.returncode})"]
        return None, lines[-1]


def _read(stored: Any) -> tuple[Gpu, ...] | None:
    try:
        return tuple(Gpu(**one) for one in stored)
    except TypeError:
        return None


def engines(gpus: Sequence[Gpu]) -> tuple[Engine, ...]:
    """Return GPUs as engines, `gpu` or `gpu0`, `gpu1`, ..."""
    return tuple(_engine(gpu, "gpu" if len(gpus) == 1 else f"gpu{gpu.index}") for gpu in gpus)


def added(platform: Platform, gpus: Sequence[Gpu]) -> Platform:
    """Return a platform of one mode with GPUs as further engines."""
    if not gpus:
        return platform
    more, (mode,) = engines(gpus), platform.modes
    on = {engine.id: EngineMode(engine.units, round(engine.clock_hz.value), engine.dynamic_mw) for engine in more}
    return replace(
        platform,
        title=f"{platform.title}; {', '.join(gpu.name for gpu in gpus)}",
        engines=(*platform.engines, *more),
        modes=(replace(mode, engines={**mode.engines, **on}),),
        sources={
            **platform.sources,
            "cuda": Source("GPUs as libcuda describes them, and as measured on them", "libcuda"),
            "h200": Source("networks of tools/bench/network_zoo.py on an NVIDIA H200", "docs/performance.md"),
        },
    )


def _engine(gpu: Gpu, name: str) -> Engine:
    launch = gpu.launch_ns or _LAUNCH_NS
    measured = bool(gpu.launch_ns)
    filled = "a kernel of a graph after another, and filling and draining the SMs (1.2 us)"
    submit = _measured(gpu.submit_ns, "a graph of one kernel on an idle GPU, waited for") or _assumed(
        _SUBMIT_NS, "as of other GPUs", 0.5
    )
    return Engine(
        id=name,
        kind="gpu",
        title=f"{gpu.name}, {gpu.sms} SM, compute capability {gpu.major}.{gpu.minor}",
        units=gpu.sms,
        unit="SM",
        shares="whole",
        clock_hz=Figure(gpu.clock_khz * 1000, "published", "cuda", "highest clock the driver states", 0.1),
        precisions=_precisions(gpu),
        bandwidth=_bandwidth(gpu),
        sram=Figure(gpu.l2_bytes, "published", "cuda", "L2 cache") if gpu.l2_bytes else None,
        preemption=Preemption(
            "segment",
            Figure(launch, "measured" if measured else "assumed", "cuda" if measured else "", "a launch", 0.5),
            "kernel",
            least_ns=_assumed(_GRAPH_NS, "ten times what one more graph of a job costs the host", 0.5),
        ),
        launch_ns=Figure(launch + _FILL_NS, "derived", "cuda" if measured else "", filled, 0.4),
        submit_ns=submit,
        handoff_ns=_assumed(_HANDOFF_NS, "an event that another thread waits for", 1.0),
        converts=True,
        operators=OperatorRules(),
        idle_mw=_assumed(_IDLE_MW, "a desktop GPU at idle", 1.0),
        dynamic_mw=power(gpu),
        target={
            **{"kind": "cuda", "arch": f"sm_{gpu.capability}", "max_threads_per_block": 1024, "thread_warp_size": 32},
            **({"device": gpu.index} if gpu.index else {}),
        },
        link=None if gpu.integrated else _link(gpu),
        functions=_functions(gpu),
        division=_division(gpu),
    )


def _division(gpu: Gpu) -> Division | None:
    """Return how green contexts divide a GPU: groups of 8 SMs from 9.0 on, of 4 before; some SMs are in no group.

    An H100's 132 SMs make 15 groups.
    """
    if gpu.capability < _TENSOR_CODE:
        return None
    group = 8 if gpu.capability >= 90 else 4
    groups = gpu.sms // group - (1 if group == 8 else gpu.sms // 16)
    if groups < 2:
        return None
    near, far, launch = (Figure(ns, "assumed", note="measured on an H200", error=0.3) for ns in (145.0, 350.0, 967.0))
    return Division("contexts", group, groups, near=near, far=far, launch=launch, source="cuda")


def power(gpu: Gpu) -> Figure:
    """Return the power of a busy GPU beyond that at idle, in mW."""
    return _assumed(_SM_MW * gpu.sms, "no figures for this GPU: 3 W an SM", 1.0)


def _precisions(gpu: Gpu) -> dict[str, Precision]:
    rate = _RATES[max((known for known in _RATES if known <= gpu.capability), default=70)]
    cores = _FP32.get(gpu.capability, 256)
    rules = gpu.capability >= _TENSOR_CODE
    tensor = "mma.sync's rate for this architecture" if rules else "CUDA cores at twice the rate of fp32"
    halves = rate if rules else 2 * cores
    fit = Fit(
        _RATIOS, block=8, launch_ns=round(gpu.launch_ns or _LAUNCH_NS) + _FILL_NS,
        submit_ns=round(gpu.submit_ns or _SUBMIT_NS),
        sram=float(gpu.l2_bytes), source="h200", networks=16, date="2026-11-26", error=0.09, interval=0.25,
        classes=PASS_KINDS, views=True, copies=True, resident=True, units=132,
    )  # fmt: skip
    precisions = {
        "fp32": Precision("fp32", _rate(cores, "CUDA cores"), "NCHW", _efficiency(0.04, "general schedules")),
        "fp16": Precision(
            "fp16",
            _rate(halves, tensor),
            "NHWC" if rules else "NCHW",
            _efficiency(0.31, _KERNELS) if rules else _efficiency(0.02, "general schedules"),
            fitted=(fit,) if rules else (),
        ),
    }
    if rules:
        precisions["int8"] = Precision("int8", _rate(2 * rate, tensor), "NHWC", _efficiency(0.2, _KERNELS))
    return precisions


def _efficiency(share: float, of: str) -> dict[str, Figure]:
    parts = {"conv": (share, 0.5), "gemm": (share, 0.5), "elementwise": (share / 10, 1.0), "default": (share / 40, 2.0)}
    return {key: Figure(value, "assumed", note=of, error=error) for key, (value, error) in parts.items()}


def _rate(value: float, note: str) -> Figure:
    return Figure(value, "derived", "cuda", f"operations of an SM and cycle: {note}", 0.1)


def _bandwidth(gpu: Gpu) -> Figure:
    stated = 2 * gpu.memory_khz * 1000 * gpu.bus_bits / 8
    return (
        _measured(gpu.copied, "copies of 256 MiB within its memory, read plus written")
        or (Figure(0.85 * stated, "derived", "cuda", "0.85 of bus width times memory clock", 0.2) if stated else None)
        or _assumed(100e9, "the driver states neither bus nor clock", 1.0)
    )


def _link(gpu: Gpu) -> Link:
    rates = [rate for rate in (gpu.uploaded, gpu.downloaded) if rate > 0]
    rate = _measured(min(rates, default=0), "copies of 32 MiB from and to locked memory, the slower way")
    start = _measured(gpu.copy_ns, "copies of 4 KB, one after the other") or _assumed(_LINK_NS, "a copy's start", 0.5)
    return Link(rate or _assumed(12e9, "PCIe 3.0 x16", 0.5), start, keeps=True)


def _functions(gpu: Gpu) -> dict[str, FunctionCost]:
    """Return what host functions take, by SMs times clock from a GPU where they were measured."""
    if gpu.capability < _TENSOR_CODE:
        return {}
    slower = _SPEED / (gpu.sms * gpu.clock_khz)

    def figure(microseconds: float) -> Figure:
        moved = abs(slower - 1) > 0.01
        note = "our kernels on an H200" + (", by SMs times clock" if moved else "")
        return Figure(1e3 * microseconds * slower, "derived", "cuda", note, 0.4 if moved else 0.25)

    return {
        name: FunctionCost(figure(time), work, {key: figure(value) for key, value in more.items()}, kernels, _FLOATS)
        for name, (time, kernels, work, more) in _FUNCTIONS.items()
    }


def _measured(value: float, note: str) -> Figure | None:
    return Figure(value, "measured", "cuda", note, 0.1) if value > 0 else None


def _assumed(value: float, note: str, error: float) -> Figure:
    return Figure(value, "assumed", note=note, error=error)
