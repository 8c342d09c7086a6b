"""Sources of the networks of a sharing study: a pipeline on an engine, or a CSV of measured profiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from pathlib import Path

from socsched.cost.fitted import estimate
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched_literature.sharing.interference import Interference, NoInterference, SharedBandwidth
from socsched_literature.sharing.measured import OTHERWISE
from socsched_literature.sharing.profile import Profile, Sample, ShareLaw
from socsched_literature.sharing.published import read_constants, read_profiles
from socsched_literature.sharing.workload import Arrivals


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
    others = sorted(profile.name for profile, _ in networks if profile.law != law)
    estimated = f" (law of shares {OTHERWISE}, not measured: {', '.join(others)})" if others else ""
    return Source(f"networks of {file.name}{estimated}", networks, "poisson", interference)
