"""The board `local`: this machine."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.descriptor import host
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.host import rapl_domains
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import MachineError, UsageError
from socsched.planning.plan import Plan
from socsched.planning.task import COPY
from socsched.runtime.boards import Meter, read_text
from socsched.runtime.meters import Nvml, SamplingMeter, TegrastatsMeter, ina3221_rails, read_rails

# Power of this machine during a run, from the package energy counters if the user may read them.
#
# Without such a counter nothing is recorded: a run reports only measured power.


class PowerMeter:
    """Samples energy counters (microjoules, wrapping at `max_energy_range_uj`) in a thread; a context manager."""

    def __init__(self, counters: tuple[Path, ...], interval_s: float = 0.05) -> None:
        self.samples: list[tuple[int, float]] = []
        self._counters = counters
        self._interval = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def __enter__(self) -> PowerMeter:
        if self._counters:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._counters:
            self._thread.join(timeout=2)

    def steps(self, start_ns: int, samples: list[tuple[int, float]] | None = None) -> list[tuple[int, float]]:
        """Return (ns since `start_ns`, mW) of every interval that began after it, from `samples` or from all."""
        known = self.samples if samples is None else samples
        return [(time_ns - start_ns, power) for time_ns, power in known if time_ns >= start_ns]

    def counters(self, start_ns: int) -> dict[str, list[tuple[int, float]]]:
        """Return `steps` as the counter power_mw, empty if nothing was measured; returned samples are discarded."""
        steps = self.steps(start_ns, found := self.samples[:])
        del self.samples[: len(found)]
        return {"power_mw": steps} if steps else {}

    def _run(self) -> None:
        before, then = self._read(), time.monotonic_ns()
        while not self._stop.wait(self._interval):
            after, now = self._read(), time.monotonic_ns()
            spans = [int((one.parent / "max_energy_range_uj").read_text()) + 1 for one in self._counters]
            used = sum((b - a) % span for a, b, span in zip(before, after, spans, strict=True))
            self.samples.append((then, used * 1e6 / max(now - then, 1)))
            before, then = after, now

    def _read(self) -> list[int]:
        return [int(counter.read_text()) for counter in self._counters]


_GPU_INTERVAL_S = 0.1
"""The driver averages power over about this time."""


class LocalBoard:
    """This machine; `platform` replaces the detected one."""

    title = "this machine"

    def __init__(self, platform: Platform | None = None) -> None:
        self._platform = platform

    def platform_for(self, plan: Plan) -> Platform:
        """Return this machine's platform; raise UsageError if the plan is for another one or for more cores."""
        return self._platform or platform_for(plan)

    def cpus(self, engine: str, lanes: tuple[int, ...]) -> set[int]:
        """Return the CPU numbers of `lanes`; none for engines that are not CPUs."""
        known = {e.id: e.kind for e in self._platform.engines} if self._platform else {}
        return cpus(lanes) if known.get(engine, "cpu") == "cpu" else set()

    def meters(self) -> Sequence[Meter]:
        """Return meters of the package energy counters and of an NVIDIA GPU, if this user may read them."""
        gpu = Nvml()
        found: list[Meter] = [PowerMeter(power_counters())]
        return [*found, SamplingMeter(gpu.read, _GPU_INTERVAL_S)] if gpu.available else found

    def facts(self) -> Mapping[str, Any]:
        """Return the system's name and version."""
        system = os.uname()
        return {"system": f"{system.sysname} {system.release} {system.machine}"}

    @contextmanager
    def prepared(self, plan: Plan) -> Iterator[None]:
        """Do nothing: this machine has one mode."""
        yield


def platform_for(plan: Plan) -> Platform:
    """Return this machine's platform; raise UsageError if the plan is for another one or for more cores."""
    if plan.platform != "host":
        raise UsageError(
            f"the plan is for {plan.platform!r}, this machine is 'host'",
            f"plan for this machine: socsched plan {plan.pipeline} -p host -o plan.json; or simulate this plan",
        )
    here = host.detect()
    known = {engine.id: engine for engine in here.engines}
    for engine in (one for one in plan.engines if one.kind != COPY):
        if engine.id not in known or engine.lanes > known[engine.id].units:
            units = known[engine.id].units if engine.id in known else 0
            raise UsageError(
                f"the plan uses {engine.lanes} lanes of {engine.id!r}, this machine has {units}",
                f"plan again on this machine: socsched plan {plan.pipeline} -p host -o plan.json",
            )
    return here


