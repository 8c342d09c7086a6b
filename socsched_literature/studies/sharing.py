"""Comparison of ways to share an accelerator: requests of one workload served in time, over loads and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.cost.fitted import estimate
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.reporting.markup import element, text, ticks
from socsched.reporting.terminal import table
from socsched.units import format_duration
from socsched_literature.sharing import gpulet, mig_serving, nexus
from socsched_literature.sharing.deployment import Arrivals, Demand, Deployment, Outcome, Part, mechanism, requests
from socsched_literature.sharing.profile import (
    Interference,
    NoInterference,
    Profile,
    Sample,
    SharedBandwidth,
    ShareLaw,
    read_constants,
    read_profiles,
)
from socsched_literature.sharing.serving import Simulation, whole, with_guests

# Sources of the networks of a sharing study: a pipeline on an engine, or a CSV of measured profiles.


@dataclass(frozen=True, slots=True)
class Source:
    """Networks with requests per second at load 1, their arrival process, and their interference model."""

    title: str
    networks: tuple[tuple[Profile, float], ...]
    arrivals: Arrivals
    interference: Interference


def from_pipeline(pipeline: Pipeline, platform: Platform, mode: PowerMode, engine_id: str) -> Source:
    """Return the stages of a pipeline that `engine_id` can run, each a network requested, and due, once per period.

    Times come from the cost model, in the fastest precision of the engine; on a share of units they grow as in the
    roofline model.  UsageError if the engine is missing, is off, or can run none of the stages.
    """
    known = [engine.id for engine in platform.engines]
    if engine_id not in known:
        raise UsageError(f"{platform.name} has no engine {engine_id!r}", hint=f"its engines: {', '.join(known)}")
    units = mode.engines[engine_id].units
    if units < 1:
        raise UsageError(f"{engine_id} is off in {mode.name}", hint="choose another mode with --mode")
    model = CostModel(platform, mode, stage_work)
    periods = task_graph(pipeline).period_ns
    found = []
    for stage in pipeline.stages:
        profile = _profile(model, stage, engine_id, units, periods[stage.name])
        if profile is not None:
            found.append((profile, 1e9 / periods[stage.name]))
    if not found:
        raise UsageError(f"{engine_id} can run no stage of {pipeline.name}", hint="choose another with --engine")
    title = f"{pipeline.name} on {engine_id} of {platform.name} in {mode.name}"
    return Source(title, tuple(found), "periodic", SharedBandwidth())


def _profile(model: CostModel, stage: Stage, engine_id: str, units: int, period_ns: int) -> Profile | None:
    costs = [cost for cost in model.candidates(stage) if cost.engine == engine_id]
    if not costs:
        return None
    most = max(cost.share for cost in costs)
    best = min((cost for cost in costs if cost.share == most), key=lambda cost: cost.time_ns)
    load = min(1.0, best.bytes / (best.time_ns / 1e9) / model.dram)
    sample = Sample(1, best.time_ns, 1.0, 0.0, load)
    work = model.work_of(stage, best.precision)
    if work is None:
        return Profile(stage.name, period_ns, (sample,))
    platform, engine = model.platform, model.platform.engine(engine_id)
    whole = estimate(work, platform, engine, model.mode, units).time_ns
    longer = {
        floor(100 * count / units): estimate(work, platform, engine, model.mode, count).time_ns / whole
        for count in range(1, units + 1)
    }
    return Profile(stage.name, period_ns, (sample,), "known", tuple(sorted(longer.items())))


def from_profiles(file: Path, constants: Path | None, rates: dict[str, float], law: ShareLaw) -> Source:
    """Return the networks of a CSV file named in `rates`; without rates, all of them at equal rates.

    The equal rate is such that together they require half of one accelerator.  UsageError for a network that is not in
    the file, or a rate that is not above zero.
    """
    profiles = {one.name: one for one in read_profiles(file, law=law)}
    if unknown := sorted(set(rates) - set(profiles)):
        raise UsageError(f"{file} has no network {unknown[0]!r}", hint=f"it has: {', '.join(profiles)}")
    if wrong := [name for name, rate in rates.items() if rate <= 0]:
        raise UsageError(f"{wrong[0]}: expected a rate above zero", hint="such as --rate resnet50=60")
    if not rates:
        each = 0.5 / sum(1 / one.saturated(100)[1] for one in profiles.values() if one.saturated(100)[0])
        rates = dict.fromkeys(profiles, each)
    interference = read_constants(constants) if constants else NoInterference()
    networks = tuple((profiles[name], rate) for name, rate in rates.items())
    return Source(f"networks of {file.name}", networks, "poisson", interference)


SYSTEMS = ("time", "time-slicing", "streams", "mps-equal", "gpulet", "mig")


@dataclass(frozen=True, slots=True)
class Setting:
    """Number of equal accelerators, mechanism of their parts, and the MIG geometry (empty: none)."""

    devices: int = 1
    mechanism: str = "mps"
    mig: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A system at a load, over seeds: mean satisfaction (all, worst network), mean goodput (1/s), worst p99 (ns).

    `unserved`: share of the requests that the planner left unplaced, which the least used part serves nevertheless;
    `reason` for omitting a system.
    """

    system: str
    load: float
    satisfaction: float = 0.0
    worst: float = 0.0
    goodput: float = 0.0
    p99_ns: int = 0
    unserved: float = 0.0
    deployment: tuple[str, ...] = ()
    reason: str = ""


