"""Kernels side by side on one accelerator: a client in real time and others at best effort, on a clock of nanoseconds.

Every kernel needs units (SMs, CUs), computes and moves memory (shares of what the accelerator can, alone).  Units are
held until a kernel ends, as blocks are not taken off: a kernel gets at its start what is free, and one in real time
more as others end.  On fewer units it takes proportionally longer; where those running ask for more of the arithmetic
or the memory than there is, each is slowed by how much of it it uses.  A kernel at best effort may be started in part
(its blocks cut, a "shard"), and `reset` kills those that run, which start over.

Whether kernels at best effort start beside one in real time is the policy's to say.  Reconstructed: the contention on
arithmetic and memory, with demands by class where nobody measured them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Literal, Protocol

Class = Literal["compute", "memory", "unknown"]
DEMANDS: dict[Class, tuple[float, float]] = {"compute": (0.8, 0.3), "memory": (0.2, 0.8), "unknown": (0.5, 0.5)}
"""Class -> assumed shares of arithmetic and memory on all units; Orion's profiler calls a class what exceeds 0.6."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel alone: ns, units it spreads over, class, blocks; ns for a round of blocks by how many lie on a unit."""

    name: str
    alone_ns: int
    units: int
    kind: Class
    blocks: int = 1
    by_occupancy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """A network as kernels in order; `rate` requests a second from a Poisson process, 0: one after the other."""

    name: str
    kernels: tuple[Kernel, ...]
    rate: float = 0.0

    @property
    def alone_ns(self) -> int:
        """Return how long a request takes alone."""
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
    """What a policy sees: the kernel in real time, if any, and how long it has left, those beside it, free units.

    `since_drained_ns` of kernels at best effort started since none was running, `request_ns` of a request in real time.
    """

    units: int
    free: int
    urgent: Kernel | None
    urgent_left_ns: float
    running: tuple[Active, ...]
    since_drained_ns: float
    request_ns: int


class Policy(Protocol):
    """`reset_ns` to kill what runs when a request in real time comes; None where kernels run to their end."""

    @property
    def reset_ns(self) -> int | None:
        """Return ns, or None."""

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return units to give to a kernel of which `left` (0 to 1) is to do, and how much to start; (0, 0.0): wait."""


@dataclass(slots=True)
class CoRun:
    """What happened: latencies in real time (ns), requests done by each other client (with fractions), kills."""

    duration_ns: int
    latencies: list[int] = field(default_factory=list)
    done: list[float] = field(default_factory=list)
    kills: int = 0
    beside: int = 0

    def percentile(self, share: float) -> int:
        """Return the latency that `share` of the requests in real time do not exceed."""
        ranked = sorted(self.latencies)
        return ranked[max(0, ceil(share * len(ranked)) - 1)] if ranked else 0

    @property
    def rate(self) -> float:
        """Return requests at best effort a second, of all clients."""
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
        """Give the kernel in real time what is free, and everybody the pace of the company."""
        if self.current and self.current.held < self.current.kernel.units:
            self.current.held = min(self.current.kernel.units, self.current.held + self.free)
        running = self.running()
        asked = [0.0, 0.0]
        for one in running:
            spread = one.held / self.units
            for i, demand in enumerate(DEMANDS[one.kernel.kind]):
                asked[i] += demand * spread
        for one in running:
            factor = one.kernel.units / one.held if one.part >= 1 else 1.0
            for i, demand in enumerate(DEMANDS[one.kernel.kind]):
                factor *= 1 + demand * max(0.0, asked[i] - 1)
            one.pace = factor

    def start(self) -> None:
        """Start the next kernel in real time, and others beside it as the policy lets."""
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
            # Part of a kernel on its own units is a kernel of its own: no slower for the units it does not have.
            work = kernel.alone_ns * part * (kernel.units / held if part < 1 else 1.0)
            self.active.append(Active(number, kernel, work, held, part))
            self.turn = (number + 1) % len(self.others)
            tried = 0
        self.settle()

    def finish(self, now: float) -> None:
        """End whatever has nothing left."""
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
        """Take kernels at best effort off, and return whether any ran; they start over."""
        had = bool(self.active)
        self.out.kills += len(self.active)
        self.active.clear()
        self.since = 0.0
        return had


def corun(
    units: int, urgent: Client, others: Sequence[Client], policy: Policy, duration_ns: int, seed: int = 0
) -> CoRun:
    """Return what happened in `duration_ns`; an urgent client with rate 0 asks again as soon as it is answered."""
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
