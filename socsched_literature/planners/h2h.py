"""H2H: mapping of several networks in four steps: computation first, then weights, then hand-overs.

Zhang, Hao, Zhou, Jones, Hu, "H2H: Heterogeneous Model to Heterogeneous System Mapping with Computation and
Communication Awareness", DAC 2022 (arXiv 2204.13852), the four steps of its algorithm:

1. computation-prioritised mapping: layers in order of precedence, each to the accelerator on which it ends first, with
   no locality at all (every layer is a separate job, weights and activations come from the host);
2. weight locality: weights stay in an accelerator's local memory as far as they fit, a knapsack over saved time;
3. activation transfers: consecutive layers on one accelerator are fused;
4. data-locality remapping: layers move to the accelerator of a neighbour as long as the system's latency falls.

On an SoC all engines share the DRAM: step 2 concerns engines that declare a local memory (`weights`), step 3 saves the
submission of every layer.  Reconstructed from the abstract and the figures: the breaking of ties, and that step 4
iterates over the layers in order until none moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from socsched.planning.planners import Ask, Option, Planner, Proposal, cut_proposal
from socsched_literature.mapping.lists import list_schedule
from socsched_literature.planners.herald import layers_in_order, makespan_ns
from socsched_literature.planners.line import Line, choices_of, line_of, problem_of

Places = list[list[int]]


def computation_first(lines: Sequence[Line]) -> Places:
    """Return step 1: every group on the engine on which it ends first, each a separate job."""
    free: dict[str, int] = {}
    done: list[int] = [0] * len(lines)
    found: Places = [[] for _ in lines]
    for number, group in layers_in_order(lines, "breadth"):
        line, ends = lines[number], []
        for place, time in enumerate(line.time[group]):
            before = found[number][-1] if group else place
            step = (0, 0) if before == place else line.change(group - 1, before, place)
            if time is not None and step is not None:
                start = max(done[number] + step[0], free.get(line.places[place].engine, 0))
                ends.append((start + line.entry[place][0] + time, place))
        # If no engine is reachable from the last one, fall back to the list schedule for the whole mapping.
        if not ends:
            return fallback(lines)
        end, place = min(ends)
        free[line.places[place].engine] = done[number] = end
        found[number].append(place)
    return found


def fallback(lines: Sequence[Line]) -> Places:
    """Return a mapping whose groups can be connected, by list scheduling."""
    problem = problem_of(lines)
    chosen = choices_of(problem, lines, list_schedule(problem).choice)
    return [list(chosen[line.name]) for line in lines]


def resident(savings: Sequence[int], sizes: Sequence[int], room: int, steps: int = 1000) -> tuple[int, ...]:
    """Return step 2: the items of the knapsack with the greatest saving.

    Sizes count in `steps` parts of the room, rounded up, so that the chosen items always fit.
    """
    if sum(sizes) <= room:
        return tuple(range(len(sizes)))
    grain = max(-(-room // steps), 1)
    slots = room // grain
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())] * (slots + 1)
    for item, (saving, size) in enumerate(zip(savings, sizes, strict=True)):
        need = -(-size // grain)
        for slot in range(slots, need - 1, -1):
            with_it = best[slot - need][0] + saving
            if with_it > best[slot][0]:
                best[slot] = with_it, (*best[slot - need][1], item)
    return best[slots][1]


def fetching(line: Line, weights: Sequence[int], places: Sequence[int], kept: set[int], rate: Sequence[float]) -> Line:
    """Return a line whose group times include fetching weights that are not resident where the group runs.

    `rate`: bytes/ns at which each place fetches, 0 if weights need not be fetched.
    """
    times = []
    for group, row in enumerate(line.time):
        found = list(row)
        for place, time in enumerate(row):
            here = group in kept and place == places[group]
            if time is not None and rate[place] and not here:
                found[place] = time + round(weights[group] / rate[place])
        times.append(tuple(found))
    return replace(line, time=tuple(times))


def remap(lines: Sequence[Line], places: Places) -> tuple[float, Places]:
    """Return step 4: groups moved to the place of a neighbour as long as the latency of the system falls."""
    problem = problem_of(lines)
    best, improved = makespan_ns(problem, lines, places), True
    while improved:
        improved = False
        for number, line in enumerate(lines):
            for group in range(len(line)):
                way = places[number]
                near = {way[other] for other in (group - 1, group + 1) if 0 <= other < len(line)}
                for place in sorted(near - {way[group]}):
                    if line.time[group][place] is None:
                        continue
                    trial = [list(row) for row in places]
                    trial[number][group] = place
                    found = makespan_ns(problem, lines, trial)
                    if found < best:
                        best, places, improved = found, trial, True
                        way = places[number]
    return best, places


def four_steps(
    lines: Sequence[Line],
    weights: Sequence[Sequence[int]],
    rooms: dict[str, tuple[int, float]] | None = None,
) -> tuple[list[float], Places]:
    """Return the latency of the system (ns) after each step, and the final places.

    `weights`: bytes by line and group; `rooms`: engine -> bytes of its local memory and bytes/ns of fetching into it.
    """
    rooms = rooms or {}
    rates = [[rooms.get(place.engine, (0, 0.0))[1] for place in line.places] for line in lines]
    nothing: list[set[int]] = [set() for _ in lines]

    def lines_with(kept: Sequence[set[int]], places: Places) -> list[Line]:
        return [fetching(*each) for each in zip(lines, weights, places, kept, rates, strict=True)]

    bare = [[0] * len(line) for line in lines]
    places = computation_first(lines_with(nothing, bare))
    fetched = lines_with(nothing, places)
    steps = [makespan_ns(problem_of(fetched, fused=False), fetched, places)]
    kept = _kept(lines, weights, places, rooms)
    local = lines_with(kept, places)
    steps.append(makespan_ns(problem_of(local, fused=False), local, places))
    steps.append(makespan_ns(problem_of(local), local, places))
    last, places = remap(local, places)
    return [*steps, last], places


def _kept(
    lines: Sequence[Line], weights: Sequence[Sequence[int]], places: Places, rooms: dict[str, tuple[int, float]]
) -> list[set[int]]:
    kept: list[set[int]] = [set() for _ in lines]
    for engine, (room, rate) in rooms.items():
        here = [
            (number, group)
            for number, line in enumerate(lines)
            for group, place in enumerate(places[number])
            if line.places[place].engine == engine
        ]
        sizes = [weights[number][group] for number, group in here]
        for item in resident([round(size / rate) for size in sizes], sizes, room):
            kept[here[item][0]].add(here[item][1])
    return kept


def propose(ask: Ask) -> Proposal:
    """Map the groups of all networks; other stages are mapped by our search."""
    lines = [line_of(ask, name, ask.options["groups"]) for name in ask.some_networks("h2h")]
    rooms = {
        engine.id: (round(engine.weights.size.value), engine.weights.swap.value / 1e9)
        for engine in ask.workload.model.platform.engines
        if engine.weights is not None and engine.weights.swap.value > 0
    }
    weights = [_weights(ask, line) if rooms else [0] * len(line) for line in lines]
    steps, places = four_steps(lines, weights, rooms)
    cuts = {line.name: line.legs(way) for line, way in zip(lines, places, strict=True)}
    return cut_proposal(ask, ask.rest(), cuts, steps_ns=[int(step) for step in steps])


def _weights(ask: Ask, line: Line) -> list[int]:
    """Return the weight bytes of every group in the data type of the first place, summed over its layers."""
    divided = ask.networks[line.name]
    work = ask.workload.model.work_of(divided.stage, line.places[0].precision)
    sizes = {operator.name: operator.weight_bytes for operator in work.operators} if work else {}
    plain = {name.replace(".", "_"): size for name, size in sizes.items()}
    found, start = [], 0
    for end in line.ends:
        layers = [name for unit in divided.members[start:end] for name in unit]
        found.append(sum(plain.get(name.replace(".", "_"), 0) for name in layers))
        start = end
    return found


__all__ = ["PLANNER", "computation_first", "fetching", "four_steps", "remap", "resident"]

PLANNER = Planner(
    "h2h",
    "computation, then weights, then hand-overs: four steps over all networks together",
    propose,
    "Zhang et al., DAC 2022",
    {"groups": Option(10, "layer groups a network; 0: every unit of layers")},
)
