"""Tables by which the kernel follows frames of a chain's source through the chain's stages for its running figures.

The semantics are those of `trace.metrics.chain_figures`; the tests compare the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from socsched.planning.plan import Plan

OWN, SAME, SAMPLED = 0, 1, 2
NO_LIMIT = 1 << 62
"""Largest age of data where none is required (ns)."""


def make_chain_tables(plan: Plan, sources: Sequence[str]) -> dict[str, array[int]]:
    """Return the tables `kernel.stores.Chains` reads; the columns are documented there."""
    names = [task.name for task in plan.tasks]
    number = {name: index for index, name in enumerate(names)}
    reads = {task.name: set(task.reads) for task in plan.tasks}
    origin = {name: len(names) + index for index, name in enumerate(sources)}
    source_of = {name: index for index, name in enumerate(sources)}
    after = {task.name: set(task.after) for task in plan.tasks}
    conversions = {task.name for task in plan.tasks if task.kind == "conversion"}
    entries: dict[int, list[dict[str, int]]] = {index: [] for index in range(len(names))}
    starts: dict[int, list[int]] = {index: [] for index in range(len(sources))}
    deadlines, ages, exact = array("q"), array("q"), array("q")
    rows = 0
    for chain, result in enumerate(plan.chains):
        deadlines.append(result.deadline_ns)
        ages.append(NO_LIMIT if result.max_age_ns is None else result.max_age_ns)
        path = result.path
        if path[0] in source_of:
            starts[source_of[path[0]]].append(chain)
        previous, plain = -1, True
        for position, name in enumerate(path):
            if name not in number:
                continue
            entry = {"chain": chain, "mode": OWN, "row": 0, "previous": previous, "producer": -1}
            if position:
                sampled = _find_sampled(path[position - 1], name, reads, after, conversions)
                if sampled is not None:
                    entry["mode"], plain = SAMPLED, False
                    entry["producer"] = number.get(sampled, origin.get(sampled, -1))
                elif not plain:
                    entry["mode"] = SAME
                if entry["mode"] != OWN:
                    entry["row"], previous, rows = rows, rows, rows + 1
            # from the first sampling stage on, the next sample makes up for a lost job
            entry["loses"] = int(plain)
            entry["last"] = int(position == len(path) - 1)
            entries[number[name]].append(entry)
        exact.append(int(plain))
    tables: dict[str, array[int]] = {"c_deadline": deadlines, "c_max_age": ages, "c_exact": exact}
    columns = ("chain", "mode", "row", "previous", "producer", "last", "loses")
    tables.update({f"o_{column}": array("q") for column in (*columns, "first", "count")})
    for index in range(len(names)):
        tables["o_first"].append(len(tables["o_chain"]))
        tables["o_count"].append(len(entries[index]))
        for entry in entries[index]:
            for column in columns:
                tables[f"o_{column}"].append(entry[column])
    tables.update({f"x_{column}": array("q") for column in ("first", "count", "chain")})
    for index in range(len(sources)):
        tables["x_first"].append(len(tables["x_chain"]))
        tables["x_count"].append(len(starts[index]))
        tables["x_chain"].extend(starts[index])
    return tables


def _find_sampled(
    producer: str, consumer: str, reads: dict[str, set[str]], after: dict[str, set[str]], conversions: set[str]
) -> str | None:
    """Return the sampled task: `producer` or a conversion of its output; None if `consumer` is data-triggered."""
    if _reaches(producer, after[consumer], after, conversions):
        return None
    for name in reads[consumer]:
        if name == producer or (name in conversions and _reaches(producer, after[name], after, conversions)):
            return name
    return None


def _reaches(producer: str, triggers: set[str], after: dict[str, set[str]], conversions: set[str]) -> bool:
    """Return whether data of `producer` triggers directly or through conversions."""
    waiting, seen = list(triggers), set(triggers)
    while waiting:
        name = waiting.pop()
        if name == producer:
            return True
        if name in conversions:
            waiting += after[name] - seen
            seen |= after[name]
    return False
