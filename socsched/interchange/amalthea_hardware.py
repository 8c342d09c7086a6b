"""The hardware of AMALTHEA models: frequencies, access to memory, units of quantities."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from urllib.parse import unquote

from socsched.interchange.xml_file import Element, XmlFile
from socsched.limits import LONGEST_NS

_UNITS = {
    **{"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    **{"bit": 0.125, "kbit": 125.0, "Mbit": 125e3, "Gbit": 125e6, "Tbit": 125e9},
    **{"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    **{"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    **{"BPerSecond": 1.0, "kBPerSecond": 1e3, "MBPerSecond": 1e6, "GBPerSecond": 1e9, "TBPerSecond": 1e12},
    **{"KiBPerSecond": 2.0**10, "MiBPerSecond": 2.0**20, "GiBPerSecond": 2.0**30},
    **{"bitPerSecond": 0.125, "kbitPerSecond": 125.0, "MbitPerSecond": 125e3, "GbitPerSecond": 125e6},
}
_LARGEST = 1e18
_LINE = 64


def reference(text: str) -> str:
    """Return the name in a reference such as "SFM?type=Task"."""
    return unquote(text.partition("?")[0].replace("+", " "))


def amount(file: XmlFile, element: Element) -> float:
    """Return a quantity in ns, bytes, Hz or bytes/s; DescriptorError if it is not one."""
    factor = _UNITS.get(element.get("unit"))
    value = plain(file, element, "value")
    if not value and not element.get("unit"):
        return 0.0
    if factor is None:
        file.refuse(element, f"expected a known unit, got {element.get('unit')!r}")
    return value * factor


def plain(file: XmlFile, element: Element, name: str) -> float:
    """Return a non-negative number in an attribute; DescriptorError if it is not one."""
    try:
        value = float(element.get(name))
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LARGEST:
        file.refuse(element, f"{name}: expected a number from 0 to {_LARGEST:g}, got {element.get(name)!r}")
    return value


def bound(file: XmlFile, value: Element) -> tuple[float, float]:
    """Return the upper bound and the average of a deviation (a constant, statistics, or a bounded distribution)."""
    if "value" in value.attributes:
        constant = plain(file, value, "value")
        return constant, constant
    if "upperBound" not in value.attributes:
        file.refuse(value, "expected a value or an upperBound: a time without a bound cannot be planned")
    most = plain(file, value, "upperBound")
    mean = next((name for name in ("average", "mean") if name in value.attributes), "upperBound")
    return most, plain(file, value, mean)


@dataclass(slots=True)
class Unit:
    """A kind of processing unit: engine kind, frequency, latency of a line of memory (ns), data rate (bytes/s)."""

    kind: str
    frequency_hz: float = 0.0
    latency_ns: float = 0.0
    rate: float = 0.0
    line: int = _LINE

    def linear_ns(self, ticks: float, moved: float) -> float:
        """Return the time of ticks and of bytes of labels, lines not rounded up; 0 for what is not stated."""
        access = moved / self.rate * 1e9 if self.rate else moved / self.line * self.latency_ns
        return (ticks / self.frequency_hz * 1e9 if self.frequency_hz else 0.0) + access

    def access_ns(self, moved: float) -> tuple[float, str]:
        """Return the time to access bytes of labels, and how it was computed."""
        if not moved:
            return 0.0, ""
        if self.rate:
            return moved / self.rate * 1e9, f" + {moved:.0f} B at {self.rate / 1e9:g} GB/s"
        lines = math.ceil(moved / self.line)
        return lines * self.latency_ns, f" + {lines} lines of {self.line} B x {self.latency_ns:g} ns"


@dataclass(slots=True)
class Hardware:
    """Processing units by the name of their definition, and the name of the system."""

    name: str = "hardware of the model"
    units: dict[str, Unit] = field(default_factory=dict)


def period(file: XmlFile, element: Element) -> float:
    """Return a positive time of at most an hour, the longest that pipelines take; DescriptorError if it is not one."""
    ns = amount(file, element)
    if not 1 <= ns <= LONGEST_NS:
        file.refuse(element, f"expected a time from 1 ns to 1 hour, got {element.get('value')} {element.get('unit')}")
    return ns


def read_hardware(file: XmlFile, section: Element | None) -> Hardware:
    """Return the hardware of a model; of a definition used by several units, the slowest counts."""
    hardware = Hardware()
    if section is None:
        return hardware
    domains: dict[str, Element] = {}
    for domain in section.all("domains"):
        if (value := domain.first("defaultValue")) is not None:
            if domain.get("name") in domains:
                file.refuse(domain, f"expected domains with distinct names, {domain.get('name')!r} is there twice")
            domains[domain.get("name")] = value
    sizes = [size for d in section.all("definitions") if (size := d.first("lineSize")) is not None]
    line = round(amount(file, sizes[0])) if sizes else _LINE
    for definition in section.all("definitions"):
        if definition.get("type").endswith("ProcessingUnitDefinition"):
            name = definition.get("name")
            if name in hardware.units:
                file.refuse(definition, f"expected processing units with distinct names, {name!r} is there twice")
            hardware.units[name] = Unit(definition.get("puType").lower() or "cpu", line=max(1, line))
    for element in section.walk():
        if element.tag == "structures" and element.get("structureType") == "System":
            hardware.name = element.get("name") or hardware.name
        if element.tag != "modules" or not element.get("type").endswith(":ProcessingUnit"):
            continue
        unit = hardware.units.get(reference(element.get("definition")))
        clock = domains.get(reference(element.get("frequencyDomain")))
        if unit is None or clock is None or not (frequency := amount(file, clock)):
            continue
        unit.frequency_hz = min(frequency, unit.frequency_hz or frequency)
        for access in element.all("accessElements"):
            cycles = [bound(file, v)[0] for k in ("readLatency", "writeLatency") if (v := access.first(k)) is not None]
            rate = access.first("dataRate")
            if cycles:
                unit.latency_ns = max(unit.latency_ns, max(cycles) / frequency * 1e9)
            if rate is not None and (given := amount(file, rate)):
                unit.rate = min(given, unit.rate or given)
    return hardware
