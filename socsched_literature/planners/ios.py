"""IOS: stages of operators that run together, by dynamic programming over endings of a network's graph.

Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021.  A schedule is a
sequence of stages; a stage runs connected groups of operators concurrently ("concurrent execution") or stacks
convolutions of one input into one ("operator merge").  Algorithm 1: with S the operators not yet scheduled, built from
the last stage backwards, cost[S] = min over endings S' of S of cost[S - S'] + stage(S'), an ending being a subset none
of whose operators has a successor in S - S'.  Pruning P(S', r, s): at most s groups of at most r operators each; the
authors use r = 3, s = 8.  Networks are cut into blocks where a single tensor crosses, as in the paper.

The authors measure stages on the device; here `sharing` models the time of co-running groups.  An operator is a unit of
layers that fusion keeps together.  A stacked convolution exists in the plan's times; the compilers of this project
stack convolutions of one input only if all of them are network outputs.  A network remains one job, whose segments are
the stages; with `split` every group is a task on dedicated units, which shows more detail but gives looser bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from socsched.descriptor.limits import Json
from socsched.errors import UsageError
from socsched.planning.planners import Ask, Option, Planner, Proposal
from socsched_literature.planners.opgraph import (
    OpGraph,
    Slot,
    kernels_of,
    operator_graphs,
    proposal_of,
    stack,
    whole_proposal,
)
from socsched_literature.planners.sharing import group_ns, share_units

STRATEGIES = ("ios", "sequential", "greedy")


@dataclass(slots=True)
class Stages:
    """Cost of the stages of one network, memoised."""

    graph: OpGraph
    barrier_ns: int
    merge: bool = True
    grain: int = 1
    _known: dict[frozenset[int], tuple[int, Slot] | None] = field(default_factory=dict)

    def stage(self, nodes: frozenset[int]) -> tuple[int, Slot] | None:
        """Return time (ns) and the better strategy of a stage (GENERATE STAGE of the paper).

        None if it has more groups than the engine has shares.
        """
        if nodes not in self._known:
            self._known[nodes] = self._stage(nodes)
        return self._known[nodes]

    def _stage(self, nodes: frozenset[int]) -> tuple[int, Slot] | None:
        graph = self.graph
        groups = components(graph, nodes)
        shared = share_units([kernels_of(graph, group) for group in groups], graph.total, graph.bandwidth, self.grain)
        best = None
        if shared is not None:
            barrier = self.barrier_ns if len(groups) > 1 else 0
            best = shared.time_ns + barrier, Slot(groups, shared.units)
        one = stack(graph, sorted(nodes)) if self.merge and len(nodes) > 1 else None
        if one is not None:
            time = group_ns([one], graph.total, graph.total)
            if best is None or time < best[0]:
                best = time, Slot(groups, (graph.total,) * len(groups), True)
        return best


def components(graph: OpGraph, nodes: frozenset[int]) -> tuple[tuple[int, ...], ...]:
    """Return the connected groups of some nodes, each in topological order."""
    group: dict[int, set[int]] = {}
    for node in sorted(nodes):
        joined = {node}
        for other in graph.nodes[node].needs & nodes:
            joined |= group[other]
        for member in joined:
            group[member] = joined
    unique = {min(members): tuple(sorted(members)) for members in group.values()}
    return tuple(unique[first] for first in sorted(unique))


def endings(graph: OpGraph, nodes: frozenset[int], r: int, s: int) -> Iterator[frozenset[int]]:
    """Yield the endings of some nodes that P(S', r, s) allows."""
    order = sorted(nodes, reverse=True)
    after: dict[int, set[int]] = {node: set() for node in nodes}
    for node in nodes:
        for need in graph.nodes[node].needs & nodes:
            after[need].add(node)

    def extend(position: int, taken: dict[int, frozenset[int]]) -> Iterator[frozenset[int]]:
        """Extend `taken` (node -> its group so far); a node may join only if all its successors have."""
        if position == len(order):
            if taken and len(set(taken.values())) <= s:
                yield frozenset(taken)
            return
        node = order[position]
        if after[node] <= taken.keys():
            joined = frozenset({node}).union(*(taken[other] for other in after[node]))
            if len(joined) <= r:
                yield from extend(position + 1, {**taken, **dict.fromkeys(joined, joined)})
        yield from extend(position + 1, taken)

    yield from extend(0, {})


def search_schedule(stages: Stages, nodes: frozenset[int], r: int, s: int) -> tuple[int, list[Slot]]:
    """Return the least time (ns) of some nodes and the stages that achieve it (Algorithm 1)."""
    known: dict[frozenset[int], tuple[int, frozenset[int]]] = {}

    def cost(left: frozenset[int]) -> int:
        if not left:
            return 0
        if left not in known:
            best: tuple[int, frozenset[int]] | None = None
            for ending in endings(stages.graph, left, r, s):
                stage = stages.stage(ending)
                if stage is None:
                    continue
                total = cost(left - ending) + stage[0]
                if best is None or total < best[0]:
                    best = total, ending
            assert best is not None  # a single last operator always is a stage
            known[left] = best
        return known[left][0]

    total, found, left = cost(nodes), list[Slot](), nodes
    while left:
        ending = known[left][1]
        stage = stages.stage(ending)
        assert stage is not None
        found.insert(0, stage[1])
        left -= ending
    return total, found


def blocks(graph: OpGraph, most: int) -> list[frozenset[int]]:
    """Return consecutive blocks of nodes.

    A block ends wherever only one node's results are read later, and after `most` nodes at the latest.
    """
    count, found, start = len(graph.nodes), list[frozenset[int]](), 0
    for end in range(1, count + 1):
        read = {need for node in range(end, count) for need in graph.nodes[node].needs if need < end}
        if end == count or end - start >= most or read <= {end - 1}:
            found.append(frozenset(range(start, end)))
            start = end
    return found


def sequential(stages: Stages) -> tuple[int, list[Slot]]:
    """Return the schedule that runs one operator at a time."""
    return _sum(stages, [frozenset({node}) for node in range(len(stages.graph.nodes))])


def greedy(stages: Stages) -> tuple[int, list[Slot]]:
    """Return the schedule in which every stage runs all ready operators (the baseline of that name in the paper)."""
    done: frozenset[int] = frozenset()
    everything = frozenset(range(len(stages.graph.nodes)))
    found = []
    while done != everything:
        ready = sorted(node for node in everything - done if stages.graph.nodes[node].needs <= done)
        found.append(frozenset(ready[: stages.graph.total // stages.grain]))
        done |= found[-1]
    return _sum(stages, found)


def _sum(stages: Stages, each: Sequence[frozenset[int]]) -> tuple[int, list[Slot]]:
    plain = Stages(stages.graph, stages.barrier_ns, False, stages.grain)
    made = [plain.stage(nodes) for nodes in each]
    kept = [stage for stage in made if stage is not None]
    return sum(time for time, _ in kept), [slot for _, slot in kept]


def schedule(stages: Stages, strategy: str, r: int, s: int, block: int) -> tuple[int, list[Slot]]:
    """Return time (ns) and stages of a network by a strategy."""
    if strategy == "sequential":
        return sequential(stages)
    if strategy == "greedy":
        return greedy(stages)
    total, found = 0, list[Slot]()
    for nodes in blocks(stages.graph, block):
        time, slots = search_schedule(stages, nodes, r, s)
        total, found = total + time, found + slots
    return total, found


def simplify(slots: Sequence[Slot]) -> list[Slot]:
    """Return a schedule with adjacent single-group stages merged: fewer tasks, the same time."""
    found: list[Slot] = []
    for slot in slots:
        if found and not slot.merged and not found[-1].merged and len(slot.groups) == len(found[-1].groups) == 1:
            found[-1] = Slot(((*found[-1].groups[0], *slot.groups[0]),), found[-1].units)
        else:
            found.append(slot)
    return found


def propose(ask: Ask) -> Proposal:
    """Schedule the operators of every network on the GPU; other stages are mapped by our search."""
    options = ask.options
    if options["strategy"] not in STRATEGIES:
        raise UsageError(f"option strategy={options['strategy']}", f"one of {', '.join(STRATEGIES)}")
    made, facts, barrier = [], dict[str, Json](), 0
    for graph in operator_graphs(ask, "ios", options["engine"]):
        launch = round(ask.workload.model.platform.engine(graph.cost.engine).launch_ns.value)
        barrier = round(options["barrier"] * 1e3) if options["barrier"] >= 0 else launch
        stages = Stages(graph, barrier, options["merge"], options["grain"])
        time, slots = schedule(stages, options["strategy"], options["r"], options["s"], options["block"])
        groups: Json = [[[graph.nodes[n].layers[0] for n in group] for group in slot.groups] for slot in slots]
        facts[graph.stage.name] = {"time_ns": time, "sequential_ns": sequential(stages)[0], "stages": groups}
        made.append((graph, simplify(slots)))
    if options["split"]:
        return proposal_of(ask, made, barrier, False, **facts)
    return whole_proposal(ask, made, barrier, **facts)


PLANNER = Planner(
    "ios",
    "stages of concurrent operators on one GPU, by dynamic programming over endings",
    propose,
    "Ding et al., MLSys 2021",
    {
        "strategy": Option("ios", "ios, or its baselines sequential and greedy"),
        "r": Option(3, "operators a group at most"),
        "s": Option(8, "groups a stage at most"),
        "block": Option(24, "operators a block at most, where no single tensor crosses before"),
        "merge": Option(True, "stack convolutions of one input"),
        "split": Option(False, "every group a task on units of its own, rather than one job a network"),
        "grain": Option(1, "units are shared in multiples of this (4 for green contexts on Orin)"),
        "barrier": Option(-1.0, "time to join the groups of a stage in us; negative: that of a launch"),
        "engine": Option("", "the GPU to use; empty: the fastest"),
    },
)
