"""Co-running kernels on one accelerator: one real-time client and several best-effort ones, on a nanosecond clock.

Every kernel needs units (SMs, CUs), compute throughput and memory bandwidth (as fractions of the accelerator's, without
co-runners).  Units are held until a kernel ends, as blocks are not preempted: a kernel gets the free units at its
start, and a real-time kernel gets more as others end.  On fewer units it takes proportionally longer.  If the running
kernels exceed the available arithmetic or memory, each slows down in proportion to its own use.  A best-effort kernel
may be started in part (its blocks cut, a "shard"), and `reset` kills the running ones, which start over.

The policy decides whether best-effort kernels start next to a real-time one.  Reconstructed: the contention on
arithmetic and memory, with demands by class where no measurements exist.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal, Protocol

Class = Literal["compute", "memory", "unknown"]
DEMANDS: dict[Class, tuple[float, float]] = {"compute": (0.8, 0.3), "memory": (0.2, 0.8), "unknown": (0.5, 0.5)}
"""Class -> assumed demands of arithmetic and memory on all units; Orion's profiler classifies by what exceeds 0.6."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel without co-runners: ns, units it spreads over, class, blocks; ns of a round by blocks per unit."""

    name: str
    alone_ns: int
    units: int
    kind: Class
    blocks: int = 1
    by_occupancy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """A network as kernels in order; `rate` requests per second from a Poisson process, 0: back to back."""

    name: str
    kernels: tuple[Kernel, ...]
    rate: float = 0.0

    @property
    def alone_ns(self) -> int:
        """Return the time of a request without co-runners."""
        return sum(one.alone_ns for one in self.kernels)


@dataclass(slots=True, eq=False)
class Active:
    """A running kernel, or a part of one."""

    client: int
    kernel: Kernel
    left_ns: float
    held: int
    part: float
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """The state visible to a policy: the real-time kernel, if any, its remaining time, running kernels, free units.

    `since_drained_ns`: total time of the best-effort kernels started since none was running; `request_ns`: time of a
    real-time request.
    """

    units: int
    free: int
    urgent: Kernel | None
    urgent_left_ns: float
    running: tuple[Active, ...]
    since_drained_ns: float
    request_ns: int


