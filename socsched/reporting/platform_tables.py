"""Tables describing a platform: engines in a power mode with their peaks, modes, rails, limits, sources."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from socsched.cost.power import dram_capacity
from socsched.cost.roofs import accelerator_int8_peak, peak
from socsched.descriptor.platform import Engine, Figure, Platform, PowerMode
from socsched.reporting.terminal import table
from socsched.units import format_bandwidth, format_duration, format_frequency, format_power, format_size

PRECISIONS = ("fp32", "fp16", "int8")


def view(platform: Platform, mode: PowerMode) -> Iterator[RenderableType]:
    """Yield everything that `platforms show` prints."""
    yield Text(f"{platform.title}  ({platform.vendor})", "bold")
    yield from memory(platform, mode)
    yield Text("")
    yield engines(platform, mode)
    yield from totals(platform, mode)
    yield Text("")
    yield modes(platform, mode)
    for part in (rails(platform), thermal(platform)):
        if part is not None:
            yield Text("")
            yield part
    yield Text("")
    yield table(
        "Sources", ["key", "title", "where"], [[k, s.title, s.where] for k, s in platform.sources.items()], (), (2,)
    )


def memory(platform: Platform, mode: PowerMode) -> Iterator[Text]:
    """Yield the known properties of the main memory, and its bandwidth in a mode."""
    dram = platform.dram
    line = f"DRAM {format_size(round(dram.size.value))}, peak {_told(dram.peak, format_bandwidth)}, "
    line += f"achievable {_told(dram.achievable, format_bandwidth)}"
    if dram.latency_ns:
        line += f", random access {_told(dram.latency_ns, format_duration)}"
    yield Text(line)
    if dram.contention.model:
        known = platform.sources.get(dram.contention.source)
        yield Text(f"contention {dram.contention.model}, {known.title if known else dram.contention.assumed}")
    capacity = format_bandwidth(round(dram_capacity(platform, mode)))
    yield Text(f"in mode {mode.name}: peak {_told(mode.dram, format_bandwidth)}, achievable {capacity}")


def engines(platform: Platform, mode: PowerMode) -> RenderableType:
    """Return every engine in a mode with its peaks (dense)."""
    rows = [_engine(engine, mode) for engine in platform.engines]
    columns = ["engine", "what", "online", *PRECISIONS, "DRAM alone", "idle", "busy", "coherent", "preemption"]
    return table(
        f"Engines in mode {mode.name}, dense peaks in operations/s", columns, rows, range(3, 9), (1, *range(6, 11))
    )


def _engine(engine: Engine, mode: PowerMode) -> list[str]:
    state = mode.engines[engine.id]
    plural = "" if state.units == 1 else "s"
    online = f"{state.units} {engine.unit}{plural} at {format_frequency(state.clock_hz)}" if state.units else "off"
    peaks = [peak(engine, mode, precision) for precision in PRECISIONS]
    rates = [rate(item.dense) if item and item.dense else "" for item in peaks]
    rest = "at any instant" if engine.preemption.kind == "full" else engine.preemption.segment_kind or "never"
    if engine.preemption.granularity_ns:
        rest += f", {format_duration(engine.preemption.granularity_ns.value)}"
    power = [format_power(engine.idle_mw.value), format_power(state.dynamic_mw.value)] if state.units else ["", ""]
    domain = {"full": "yes", "io": "I/O-coherent", "none": "no"}[engine.coherency.domain]
    return [engine.id, engine.title, online, *rates, format_bandwidth(engine.bandwidth.value), *power, domain, rest]


def rate(value: float) -> str:
    """Return operations/s as human-readable text with three digits and a prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g}"


def totals(platform: Platform, mode: PowerMode) -> Iterator[Text]:
    """Yield the accelerators' INT8 total of a mode, against the vendor's figure, and the mode's remarks."""
    total = accelerator_int8_peak(platform, mode)
    if total.dense:
        line = f"INT8 without CPUs: {total.dense / 1e12:.1f} TOPS dense"
        if total.sparse > total.dense:
            line += f", {total.sparse / 1e12:.1f} with structured sparsity"
        stated = mode.stated_tops
        if stated:
            off = total.sparse / 1e12 / stated.value - 1
            line += f" (stated: {stated.value:g}, {off:+.1%}; {stated.source})"
        yield Text(line)
    if mode.note:
        yield Text(f"{mode.name}: {mode.note}")


