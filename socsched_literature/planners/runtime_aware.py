"""Runtime-aware: synchronisation pointers cut the operator streams of several tenants into stages that run together.

Yu, Bray, Wang, Shangguan, Tang, Liu, Chen, "Automated Runtime-Aware Scheduling for Multi-Tenant DNN Inference on GPU",
ICCAD 2021 (arXiv 2111.14255), scheduling representation and search: each tenant's operators form a stream in order; m
pointers in every stream cut all of them into m + 1 stages, whose operators are issued concurrently, with a barrier
after each.  The search moves pointers: coordinate descent, one pointer at a time to its best position while the others
stay, or random search.

The authors measure stages on the device; here `sharing` models the time of the tenants' co-running stretches, each on a
share of the GPU that changes at barriers only.  All tenants must have the same rate and start together, so networks
with a period different from the first one are mapped like other stages.  Reconstructed: the initial pointers (at equal
shares of each stream's time), the number of rounds, and that pointers may coincide (an empty stretch).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from socsched.descriptor.limits import Json
from socsched.errors import UsageError
from socsched.planning.planners import Ask, Option, Planner, Proposal
from socsched_literature.planners.opgraph import OpGraph, Slot, kernels_of, operator_graphs, proposal_of
from socsched_literature.planners.sharing import Kernel, group_ns, share_units

Pointers = tuple[tuple[int, ...], ...]
"""By tenant, the number of its nodes before each barrier; ascending."""
SEARCHES = ("coordinate", "random")


@dataclass(slots=True)
class Streams:
    """Tenants on one GPU, with memoised stage times."""

    graphs: Sequence[OpGraph]
    barrier_ns: int
    grain: int = 1
    _known: dict[tuple[tuple[int, int], ...], tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def stage(self, ranges: tuple[tuple[int, int], ...]) -> tuple[int, tuple[int, ...]]:
        """Return time (ns) and units of each tenant with nodes in a stage; `ranges`: their first and end node."""
        if ranges not in self._known:
            first = self.graphs[0]
            groups = [self._kernels(graph, a, b) for graph, (a, b) in zip(self.graphs, ranges, strict=True) if b > a]
            shared = share_units(groups, first.total, first.bandwidth, self.grain) if groups else None
            if groups and shared is None:
                raise UsageError(f"{len(groups)} tenants do not fit {first.total} units in shares of {self.grain}")
            barrier = self.barrier_ns if len(groups) > 1 else 0
            self._known[ranges] = (shared.time_ns + barrier, shared.units) if shared else (0, ())
        return self._known[ranges]

    def _kernels(self, graph: OpGraph, start: int, end: int) -> tuple[Kernel, ...]:
        return kernels_of(graph, range(start, end))

    def ranges(self, pointers: Pointers) -> list[tuple[tuple[int, int], ...]]:
        """Return the stages as ranges of nodes by tenant."""
        bounds = [(0, *row, len(graph.nodes)) for row, graph in zip(pointers, self.graphs, strict=True)]
        return [tuple((row[n], row[n + 1]) for row in bounds) for n in range(len(bounds[0]) - 1)]

    def time_ns(self, pointers: Pointers) -> int:
        """Return the time of one round of all tenants."""
        return sum(self.stage(ranges)[0] for ranges in self.ranges(pointers))


def equal_shares(streams: Streams, count: int) -> Pointers:
    """Return pointers that cut every stream into stretches of about equal time."""
    found = []
    for graph in streams.graphs:
        sums = [0]
        for node in graph.nodes:
            sums.append(sums[-1] + group_ns(node.kernels, graph.total, graph.total))
        wanted = [sums[-1] * (n + 1) / (count + 1) for n in range(count)]
        found.append(tuple(min(range(len(sums)), key=lambda i: abs(sums[i] - w)) for w in wanted))
    return tuple(found)


def coordinate_descent(streams: Streams, pointers: Pointers, rounds: int) -> tuple[int, Pointers]:
    """Move one pointer at a time to its best place between its neighbours, until a round moves none."""
    best = streams.time_ns(pointers)
    for _ in range(rounds):
        before = best
        for tenant, graph in enumerate(streams.graphs):
            for number in range(len(pointers[tenant])):
                row = pointers[tenant]
                low = row[number - 1] if number else 0
                high = row[number + 1] if number + 1 < len(row) else len(graph.nodes)
                for place in range(low, high + 1):
                    trial = _with(pointers, tenant, (*row[:number], place, *row[number + 1 :]))
                    time = streams.time_ns(trial)
                    if time < best:
                        best, pointers = time, trial
        if best == before:
            break
    return best, pointers


def random_search(streams: Streams, count: int, samples: int, seed: int) -> tuple[int, Pointers]:
    """Return the best of `samples` random settings of the pointers."""
    drawn, found = random.Random(seed), list[tuple[int, Pointers]]()
    for _ in range(max(samples, 1)):
        trial = tuple(tuple(sorted(drawn.randint(0, len(g.nodes)) for _ in range(count))) for g in streams.graphs)
        found.append((streams.time_ns(trial), trial))
    return min(found)


def _with(pointers: Pointers, tenant: int, row: tuple[int, ...]) -> Pointers:
    return (*pointers[:tenant], row, *pointers[tenant + 1 :])


def search_pointers(
    streams: Streams, count: int, search: str, rounds: int, samples: int, seed: int
) -> tuple[int, Pointers]:
    """Return round time (ns) and pointers; by coordinate descent from several starts, some with fewer pointers."""
    if search == "random":
        return random_search(streams, count, samples, seed)
    starts = [equal_shares(streams, count)]
    starts.append(tuple((0,) * count for _ in streams.graphs))  # all in the last stage: streams without barriers
    serial = [[0] * count for _ in streams.graphs]
    for tenant, graph in enumerate(streams.graphs):
        for number in range(count):
            serial[tenant][number] = len(graph.nodes) if number >= tenant else 0
    starts.append(tuple(map(tuple, serial)))  # one tenant after the other
    return min(coordinate_descent(streams, start, rounds) for start in starts)


def propose(ask: Ask) -> Proposal:
    """Set the pointers of all networks that share the first one's rate and GPU; our search maps the other stages."""
    options, found = ask.options, operator_graphs(ask, "runtime-aware", ask.options["engine"])
    if options["search"] not in SEARCHES:
        raise UsageError(f"option search={options['search']}", f"one of {', '.join(SEARCHES)}")
    tenants = _tenants(ask, found)
    if len(tenants) < 2:
        raise UsageError(
            f"planner runtime-aware runs several networks of one rate side by side, {ask.pipeline.name} has "
            f"{len(tenants)} whose first operators are ready together",
            "planner ios runs the operators of one network side by side",
        )
    launch = round(ask.workload.model.platform.engine(tenants[0].cost.engine).launch_ns.value)
    barrier = round(options["barrier"] * 1e3) if options["barrier"] >= 0 else launch
    streams = Streams(tenants, barrier, options["grain"])
    time, pointers = search_pointers(
        streams, options["pointers"], options["search"], options["rounds"], options["samples"], options["seed"]
    )
    serial = sum(group_ns(kernels_of(g, range(len(g.nodes))), g.total, g.total) for g in tenants)
    together_ns = streams.time_ns(tuple(() for _ in tenants))
    facts: dict[str, Json] = {
        "round_ns": time,
        "sequential_ns": serial,
        "streams_ns": together_ns,
        "pointers": [list(each) for each in pointers],
    }
    return proposal_of(ask, _schedules(streams, pointers), barrier, True, **facts)


