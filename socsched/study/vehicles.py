"""The vehicles of a fleet: their draws of load, temperature and faults, and a simulation of each."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

from socsched.descriptor.study import Fleet, Study
from socsched.errors import UsageError
from socsched.faults.file import random_faults
from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.study.design import Point
from socsched.study.runs import MILLION, override, scale_wcet, with_thermal_limit
from socsched.study.store import Row

if TYPE_CHECKING:
    from socsched.study.work import Planned


@dataclass(frozen=True, slots=True)
class Vehicle:
    """One vehicle of a fleet: the plan under the vehicle's conditions, and its faults."""

    seed: int
    plan: Plan
    faults: Faults
    load: int
    ambient_mc: int | None
    faults_per_minute: Fraction


def fleet_of(study: Study) -> Fleet:
    """Return the fleet of a study; UsageError if it has none."""
    if study.fleet is None:
        raise UsageError(f"{study.file}: the study declares no fleet", "add: fleet: {vehicles: 1000, ...}")
    return study.fleet


def vehicle(study: Study, planned: Planned, seed: int) -> Vehicle:
    """Return the vehicle of a seed; its draws do not depend on the caller or the order of calls."""
    fleet = fleet_of(study)

    def stream(what: str) -> Random:
        return Random(f"{seed}:{what}")

    load = fleet.load.draw(stream("load"))
    plan, ambient = scale_wcet(planned.plan, load), None
    if fleet.ambient_mc is not None and fleet.thermal is not None:
        ambient = fleet.ambient_mc.draw(stream("ambient"))
        trip = fleet.thermal.trip_mc or planned.throttle_mc
        plan = with_thermal_limit(plan, fleet.thermal, ambient, trip, planned.facts["tdp_mw"] or 0)
    rate, faults = Fraction(0), Faults()
    if fleet.faults_per_minute is not None:
        rate = Fraction(fleet.faults_per_minute.draw(stream("faults")), MILLION)
        faults = random_faults(plan, seed, rate, fleet.duration_ns, fleet.kinds)
    return Vehicle(seed, plan, faults, load, ambient, rate)


def vehicle_rows(study: Study, point: Point, planned: Planned, first: int, count: int) -> tuple[Row, ...]:
    """Return the rows of vehicles `first` to `first` + `count` - 1 of a configuration."""
    if not planned.plan.tasks:
        raise UsageError(f"{point.platform} cannot run {point.pipeline}: a stage has no engine", "see `socsched plan`")
    return tuple(_row(study, point, planned, number) for number in range(first, first + count))


def _row(study: Study, point: Point, planned: Planned, number: int) -> Row:
    fleet = fleet_of(study)
    one = vehicle(study, planned, fleet.seed + number)
    counts = totals(run(one.plan, fleet.duration_ns, one.seed, override(point.policy), one.faults, record=False))
    deadlines = {chain.name: chain.deadline_ns for chain in one.plan.chains}
    worst = max(counts.chains, key=lambda name: counts.chains[name].response_ns.most / deadlines[name])
    longest = counts.chains[worst].response_ns.most
    return {
        "config": point.config,
        "vehicle": number,
        "seed": one.seed,
        "platform": point.platform,
        "mode": planned.plan.mode,
        "pipeline": point.pipeline,
        "plan": plan_name(planned),
        "load": one.load / MILLION,
        "ambient_c": None if one.ambient_mc is None else one.ambient_mc / 1000,
        "faults_per_minute": float(one.faults_per_minute),
        "frames": sum(chain.released for chain in counts.chains.values()),
        "missed": sum(chain.missed for chain in counts.chains.values()),
        "dropped": sum(chain.dropped for chain in counts.chains.values()),
        "worst_chain": worst,
        "worst_response_max_ns": longest,
        "worst_response_share": float(f"{longest / deadlines[worst]:.6g}"),
        "power_mw": round((counts.power_mw or (0.0, 0.0))[0], 3),
    }


def plan_name(planned: Planned) -> str:
    """Return a human-readable name of a plan."""
    return f"{planned.plan.pipeline} on {planned.plan.platform} {planned.plan.mode}"
