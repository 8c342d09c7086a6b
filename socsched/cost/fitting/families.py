"""Engine families: which engines share a runtime and a kind of hardware, with priors and figures no descriptor has.

Nominal figures are from an engine's descriptor, and from its family where descriptors state none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.cost.fitting.table import Prior
from socsched.cost.timing import BYTES, WEIGHT_BYTES, Nominal
from socsched.descriptor.fit import NAMES
from socsched.descriptor.platform import Engine, Figure, Platform, PowerMode
from socsched.descriptor.source import read
from socsched.errors import UsageError
from socsched.units import parse_duration


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
    if family.memory == "link" and use.engine.link is not None:
        memory = use.engine.link.bandwidth.value
    return Nominal(
        peak=units * state.clock_hz * rate(use, family).value / 2e6,
        dram=memory / 1e6,
        sram=use.engine.sram.value if use.engine.sram and family.keeps else 0.0,
        block=family.block_of(use.precision),
        bytes=BYTES[use.precision],
        weight_bytes=WEIGHT_BYTES[use.precision],
        slowdown=use.engine.clock_hz.value / state.clock_hz,
        submit_us=fixed(use, family, "submit").value if submit is None else submit,
        launch_us=fixed(use, family, "launch").value if launch is None else launch,
        taps=family.taps,
        units=units,
        copies=family.copies,
        resident=family.dataflow,
        dataflow=family.dataflow,
        padded=family.padded,
    )


FILE = Path(__file__).with_name("families.yaml")


@dataclass(frozen=True, slots=True)
class Override:
    """Figures of engines whose platform, precision and threads fit the patterns; None leaves a figure as it is.

    `ops_per_cycle` as in descriptors, or `times` that of the precision `like`; times in us.
    """

    platform: str = "*"
    precision: str = "*"
    threads: str = "*"
    launch: float | None = None
    submit: float | None = None
    ops_per_cycle: float | None = None
    like: str = ""
    times: float = 1.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """Host programs by name (globs) whose costs (us) of a launch and a job differ from the family's."""

    runtimes: tuple[str, ...]
    launch: float
    submit: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Engines fitted together: how to recognise them, fixed costs (us), native blocks by precision, and priors.

    `taps` and `copies` as in `timing.Nominal`; `memory`: bandwidth is relative to the mode's "dram", to the
    "engine"'s own or to its "link"; `dataflow`, `padded`: as there; `runtimes`: programs
    (globs) that the family stands for, any where there are none; `hosts`: those of them with costs of their own;
    `keeps`: activations stay on chip between passes; `unseen`: mean error and half width of the interval for boards
    without measurements; `noise`: spread (log) among measurements of one cell; `shares`: terms that cells have in
    common, "core" or "precision"; `own`: spread of each parameter between engines; `notes`: the argument for each
    prior; `varied`: programs (globs) whose jobs are as long as their input, without padding.
    """

    name: str
    title: str
    match: Mapping[str, str]
    launch: float
    submit: float
    block: Mapping[str, int]
    taps: float
    copies: bool
    memory: str
    keeps: bool
    unseen: tuple[float, float]
    noise: float
    shares: tuple[str, ...]
    prior: Prior
    own: Mapping[str, float]
    notes: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[Override, ...] = ()
    runtimes: tuple[str, ...] = ()
    hosts: tuple[Program, ...] = ()
    varied: tuple[str, ...] = ()
    dataflow: bool = False
    padded: bool = False

    def stands_for(self, runtime: str) -> bool:
        """Return whether a row of a program belongs to the family; one that names no program does."""
        return not runtime or not self.runtimes or any(fnmatchcase(runtime, glob) for glob in self.runtimes)

    def host(self, runtime: str) -> Program | None:
        """Return the costs of a host program, None where they are the family's."""
        return next((one for one in self.hosts if any(fnmatchcase(runtime, glob) for glob in one.runtimes)), None)

    def holds(self, engine: Engine, threads: str) -> bool:
        """Return whether an engine belongs here, used by `threads` "one", "cluster" or "joined"."""
        facts = {
            "kind": engine.kind,
            "rules": engine.operators.name,
            "target": str(engine.target.get("kind", "")),
            "title": engine.title,
            "threads": threads,
        }
        return all(any(fnmatchcase(facts[name], one) for one in glob.split("|")) for name, glob in self.match.items())

    def suits(self, threads: str) -> bool:
        """Return whether engines of this family are used so: by "one" thread, a "cluster", or "joined" ones."""
        return threads in self.match.get("threads", threads).split("|")

    def override(self, platform: str, precision: str, threads: str, name: str) -> Override | None:
        """Return the first override that states the figure `name` for a platform, precision and threads."""
        for one in self.figures:
            stated = getattr(one, name) is not None or (name == "ops_per_cycle" and one.like)
            facts = ((platform, one.platform), (precision, one.precision), (threads, one.threads))
            if stated and all(fnmatchcase(fact, glob) for fact, glob in facts):
                return one
        return None

    def block_of(self, precision: str) -> int:
        """Return the channels of the native block."""
        return self.block.get(precision, self.block["default"])


@lru_cache(maxsize=1)
def families() -> dict[str, Family]:
    """Return the shipped families by name."""
    return {name: _family(name, _inherited(name)) for name in _document()["families"]}


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return dict(read(FILE).data)


def _inherited(name: str) -> dict[str, Any]:
    """Return what a family states over that of the family it is like and over what all have in common."""
    given = dict(_document()["families"][name])
    base = _inherited(given.pop("like")) if "like" in given else _document()["common"]
    return {**base, **given, "prior": {**base["prior"], **given.get("prior", {})}}


def _family(name: str, given: Mapping[str, Any]) -> Family:
    prior = given["prior"]
    return Family(
        name,
        given["title"],
        given["match"],
        parse_duration(given["launch"]) / 1e3,
        parse_duration(given["submit"]) / 1e3,
        given["block"],
        float(given["taps"]),
        given["copies"],
        given["memory"],
        given["keeps"],
        (float(given["unseen"]["error"]), float(given["unseen"]["interval"])),
        given["noise"],
        tuple(given["shares"]),
        {key: (float(prior[key]["median"]), float(prior[key]["spread"])) for key in NAMES},
        {key: float(prior[key]["own"]) for key in NAMES},
        {key: prior[key]["note"] for key in NAMES},
        tuple(_override(one) for one in given.get("figures", [])),
        tuple(given["runtimes"]),
        tuple(_program(one) for one in given["hosts"]),
        tuple(given.get("varied", ())),
        bool(given.get("dataflow", False)),
        bool(given.get("padded", False)),
    )


def _program(given: Mapping[str, Any]) -> Program:
    launch, submit = (parse_duration(given[key]) / 1e3 for key in ("launch", "submit"))
    return Program(tuple(given["runtimes"]), launch, submit, given["note"])


def _override(given: Mapping[str, Any]) -> Override:
    times = {key: parse_duration(given[key]) / 1e3 for key in ("launch", "submit") if key in given}
    return Override(**{**given, **times})


def get_family(name: str) -> Family:
    """Return a family by name; UsageError when there is none."""
    if name not in families():
        raise UsageError(f"no engine family {name!r}", f"families: {', '.join(families())}")
    return families()[name]


def find_family(engine: Engine, threads: str) -> Family | None:
    """Return the family an engine belongs to, None for engines of no known family."""
    return next((family for family in families().values() if family.holds(engine, threads)), None)


def design(network: str) -> str:
    """Return the name of the networks that share a network's design, which are left out together."""
    for name, prefixes in _document()["designs"].items():
        if network.lower().startswith(tuple(prefixes)):
            return str(name)
    return network