def power_counters() -> tuple[Path, ...]:
    """Return the package energy counters this user may read."""
    return tuple(rapl_domains())


def cpus(lanes: tuple[int, ...]) -> set[int]:
    """Return the CPU numbers of `lanes`: the usable CPUs in order."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[lane] for lane in lanes if lane < len(usable)}


# The board `jetson`: the NVIDIA Jetson this process runs on.
#
# Power mode and clocks are read, recorded with the run and checked against the plan; they are changed only with
# `apply_mode`, and restored afterwards.  All access goes through `root` and `command`, so that recorded files can
# stand in for a board.
#
# sysfs paths of L4T 35 and 36 (JetPack 7 has those of 36): NVIDIA's nvpmodel.conf, jetson_stats.

Command = Callable[[Sequence[str]], str]
GPU_FREQ = (
    "sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
    "sys/devices/platform/17000000.gpu/devfreq_dev",
    "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu",
    "sys/devices/17000000.gv11b/devfreq/17000000.gv11b",
)
EMC_CAP = ("sys/kernel/nvpmodel_clk_cap/emc", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap")
DLA_CAP = (
    "sys/devices/platform/bus@0/13e00000.host1x/{node}/clk_cap/{clock}",
    "sys/devices/platform/13e40000.host1x/{node}/acm/clk_cap/{clock}",
)
DLA_NODES = ("15880000.nvdla0", "158c0000.nvdla1")
TOLERANCE = 0.02
"""Relative tolerance for clocks to match the plan: clock grids are finer than the vendor's rounded tables."""
_INA_INTERVAL_S = 0.1
_MODE = re.compile(r"NV Power Mode:\s*(?:MODE_)?(\S+)\s*\n\s*(\d+)")