class Policy(Protocol):
    """Admission of best-effort kernels.

    `reset_ns` is the time to kill running kernels when a real-time request arrives; None if kernels run to their end.
    """

    @property
    def reset_ns(self) -> int | None:
        """Return ns, or None."""

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return units for a kernel with `left` (0 to 1) remaining, and the fraction to start; (0, 0.0): wait."""


@dataclass(slots=True)
class CoRun:
    """Result: real-time latencies (ns), requests done by each other client (with fractions), kills."""

    duration_ns: int
    latencies: list[int] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    kills: int = 0
    beside: int = 0

    def percentile(self, share: float) -> int:
        """Return the latency that the fraction `share` of the real-time requests does not exceed."""
        ranked = sorted(self.latencies)
        return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0

    @property
    def rate(self) -> float:
        """Return best-effort requests per second, over all clients."""
        return sum(self.done) * 1e9 / self.duration_ns


class _Loop:
    def __init__(self, units: int, urgent: Client, others: Sequence[Client], policy: Policy) -> None:
        self.units, self.urgent, self.others, self.policy = units, urgent, others, policy
        self.queue: list[int] = []
        self.position = 0
        self.current: Active | None = None
        self.active: list[Active] = []
        self.place = [(0, 1.0) for _ in others]
        self.turn = 0
        self.since = 0.0
        self.out = CoRun(0, done=[0.0] * len(others))

    @property
    def free(self) -> int:
        held = sum(one.held for one in self.active) + (self.current.held if self.current else 0)
        return max(0, self.units - held)

    def running(self) -> list[Active]:
        return [*([self.current] if self.current and self.current.held else []), *self.active]

    def advance(self, passed: float) -> None:
        for one in self.running():
            one.left_ns -= passed / one.pace

    def settle(self) -> None:
        """Give the real-time kernel the free units, and update the pace of all running kernels."""
        if self.current and self.current.held < self.current.kernel.units:
            self.current.held = min(self.current.kernel.units, self.current.held + self.free)
        running = self.running()
        demands = [0.0, 0.0]
        for one in running:
            spread = one.held / self.units
            for i, demand in enumerate(DEMANDS[one.kernel.kind]):
                demands[i] += demand * spread
        for one in running:
            factor = one.kernel.units / one.held if one.part >= 1 else 1.0
            for i, demand in enumerate(DEMANDS[one.kernel.kind]):
                factor *= 1 + demand * max(0.0, demands[i] - 1)
            one.pace = factor

    def start(self) -> None:
        """Start the next real-time kernel, and best-effort kernels as the policy admits."""
        if self.current is None and self.queue:
            kernel = self.urgent.kernels[self.position]
            self.current = Active(-1, kernel, float(kernel.alone_ns), 0, 1.0)
            self.settle()
        tried = 0
        while tried < len(self.others) and self.free > 0:
            number = (self.turn + tried) % len(self.others)
            tried += 1
            if any(one.client == number for one in self.active):
                continue
            index, left = self.place[number]
            kernel = self.others[number].kernels[index]
            urgent = self.current
            left_ns = urgent.left_ns * urgent.pace if urgent else 0.0
            view = View(
                self.units, self.free, urgent.kernel if urgent else None, left_ns,
                tuple(self.active), self.since, self.urgent.alone_ns,
            )  # fmt: skip
            held, part = self.policy.admit(kernel, left, view)
            if held <= 0 or part <= 0:
                continue
            held = min(held, self.free)
            if not self.active:
                self.since = 0.0
            self.since += kernel.alone_ns * part
            self.out.beside += urgent is not None
            # A shard is an independent kernel: it is not slowed down by units it was not given.
            work = kernel.alone_ns * part * (kernel.units / held if part < 1 else 1.0)
            self.active.append(Active(number, kernel, work, held, part))
            self.turn = (number + 1) % len(self.others)
            tried = 0
        self.settle()

    def finish(self, now: float) -> None:
        """End all kernels with no work left."""
        if self.current and self.current.held and self.current.left_ns <= 1e-3:
            self.current = None
            self.position += 1
            if self.position == len(self.urgent.kernels):
                self.out.latencies.append(round(now) - self.queue.pop(0))
                self.position = 0
        for one in [one for one in self.active if one.left_ns <= 1e-3]:
            self.active.remove(one)
            self.out.done[one.client] += one.part * one.kernel.alone_ns / self.others[one.client].alone_ns
            index, left = self.place[one.client]
            left -= one.part
            if left <= 1e-9:
                index, left = (index + 1) % len(self.others[one.client].kernels), 1.0
            self.place[one.client] = (index, left)

    def kill(self) -> bool:
        """Kill the running best-effort kernels, which start over; return whether there were any."""
        had = bool(self.active)
        self.out.kills += len(self.active)
        self.active.clear()
        self.since = 0.0
        return had


def corun(
    units: int, urgent: Client, others: Sequence[Client], policy: Policy, duration_ns: int, seed: int = 0
) -> CoRun:
    """Return the result of `duration_ns`; a real-time client with rate 0 sends its next request after each answer."""
    loop = _Loop(units, urgent, others, policy)
    draw = random.Random(f"{seed}/{urgent.name}")
    now, blocked = 0.0, 0.0
    coming = draw.expovariate(urgent.rate) * 1e9 if urgent.rate else 0.0
    while now < duration_ns:
        if coming <= now:
            loop.queue.append(round(coming))
            if policy.reset_ns is not None and len(loop.queue) == 1 and loop.kill():
                blocked = now + policy.reset_ns
            coming = coming + draw.expovariate(urgent.rate) * 1e9 if urgent.rate else float("inf")
        if now >= blocked:
            loop.start()
        ends = [now + one.left_ns * one.pace for one in loop.running()]
        after = min([*ends, coming, *([blocked] if blocked > now else []), float(duration_ns)])
        loop.advance(after - now)
        now = after
        answered = len(loop.out.latencies)
        loop.finish(now)
        if not urgent.rate and len(loop.out.latencies) > answered:
            coming = now
        loop.settle()
    loop.out.duration_ns = duration_ns
    return loop.out
