"""DeepThings: the first layers of a network in fused tiles, spread over CPU cores by work stealing.

Zhao, Barijough, Gerstlauer, "DeepThings: Distributed Adaptive Deep Learning Inference on Resource-Constrained IoT Edge
Clusters", IEEE TCAD 37(11) 2018: fused tile partitioning with exact receptive fields (`graph.partition`) and
distributed work stealing.  Every worker has a queue of tiles; a worker whose queue is empty steals the last tile of the
longest queue.

The workers of the paper are boards in a network, here they are cores of an SoC, and the cost of a steal is an option
(`steal`).  Execution times are the planned ones, so stealing is simulated once and the plan fixes the core of every
tile.  The data reuse of the paper, by which tiles keep data shared with neighbours, is left out: tiles recompute it.
The rest of the network runs where it ends first.  One network is tiled, other stages are mapped by our search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.cost import Cost
from socsched.descriptor.limits import Json
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.network import Network
from socsched.graph.partition import Grid, fusable, largest_bytes, regions
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import TileOf, split_into_tiles
from socsched.models.registry import get_model
from socsched.planning.mapping.local_search import transfer_ns
from socsched.planning.planners import Ask, Option, Planner, Proposal

Worker = tuple[str, int]
"""Engine and lane."""


@dataclass(frozen=True, slots=True)
class Stolen:
    """Result of work stealing: worker and start (ns) of each tile, and the end of the last one."""

    worker: tuple[int, ...]
    start_ns: tuple[int, ...]
    makespan_ns: int
    steals: int


def work_stealing(times: Sequence[Sequence[int]], queues: Sequence[Sequence[int]], steal_ns: int = 0) -> Stolen:
    """Return the schedule of work stealing: `times` (ns) by tile and worker, `queues` the initial tiles of each worker.

    A worker takes the first tile of its own queue.  If the queue is empty, it steals the last tile of the longest queue
    (the first of equals), which takes `steal_ns`.
    """
    left = [list(queue) for queue in queues]
    free = [0] * len(queues)
    worker, start = [-1] * len(times), [0] * len(times)
    steals = 0
    while any(left):
        now = min(range(len(free)), key=lambda w: (free[w], not left[w], w))
        if left[now]:
            tile = left[now].pop(0)
        else:
            victim = max(range(len(left)), key=lambda w: (len(left[w]), -w))
            tile, steals = left[victim].pop(), steals + 1
            free[now] += steal_ns
        worker[tile], start[tile] = now, free[now]
        free[now] += times[tile][now]
    ends = [s + times[tile][w] for tile, (s, w) in enumerate(zip(start, worker, strict=True))]
    return Stolen(tuple(worker), tuple(start), max(ends), steals)


def work_sharing(times: Sequence[Sequence[int]], queues: Sequence[Sequence[int]]) -> int:
    """Return the makespan (ns) if every worker processes only its own queue: the paper's baseline."""
    return max(sum(times[tile][worker] for tile in queue) for worker, queue in enumerate(queues))


