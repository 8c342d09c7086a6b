"""Comparison of ways to share an accelerator: requests of one workload served in time, over loads and seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from socsched.errors import UsageError
from socsched_literature.sharing import gpulet, mig_serving, nexus
from socsched_literature.sharing.compare import with_guests
from socsched_literature.sharing.deployment import Demand, Deployment, Part
from socsched_literature.sharing.gslice import Gslice
from socsched_literature.sharing.mechanisms import mechanism
from socsched_literature.sharing.mig import geometry
from socsched_literature.sharing.mig_search import search
from socsched_literature.sharing.outcome import Outcome
from socsched_literature.sharing.serving import Simulation, whole
from socsched_literature.sharing.workload import requests
from socsched_literature.studies.sharing_sources import Source

SYSTEMS = ("time", "time-slicing", "streams", "mps-equal", "gpulet", "gslice", "mig")
PERIOD_NS = 1_000_000_000
"""Control period of GSLICE in this study; its standby is a green context or a process by `Setting.mechanism`."""


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
    if name == "gslice":
        controls = [Gslice(each, device) for device, each in enumerate(_dealt(demands, setting.devices)) if each]
        deployment = Deployment(tuple(part for one in controls for part in one.start().parts))

        def control(now: int, simulation: Simulation) -> None:
            for one in controls:
                one(now, simulation)

        return Simulation(
            deployment, parts, source.interference, controller=control, period_ns=PERIOD_NS, adaptive=False
        ), deployment  # fmt: skip
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
    geometry(setting.mig)
    problem = mig_serving.problem(setting.mig, demands)
    configs = sorted(search(problem), key=len, reverse=True)
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
