"""A serving simulation: requests, batches and parts of accelerators, on a clock of integer nanoseconds.

Requests go to the parts that serve their network, in proportion to the planned rates.  A free part takes the network
whose oldest request is due first and starts as many of its requests as the planned batch allows; if a network has a
dedicated part, as many as the deadline of the oldest one allows, as in Clipper.  A request that can no longer be
answered in time is dropped (`drop`).  The speed of a batch follows from the mechanism's properties and the interference
model, and is updated whenever a batch starts or ends on the accelerator; the remaining time is rounded up.  Order of
simultaneous events: ends, arrivals, then dispatch.

This is a separate event loop since the plan simulator has neither batches nor shares of a speed.  On their common
ground (batches of one, periodic requests, one part) both give the same answers to the nanosecond, which a test checks.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from socsched.errors import UsageError
from socsched_literature.sharing.deployment import Deployment, Mechanism, ModelOutcome, Outcome, Part, Request, Served
from socsched_literature.sharing.profile import Interference, NoInterference, Profile, Running


@dataclass(slots=True, eq=False)
class _Instance:
    """A part in operation."""

    part: Part
    served: dict[str, Served]
    queues: dict[str, deque[int]]
    sent: dict[str, int]
    model: str = ""
    batch: list[int] = field(default_factory=list)
    left_ns: float = 0.0
    pace: float = 1.0
    begun_ns: int = 0
    since_ns: int = 0
    version: int = 0
    busy_ns: int = 0

    @property
    def profile(self) -> Profile:
        """Return the profile of the running network."""
        return self.served[self.model].profile


class Simulation:
    """One run of a deployment; `run` returns the outcome."""

    def __init__(
        self,
        deployment: Deployment,
        mechanism: Mechanism,
        interference: Interference | None = None,
        *,
        drop: bool = True,
    ) -> None:
        self.mechanism, self._drop = mechanism, drop
        self._interference = interference or NoInterference()
        self._instances = [_instance(part) for part in deployment.parts if part.served]
        self._ends: list[tuple[int, int, _Instance, int]] = []
        self._count = 0
        networks = [one.profile for part in deployment.parts for one in part.served]
        networks += [demand.profile for demand in deployment.unserved]
        self._models = {one.name: ModelOutcome(one.name, one.slo_ns) for one in networks}
        shares: dict[int, tuple[int, ...]] = {}
        for instance in self._instances:
            shares[instance.part.device] = (*shares.get(instance.part.device, ()), instance.part.share)
        for device, parts in shares.items():
            if not mechanism.admits(parts):
                raise UsageError(f"{mechanism.name} does not admit shares {parts} on accelerator {device}")

    def run(self, requests: Sequence[Request], duration_ns: int) -> Outcome:
        """Serve `requests` and return their outcome; requests in progress at `duration_ns` are finished."""
        index, now = 0, 0
        while index < len(requests) or self._ends:
            arrival = requests[index].arrival_ns if index < len(requests) else None
            if self._ends and (arrival is None or self._ends[0][0] <= arrival):
                now, _, instance, version = heapq.heappop(self._ends)
                if version == instance.version:  # else its pace has changed since this end was predicted
                    self._end(instance, now)
                if (self._ends and self._ends[0][0] == now) or arrival == now:
                    continue
            else:
                now = requests[index].arrival_ns
                while index < len(requests) and requests[index].arrival_ns == now:
                    self._arrive(requests[index], now)
                    index += 1
            self._dispatch(now)
        busy = {(one.part.device, i): one.busy_ns for i, one in enumerate(self._instances)}
        return Outcome(duration_ns, now, tuple(self._models.values()), busy)

    def _arrive(self, request: Request, now: int) -> None:
        """Route a request to the part with the fewest requests relative to its planned rate."""
        name = request.model
        if name not in self._models:
            raise UsageError(f"a request of {name!r}, which is not deployed")
        self._models[name].arrived += 1
        able = [one for one in self._instances if name in one.queues]
        if not able:
            self._models[name].dropped += 1
            return
        best = min(able, key=lambda one: (one.sent[name] + 1) / max(one.served[name].rate, 1e-9))
        best.sent[name] += 1
        best.queues[name].append(now)

    def _dispatch(self, now: int) -> None:
        for device in {one.part.device for one in self._instances if not one.batch and self._start(one, now)}:
            self._retime(device, now)

    def _start(self, one: _Instance, now: int) -> bool:
        while names := [name for name, queue in one.queues.items() if queue]:
            name = min(names, key=lambda name: one.queues[name][0] + one.served[name].profile.slo_ns)
            queue, profile = one.queues[name], one.served[name].profile
            if self._drop:
                latest = now + profile.latency(1, one.part.share) - profile.slo_ns
                while queue and queue[0] < latest:
                    queue.popleft()
                    self._models[name].dropped += 1
                if not queue:
                    continue
            size = _size(one, name, now)
            one.model, one.batch = name, [queue.popleft() for _ in range(size)]
            one.left_ns, one.pace = float(profile.latency(size, one.part.share)), 1.0
            one.begun_ns = one.since_ns = now
            return True
        return False

    def _end(self, one: _Instance, now: int) -> None:
        one.busy_ns += now - one.since_ns
        outcome = self._models[one.model]
        for stamp in one.batch:
            outcome.answer(now - stamp)
        outcome.batches += 1
        outcome.busy_ns += now - one.begun_ns
        one.model, one.batch, one.left_ns = "", [], 0.0
        one.version += 1
        self._retime(one.part.device, now)

    def _retime(self, device: int, now: int) -> None:
        """Update the pace of all running batches on an accelerator."""
        active = [one for one in self._instances if one.part.device == device and one.batch]
        running = [Running(one.profile, len(one.batch), self._share(one, len(active))) for one in active]
        for i, one in enumerate(active):
            pace = self._pace(one, running[i], [*running[:i], *running[i + 1 :]])
            passed = now - one.since_ns
            one.left_ns = max(0.0, one.left_ns - passed / one.pace)
            one.busy_ns += passed
            one.pace, one.since_ns = pace, now
            one.version += 1
            self._count += 1
            # Tolerate rounding errors in sums of quotients: otherwise ends would come a nanosecond late.
            heapq.heappush(self._ends, (now + ceil(one.left_ns * pace - 1e-6), self._count, one, one.version))

    def _share(self, one: _Instance, active: int) -> int:
        if self.mechanism.compute_isolated or not self.mechanism.concurrent:
            return one.part.share
        return max(1, one.part.share // active)

    def _pace(self, one: _Instance, me: Running, others: list[Running]) -> float:
        """Return the ns that pass per ns of the batch's latency alone on its part."""
        how = self.mechanism
        if not how.concurrent:
            return (1 + len(others)) * (1 + (how.switch_ns / how.slice_ns if others else 0.0))
        alone = me.profile.latency(me.batch, one.part.share)
        slower = me.profile.latency(me.batch, me.share) / alone
        return slower if how.bandwidth_isolated else slower * self._interference.factor(me, others)


def _size(one: _Instance, name: str, now: int) -> int:
    """Return the number of requests to start together."""
    queue, served = one.queues[name], one.served[name]
    if len(one.queues) > 1:
        return min(len(queue), served.batch)
    profile = served.profile
    size, deadline = min(len(queue), profile.largest), queue[0] + profile.slo_ns
    while size > served.batch and now + profile.latency(size, one.part.share) > deadline:
        size -= 1
    return size


def _instance(part: Part) -> _Instance:
    names = [one.profile.name for one in part.served]
    served = dict(zip(names, part.served, strict=True))
    return _Instance(part, served, {name: deque() for name in names}, dict.fromkeys(names, 0))


def whole(profiles: Sequence[tuple[Profile, float]], device: int = 0) -> Part:
    """Return a whole accelerator that serves networks with their rates in turn, in batches up to the largest."""
    return Part(device, 100, tuple(Served(one, one.largest, rate) for one, rate in profiles))


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
