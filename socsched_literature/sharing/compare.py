"""Evaluate how much of a workload a sharing system serves in time: at one load, and the largest sustainable load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from socsched_literature.sharing.deployment import Demand, Deployment, Part, Served
from socsched_literature.sharing.interference import Interference
from socsched_literature.sharing.mechanisms import Mechanism
from socsched_literature.sharing.outcome import Outcome
from socsched_literature.sharing.profile import Profile
from socsched_literature.sharing.serving import Simulation
from socsched_literature.sharing.workload import SECOND, Arrivals, requests

Plan = Callable[[Sequence[Demand]], Deployment]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Networks and their requests per second at load 1."""

    name: str
    rates: Mapping[str, float]

    def demands(self, profiles: Mapping[str, Profile], load: float) -> list[Demand]:
        """Return the demands at a load."""
        return [Demand(profiles[name], rate * load) for name, rate in self.rates.items()]

    @property
    def total(self) -> float:
        """Return requests a second at load 1."""
        return sum(self.rates.values())


@dataclass(frozen=True, slots=True)
class System:
    """A sharing system: its planner, mechanism, and model of interference between neighbours."""

    name: str
    plan: Plan
    mechanism: Mechanism
    interference: Interference


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a system at a load."""

    system: str
    load: float
    deployment: Deployment
    outcome: Outcome


def with_guests(made: Deployment, devices: int) -> Deployment:
    """Return a deployment in which unplaced networks go, unplanned, to the least used part.

    Planners admit or refuse; a system that must serve every network uses this instead of refusals, at the expense of
    the admitted networks.
    """
    parts = list(made.parts)
    parts += [Part(device, 100, ()) for device in range(devices) if device not in {one.device for one in parts}]
    for demand in sorted(made.unserved, key=lambda one: -one.rate * one.profile.latency(1, 100)):
        free = [i for i, one in enumerate(parts) if all(each.profile != demand.profile for each in one.served)]
        if free:
            least = min(free, key=lambda i: (_used(parts[i]), i))
            batch = max(1, demand.profile.saturated(parts[least].share)[0])
            guest = Served(demand.profile, batch, demand.rate)
            parts[least] = replace(parts[least], served=(*parts[least].served, guest))
    return Deployment(tuple(parts), ())


def _used(part: Part) -> float:
    return sum(one.rate * one.profile.latency(one.batch, part.share) / one.batch / 1e9 for one in part.served)


def trial(
    system: System,
    scenario: Scenario,
    profiles: Mapping[str, Profile],
    load: float,
    *,
    duration_ns: int = 10 * SECOND,
    arrivals: Arrivals = "poisson",
    seed: int = 0,
) -> Trial:
    """Plan `scenario` at a load and serve it."""
    deployment = system.plan(scenario.demands(profiles, load))
    requested = requests({name: rate * load for name, rate in scenario.rates.items()}, duration_ns, arrivals, seed)
    outcome = Simulation(deployment, system.mechanism, system.interference).run(requested, duration_ns)
    return Trial(system.name, load, deployment, outcome)


def capacity(
    system: System,
    scenario: Scenario,
    profiles: Mapping[str, Profile],
    *,
    satisfied: float = 0.99,
    each: float = 0.95,
    step: float = 1.05,
    lowest: float = 0.05,
    duration_ns: int = 10 * SECOND,
    seed: int = 0,
) -> Trial | None:
    """Return the trial at the largest load where `satisfied` of all requests, and `each` of any network's, are in time.

    None if no load is sustained.  Loads rise by `step` from `lowest` and are evaluated from the top down, since greedy
    planners may fail at one load and succeed at a larger one.  The highest is the first at which the planner leaves a
    third of the requests unplaced.
    """
    loads = [lowest]
    while True:
        demands = scenario.demands(profiles, loads[-1])
        lost = sum(one.rate for one in system.plan(demands).unserved)
        if lost > scenario.total * loads[-1] / 3 or len(loads) > 400:
            break
        loads.append(loads[-1] * step)
    for load in reversed(loads):
        # A short run first: it suffices to reject loads far beyond capacity.
        tried = trial(system, scenario, profiles, load, duration_ns=duration_ns // 8, seed=seed)
        if tried.outcome.satisfaction >= satisfied - 0.02:
            tried = trial(system, scenario, profiles, load, duration_ns=duration_ns, seed=seed)
            if tried.outcome.satisfaction >= satisfied and tried.outcome.worst >= each:
                return tried
    return None
