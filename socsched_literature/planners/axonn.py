"""AxoNN: the fastest layer-wise mapping of one network under an energy cap, transitions counted.

Dagli, Cieslewicz, McClurg, Belviranli, "AxoNN: Energy-Aware Execution of Neural Network Inference on Multi-Accelerator
Heterogeneous SoCs", DAC 2022, its problem statement: minimise the sum of layer times and transition times under sum of
energies <= ECT, the energy consumption target.  The authors use an SMT solver; here the same program is solved exactly
by non-dominated labels (changes made, place, time, energy).

Reconstructed from the abstract and third parties' accounts: the grouping of layers (option `groups`) and the choice of
the target (`cap`, else the fraction `share` of the energy of the fastest mapping).  Like the paper, only the energy of
computing is counted, plus that of transitions, which the paper measures as part of it.
"""

from __future__ import annotations

from typing import Any

from socsched.errors import UsageError
from socsched.planning.pareto import undominated
from socsched.planning.planners import Ask, Option, Planner, Proposal, cut_proposal
from socsched_literature.planners.line import Line, line_of

Label = tuple[int, int, tuple[int, ...]]
"""Time (ns), energy (uJ), places so far."""


def fastest_within(line: Line, cap_uj: float, transitions: int) -> tuple[int, ...] | None:
    """Return the places of the fastest mapping within `cap_uj` and at most `transitions` changes of place.

    None if there is none.
    """
    states: dict[tuple[int, int], list[Label]] = {}
    for place, time in enumerate(line.time[0]):
        if time is not None:
            once = line.entry[place]
            states[place, 0] = [(time + once[0], line.energy[0][place] + once[1], (place,))]
    for group in range(1, len(line)):
        after: dict[tuple[int, int], list[Label]] = {}
        for (before, changes), labels in states.items():
            for place, time in enumerate(line.time[group]):
                changed = changes + (place != before)
                step = (0, 0) if place == before else line.change(group - 1, before, place)
                if time is None or changed > transitions or step is None:
                    continue
                once = (0, 0) if place == before else line.entry[place]
                more = time + step[0] + once[0], line.energy[group][place] + step[1] + once[1]
                after.setdefault((place, changed), []).extend(
                    (t + more[0], e + more[1], (*way, place)) for t, e, way in labels if e + more[1] <= cap_uj
                )
        states = {key: drop_dominated(labels) for key, labels in after.items()}
    kept = [label for labels in states.values() for label in labels if label[1] <= cap_uj]
    return min(kept)[2] if kept else None


def drop_dominated(labels: list[Label]) -> list[Label]:
    """Return the labels not dominated in time and energy by any other."""
    ordered = sorted({label[:2]: label for label in sorted(labels, reverse=True)}.values())
    return [ordered[index] for index in undominated([label[:2] for label in ordered])]


def propose(ask: Ask) -> Proposal:
    """Map one network under the cap, the other stages by our search; UsageError if no mapping meets the cap."""
    options = ask.options
    name = select_network(ask, "axonn", options["stage"])
    line = line_of(ask, name, options["groups"], twins=False)
    unlimited = fastest_within(line, float("inf"), options["transitions"])
    if unlimited is None:
        raise UsageError(f"stage {name!r}: no mapping with {options['transitions']} transitions", "allow more")
    fastest = _cost(line, unlimited)
    cap = options["cap"] * 1e3 if options["cap"] else fastest[1] * options["share"]
    best = fastest_within(line, cap, options["transitions"])
    if best is None:
        least = min(_cost(line, way)[1] for way in _frugal(line, options["transitions"]))
        raise UsageError(
            f"stage {name!r}: no mapping needs {cap / 1e3:.4g} mJ a frame or less; the least is {least / 1e3:.4g}",
            "raise -O cap=MILLIJOULE, or -O share (of what the fastest mapping takes)",
        )
    time, energy = _cost(line, best)
    facts: dict[str, Any] = {"stage": name, "cap_uj": round(cap), "energy_uj": energy, "time_ns": time}
    facts |= {"fastest": {"time_ns": fastest[0], "energy_uj": fastest[1]}}
    return cut_proposal(ask, ask.rest(), {name: line.legs(best)}, **facts)


def select_network(ask: Ask, planner: str, stage: str) -> str:
    """Return the network for a single-network planner to cut: the named one, or the only one; else UsageError."""
    if not stage:
        return next(iter(ask.some_networks(planner, 1)))
    if stage not in ask.some_networks(planner):
        raise UsageError(
            f"no network {stage!r} that may be cut", f"those of {ask.pipeline.name}: {', '.join(ask.networks)}"
        )
    return stage


def _cost(line: Line, way: tuple[int, ...]) -> tuple[int, int]:
    found = line.cost(way)
    assert found is not None
    return found


def _frugal(line: Line, transitions: int) -> list[tuple[int, ...]]:
    """Return the mapping of least energy: the fastest one of the same line with time and energy exchanged."""
    swapped = Line(
        line.name,
        line.places,
        line.ends,
        tuple(
            tuple(None if t is None else e for t, e in zip(times, energies, strict=True))
            for times, energies in zip(line.time, line.energy, strict=True)
        ),
        tuple(tuple(t or 0 for t in times) for times in line.time),
        line.traffic,
        tuple((uj, ns) for ns, uj in line.entry),
        lambda border, a, b: None if (found := line.change(border, a, b)) is None else (found[1], found[0]),
    )
    way = fastest_within(swapped, float("inf"), transitions)
    return [way] if way else []


PLANNER = Planner(
    "axonn",
    "the fastest mapping of one network under an energy cap, layer group by layer group",
    propose,
    "Dagli et al., DAC 2022",
    {
        "stage": Option("", "the network to cut, needed if there are several"),
        "cap": Option(0.0, "energy a frame (mJ); 0: by `share`"),
        "share": Option(0.8, "cap as a part of what the fastest mapping takes"),
        "transitions": Option(2, "most changes of engine"),
        "groups": Option(0, "layer groups; 0: every unit of layers"),
    },
)