def study(
    source: Source,
    systems: Sequence[str] = SYSTEMS,
    loads: Sequence[float] = (1.0,),
    seeds: int = 3,
    duration_ns: int = 10_000_000_000,
    setting: Setting = Setting(),
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Return a row per system and load; UsageError for an unknown system."""
    if unknown := [name for name in systems if name not in SYSTEMS]:
        raise UsageError(f"unknown way to share {unknown[0]!r}", hint=f"known: {', '.join(SYSTEMS)}")
    rows = []
    for name in systems:
        note(f"{name}: {len(loads)} loads, {seeds} seeds")
        for load in loads:
            try:
                rows.append(_row(name, source, load, seeds, duration_ns, setting))
            except UsageError as error:
                rows.append(Row(name, load, reason=str(error)))
    return rows


def _row(name: str, source: Source, load: float, seeds: int, duration_ns: int, setting: Setting) -> Row:
    demands = [Demand(profile, rate * load) for profile, rate in source.networks]
    rates = {one.profile.name: one.rate for one in demands}
    found: list[Outcome] = []
    deployment = Deployment(())
    for seed in range(seeds):
        simulation, deployment = _simulation(name, demands, source, setting)
        requested = requests(rates, duration_ns, source.arrivals, seed)
        found.append(simulation.run(requested, duration_ns))
    lost = sum(one.rate for one in deployment.unserved) / sum(rates.values())
    return Row(
        name,
        load,
        fmean(one.satisfaction for one in found),
        fmean(one.worst for one in found),
        fmean(one.goodput for one in found),
        max(model.percentile(0.99) for one in found for model in one.models),
        lost,
        tuple(str(part) for part in deployment.parts),
    )


def _simulation(
    name: str, demands: Sequence[Demand], source: Source, setting: Setting
) -> tuple[Simulation, Deployment]:  # fmt: skip
    parts = mechanism(setting.mechanism)
    mechanisms = {"time-slicing": mechanism("time-slicing"), "streams": mechanism("streams"), "mig": mechanism("mig")}
    deployment = _PLANS[name](demands, source, setting)
    served = with_guests(deployment, setting.devices)
    return Simulation(served, mechanisms.get(name, parts), source.interference), deployment


def _dealt(demands: Sequence[Demand], devices: int) -> list[list[Demand]]:
    """Return the networks by accelerator, the heaviest first to the least loaded."""
    loads = [0.0] * devices
    dealt: list[list[Demand]] = [[] for _ in range(devices)]
    for one in sorted(demands, key=lambda one: -one.rate * one.profile.latency(1, 100)):
        least = loads.index(min(loads))
        loads[least] += one.rate * one.profile.latency(1, 100)
        dealt[least].append(one)
    return dealt


def _everywhere(demands: Sequence[Demand], source: Source, setting: Setting) -> Deployment:
    """Return every network on the whole of every accelerator, concurrently with the others."""
    return Deployment(
        tuple(
            whole([(one.profile, one.rate / setting.devices)], device=device)
            for device in range(setting.devices)
            for one in demands
        )
    )


def _equal(demands: Sequence[Demand], source: Source, setting: Setting) -> Deployment:
    """Return equal shares of an accelerator for the networks assigned to it."""
    parts = []
    for device, each in enumerate(_dealt(demands, setting.devices)):
        for one in each:
            part = whole([(one.profile, one.rate)], device=device)
            parts.append(Part(device, 100 // len(each), part.served))
    return Deployment(tuple(parts))


def _mig(demands: Sequence[Demand], source: Source, setting: Setting) -> Deployment:
    """Return the first accelerators of a deployment that would serve all demand; the rest of it is unserved."""
    if not setting.mig:
        raise UsageError("no MIG geometry", hint="name one with --mig, such as a100-40gb")
    problem = mig_serving.problem(setting.mig, demands)
    configs = sorted(mig_serving.greedy(problem), key=len, reverse=True)
    deployment = mig_serving.deployment(problem, configs)
    kept = tuple(part for part in deployment.parts if part.device < setting.devices)
    lost = [part.served[0] for part in deployment.parts if part.device >= setting.devices]
    return Deployment(kept, tuple(Demand(one.profile, one.rate) for one in lost))


_PLANS: dict[str, Callable[[Sequence[Demand], Source, Setting], Deployment]] = {
    "time": lambda demands, source, setting: nexus.schedule(demands, setting.devices),
    "time-slicing": _everywhere,
    "streams": _everywhere,
    "mps-equal": _equal,
    "gpulet": lambda demands, source, setting: gpulet.schedule(demands, setting.devices, source.interference),
    "mig": _mig,
}


def document(source: Source, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the study as plain data."""
    return {
        "workload": source.title,
        "networks": [
            {"name": profile.name, "rate": rate, "objective_ns": profile.slo_ns, "alone_ns": profile.latency(1, 100)}
            for profile, rate in source.networks
        ],
        "rows": [
            {
                "system": row.system, "load": row.load, "satisfaction": row.satisfaction, "worst": row.worst,
                "goodput": row.goodput, "p99_ns": row.p99_ns, "unserved": row.unserved,
                "deployment": list(row.deployment), "reason": row.reason,
            }
            for row in rows
        ],
    }  # fmt: skip


# A sharing study as a table and as a figure: share of requests in time over load, one line per system.


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 64, 140, 36, 48
COLOURS = ("#1b6ca8", "#c8553d", "#2f7d4f", "#7b4ea3", "#b8860b", "#3d7f8c", "#8c3d5a")


def view(source: Source, rows: Sequence[Row]) -> RenderableType:
    """Return the networks and the table, followed by the omitted systems with their reasons."""
    networks = ", ".join(
        f"{one.name} {rate:.3g} {format_duration(one.slo_ns)} (alone {format_duration(one.latency(1, 100))})"
        for one, rate in source.networks
    )
    cells = [
        [
            row.system, f"{row.load:g}", f"{row.satisfaction:.1%}", f"{row.worst:.1%}", f"{row.goodput:.1f}",
            format_duration(row.p99_ns), f"{row.unserved:.0%}" if row.unserved else "–",
        ]
        for row in rows if not row.reason
    ]  # fmt: skip
    header = ["system", "load", "in time", "worst network", "in time 1/s", "worst p99", "unserved"]
    reasons = dict.fromkeys(f"{row.system}: {row.reason}" for row in rows if row.reason)
    return Group(
        table(source.title, header, cells, range(1, len(header))),
        Text(f"requests a second and deadline: {networks}"),
        *(Text(reason) for reason in reasons),
    )


def figure(source: Source, rows: Sequence[Row]) -> str:
    """Return the SVG: share of requests in time over load."""
    plotted = [row for row in rows if not row.reason]
    loads = sorted({row.load for row in plotted}) or [1.0]
    low, high = (loads[0], loads[-1]) if len(loads) > 1 else (0.0, loads[0] * 2)

    def x(load: float) -> float:
        return LEFT + (load - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    body = element("rect", x=0, y=0, width=WIDTH, height=HEIGHT, fill="#ffffff")
    body += text(f"{source.title}: share of requests in time", LEFT, 20, font_size=13)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        body += element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(share), y2=y(share), stroke="#dddddd")
        body += text(f"{share:.0%}", LEFT - 6, y(share) + 4, text_anchor="end")
    for load in ticks(low, high):
        body += text(f"{load:g}", x(load), HEIGHT - BOTTOM + 18, text_anchor="middle")
    body += text("load", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, text_anchor="middle")
    for i, system in enumerate(dict.fromkeys(row.system for row in plotted)):
        colour = COLOURS[i % len(COLOURS)]
        points = sorted((row.load, row.satisfaction) for row in plotted if row.system == system)
        path = " ".join(f"{x(load):.1f},{y(share):.1f}" for load, share in points)
        body += element("polyline", points=path, fill="none", stroke=colour, stroke_width=2)
        for load, share in points:
            body += element("circle", cx=x(load), cy=y(share), r=3, fill=colour)
        body += element("line", x1=WIDTH - RIGHT + 12, x2=WIDTH - RIGHT + 32, y1=TOP + 18 * i, y2=TOP + 18 * i,
                        stroke=colour, stroke_width=2)  # fmt: skip
        body += text(system, WIDTH - RIGHT + 38, TOP + 4 + 18 * i)
    return element(
        "svg", body, viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, font_family="sans-serif",
        font_size=11, xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
