"""A network as a graph of operators on one engine, and its schedules (stages of groups) as tasks on the engine's units.

The common input and output format of IOS and Runtime-aware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.cost.cost import Cost, Segment
from socsched.cost.power import job_energy_uj
from socsched.cost.roofline import estimate, launches_per_operator, rescale, roofs_ns
from socsched.descriptor.limits import Json
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part, take, units
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import PartOf, cut_pipeline
from socsched.models.registry import get_model
from socsched.planning.cutting.divisible import owners
from socsched.planning.planners import Ask, Proposal
from socsched.planning.workload import Workload
from socsched_literature.planners.sharing import Kernel, fills, merge_convolutions, share_units


@dataclass(frozen=True, slots=True)
class Node:
    """Layers that stay together: their kernels, the nodes they need, the one tensor they read ("" for several)."""

    layers: tuple[str, ...]
    needs: frozenset[int]
    kernels: tuple[Kernel, ...]
    reads: str


@dataclass(frozen=True, slots=True)
class OpGraph:
    """The nodes of a stage in topological order, on `engine` with `total` units and `bandwidth` (bytes/s)."""

    stage: Stage
    network: Network
    types: Mapping[str, TensorType]
    nodes: tuple[Node, ...]
    cost: Cost
    total: int
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Slot:
    """A stage of a schedule: concurrent groups of nodes with their numbers of units; `merged`: one stacked convolution.

    `first`: the first unit; `others`: groups of other networks co-run, so that a barrier follows even a single group.
    """

    groups: tuple[tuple[int, ...], ...]
    units: tuple[int, ...]
    merged: bool = False
    first: int = 0
    others: bool = False


def opgraph(ask: Ask, name: str, engine: str = "") -> OpGraph | None:
    """Return a stage as a graph of operators on its fastest engine that launches operators one by one.

    None for a stage without network, or without such an engine.
    """
    model, stage = ask.workload.model, ask.workload.graph.stage(name)
    factory = get_model(stage.model, stage.params).network if stage.model else None
    if factory is None or stage.on_late != "continue" or stage.execution is not None:
        return None
    able = [
        cost
        for cost in ask.candidates(name)
        if launches_per_operator(model.platform.engine(cost.engine)) and cost.engine == (engine or cost.engine)
    ]
    if not able:
        return None
    cost = min(able, key=lambda c: c.time_ns)
    network, work = factory(), model.work_of(stage, cost.precision)
    owner = owners(network, work.operators) if work else None
    if work is None or owner is None:
        return None
    if any(size < 0 for tensor in network.inputs.values() for size in tensor.shape):
        return None
    home, state = model.platform.engine(cost.engine), model.mode.engines[cost.engine]
    launch = round(home.launch_ns.value)
    made: dict[str, list[Kernel]] = {}
    segments = cost.segments
    if len(segments) != len(work.operators):  # one a pass, of several operators
        plain = estimate(work, home, state, state.units, model.dram)
        segments = rescale(plain.segments, cost.time_ns, min(home.bandwidth.value, model.dram))
    for operator, layer, segment in zip(work.operators, owner, segments, strict=True):
        roofs = roofs_ns(operator, home, state, home.precisions[cost.precision], state.units, model.dram)
        # Calibration of the whole stage scales all operators alike, hence both roofs.
        scale = (segment.time_ns - segment.fixed_ns) / max(max(roofs), 1e-9)
        made.setdefault(layer, []).append(
            Kernel(
                operator.name,
                roofs[0] * scale,
                roofs[1] * scale,
                min(launch, segment.fixed_ns),
                fills(operator, state.units),
                segment.bytes,
                operator,
            )
        )
    nodes = _nodes(network, made)
    bandwidth = min(home.bandwidth.value, model.dram)
    return OpGraph(stage, network, layer_types(network), nodes, cost, state.units, bandwidth)


def _nodes(network: Network, kernels: Mapping[str, Sequence[Kernel]]) -> tuple[Node, ...]:
    layers = {layer.name: layer for layer in network.layers}
    groups = units(network)
    home = {name: number for number, group in enumerate(groups) for name in group}
    found = []
    for number, group in enumerate(groups):
        read = {source for name in group for source in layers[name].inputs if source not in group}
        needs = frozenset(home[source] for source in read if source in home) - {number}
        own = tuple(kernel for name in group for kernel in kernels.get(name, ()))
        found.append(Node(group, needs, own, next(iter(read)) if len(read) == 1 else ""))
    return tuple(found)


def stack(graph: OpGraph, nodes: Sequence[int]) -> Kernel | None:
    """Return nodes as one stacked convolution; None unless all are single convolutions of one tensor."""
    kernels = [graph.nodes[n].kernels for n in nodes]
    sources = {graph.nodes[n].reads for n in nodes}
    if any(len(each) != 1 for each in kernels) or len(sources) != 1 or "" in sources:
        return None
    return merge_convolutions([each[0] for each in kernels], graph.bandwidth, graph.total)


def kernels_of(graph: OpGraph, nodes: Sequence[int]) -> tuple[Kernel, ...]:
    """Return the kernels of some nodes in sequence."""
    return tuple(kernel for node in nodes for kernel in graph.nodes[node].kernels)


@dataclass(frozen=True, slots=True)
class Piece:
    """A group as a task: its slot, its nodes, and the kernels to run on `units` units from `first` on."""

    slot: int
    nodes: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    first: int
    units: int


def pieces_of(graph: OpGraph, slots: Sequence[Slot], barrier_ns: int) -> list[Piece]:
    """Return the groups of a schedule; the last one of each slot is the slowest, through which a chain then passes.

    A barrier ends every slot of several groups.
    """
    found = []
    for number, slot in enumerate(slots):
        if slot.merged:
            nodes = tuple(node for group in slot.groups for node in group)
            one = stack(graph, nodes)
            assert one is not None
            found.append(Piece(number, nodes, (one,), 0, graph.total))
            continue
        first, here = slot.first, []
        for group, count in zip(slot.groups, slot.units, strict=True):
            own = kernels_of(graph, group)
            if len(slot.groups) > 1 or slot.others:
                own = (*own, Kernel("barrier", 0.0, 0.0, barrier_ns, 1, 0))
            here.append(Piece(number, group, own, first, count))
            first += count
        found += sorted(here, key=lambda p: sum(k.time_ns(p.units, graph.total) for k in p.kernels))
    return found


def parts_of(graph: OpGraph, pieces: Sequence[Piece]) -> list[PartOf]:
    """Return pieces as parts of the network: each waits for all of the previous slot."""
    network, done = graph.network, list[str]()
    slots: dict[int, list[int]] = {}
    bounds: list[Part] = []
    for number, piece in enumerate(pieces):
        if piece.slot not in slots:
            done = [name for each in pieces[:number] for node in each.nodes for name in graph.nodes[node].layers]
        slots.setdefault(piece.slot, []).append(number + 1)
        own = [name for node in piece.nodes for name in graph.nodes[node].layers]
        bounds.append(Part(_last(network, done), _last(network, [*done, *own])))
    taken = [take(network, part, graph.types) for part in bounds]
    home = {layer.name for part in taken for layer in part.layers}
    read_by = [{name for name in part.inputs if name in home} for part in taken]
    found = []
    order = list(slots)
    for number, (piece, bound, part) in enumerate(zip(pieces, bounds, taken, strict=True), 1):
        others = set().union(*(names for n, names in enumerate(read_by, 1) if n != number))
        left = {layer.name for layer in part.layers} & others
        crossing = {
            name: graph.types[name] for name in [*part.inputs, *part.outputs] if name in read_by[number - 1] | left
        }
        position = order.index(piece.slot)
        after = tuple(slots[order[position - 1]]) if position else ()
        found.append(PartOf(graph.stage.name, str(bound), number, len(pieces), after, crossing))
    return found


def _last(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """Return the layers of a prefix without successors in it; () for the whole network."""
    inside = set(names)
    if len(inside) == len(network.layers):
        return ()
    followed = {source for layer in network.layers if layer.name in inside for source in layer.inputs}
    return tuple(layer.name for layer in network.layers if layer.name in inside and layer.name not in followed)


def proposal_of(
    ask: Ask,
    schedules: Sequence[tuple[OpGraph, Sequence[Slot]]],
    barrier_ns: int,
    across: bool = False,
    **facts: Json,
) -> Proposal:
    """Return schedules of operators as a proposal; other stages are mapped by our search.

    `across`: slots span all networks, so a piece waits for the previous slot of every network.
    """
    cut_graphs = [(graph, pieces_of(graph, slots, barrier_ns)) for graph, slots in schedules]
    engines = {graph.cost.engine: graph.total for graph, _ in cut_graphs}
    parts = {graph.stage.name: parts_of(graph, pieces) for graph, pieces in cut_graphs if len(pieces) > 1}
    pipeline = cut_pipeline(ask.pipeline, parts)
    if across:
        waits = _across(cut_graphs)
        pipeline = replace(
            pipeline,
            stages=tuple(
                replace(s, after=tuple(dict.fromkeys((*s.after, *waits.get(s.name, ()))))) for s in pipeline.stages
            ),
        )
    workload = ask.workload.asking(task_graph(pipeline))
    mapping, rest = dict[str, Cost](), ask.rest()
    lanes: dict[str, tuple[int, ...]] = {}
    for graph, pieces in cut_graphs:
        for number, piece in enumerate(pieces, 1):
            name = f"{graph.stage.name}.{number}" if len(pieces) > 1 else graph.stage.name
            mapping[name] = _cost(workload, graph, piece, name)
            lanes[name] = tuple(range(piece.first, piece.first + piece.units))
    mapping |= {name: cost for name, cost in rest.items() if name in workload.graph.order and name not in mapping}
    return Proposal(workload, {n: mapping[n] for n in workload.graph.order}, engines, lanes, facts)


def whole_proposal(
    ask: Ask, schedules: Sequence[tuple[OpGraph, Sequence[Slot]]], barrier_ns: int, **facts: Json
) -> Proposal:
    """Return schedules as a proposal that keeps every network one job on all units.

    A slot of several groups is one segment; other stages are mapped by our search.  A slot takes the time given by
    `sharing`; its energy is that of its groups on their units.
    """
    mapping = ask.rest()
    for graph, slots in schedules:
        mapping[graph.stage.name] = _whole(ask.workload, graph, slots, barrier_ns)
    return Proposal(ask.workload, mapping, facts=facts)


def _whole(workload: Workload, graph: OpGraph, slots: Sequence[Slot], barrier_ns: int) -> Cost:
    segments: list[Segment] = []
    energy = 0
    for number, slot in enumerate(slots):
        pieces = pieces_of(graph, [slot], barrier_ns)
        energy += sum(_cost(workload, graph, piece, "").energy_uj for piece in pieces)
        if len(pieces) == 1:
            segments += [kernel.segment(graph.total, graph.total) for kernel in pieces[0].kernels]
            continue
        shared = share_units([kernels_of(graph, group) for group in slot.groups], graph.total, graph.bandwidth)
        assert shared is not None
        time = barrier_ns + max(
            shared.time_ns, *(sum(k.time_ns(p.units, graph.total) for k in p.kernels) - barrier_ns for p in pieces)
        )
        fixed = barrier_ns + max(sum(k.launch_ns for k in p.kernels) - barrier_ns for p in pieces)
        moved = sum(kernel.bytes for piece in pieces for kernel in piece.kernels)
        # Launches of one group overlap with another's traffic, but no segment may exceed the available bandwidth.
        traffic = -int(-moved * 1e9 // graph.bandwidth) if graph.bandwidth else 0
        segments.append(Segment(f"stage {number}", time, max(min(fixed, time - traffic - 1), 0), moved))
    submit = round(workload.model.platform.engine(graph.cost.engine).submit_ns.value)
    first = segments[0]
    segments[0] = replace(first, time_ns=first.time_ns + submit, fixed_ns=first.fixed_ns + submit)
    return replace(
        graph.cost,
        time_ns=sum(s.time_ns for s in segments),
        bytes=sum(s.bytes for s in segments),
        energy_uj=energy,
        segments=tuple(segments),
        provenance="derived",
    )


def _cost(workload: Workload, graph: OpGraph, piece: Piece, name: str) -> Cost:
    """Return the cost of a piece on its units; pieces of the first slot also pay the submission of the network."""
    model = workload.model
    engine = model.platform.engine(graph.cost.engine)
    segments = [kernel.segment(piece.units, graph.total) for kernel in piece.kernels]
    if piece.slot == 0:
        submit = round(engine.submit_ns.value)
        first = segments[0]
        segments[0] = replace(first, time_ns=first.time_ns + submit, fixed_ns=first.fixed_ns + submit)
    time, size = sum(s.time_ns for s in segments), sum(s.bytes for s in segments)
    energy = job_energy_uj(engine, model.mode, piece.units, time, size, model.platform.dram.picojoule_per_byte.value)
    return replace(
        graph.cost,
        stage=name,
        time_ns=time,
        bytes=size,
        energy_uj=energy,
        segments=tuple(segments),
        share=piece.units,
        provenance="derived",
    )


def _across(made: Sequence[tuple[OpGraph, Sequence[Piece]]]) -> dict[str, tuple[str, ...]]:
    """Return by task the tasks of all networks in the previous slot."""
    by_slot: dict[int, list[str]] = {}
    own: dict[str, int] = {}
    for graph, pieces in made:
        for number, piece in enumerate(pieces, 1):
            name = f"{graph.stage.name}.{number}" if len(pieces) > 1 else graph.stage.name
            by_slot.setdefault(piece.slot, []).append(name)
            own[name] = piece.slot
    order = sorted(by_slot)
    before = {slot: by_slot[order[n - 1]] if n else [] for n, slot in enumerate(order)}
    return {name: tuple(before[slot]) for name, slot in own.items()}


def operator_graphs(ask: Ask, planner: str, engine: str = "") -> list[OpGraph]:
    """Return every network that an engine launches operator by operator; UsageError if there is none."""
    found = [graph for name in ask.workload.graph.order if (graph := opgraph(ask, name, engine)) is not None]
    if not found:
        raise UsageError(
            f"planner {planner} schedules the operators of networks on an engine that launches them one by one, and "
            f"{ask.pipeline.name} on {ask.workload.model.platform.name} has none",
            "a GPU with kernels as segments is one",
        )
    return found