def modes(platform: Platform, chosen: PowerMode) -> RenderableType:
    """Return every power mode: online units with their clocks, and the caps."""
    rows = []
    for mode in platform.modes:
        online = ", ".join(
            f"{_together(ids)} {units} at {format_frequency(clock)}"
            for (_, units, clock), ids in _alike(platform, mode).items()
            if units
        )
        cap = format_power(mode.cap_mw.value) if mode.cap_mw else "none stated"
        mark = " ".join(filter(None, ("default" if mode.default else "", "shown" if mode is chosen else "")))
        name = mode.name + (f" ({mode.family})" if mode.family else "")
        rows.append([name, str(mode.id), cap, format_bandwidth(mode.dram.value), online, mark])
    return table("Power modes", ["mode", "id", "cap", "DRAM peak", "online", ""], rows, (1, 2, 3))


def _alike(platform: Platform, mode: PowerMode) -> dict[tuple[str, int, int], list[str]]:
    """Return the ids of engines that differ only in a final digit (dla0, dla1), by name, units online and clock."""
    stems = [engine.id.rstrip("0123456789") for engine in platform.engines]
    groups: dict[tuple[str, int, int], list[str]] = {}
    for engine, stem in zip(platform.engines, stems, strict=True):
        state = mode.engines[engine.id]
        same = [e for e, other in zip(platform.engines, stems, strict=True) if other == stem and e.kind == engine.kind]
        alike = len({(*sorted(e.precisions), e.units, e.clock_hz.value) for e in same}) == 1
        name = stem if alike and len(same) > 1 else engine.id
        groups.setdefault((name, state.units, state.clock_hz), []).append(engine.id)
    return groups


def _together(ids: list[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0].rstrip('0123456789')} {len(ids)} x"


def rails(platform: Platform) -> RenderableType | None:
    """Return the supplies with a power meter, None if the board has none."""
    rows = [
        [
            name,
            rail.title,
            ", ".join(rail.covers),
            rail.sensor,
            _told(rail.idle_mw, format_power) if rail.idle_mw else "",
        ]
        for name, rail in platform.rails.items()
    ]
    return table("Power rails", ["rail", "what", "feeds", "sensor", "idle"], rows) if rows else None


def thermal(platform: Platform) -> RenderableType | None:
    """Return the temperature limits, None if none are known."""
    rows = [[name, _told(figure, lambda v: f"{v:g} C"), figure.note] for name, figure in platform.thermal.items()]
    return table("Thermal limits", ["limit", "temperature", ""], rows) if rows else None


def operating_points(engine: Engine) -> RenderableType | None:
    """Return the operating points of an engine, None if the descriptor lists none."""
    if engine.points is None:
        return None
    rows = [
        [
            format_frequency(point.clock_hz),
            f"{point.microvolt / 1e6:g} V" if point.microvolt else "",
            f"{point.capacity:g}" if point.capacity else "",
            format_power(_point_power(engine, point.clock_hz)) if point.microvolt or point.dynamic_mw else "",
        ]
        for point in engine.points.points
    ]
    why = engine.points.source or engine.points.note
    columns = ["clock", "voltage", "capacity", f"a busy {engine.unit}"]
    return table(f"Operating points of {engine.id} ({engine.points.kind}, {why})", columns, rows, range(4))


def _point_power(engine: Engine, clock_hz: int) -> float:
    from socsched.descriptor.platform import dynamic_power

    return dynamic_power(engine, 1, clock_hz).value


def _told(figure: Figure, show: object) -> str:
    assert callable(show)
    value = show(figure.value)
    if figure.interval:
        value = f"{show(figure.interval[0])} to {show(figure.interval[1])}"
    source = f", {figure.source}" if figure.source else ""
    return f"{value} ({figure.kind}{source})"