def execute(command: Sequence[str]) -> str:
    """Return the output of a command; raise MachineError if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{command[0]} cannot be run: {error}", "is this a Jetson with JetPack?") from error
    if done.returncode:
        raise MachineError(
            f"{' '.join(command)} failed: {done.stderr.strip() or done.stdout.strip()}", "it may need root privileges"
        )
    return done.stdout


class JetsonBoard:
    """The Jetson this process runs on; `tegrastats` is the command that prints its lines."""

    title = "NVIDIA Jetson"

    def __init__(
        self,
        apply_mode: bool = False,
        root: Path = Path("/"),
        command: Command = execute,
        tegrastats: Sequence[str] = ("tegrastats", "--interval", "100"),
    ) -> None:
        self._apply, self._root, self._command, self._tegrastats = apply_mode, root, command, tegrastats
        self._platform: Platform | None = None

    def platform_for(self, plan: Plan) -> Platform:
        """Return the plan's platform; raise UsageError if this machine or the plan's platform is not a Jetson."""
        model = read_text(self._root / "proc/device-tree/model")
        if model is None or "Jetson" not in model:
            raise UsageError(f"this machine is not a Jetson ({model or 'no device tree'})", "run with --board local")
        platform = get_platform(plan.platform)
        if not plan.platform.startswith("jetson-"):
            raise UsageError(
                f"the plan is for {plan.platform!r}, this is a {model.strip(chr(0))}", "plan for this board"
            )
        # a platform file states how other machines simulate a DLA; this board has the real one
        engines = (replace(e, target={"kind": "tensorrt"}) if e.kind == "dla" else e for e in platform.engines)
        self._platform = replace(platform, engines=tuple(engines))
        return self._platform

    def cpus(self, engine: str, lanes: tuple[int, ...]) -> set[int]:
        """Return the cores of a cluster's lanes; clusters are numbered consecutively in the platform's order."""
        assert self._platform is not None
        first = 0
        for known in self._platform.engines:
            if known.kind != "cpu":
                continue
            if known.id == engine:
                return {first + lane for lane in lanes}
            first += known.units
        return set()

    def meters(self) -> Sequence[Meter]:
        """Return meters of the INA3221 rails and of tegrastats, which reports clocks, loads and temperatures."""
        rails = ina3221_rails(self._root)
        readers: list[Meter] = [TegrastatsMeter(self._tegrastats, power=not rails)]
        return [*readers, SamplingMeter(lambda: read_rails(rails), _INA_INTERVAL_S)] if rails else readers

    def facts(self) -> Mapping[str, Any]:
        """Return model, L4T release, power mode and clock limits (Hz)."""
        model = read_text(self._root / "proc/device-tree/model")
        return {
            "model": (model or "").strip("\0"),
            "l4t": read_text(self._root / "etc/nv_tegra_release") or "",
            "mode": dict(zip(("name", "id"), self.mode(), strict=True)),
            "clocks_hz": self.clocks(),
        }

    def mode(self) -> tuple[str, int]:
        """Return name and number of the board's current power mode."""
        text = self._command(("nvpmodel", "-q"))
        match = _MODE.search(text)
        if not match:
            raise MachineError(f"nvpmodel -q printed {text.strip()!r}", "expected 'NV Power Mode: NAME' and a number")
        return match[1], int(match[2])

    def clocks(self) -> dict[str, int]:
        """Return the current clock limit of each engine in Hz, as far as the system reports it."""
        limits: dict[str, int] = {}
        gpu = self._first(tuple(f"{folder}/max_freq" for folder in GPU_FREQ))
        if gpu is not None:
            limits["gpu"] = gpu
        emc = self._first(EMC_CAP)
        if emc:  # 0 means uncapped
            limits["emc"] = emc
        for number, node in enumerate(DLA_NODES):
            clock = self._first(tuple(cap.format(node=node, clock=f"dla{number}_core") for cap in DLA_CAP))
            if clock is not None:
                limits[f"dla{number}"] = clock
        for cpu in sorted(self._root.glob("sys/devices/system/cpu/cpu[0-9]*"), key=lambda p: int(p.name[3:])):
            limit = read_text(cpu / "cpufreq/scaling_max_freq")
            if limit and read_text(cpu / "online") != "0":
                limits[cpu.name] = int(limit) * 1000
        return limits

    @contextmanager
    def prepared(self, plan: Plan) -> Iterator[None]:
        """Check mode and clocks against the plan; with `apply_mode`, set the mode first and restore it at the end."""
        platform = self._platform or self.platform_for(plan)
        planned = platform.mode(plan.mode)
        name, number = self.mode()
        changed = not planned.called(name)
        if changed and not self._apply:
            raise UsageError(
                f"the board is in mode {name} ({number}), the plan is for {planned.name} ({planned.id})",
                f"set it with --apply-mode or `nvpmodel -m {planned.id}`, or plan for {name}",
            )
        if changed:
            self._command(("nvpmodel", "-m", str(planned.id)))
            now = self.mode()
            if not planned.called(now[0]):
                raise MachineError(f"the board stays in mode {now[0]}", "this mode may need a reboot")
        try:
            if problems := self.differences(platform, planned):
                raise UsageError(
                    f"clocks are not those of mode {planned.name}: " + "; ".join(problems),
                    "a limit was changed manually or the board throttles: `nvpmodel -m` restores the mode's limits",
                )
            yield
        finally:
            if changed:
                self._command(("nvpmodel", "-m", str(number)))

    def differences(self, platform: Platform, mode: PowerMode) -> list[str]:
        """Return the deviations of the board's clock limits and online cores from those of a mode."""
        clocks, lines, first = self.clocks(), [], 0
        for engine in platform.engines:
            planned = mode.engines[engine.id]
            if engine.kind == "cpu":
                mine = [clocks.get(f"cpu{n}") for n in range(first, first + engine.units)]
                first += engine.units
                online = [clock for clock in mine if clock is not None]
                if len(online) != planned.units:
                    lines.append(f"{engine.id}: {len(online)} cores online, {planned.units} planned")
                lines += [_clock_difference(engine.id, min(online), planned.clock_hz)] if online else []
            elif engine.kind in ("gpu", "dla") and planned.units:
                key = "gpu" if engine.kind == "gpu" else engine.id if engine.id in clocks else "dla0"
                lines += [_clock_difference(engine.id, clocks[key], planned.clock_hz)] if key in clocks else []
        return [text for text in lines if text]

    def _first(self, paths: Sequence[str]) -> int | None:
        for path in paths:
            text = read_text(self._root / path)
            if text and text.isdigit():
                return int(text)
        return None


def _clock_difference(engine: str, clock: int, planned: int) -> str:
    off = abs(clock - planned) > TOLERANCE * planned
    return f"{engine}: at most {clock / 1e6:.0f} MHz, {planned / 1e6:.0f} MHz planned" if off else ""