def _tenants(ask: Ask, found: Sequence[OpGraph]) -> list[OpGraph]:
    """Return networks with the first one's engine and sensors that do not wait for one another."""
    graph = ask.workload.graph
    first = found[0]
    chosen: list[OpGraph] = []
    for each in found:
        name = each.stage.name
        alike = each.cost.engine == first.cost.engine and graph.sources[name] == graph.sources[first.stage.name]
        if alike and not any(_waits(ask, name, other.stage.name) for other in chosen):
            chosen.append(each)
    return chosen


def _waits(ask: Ask, name: str, other: str) -> bool:
    queue, seen = list(ask.workload.graph.predecessors(name)), set[str]()
    while queue:
        before = queue.pop()
        if before == other:
            return True
        if before not in seen:
            seen.add(before)
            queue += ask.workload.graph.predecessors(before)
    return False


def _schedules(streams: Streams, pointers: Pointers) -> list[tuple[OpGraph, list[Slot]]]:
    """Return every tenant's stretches as slots on dedicated units, adjacent to those of the preceding tenants."""
    found: list[list[Slot]] = [[] for _ in streams.graphs]
    for ranges in streams.ranges(pointers):
        shares, first = list(streams.stage(ranges)[1]), 0
        several = len(shares) > 1
        for tenant, (start, end) in enumerate(ranges):
            if end == start:
                found[tenant].append(Slot((), ()))
                continue
            units = shares.pop(0)
            found[tenant].append(Slot((tuple(range(start, end)),), (units,), first=first, others=several))
            first += units
    return list(zip(streams.graphs, found, strict=True))


PLANNER = Planner(
    "runtime-aware",
    "concurrent networks of several tenants on one GPU, with barriers placed by search",
    propose,
    "Yu et al., ICCAD 2021",
    {
        "pointers": Option(3, "barriers in every stream"),
        "search": Option("coordinate", "coordinate or random"),
        "rounds": Option(20, "rounds of coordinate descent at most"),
        "samples": Option(500, "settings tried by random search"),
        "seed": Option(0, "of random search"),
        "grain": Option(1, "units are shared in multiples of this (4 for green contexts on Orin)"),
        "barrier": Option(-1.0, "time of a barrier in us; negative: that of a launch"),
        "engine": Option("", "the GPU to use; empty: the fastest"),
    },
)
