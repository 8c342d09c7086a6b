"""Print for how many random instances with a known feasible mapping the planner finds a feasible plan.

    python -m tools.bench.planner_finds [--instances 200] [--evaluations 3000]

An instance is built backwards.  Every stage gets a random engine and a time there that loads the engine moderately, and
other times on the other engines, half of them shorter, which mislead a search for the fastest places.  The analysis of
this mapping under EDF or fixed priorities gives a bound for every chain; the bound plus 2 % becomes the deadline.
The list search under EDF alone, the planner before there was a portfolio, stands next to the default.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from random import Random
from typing import Any

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import judge
from socsched.planning.workload import Workload

PLATFORM, MODE = "jetson-agx-orin-64gb", "MAXN"
ENGINES = {"cpu": 1, "gpu": None}
WAYS = {"before": ("heft", "edf"), "portfolio": ("portfolio", "auto")}


def instance(seed: int) -> Pipeline | None:
    """Return a pipeline with a feasible mapping, None if the mapping drawn has no bounds."""
    draw = Random(seed)
    sensors, stages, chains, places = {}, {}, {}, {}
    for line in range(draw.randint(2, 4)):
        period = draw.choice((20, 40, 50, 100))
        sensors[f"s{line}"] = {
            "kind": "camera",
            "period": f"{period} ms",
            "bytes_per_frame": "1 MB",
            "assumed": "drawn",
        }
        path = [f"s{line}"]
        for number in range(draw.randint(2, 4)):
            name = f"t{line}{number}"
            places[name] = draw.choice(tuple(ENGINES))
            mine = period * draw.uniform(0.05, 0.35)
            times = {e: mine if e == places[name] else mine * draw.uniform(0.4, 2.0) for e in ENGINES}
            stages[name] = {
                "title": "drawn", "after": [path[-1]], "precisions": ["fp32"], "share": 1, "queue": 2,
                "output_bytes": "100 kB", "costs": [_cost(engine, value) for engine, value in times.items()],
            }  # fmt: skip
            path.append(name)
        chains[f"c{line}"] = {"path": path, "deadline": f"{10 * period} ms", "assumed": "drawn"}
    content: dict[str, Any] = {"schema_version": "1", "name": f"random-{seed}", "title": "drawn"}
    pipeline = pipeline_from_mapping({**content, "sensors": sensors, "stages": stages, "chains": chains}, "drawn")
    board = get_platform(PLATFORM)
    kinds = {engine.id: engine.kind for engine in board.engines}
    model = CostModel(board, board.mode(MODE), stage_work, None)
    workload = Workload.of(task_graph(pipeline), model, draw.choice(("edf", "fp")))
    found = judge(
        workload,
        {
            name: draw.choice([cost for cost in costs if kinds[cost.engine] == places[name]])
            for name, costs in workload.options().items()
        },
    )
    if found.verdict != "feasible":
        return None
    bounds = {chain.name: chain.bound_ns or 0 for chain in found.assessment.chains}
    chained = tuple(replace(chain, deadline_ns=round(bounds[chain.name] * 1.02)) for chain in pipeline.chains)
    return replace(pipeline, chains=chained)


def _cost(engine: str, milliseconds: float) -> dict[str, Any]:
    units = {"units": ENGINES[engine]} if ENGINES[engine] else {}
    time_ = {"value": f"{max(round(milliseconds * 1000), 1)} us", "kind": "assumed", "note": "drawn", "error": 0.1}
    return {"platform": PLATFORM, "mode": MODE, "engine": engine, "precision": "fp32", **units, "time": time_}


def main() -> None:
    """Print a line for every way to plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=3000)
    given = parser.parse_args()
    found, spent, seed, count = dict.fromkeys(WAYS, 0), dict.fromkeys(WAYS, 0.0), 0, 0
    while count < given.instances:
        pipeline, seed = instance(seed), seed + 1
        if pipeline is None:
            continue
        count += 1
        for way, (solver, policy) in WAYS.items():
            options = PlanOptions(
                solver=solver, policy=policy, evaluations=given.evaluations, explain=False, refine=False
            )
            started = time.process_time()
            found[way] += plan_with(pipeline, PLATFORM, MODE, options).verdict == "feasible"
            spent[way] += time.process_time() - started
    for way in WAYS:
        print(f"{way:10} {found[way]:4} of {count} ({found[way] / count:.1%}), {spent[way] / count:.2f} s CPU each")


if __name__ == "__main__":
    main()
