"""The sections on resources: power, energy, bandwidth, clocks, temperature, queues."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from socsched.descriptor.platform import Supply
from socsched.planning.plan import Plan
from socsched.reporting import charts, view_model
from socsched.reporting.gantt_data import colours
from socsched.reporting.svg import element, table
from socsched.trace.columns import CLOCK
from socsched.trace.trace import Trace
from socsched.units import format_bandwidth, format_power

if TYPE_CHECKING:
    from socsched.trace.columns import Columns

Result = Mapping[str, Any]
MOST_OTHERS = 12
"""Maximum number of charts of other counters; the page refers to Perfetto for the rest."""


def power(plan: Plan, trace: Trace, result: Result, supply: Supply | None = None) -> str:
    """Return power over time against the cap, at the wall if a supply is given, and what engines used."""
    columns, cap = trace.columns, plan.power.cap_mw
    expected = plan.power.expected_mw
    budget = f"Planned: {format_power(expected or 0, 3)} on average"
    budget += f" of {format_power(cap, 3)} allowed." if cap else "; no cap is stated for this mode."
    if supply and expected:
        budget += f" {view_model.wall(supply, expected)}."
    levels = [(cap / 1000, f"cap {cap / 1000:g} W", "limit")] if cap else []
    if expected:
        levels.append((expected / 1000, f"planned mean {expected / 1000:.3g} W", "bound"))
    drawn = ""
    if "power_mw" in columns.counters:
        drawn = charts.quantity(
            columns.counters["power_mw"], trace.duration_ns, 1e-3, "power [W]", levels, "Power of the module over time"
        )
    else:
        budget += " No power was recorded" + ("." if trace.kind == "simulated" else ": no sensor could be read here.")
    rows = [
        [
            escape(name),
            f"{entry.get('utilization', 0):.1%}",
            view_model.duration(entry.get("busy_ns")),
            view_model.energy(entry.get("energy_mj")),
        ]
        for name, entry in result.get("engines", {}).items()
    ]
    return (
        element("h2", "Power and energy")
        + element("p", escape(budget))
        + element("div", element("div", drawn) + element("div", _energy(plan, result)), class_="pair")
        + table(["engine", "busy", "busy time, all lanes", "energy"], rows, [1, 2, 3])
    )


def _energy(plan: Plan, result: Result) -> str:
    colour, total = colours(plan), result.get("energy_mj")
    parts = [(name, entry.get("energy_mj") or 0.0) for name, entry in result.get("engines", {}).items()]
    if not any(value for _, value in parts):
        return ""
    rest = (total or 0.0) - sum(value for _, value in parts)
    if total and rest > 0:
        parts.append(("base, DRAM", rest))
    whole = total or sum(value for _, value in parts)
    rows = [
        (name, value, f"{view_model.energy(value)}, {value / whole:.0%}", colour.get(name, 0)) for name, value in parts
    ]
    return element("h3", "Energy by engine") + charts.bars(rows, f"Energy, {view_model.energy(whole)} in all")


def bandwidth(plan: Plan, trace: Trace, result: Result) -> str:
    """Return DRAM traffic over time against the achievable bandwidth; empty if it was not recorded."""
    columns = trace.columns
    planned, most = plan.bandwidth.expected_gbps, plan.bandwidth.cap_gbps
    sentence = ""
    if planned is not None:
        sentence = f"Planned: {format_bandwidth(planned * 1e9)} on average"
        sentence += f"; all engines together reach {format_bandwidth(most * 1e9)}." if most else "."
    levels = [(float(most), f"memory {most:.4g} GB/s", "limit")] if most else []
    if planned is not None:
        levels.append((float(planned), f"planned mean {planned:.3g} GB/s", "bound"))
    drawn = ""
    if "bandwidth_gbps" in columns.counters:
        drawn = charts.quantity(
            columns.counters["bandwidth_gbps"], trace.duration_ns, 1, "traffic [GB/s]", levels, "DRAM traffic over time"
        )
    else:
        sentence += " No traffic was recorded" + ("." if trace.kind == "simulated" else ": a run does not measure it.")
    return element("h2", "Memory bandwidth") + element("p", escape(sentence)) + drawn


def draw_counters(plan: Plan, trace: Trace) -> str:
    """Return charts of the other recorded counters: clocks, temperatures, rails, queues."""
    columns = trace.columns
    known = [name for name in columns.counters if name not in ("power_mw", "bandwidth_gbps") and _moves(columns, name)]
    if not known:
        return ""
    drawn = "".join(_other(columns, name, trace.duration_ns) for name in known[:MOST_OTHERS])
    more = f" {len(known) - MOST_OTHERS} more are in the Perfetto trace." if len(known) > MOST_OTHERS else ""
    head = element("summary", f"{len(known)} more counters over time: clocks, temperatures, queues")
    note = element("p", more, class_="dim") if more else ""
    return element("details", head + element("div", drawn, class_="pair") + note)


def _moves(columns: Columns, name: str) -> bool:
    _, values = columns.counters[name]
    return bool(len(values)) and bool((values != values[0]).any())


def _other(columns: Columns, name: str, end_ns: int) -> str:
    scale, unit = unit_of(name)
    title = f"{name} over time"
    drawn = charts.quantity(columns.counters[name], end_ns, scale, f"{name} [{unit}]" if unit else name, [], title)
    return element("div", drawn)


def unit_of(counter: str) -> tuple[float, str]:
    """Return the display factor of a counter, and its unit."""
    if counter.startswith(CLOCK) or counter.endswith("_hz"):
        return 1e-6, "MHz"
    if counter.startswith(("rail_mw.", "engine_mw.")) or counter.endswith("_mw"):
        return 1e-3, "W"
    if counter.startswith(("celsius.", "temperature_c")):
        return 1, "°C"
    if counter.startswith("release_late_ns."):
        return 1e-6, "ms"
    return (1, "frames") if counter.startswith("queue.") else (1, "")
