"""The internal model of a task set: periodic tasks on identical processors, integer ns."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """The scheduling policy: `rule`, partitioned or global, preemptive or not."""

    rule: Literal["edf", "fp", "rm", "dm", "fifo"]
    scheme: Literal["global", "partitioned"]
    preemptive: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the accelerator: `time_ns` on it, after `handling_ns` on the processor that handles requests."""

    time_ns: int
    handling_ns: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a parallel job and the type of processor it runs on (empty: any)."""

    wcet_ns: int
    type: str


@dataclass(frozen=True, slots=True)
class Graph:
    """A parallel job: nodes, and edges as pairs (earlier, later) of their positions."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Accelerator:
    """How tasks wait for requests: ``busy`` on the processor, or suspended while a ``server`` on `cpu` handles them.

    The server incurs `overhead_ns` each time it receives, starts or completes a request.
    """

    wait: Literal["busy", "server"]
    cpu: int
    overhead_ns: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Cost of one memory access (ns) alone, and the extra delay it can suffer from concurrent accesses."""

    latency_ns: int
    contention_ns: int


@dataclass(frozen=True, slots=True)
class MemGuard:
    """Access budget per processor in every `period_ns`, and the accesses the memory is guaranteed to serve in it."""

    period_ns: int
    budgets: tuple[int, ...]
    guaranteed: int


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """A task whose job k arrives at `offset_ns` + k `period_ns` and is released up to `jitter_ns` later; times in ns.

    Jobs of a `sporadic` task arrive at any times that are at least `period_ns` apart.
    `deadline_ns` counts from the arrival.  `cpu` is the processor of a partitioned task, None where any processor may
    run it; `prio` the stated priority, lower first, None where the rule needs none.  `regions_ns` lie between fixed
    preemption points and add up to the WCET, `longest_region_ns` may lie anywhere; `suspension_ns` is the total
    self-suspension of a job; `blocking_ns` the longest time that jobs of lower priority hold resources it needs;
    `requests` go to the accelerator, each awaited immediately; `accesses` are memory accesses not included in the WCET;
    releases are at least `distance_ns` apart, however late some are.  `wcets_ns` are bounds of the execution time by
    criticality level, lowest first, up to the task's own level, whose bound is `wcet_ns`; empty: one level.
    `degraded_ns`: execution time and period after a switch to a higher level than the task's; None: it is dropped.
    """

    id: int
    name: str
    period_ns: int
    deadline_ns: int
    wcet_ns: int
    bcet_ns: int
    offset_ns: int
    jitter_ns: int
    cpu: int | None
    prio: int | None
    blocking_ns: int = 0
    regions_ns: tuple[int, ...] = ()
    longest_region_ns: int = 0
    suspension_ns: int = 0
    requests: tuple[Request, ...] = ()
    graph: Graph | None = None
    accesses: int = 0
    distance_ns: int = 0
    wcets_ns: tuple[int, ...] = ()
    degraded_ns: tuple[int, int] | None = None
    sporadic: bool = False

    @property
    def level(self) -> int:
        """Return the task's criticality level, 0 being the lowest."""
        return max(len(self.wcets_ns) - 1, 0)

    def wcet_at(self, level: int) -> int:
        """Return the bound (ns) of the execution time at a criticality level, at most the task's own."""
        return self.wcets_ns[min(level, self.level)] if self.wcets_ns else self.wcet_ns

    @property
    def region_ns(self) -> int:
        """Return the longest non-preemptive stretch, 0 when every instant is a preemption point."""
        return max((*self.regions_ns, self.longest_region_ns))

    @property
    def utilisation(self) -> Fraction:
        """Return the WCET divided by the period."""
        return Fraction(self.wcet_ns, self.period_ns)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks on `processors` identical processors; `unit_ns` is the file's time unit, `chain` task indices in order.

    `communication` states when tasks read and write: at start and end of their jobs, or at arrival and deadline (let).
    `types` are the processors of each type, where nodes of graphs are bound to types.
    """

    name: str
    unit_ns: int
    policy: Policy
    processors: int
    horizon_ns: int | None
    tasks: tuple[PeriodicTask, ...]
    chain: tuple[int, ...]
    communication: Literal["implicit", "let"] = "implicit"
    types: tuple[tuple[str, int], ...] = ()
    accelerator: Accelerator | None = None
    memory: Memory | None = None
    memguard: MemGuard | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return fixed priorities, 0 highest: by `prio`, period (rm) or deadline (dm), then `prio`, then order."""
        first = {"rm": [t.period_ns for t in self.tasks], "dm": [t.deadline_ns for t in self.tasks]}
        key = first.get(self.policy.rule, [0] * len(self.tasks))
        order = sorted(range(len(key)), key=lambda i: (key[i], self.tasks[i].prio or 0, i))
        ranks = [0] * len(order)
        for rank, index in enumerate(order):
            ranks[index] = rank
        return tuple(ranks)
