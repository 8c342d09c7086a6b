"""Lines of NVIDIA's `tegrastats`, in the formats of L4T 24 to 36 and of JetPack 7.

L4T 24, 28   cpu [0%,off,off,0%]@345 (one clock for all cores), EMC 7%@665, GR3D 0%@114
L4T 32       POM_5V_GPU 40/40, temperatures and clocks as in 35, no units behind power
L4T 35, 36   GR3D_FREQ 0%@1300, CPU@41.4C, VDD_GPU_SOC 2403mW/2403mW (now / average)
JetPack 7    a date first, GR3D_FREQ 12%@[1300,1300] (one clock per GPC), cpu@52.968C, VDD_GPU_SOC
             5139mW/5139mW/5139mW (now / average / peak), engines that are off in words (NVDLA0 off)

What rails and zones stand for: `runtime.sensors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from socsched.runtime.sensors import OFF_C, power_of, temperatures

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