def deal_tiles(tiles: int, workers: int) -> list[list[int]]:
    """Return the initial queues of the workers: neighbouring tiles, with lengths that differ by at most one."""
    return [list(range(tiles * w // workers, tiles * (w + 1) // workers)) for w in range(workers)]


def _network(ask: Ask, wanted: str) -> tuple[str, Network]:
    found: dict[str, Network] = {}
    for name in ask.workload.graph.order:
        stage = ask.workload.graph.stage(name)
        factory = get_model(stage.model, stage.params).network if stage.model else None
        if factory is not None and stage.on_late == "continue" and stage.execution is None and fusable(factory()) > 0:
            found[name] = factory()
    if wanted and wanted not in found:
        raise UsageError(
            f"stage {wanted!r} is no network that can be tiled", f"those that can: {', '.join(found) or 'none'}"
        )
    if not found or (len(found) > 1 and not wanted):
        raise UsageError(
            f"planner deepthings tiles one network that begins with a chain of convolutions, {ask.pipeline.name} has "
            f"{', '.join(found) or 'none'}",
            "name the one to tile with -O stage=NAME; the others stay uncut"
            if found
            else "cameras' detectors have one",
        )
    name = wanted or next(iter(found))
    return name, found[name]


def propose(ask: Ask) -> Proposal:
    """Tile one network over the cores of the CPUs (or of the engines named)."""
    options = ask.options
    name, network = _network(ask, options["stage"])
    grid = Grid(options["layers"] or fusable(network), options["rows"], options["columns"])
    pipeline = split_into_tiles(ask.pipeline, {name: grid})
    workload = ask.workload.asking(task_graph(pipeline))
    tiles = [TileOf(name, grid, row, column).name for row, column in grid.places()]
    workers = _workers(ask, options["engines"])
    by_tile = [_on_cores(ask, workload.graph.stage(tile), workers) for tile in tiles]
    times = [[costs[w[0]].time_ns for w in workers] for costs in by_tile]
    queues = deal_tiles(len(tiles), len(workers))
    stolen = work_stealing(times, queues, round(options["steal"] * 1e3))
    mapping = {stage: cost for stage, cost in ask.rest().items() if stage != name}
    lanes: dict[str, tuple[int, ...]] = {}
    for tile, costs, number in zip(tiles, by_tile, stolen.worker, strict=True):
        engine, lane = workers[number]
        mapping[tile], lanes[tile] = costs[engine], (lane,)
    rest = workload.model.candidates(workload.graph.stage(name))
    if not rest:
        raise UsageError(f"stage {name!r}: no engine runs what follows the tiles")
    mapping[name] = min(rest, key=lambda c: c.time_ns + max(transfer_ns(workload, mapping[t], c) for t in tiles))
    whole = largest_bytes(network, regions(network, Grid(grid.depth, 1, 1), 0, 0), grid.depth)
    facts: dict[str, Json] = {
        "stage": name,
        "tiles": f"{grid.rows}x{grid.columns} over {grid.depth} layers",
        "makespan_ns": stolen.makespan_ns,
        "sharing_ns": work_sharing(times, queues),
        "steals": stolen.steals,
        "one_core_ns": sum(row[0] for row in times),
        "tile_bytes": max(largest_bytes(network, regions(network, grid, r, c), grid.depth) for r, c in grid.places()),
        "whole_bytes": whole,
    }
    return Proposal(workload, {n: mapping[n] for n in workload.graph.order}, {}, lanes, facts)


def _workers(ask: Ask, named: str) -> list[Worker]:
    model, wanted = ask.workload.model, [part for part in named.split(",") if part]
    engines = [
        engine
        for engine in model.platform.engines
        if engine.shares == "unit" and ask.workload.units(engine.id) > 0 and (not wanted or engine.id in wanted)
    ]
    found = [(engine.id, lane) for engine in engines for lane in range(ask.workload.lanes(engine.id))]
    if not found:
        raise UsageError(
            "planner deepthings needs cores to work on", "such engines have units that are shared one by one"
        )
    return found


def _on_cores(ask: Ask, stage: Stage, workers: Sequence[Worker]) -> dict[str, Cost]:
    """Return the cost of a tile on one core of each engine, in the fastest data type there."""
    found: dict[str, Cost] = {}
    for engine in dict.fromkeys(engine for engine, _ in workers):
        costs = [
            cost
            for precision in stage.precisions
            if (cost := ask.workload.model.at(stage, engine, precision, 1)) is not None
        ]
        if not costs:
            raise UsageError(
                f"stage {stage.name!r} cannot run on a core of {engine}", "name other engines with -O engines=ID"
            )
        found[engine] = min(costs, key=lambda cost: cost.time_ns)
    return found


__all__ = ["PLANNER", "Stolen", "deal_tiles", "work_sharing", "work_stealing"]

PLANNER = Planner(
    "deepthings",
    "the first layers of one network in fused tiles over CPU cores, by work stealing",
    propose,
    "Zhao et al., IEEE TCAD 2018",
    {
        "stage": Option("", "the network to tile, needed if there are several"),
        "layers": Option(0, "layers to fuse; 0: all that form a chain"),
        "rows": Option(3, "rows of tiles"),
        "columns": Option(3, "columns of tiles"),
        "engines": Option("", "engines whose cores take tiles, separated by commas; empty: all with cores"),
        "steal": Option(10.0, "time of a steal in us"),
    },
)
