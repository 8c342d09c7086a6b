"""Facts about this machine, read from Linux and measured in about a second: what `host.py` builds a platform from.

No privileges are needed.  Virtual machines may hide the true clock and the power sensor; what cannot be read is left
empty, never guessed.
"""

from __future__ import annotations

import os
import platform as _platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    energy counters.
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


def probe(root: Path = Path("/")) -> HostFacts:
    """Return the facts about this machine; measuring takes about 1.5 s. `root` contains /proc and /sys."""
    import numpy

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
        versions={"python": _platform.python_version(), "numpy": numpy.__version__},
    )


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
