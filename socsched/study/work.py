"""The work of a worker: make or load the plan of a group of configurations, simulate each, and return finished rows.

Results do not depend on the clock, the engine or other workers: equal inputs give equal rows.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from socsched import __version__
from socsched.bounded import allowance, gunzip
from socsched.descriptor.platform import Platform
from socsched.descriptor.study import Fleet, Study
from socsched.errors import MachineError, SocschedError, UsageError, of_machine
from socsched.faults.file import random_faults
from socsched.faults.model import Faults
from socsched.files import gzipped
from socsched.planning.plan import Plan
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.study import columns
from socsched.study.design import AUTO, Point
from socsched.study.inputs import Inputs, Opened
from socsched.study.runs import MILLION, NOTHING_RUN, override, scale_wcet, simulate_configuration, with_thermal_limit
from socsched.study.store import Row

if TYPE_CHECKING:
    pass


# The vehicles of a fleet: their draws of load, temperature and faults, and a simulation of each.


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
    return tuple(_vehicle_row(study, point, planned, number) for number in range(first, first + count))


def _vehicle_row(study: Study, point: Point, planned: Planned, number: int) -> Row:
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


_PLACE = "@inputs@"
_KEPT = 8


@dataclass(frozen=True, slots=True)
class Job:
    """Configurations that share a plan, and the number of runs of each in this round.

    With `vehicles` (first, count): instead, vehicles of a fleet in a single configuration.
    """

    key: str
    points: tuple[Point, ...]
    runs: int
    rung: int = 0
    vehicles: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Finished rows of a job; `plan`: the packed plan if the worker had to make it.

    `seconds`: processor time of the simulations; `spent_s`: wall-clock time of the job at the worker.
    """

    key: str
    rows: tuple[dict[str, Any], ...]
    plan: bytes | None = None
    seconds: float = 0.0
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with its figures for rows; `throttle_mc`: temperature at which clocks are lowered, 0 if unknown."""

    plan: Plan
    facts: Mapping[str, Any]
    throttle_mc: int = 0


def plan_key(inputs_digest: str, point: Point) -> str:
    """Return the key of the plan of a configuration: everything that a plan depends on, and nothing else."""
    fields = tuple((n, v) for n, v in point.values if n.startswith(("platform.", "pipeline.", "rate.")))
    ingredients = (
        inputs_digest,
        point.platform,
        point.mode,
        point.pipeline,
        point.objective,
        policy_to_plan_with(point),
        fields,
    )
    return hashlib.sha256(repr(ingredients).encode()).hexdigest()[:20]


def policy_to_plan_with(point: Point) -> str:
    """Return the policy to plan with: the simulated one if bounds exist for it, else EDF."""
    return "edf" if override(point.policy) else point.policy


def open_inputs(inputs: Inputs, folder: Path | None = None) -> Opened:
    """Write inputs into `folder`, or into a folder of this process, and return them for reading."""
    if inputs.version != __version__:
        raise MachineError(
            f"the study was started with socsched {inputs.version}, this worker has {__version__}",
            "install the same version on every host",
        )
    if folder is None:
        folder = _own_folder(inputs.digest())
    inputs.write(folder)
    return Opened(inputs, folder)


@lru_cache(maxsize=4)
def _own_folder(digest: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"socsched-{digest[:8]}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def perform(opened: Opened, job: Job, packed: bytes | None) -> Done:
    """Return the rows of a job; the plan is made unless `packed` contains it."""
    made: bytes | None = None
    begun = time.monotonic()
    try:
        if packed is None:
            planned = make(opened, job.points[0])
            packed = made = pack(planned, opened.folder)
        # convert through the file format in both cases, so that rows do not depend on which worker made the plan
        planned = _unpacked(job.key, packed, opened.folder)
    except SocschedError as error:
        if job.vehicles is not None or of_machine(error):
            raise
        return Done(job.key, tuple(_failed(opened, point, job, error) for point in job.points))
    started = time.process_time()
    if job.vehicles is not None:
        rows = vehicle_rows(opened.inputs.study, job.points[0], planned, *job.vehicles)
    else:
        rows = tuple(_row(opened, point, job, planned) for point in job.points)
    return Done(job.key, rows, made, time.process_time() - started, time.monotonic() - begun)


def make(opened: Opened, point: Point) -> Planned:
    """Plan a configuration as `plan` does; the search budget is a number of mappings, not a time."""
    from socsched.api.options import PlanOptions
    from socsched.api.planning import plan_with
    from socsched.planning.sensitivity import growth

    platform, study = opened.platform(point), opened.inputs.study
    options = PlanOptions(point.objective, policy_to_plan_with(point), cuts=study.cuts)
    plan = plan_with(opened.pipeline(point), platform, None if point.mode == AUTO else point.mode, options)
    facts = _facts(plan, platform, study.prices.get(point.platform))
    if study.holds.growth is not None and plan.tasks:
        growth_factor = growth(plan)
        facts["growth"] = None if growth_factor is None else round(growth_factor, 6)
    throttle = platform.thermal.get("throttle")
    return Planned(plan, facts, round(throttle.value * 1000) if throttle else 0)


def _facts(plan: Plan, platform: Platform, price: float | None) -> dict[str, Any]:
    caps = [round(mode.cap_mw.value) for mode in platform.modes if mode.cap_mw]
    cap = platform.mode(plan.mode).cap_mw
    most = max(caps, default=None)
    longest = max(plan.chains, key=lambda chain: chain.expected_ns, default=None)
    bounds = [chain.bound_ns for chain in plan.chains]
    slack = None
    if bounds and all(bound is not None for bound in bounds):
        slack = min(1 - (chain.bound_ns or 0) / chain.deadline_ns for chain in plan.chains)
    return {
        "mode": plan.mode,
        "verdict": plan.verdict,
        "tdp_mw": round(cap.value) if cap else most,
        "platform_tdp_mw": most,
        "price": price,
        "planned_power_mw": int(plan.power.expected_mw or 0),
        "latency_ns": sum(chain.expected_ns for chain in plan.chains) if plan.tasks else None,
        "longest_chain": longest.name if longest else None,
        "longest_latency_ns": longest.expected_ns if longest else None,
        "slack": None if slack is None else round(slack, 9),
        "growth": None,
    }


def pack(planned: Planned, folder: Path) -> bytes:
    """Return a plan and its facts as compressed JSON; equal plans give equal bytes on any host at any time."""
    from socsched.planning.io import to_document

    document = to_document(planned.plan)
    document["tool"] = {**document["tool"], "version": __version__}
    text = json.dumps({"plan": document, "facts": dict(planned.facts), "throttle_mc": planned.throttle_mc})
    text = text.replace(json.dumps(str(folder))[1:-1], _PLACE)
    return gzipped(text.encode(), 6)


def unpack(packed: bytes, folder: Path) -> Planned:
    """Return the plan and facts from the bytes of `pack`."""
    from socsched.planning.io import from_document

    text = gunzip(packed, allowance(len(packed))).decode().replace(_PLACE, json.dumps(str(folder))[1:-1])
    document = json.loads(text)
    return Planned(from_document(document["plan"]), document["facts"], document["throttle_mc"])


_recent: OrderedDict[str, Planned] = OrderedDict()


def _unpacked(key: str, packed: bytes, folder: Path) -> Planned:
    """Return a plan, cached while this worker simulates configurations that share it."""
    if key not in _recent:
        _recent[key] = unpack(packed, folder)
        while len(_recent) > _KEPT:
            _recent.popitem(last=False)
    _recent.move_to_end(key)
    return _recent[key]


def _row(opened: Opened, point: Point, job: Job, planned: Planned) -> dict[str, Any]:
    study = opened.inputs.study
    row = {**_blank(study, point, job), **planned.facts}
    if planned.plan.tasks:
        try:
            row |= simulate_configuration(study, point, planned.plan, opened.faults(point), job.runs)
        except SocschedError as error:
            if of_machine(error):
                raise
            return _failed(opened, point, job, error)
    row["holds"] = _holds(study, row)
    return row


def _holds(study: Study, row: Mapping[str, Any]) -> bool | None:
    """Return whether a row meets all requirements of the study; None while misses are open."""
    required = study.holds
    met = row["verdict"] == "feasible"
    if required.slack is not None:
        met = met and row["slack"] is not None and row["slack"] >= required.slack
    if required.growth is not None:
        met = met and row["growth"] is not None and row["growth"] >= required.growth
    if met and required.misses is not None:
        return {"holds": True, "fails": False}.get(row["settled"])
    return bool(met)


def _blank(study: Study, point: Point, job: Job) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(column.name for column in columns.columns(study))
    named = ("config", "platform", "mode", "pipeline", "objective", "policy", "faults", "load", "seed")
    row |= {name: getattr(point, name) for name in named}
    row |= columns.values(study, dict(point.values))
    return row | {"plan": job.key, "error": "", "rung": job.rung, **NOTHING_RUN}


def _failed(opened: Opened, point: Point, job: Job, error: SocschedError) -> dict[str, Any]:
    text = str(error).replace(f"{opened.folder}/", "")
    return {**_blank(opened.inputs.study, point, job), "error": text, "verdict": "error", "holds": False}
