"""Nominal figures of an engine for a fit: from its descriptor, and from its family what descriptors do not state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from socsched.cost.fitted import BYTES
from socsched.cost.fitting.families import Family, find_family
from socsched.cost.timing import Nominal
from socsched.descriptor.platform import Engine, Figure, Platform, PowerMode
from socsched.errors import UsageError


@dataclass(frozen=True, slots=True)
class Use:
    """How a network runs: on `units` of an engine (0: all), `joined` with the other clusters of the same core."""

    platform: Platform
    engine: Engine
    mode: PowerMode
    precision: str
    units: int = 0
    joined: bool = False

    @property
    def clusters(self) -> tuple[Engine, ...]:
        """Return the engines that work together."""
        if not self.joined:
            return (self.engine,)
        like = [one for one in self.platform.engines if one.kind == self.engine.kind]
        return tuple(one for one in like if one.target.get("mcpu") == self.engine.target.get("mcpu"))

    @property
    def threads(self) -> str:
        """Return "one", "cluster" (several units of one engine) or "joined"."""
        return "joined" if self.joined else "one" if self.running() == 1 else "cluster"

    def running(self) -> int:
        """Return the units at work."""
        online = sum(self.mode.engines[one.id].units for one in self.clusters)
        return online if self.joined or not self.units or self.engine.shares != "unit" else min(self.units, online)


def use_of(platform: Platform, engine: str, mode: str, precision: str, units: int = 0, joined: bool = False) -> Use:
    """Return a use by names; UsageError for what the platform does not have."""
    try:
        found = platform.engine(engine)
    except KeyError:
        raise UsageError(f"{platform.name} has no engine {engine!r}") from None
    try:
        return Use(platform, found, platform.mode(mode or None), precision, units, joined)
    except KeyError:
        raise UsageError(f"{platform.name} has no mode {mode!r}") from None


def fullest(use: Use) -> Use:
    """Return the use in the mode that has the most of its units on, with the fastest memory and clock among these."""

    def size(mode: PowerMode) -> tuple[int, float, float]:
        state = mode.engines[use.engine.id]
        return replace(use, mode=mode).running() if state.units else 0, mode.dram.value, state.clock_hz

    return replace(use, mode=max(use.platform.modes, key=size))


def family_of(use: Use) -> Family:
    """Return the family of the engine used; UsageError when there is none."""
    family = find_family(use.engine, use.threads)
    if family is None:
        raise UsageError(f"{use.platform.name} {use.engine.id}: no engine family is known for it", "choose --family")
    return family


def rate(use: Use, family: Family) -> Figure:
    """Return operations per unit and cycle: the family's correction, else the descriptor's figure; UsageError."""
    stated = use.engine.precisions.get(use.precision)
    better = family.override(use.platform.name, use.precision, use.threads, "ops_per_cycle")
    if better is not None and better.ops_per_cycle is not None:
        return Figure(better.ops_per_cycle, "derived", note=better.note)
    if better is not None and better.like in use.engine.precisions:
        other = use.engine.precisions[better.like].ops_per_cycle
        return Figure(other.value * better.times, "derived", note=better.note)
    if stated is not None:
        return stated.ops_per_cycle
    where = f"{use.platform.name} {use.engine.id}"
    raise UsageError(f"{where}: the descriptor states no rate in {use.precision}", "add it under precisions")


def fixed(use: Use, family: Family, name: str) -> Figure:
    """Return the stated cost (us) of a launch or a submission: the platform's in the family, else the family's."""
    better = family.override(use.platform.name, use.precision, use.threads, name)
    if better is not None:
        return Figure(getattr(better, name), "published", note=better.note)
    return Figure(getattr(family, name), "assumed", note=f"nominal of {family.title}; fitted parameters multiply it")


def nominal(use: Use, family: Family, launch: float | None = None, submit: float | None = None) -> Nominal:
    """Return the figures that parameters are ratios to; `launch` and `submit` (us) replace the stated ones.

    Raises UsageError where the engine is off in the mode, or lacks the precision.
    """
    state, units = use.mode.engines[use.engine.id], use.running()
    if use.precision not in BYTES:
        raise UsageError(f"the precision {use.precision!r} is not known", f"precisions: {', '.join(BYTES)}")
    if not units:
        raise UsageError(f"{use.platform.name} {use.engine.id}: no unit is on in mode {use.mode.name}")
    own = sum(one.bandwidth.value for one in use.clusters)
    memory = min(own, use.mode.dram.value) if family.memory == "engine" else use.mode.dram.value
    return Nominal(
        peak=units * state.clock_hz * rate(use, family).value / 2e6,
        dram=memory / 1e6,
        sram=use.engine.sram.value if use.engine.sram and family.keeps else 0.0,
        block=family.block_of(use.precision),
        bytes=BYTES[use.precision],
        slowdown=use.engine.clock_hz.value / state.clock_hz,
        submit_us=fixed(use, family, "submit").value if submit is None else submit,
        launch_us=fixed(use, family, "launch").value if launch is None else launch,
        taps=family.taps,
        units=units,
        copies=family.copies,
    )
