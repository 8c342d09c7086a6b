"""Meters that sample in a dedicated thread or process: INA3221 sensors, tegrastats, NVML."""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from socsched.runtime.boards.base import Steps, read_text
from socsched.runtime.sensors import power_of
from socsched.runtime.tegrastats import parse

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
