"""Meters of boards in threads and processes of their own: INA3221, tegrastats, NVML; what rails and zones mean."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.runtime.boards import Steps, read_text

CHANNELS = (1, 2, 3)
"""Channels of an INA3221 that are rails; in4 to in7 are shunt voltages and their sum."""


class SamplingMeter:
    """Calls `read` (counter name -> value) every `interval_s` in a thread; a context manager around the run.

    Samples are buffered until `counters` is called.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]], interval_s: float) -> None:
        self._read, self._interval = read, interval_s
        self._samples: list[tuple[int, Mapping[str, float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def __enter__(self) -> SamplingMeter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def counters(self, start_ns: int) -> Steps:
        """Return every counter's steps since `start_ns` (monotonic), once."""
        return as_steps(drain(self._samples), start_ns)

    def _run(self) -> None:
        while not self._stop.is_set():
            values = self._read()
            if values:
                self._samples.append((time.monotonic_ns(), values))
            self._stop.wait(self._interval)


class TegrastatsMeter:
    """Reads the output lines of a `tegrastats` process; a context manager around the run.

    Lines that cannot be parsed are counted in `skipped`.  If the command does not exist, nothing is sampled.
    """

    def __init__(self, command: Sequence[str] = ("tegrastats", "--interval", "100"), power: bool = True) -> None:
        self.skipped = 0
        self._command, self._power = command, power
        self._samples: list[tuple[int, Mapping[str, float]]] = []
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def __enter__(self) -> TegrastatsMeter:
        try:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=5)
            self._thread.join(timeout=2)
            if self._process.stdout is not None:
                self._process.stdout.close()

    def counters(self, start_ns: int) -> Steps:
        """Return every counter's steps since `start_ns` (monotonic), once."""
        return as_steps(drain(self._samples), start_ns)

    def _run(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            sample = parse(line)
            if sample is None:
                self.skipped += 1
                continue
            values = sample.counters()
            if not self._power:  # another meter measures power more accurately
                values = {n: v for n, v in values.items() if n != "power_mw" and not n.startswith("rail_mw.")}
            self._samples.append((time.monotonic_ns(), values))


def drain(samples: list[tuple[int, Mapping[str, float]]]) -> list[tuple[int, Mapping[str, float]]]:
    """Remove and return the current contents of a list to which another thread appends."""
    contents = samples[:]
    del samples[: len(contents)]
    return contents


def as_steps(samples: Sequence[tuple[int, Mapping[str, float]]], start_ns: int) -> Steps:
    """Return samples by counter, from `start_ns` on; the last earlier sample becomes the first step."""
    steps_of: Steps = {}
    for time_ns, values in list(samples):
        for name, value in values.items():
            steps = steps_of.setdefault(name, [])
            if time_ns < start_ns:
                steps[:] = [(0, value)]
            else:
                steps.append((time_ns - start_ns, value))
    return steps_of


def ina3221_rails(root: Path = Path("/")) -> dict[str, tuple[Path, Path]]:
    """Return, by rail label, the files with voltage (mV) and current (mA) of every INA3221 channel."""
    rails: dict[str, tuple[Path, Path]] = {}
    for chip in sorted(root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*")):
        for channel in CHANNELS:
            label = read_text(chip / f"in{channel}_label")
            if label and label != "NC":
                rails[label] = (chip / f"in{channel}_input", chip / f"curr{channel}_input")
    return rails


def read_rails(rails: Mapping[str, tuple[Path, Path]]) -> dict[str, float]:
    """Return the power of every readable rail and of the module (`power_mw`), in mW."""
    power: dict[str, float] = {}
    for label, (voltage, current) in rails.items():
        volts, amperes = read_text(voltage), read_text(current)
        if volts and amperes:
            power[label] = int(volts) * int(amperes) / 1000
    if len(power) != len(rails) or not power:
        return {f"rail_mw.{label}": value for label, value in power.items()}  # a partial sum is not the module's power
    return {f"rail_mw.{label}": value for label, value in power.items()} | {"power_mw": power_of(power) or 0.0}


class Nvml:
    """Power, clocks and load of one NVIDIA GPU, read from the driver's library through ctypes.

    `available` tells whether a GPU was found.

    NVML reports mW, MHz and per cent (nvmlDeviceGetPowerUsage, nvmlDeviceGetClockInfo,
    nvmlDeviceGetUtilizationRates).
    """

    _SM_CLOCK, _MEMORY_CLOCK = 1, 2

    def __init__(self, index: int = 0, library: Any = None) -> None:
        self._library, self._device = library, ctypes.c_void_p()
        if self._library is None:
            try:
                self._library = ctypes.CDLL("libnvidia-ml.so.1")
            except OSError:
                self.available = False
                return
        begun = self._library.nvmlInit_v2()
        self.available = not begun and not self._library.nvmlDeviceGetHandleByIndex_v2(
            index, ctypes.byref(self._device)
        )

    def read(self) -> dict[str, float]:
        """Return those of gpu_power_mw, gpu_hz and gpu_memory_hz that the device reports."""
        found: dict[str, float] = {}
        value = ctypes.c_uint()
        if not self.available:
            return found
        if not self._library.nvmlDeviceGetPowerUsage(self._device, ctypes.byref(value)):
            found["gpu_power_mw"] = float(value.value)
        for name, kind in (("gpu_hz", self._SM_CLOCK), ("gpu_memory_hz", self._MEMORY_CLOCK)):
            if not self._library.nvmlDeviceGetClockInfo(self._device, kind, ctypes.byref(value)):
                found[name] = value.value * 1e6
        return found


# Lines of NVIDIA's `tegrastats`, in the formats of L4T 24 to 36 and of JetPack 7.
#
# L4T 24, 28   cpu [0%,off,off,0%]@345 (one clock for all cores), EMC 7%@665, GR3D 0%@114
# L4T 32       POM_5V_GPU 40/40, temperatures and clocks as in 35, no units behind power
# L4T 35, 36   GR3D_FREQ 0%@1300, CPU@41.4C, VDD_GPU_SOC 2403mW/2403mW (now / average)
# JetPack 7    a date first, GR3D_FREQ 12%@[1300,1300] (one clock per GPC), cpu@52.968C, VDD_GPU_SOC
#              5139mW/5139mW/5139mW (now / average / peak), engines that are off in words (NVDLA0 off)
#
# What rails and zones stand for is said below.

_POWER = re.compile(r"\b([A-Z][A-Za-z0-9_]*) (-?\d{1,12})(?:mW)?/(-?\d{1,12})(?:mW)?(?:/(-?\d{1,12})(?:mW)?)?(?=\s|$)")
_MEMORY = re.compile(r"\b(RAM|SWAP|IRAM) (\d{1,12})/(\d{1,12})([kKMG])B(?: \([^)]*\))?")
_UNITS = {"k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}
_CPU = re.compile(r"\b(?:CPU|cpu) \[([^\[\]]*)\](?:@(\d{1,12}))?")
_CORE = re.compile(r"(\d{1,12})%(?:@(\d{1,12}))?")
_EMC = re.compile(r"\bEMC(?:_FREQ)? (?:(\d{1,12})%)?(?:@(\d{1,12}))?")
_GPU = re.compile(r"\bGR3D(?:_FREQ)? (?:(\d{1,12})%)?(?:@\[?(\d[\d,]{0,80})\]?)?")
_ENGINE = re.compile(r"\b(NVDLA\d|NVENC\d?|NVDEC\d?|PVA\d)(?:_FREQ)? (?:(off)\b|(?:(\d{1,12})%)?@(\d{1,12}))")
_ZONE = re.compile(r"\b([A-Za-z][\w-]*)@(-?\d{1,12}(?:\.\d{1,12})?)C\b")
_MHZ = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: bytes, Hz, mW, degrees Celsius; loads from 0 to 1.

    `cores` has None for a core that is off.  A clock or load missing from the line is None; an engine that is off has
    clock 0, as a core whose clock the line does not state.  `zones_c` holds every zone that is on.
    """

    ram_bytes: int = 0
    ram_total_bytes: int = 0
    cores: tuple[tuple[float, int] | None, ...] = ()
    emc_load: float | None = None
    emc_hz: int | None = None
    gpu_load: float | None = None
    gpu_hz: int | None = None
    engines_hz: Mapping[str, int] = field(default_factory=dict)
    zones_c: Mapping[str, float] = field(default_factory=dict)
    rails_mw: Mapping[str, int] = field(default_factory=dict)

    @property
    def power_mw(self) -> int | None:
        """Return the module's power: that of its input rail, else the sum of all rails, None without rails."""
        power = power_of(self.rails_mw)
        return None if power is None else round(power)

    def counters(self) -> dict[str, float]:
        """Return the counter values of a sample that a trace records."""
        found: dict[str, float] = {f"rail_mw.{name}": float(value) for name, value in self.rails_mw.items()}
        if self.power_mw is not None:
            found["power_mw"] = float(self.power_mw)
        for name, value in (("gpu_hz", self.gpu_hz), ("emc_hz", self.emc_hz)):
            if value is not None:
                found[name] = float(value)
        found |= {f"celsius.{zone.lower()}": value for zone, value in temperatures(self.zones_c).items()}
        return found | {f"{name.lower()}_hz": float(clock) for name, clock in self.engines_hz.items()}


def parse(line: str) -> Sample | None:
    """Return the sample of a line, None if it is not a tegrastats line."""
    memory = {name: (int(used), int(total), _UNITS[unit]) for name, used, total, unit in _MEMORY.findall(line)}
    if "RAM" not in memory:
        return None
    used, total, unit = memory["RAM"]
    cpu, emc, gpu = _CPU.search(line), _EMC.search(line), _GPU.search(line)
    rest = _CPU.sub("", _MEMORY.sub("", line))
    return Sample(
        ram_bytes=used * unit,
        ram_total_bytes=total * unit,
        cores=tuple(_core(text, cpu[2]) for text in cpu[1].split(",")) if cpu else (),
        emc_load=_load(emc and emc[1]),
        emc_hz=_clock(emc and emc[2]),
        gpu_load=_load(gpu and gpu[1]),
        gpu_hz=_clock(gpu and gpu[2]),
        engines_hz={name: 0 if off else int(clock) * _MHZ for name, off, _, clock in _ENGINE.findall(rest)},
        zones_c={name: float(value) for name, value in _ZONE.findall(rest) if float(value) > OFF_C},
        rails_mw={name: int(now) for name, now, *_ in _POWER.findall(rest)},
    )


def _core(text: str, common: str | None) -> tuple[float, int] | None:
    found = _CORE.fullmatch(text.strip())
    return (int(found[1]) / 100, int(found[2] or common or 0) * _MHZ) if found else None


def _load(text: str | None) -> float | None:
    return int(text) / 100 if text else None


def _clock(text: str | None) -> int | None:
    return max(int(clock[:12] or 0) for clock in text.split(",")) * _MHZ if text else None


# What the power rails and thermal zones of a board stand for: a total and its parts, readings and constants.
#
# Rails     A rail that is the input of the whole module or board is named for nothing else: VIN, VDD_IN, POM_5V_IN.
#           The input of a part is named for the part (VIN_SYS_5V0, SYS_VIN_HV) and adds to the others, as on AGX Orin,
#           whose module has no meter of its whole input (its developer guide: its power is the sum of the channels).
# Zones     A zone that is switched off reads -256 C.  PMIC is no temperature: the driver of its chip (max77620_thermal,
#           max77851) reports the highest alarm level that is passed, 100 C or 50 C in the absence of an alarm.

_INPUT = re.compile(r"(?:[A-Z0-9]+_)*V?IN", re.IGNORECASE)
_LEVEL = re.compile(r"pmic", re.IGNORECASE)
OFF_C = -200.0
"""Zones below are switched off (-256 C) or absent (-273 C)."""
_NO_READING_C = 200.0
_ENOUGH = 8
"""Samples from which on a zone that never changes, while another does, is taken for a constant."""
_MOVES_C = 1.0


def whole_rail(rails: Mapping[str, float]) -> str:
    """Return the rail that supplies all others, empty where none does: the largest input that no part exceeds."""
    inputs = [name for name in rails if _INPUT.fullmatch(name)]
    largest = max(inputs, key=lambda name: rails[name], default="")
    return largest if largest and rails[largest] >= max(rails.values()) else ""


def power_of(rails: Mapping[str, float]) -> float | None:
    """Return the power of the module: that of the rail which supplies all others, else of all rails together."""
    whole = whole_rail(rails)
    return rails[whole] if whole else (sum(rails.values()) if rails else None)


def temperatures(zones: Mapping[str, float]) -> dict[str, float]:
    """Return the zones that state a temperature: neither switched off nor an alarm level."""
    return {name: value for name, value in zones.items() if OFF_C < value < _NO_READING_C and not _LEVEL.search(name)}


def hottest(samples: Sequence[Mapping[str, float]]) -> float | None:
    """Return the highest temperature of a log, None without any; zones that never change while others do are left out.

    `samples`: zone -> degrees Celsius, off zones and levels included.
    """
    columns = dict[str, list[float]]()
    for sample in samples:
        for name, value in temperatures(sample).items():
            columns.setdefault(name, []).append(value)
    moving = [values for values in columns.values() if max(values) - min(values) >= _MOVES_C]
    still = [values for values in columns.values() if len(values) < _ENOUGH or len(set(values)) > 1]
    return max((value for values in (still if moving else columns.values()) for value in values), default=None)


def alarms(samples: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the alarm levels that rose during a log, in words."""
    levels = dict[str, set[float]]()
    for sample in samples:
        for name, value in sample.items():
            if _LEVEL.search(name) and value > OFF_C:
                levels.setdefault(name, set()).add(value)
    return [f"{name} alarm at {max(found):g} C" for name, found in levels.items() if max(found) > 100]
