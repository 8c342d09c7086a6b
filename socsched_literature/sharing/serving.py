"""A serving simulation: requests, batches and parts of accelerators, on a clock of integer nanoseconds.

Requests go to the parts that serve their network, in proportion to the planned rates.  A free part takes the network
whose oldest request is due first and starts as many of its requests as the planned batch allows; if a network has a
dedicated part, as many as the deadline of the oldest one allows (`adaptive`, as in Clipper).  A request that can no
longer be answered in time is dropped (`drop`).  The speed of a batch follows from the mechanism's properties and the
interference model, and is updated whenever a batch starts or ends on the accelerator; the remaining time is rounded up.
Order of simultaneous events: ends, changes, arrivals, then dispatch.

This is a separate event loop since the plan simulator has neither batches nor shares of a speed.  On their common
ground (batches of one, periodic requests, one part) both give the same answers to the nanosecond, which a test checks.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from socsched.errors import UsageError
from socsched_literature.sharing.deployment import (
    SECOND,
    Arrivals,
    Demand,
    Deployment,
    Mechanism,
    ModelOutcome,
    Outcome,
    Part,
    Request,
    Served,
    requests,
)
from socsched_literature.sharing.profile import Interference, NoInterference, Profile, Running

END, CHANGE, TICK = 0, 1, 2


@dataclass(slots=True, eq=False)
class _Instance:
    """A part in operation."""

    part: Part
    limits: dict[str, int]
    profiles: dict[str, Profile]
    weights: dict[str, float]
    queues: dict[str, deque[int]]
    sent: dict[str, int]
    model: str = ""
    batch: list[int] = field(default_factory=list)
    left_ns: float = 0.0
    pace: float = 1.0
    begun_ns: int = 0
    since_ns: int = 0
    version: int = 0
    blocked_until: int = 0
    closed: bool = False
    busy_ns: int = 0


Controller = Callable[[int, "Simulation"], None]
"""controller(now_ns, simulation), every `period_ns`: may call `Simulation.change`."""


class Simulation:
    """One run of a deployment; `run` returns the outcome.

    `controller` is called every `period_ns`; `window` gives it the events since its last call, by network.
    """

    def __init__(
        self,
        deployment: Deployment,
        mechanism: Mechanism,
        interference: Interference | None = None,
        *,
        drop: bool = True,
        adaptive: bool = True,
        controller: Controller | None = None,
        period_ns: int = 0,
    ) -> None:
        self.mechanism = mechanism
        self._interference = interference or NoInterference()
        self._drop, self._adaptive = drop, adaptive
        self._controller, self.period_ns = controller, period_ns
        self._instances = [_instance(part) for part in deployment.parts if part.served]
        self._events: list[tuple[int, int, int, object]] = []
        self._count = 0
        self._models: dict[str, ModelOutcome] = {}
        self.window: dict[str, ModelOutcome] = {}
        self.changes = 0
        for part in deployment.parts:
            for served in part.served:
                self._models.setdefault(served.profile.name, ModelOutcome(served.profile.name, served.profile.slo_ns))
        for demand in deployment.unserved:
            self._models.setdefault(demand.profile.name, ModelOutcome(demand.profile.name, demand.profile.slo_ns))
        self._new_window()
        shares: dict[int, tuple[int, ...]] = {}
        for one in self._instances:
            shares[one.part.device] = (*shares.get(one.part.device, ()), one.part.share)
        for device, parts in shares.items():
            if not mechanism.admits(parts):
                raise UsageError(f"{mechanism.name} does not admit shares {parts} on accelerator {device}")

    @property
    def parts(self) -> list[Part]:
        """Return the parts in operation now."""
        return [one.part for one in self._instances if not one.closed]

    def run(self, requests: Sequence[Request], duration_ns: int) -> Outcome:
        """Serve `requests` and return their outcome; requests in progress at `duration_ns` are finished."""
        if self._controller:
            self._push(self.period_ns, TICK, None)
        index, now = 0, 0
        while index < len(requests) or self._events:
            arrival = requests[index].arrival_ns if index < len(requests) else None
            if self._events and (arrival is None or self._events[0][0] <= arrival):
                now, kind, _, payload = heapq.heappop(self._events)
                if kind == END:
                    self._ended(payload, now)
                elif kind == CHANGE:
                    payload(now)  # type: ignore[operator]
                elif now < duration_ns and self._controller:
                    self._controller(now, self)
                    self._new_window()
                    self._push(now + self.period_ns, TICK, None)
                if (self._events and self._events[0][0] == now) or arrival == now:
                    continue
            else:
                now = requests[index].arrival_ns
                while index < len(requests) and requests[index].arrival_ns == now:
                    self._arrive(requests[index], now)
                    index += 1
            self._dispatch(now)
        busy = {(one.part.device, i): one.busy_ns for i, one in enumerate(self._instances)}
        return Outcome(duration_ns, now, tuple(self._models.values()), busy, self.changes)

    def limit(self, device: int, model: str, batch: int) -> None:
        """Set the largest batch of a network on an accelerator, from its next batch on."""
        for one in self._instances:
            if one.part.device == device and model in one.limits:
                one.limits[model] = batch

    def change(self, now: int, device: int, parts: Sequence[Part], *, standby: bool = True) -> int:
        """Replace the parts of an accelerator as its mechanism allows, and return the time the new ones start serving.

        At any instant: immediately.  By a new process: after `reconfigure_ns`; with a standby only its downtime is
        lost, without one the changing parts are unavailable throughout.  When idle: the whole accelerator is
        unavailable.
        """
        how = self.mechanism
        if not how.admits(tuple(part.share for part in parts)):
            raise UsageError(f"{how.name} does not admit shares {[part.share for part in parts]}")
        self.changes += 1
        old = [one for one in self._instances if one.part.device == device and not one.closed]
        kept = [one for one in old if any(one.part == part for part in parts)]
        leaving = old if how.when == "idle" else [one for one in old if one not in kept]
        coming = [part for part in parts if how.when == "idle" or not any(one.part == part for one in kept)]
        begin = now
        if how.when == "idle":
            begin = max([now, *(self._free_at(one) for one in old)])
        smooth = how.when == "any" or (how.when == "start" and standby)
        ready = begin + how.reconfigure_ns
        serving_again = ready + (how.downtime_ns if how.when == "start" and standby else 0)

        def swap(at: int) -> None:
            waiting: dict[str, list[int]] = {}
            for one in leaving:
                one.closed = True
                for name, queue in one.queues.items():
                    waiting.setdefault(name, []).extend(queue)
                    queue.clear()
            for part in coming:
                new = _instance(part)
                new.blocked_until = serving_again
                self._instances.append(new)
            for name, stamps in waiting.items():
                for stamp in sorted(stamps):
                    self._route(name, stamp)
            if serving_again > at:
                self._push(serving_again, CHANGE, lambda _: None)

        if smooth and ready > now:
            self._push(ready, CHANGE, swap)
        else:
            swap(now)
        return serving_again

    def _push(self, at: int, kind: int, what: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, kind, self._count, what))

    def _new_window(self) -> None:
        self.window = {name: ModelOutcome(name, one.slo_ns) for name, one in self._models.items()}

    def _both(self, name: str) -> Iterable[ModelOutcome]:
        return (self._models[name], self.window[name])

    def _free_at(self, one: _Instance) -> int:
        return one.since_ns + ceil(one.left_ns * one.pace) if one.batch else 0

    def _arrive(self, request: Request, now: int) -> None:
        if request.model not in self._models:
            raise UsageError(f"a request of {request.model!r}, which is not deployed")
        for counted in self._both(request.model):
            counted.arrived += 1
        self._route(request.model, now)

    def _route(self, name: str, stamp: int) -> None:
        """Route a request to the part with the fewest requests relative to its planned rate."""
        best = None
        for one in self._instances:
            if not one.closed and name in one.queues:
                load = (one.sent[name] + 1) / one.weights[name]
                if best is None or load < best[0]:
                    best = (load, one)
        if best is None:
            for counted in self._both(name):
                counted.dropped += 1
            return
        best[1].sent[name] += 1
        best[1].queues[name].append(stamp)

    def _dispatch(self, now: int) -> None:
        touched = set()
        for one in self._instances:
            if not one.batch and not one.closed and now >= one.blocked_until and self._start(one, now):
                touched.add(one.part.device)
        for device in touched:
            self._retime(device, now)

    def _start(self, one: _Instance, now: int) -> bool:
        while True:
            names = [name for name, queue in one.queues.items() if queue]
            if not names:
                return False
            name = min(names, key=lambda name: one.queues[name][0] + one.profiles[name].slo_ns)
            queue, profile = one.queues[name], one.profiles[name]
            if self._drop:
                latest = now + profile.latency(1, one.part.share) - profile.slo_ns
                while queue and queue[0] < latest:
                    queue.popleft()
                    for counted in self._both(name):
                        counted.dropped += 1
                if not queue:
                    continue
            size = self._size(one, name, now)
            one.model, one.batch = name, [queue.popleft() for _ in range(size)]
            one.left_ns, one.pace = float(profile.latency(size, one.part.share)), 1.0
            one.begun_ns = one.since_ns = now
            return True

    def _size(self, one: _Instance, name: str, now: int) -> int:
        """Return the number of requests to start together."""
        queue, profile = one.queues[name], one.profiles[name]
        if not self._adaptive or len(one.queues) > 1:
            return min(len(queue), one.limits[name])
        size, deadline = min(len(queue), profile.largest), queue[0] + profile.slo_ns
        while size > one.limits[name] and now + profile.latency(size, one.part.share) > deadline:
            size -= 1
        return size

    def _ended(self, what: object, now: int) -> None:
        """End a batch, unless its pace has changed since this end was predicted."""
        assert isinstance(what, tuple)
        instance, version = what
        if version == instance.version:
            self._end(instance, now)

    def _end(self, one: _Instance, now: int) -> None:
        one.busy_ns += now - one.since_ns
        for stamp in one.batch:
            for counted in self._both(one.model):
                counted.answer(now - stamp)
        for counted in self._both(one.model):
            counted.batches += 1
            counted.busy_ns += now - one.begun_ns
        one.model, one.batch, one.left_ns = "", [], 0.0
        one.version += 1
        self._retime(one.part.device, now)

    def _retime(self, device: int, now: int) -> None:
        """Update the pace of all running batches on an accelerator."""
        active = [one for one in self._instances if one.part.device == device and one.batch]
        running = [
            Running(one.profiles[one.model], len(one.batch), self._share(one, len(active))) for one in active
        ]  # fmt: skip
        for i, one in enumerate(active):
            pace = self._pace(one, running[i], [*running[:i], *running[i + 1 :]])
            passed = now - one.since_ns
            one.left_ns = max(0.0, one.left_ns - passed / one.pace)
            one.busy_ns += passed
            one.pace, one.since_ns = pace, now
            one.version += 1
            # Tolerate rounding errors in sums of quotients: otherwise ends would come a nanosecond late.
            self._push(now + ceil(one.left_ns * pace - 1e-6), END, (one, one.version))

    def _share(self, one: _Instance, active: int) -> int:
        if self.mechanism.compute_isolated or not self.mechanism.concurrent:
            return one.part.share
        return max(1, one.part.share // active)

    def _pace(self, one: _Instance, me: Running, others: list[Running]) -> float:
        """Return the ns that pass per ns of the batch's latency alone on its part."""
        how = self.mechanism
        if not how.concurrent:
            return (1 + len(others)) * (1 + (how.switch_ns / how.slice_ns if others else 0.0))
        alone = one.profiles[one.model].latency(len(one.batch), one.part.share)
        slower = one.profiles[one.model].latency(len(one.batch), me.share) / alone
        return slower if how.bandwidth_isolated else slower * self._interference.factor(me, others)


def _instance(part: Part) -> _Instance:
    return _Instance(
        part,
        {one.profile.name: one.batch for one in part.served},
        {one.profile.name: one.profile for one in part.served},
        {one.profile.name: max(one.rate, 1e-9) for one in part.served},
        {one.profile.name: deque() for one in part.served},
        {one.profile.name: 0 for one in part.served},
    )


def whole(profiles: Sequence[tuple[Profile, float]], batch: int = 0, device: int = 0) -> Part:
    """Return a whole accelerator that serves networks with their rates in turn; batches up to the largest."""
    return Part(device, 100, tuple(Served(one, batch or one.largest, rate) for one, rate in profiles))


# Evaluate how much of a workload a sharing system serves in time: at one load, and the largest sustainable load.


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


def capacity(  # noqa: PLR0913 - named by callers
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
