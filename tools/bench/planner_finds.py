"""Print for how many random instances with a known feasible mapping the planner finds a feasible plan.

    python -m tools.bench.planner_finds [--instances 200] [--evaluations 3000] [--stages 64 --load 0.85 [--seed 0]]

An instance is built backwards.  Every stage gets a random engine and a time there that loads the engine moderately, and
other times on the other engines, half of them shorter, which mislead a search for the fastest places.  The analysis of
this mapping under EDF or fixed priorities gives a bound for every chain; the bound plus 2 % becomes the deadline.
The list search under EDF alone, the planner before there was a portfolio, stands next to the default.  With `--stages`
there are so many, in lines of eight, and every lane of the planted mapping is loaded by `--load`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
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
LANES, SHARE, LINE, QUEUE = 12, 0.7, 8, 12
"""Cores; of large instances: the share of the stages planted on them, stages of a line, and frames that may wait."""
PERIODS_MS = (20, 40, 50, 100)
WAYS = {"before": ("heft", "edf"), "portfolio": ("portfolio", "auto")}


@dataclass(frozen=True, slots=True)
class Line:
    """Stages that follow each other, at one period."""

    period_ms: int
    stages: tuple[str, ...]


def _lines(draw: Random, stages: int) -> list[Line]:
    if not stages:
        return [
            Line(draw.choice(PERIODS_MS), tuple(f"t{line}{n}" for n in range(draw.randint(2, 4))))
            for line in range(draw.randint(2, 4))
        ]
    names = [f"t{n // LINE}_{n % LINE}" for n in range(stages)]
    return [Line(draw.choice(PERIODS_MS), tuple(names[n : n + LINE])) for n in range(0, stages, LINE)]


def instance(seed: int, stages: int = 0, load: float = 0.0) -> tuple[Pipeline, str] | None:
    """Return a pipeline with a feasible mapping and the policy of that, None if the mapping drawn has no bounds."""
    draw = Random(seed)
    lines = _lines(draw, stages)
    places = {name: draw.choices(tuple(ENGINES), (SHARE, 1 - SHARE) if stages else (1, 1))[0]
              for line in lines for name in line.stages}  # fmt: skip
    used = {name: draw.uniform(0.05, 0.35) for name in places}
    if stages:
        lanes = {"cpu": LANES, "gpu": 1}
        total = {e: sum(used[name] for name in places if places[name] == e) or 1.0 for e in ENGINES}
        used = {name: used[name] * load * lanes[e] / total[e] for name, e in places.items()}
    sensors: dict[str, Any] = {}
    described: dict[str, Any] = {}
    chains: dict[str, Any] = {}
    for number, line in enumerate(lines):
        sensor, period = f"s{number}", line.period_ms
        sensors[sensor] = {"kind": "camera", "period": f"{period} ms", "bytes_per_frame": "1 MB", "assumed": "drawn"}
        path = [sensor]
        for name in line.stages:
            mine = period * used[name]
            times = {e: mine if e == places[name] else mine * draw.uniform(0.4, 2.0) for e in ENGINES}
            described[name] = {
                "title": "drawn", "after": [path[-1]], "precisions": ["fp32"], "share": 1,
                "queue": QUEUE if stages else 2, "output_bytes": "100 kB",
                "costs": [_cost(engine, value) for engine, value in times.items()],
            }  # fmt: skip
            path.append(name)
        chains[f"c{number}"] = {"path": path, "deadline": f"{10 * period} ms", "assumed": "drawn"}
    content: dict[str, Any] = {"schema_version": "1", "name": f"random-{seed}", "title": "drawn"}
    pipeline = pipeline_from_mapping({**content, "sensors": sensors, "stages": described, "chains": chains}, "drawn")
    board = get_platform(PLATFORM)
    kinds = {engine.id: engine.kind for engine in board.engines}
    model = CostModel(board, board.mode(MODE), stage_work, None)
    policy = draw.choice(("edf", "fp"))
    workload = Workload.of(task_graph(pipeline), model, policy)
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
    return replace(pipeline, chains=chained), policy


def _cost(engine: str, milliseconds: float) -> dict[str, Any]:
    units = {"units": ENGINES[engine]} if ENGINES[engine] else {}
    time_ = {"value": f"{max(round(milliseconds * 1000), 1)} us", "kind": "assumed", "note": "drawn", "error": 0.1}
    return {"platform": PLATFORM, "mode": MODE, "engine": engine, "precision": "fp32", **units, "time": time_}


def main() -> None:
    """Print a line for every way to plan."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=3000)
    parser.add_argument("--stages", type=int, default=0)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--seed", type=int, default=0, help="of the first instance")
    parser.add_argument("--limit", type=float, help="seconds of a search")
    given = parser.parse_args()
    ways = {"default": ("portfolio", "auto")} if given.stages else WAYS
    found, spent, seed, count = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0), given.seed, 0
    while count < given.instances:
        drawn, seed = instance(seed, given.stages, given.load), seed + 1
        if drawn is None:
            continue
        count += 1
        for way, (solver, policy) in ways.items():
            options = PlanOptions(
                solver=solver,
                policy=policy,
                evaluations=given.evaluations,
                explain=False,
                refine=False,
                time_limit=given.limit,
            )
            started = time.process_time()
            plan = plan_with(drawn[0], PLATFORM, MODE, options)
            took = time.process_time() - started
            found[way] += plan.verdict == "feasible"
            spent[way] += took
            if given.stages:
                excess = sum(v.gap / max(v.bound, 1) for v in plan.violations)
                print(f"seed {seed - 1}, planted under {drawn[1]}: {plan.verdict}, {plan.solver.evaluated} mappings, "
                      f"{took:.1f} s, {excess:.2f} over in {len(plan.violations)} requirements",
                      flush=True)  # fmt: skip
    for way in ways:
        print(f"{way:10} {found[way]:4} of {count} ({found[way] / count:.1%}), {spent[way] / count:.2f} s CPU each")


if __name__ == "__main__":
    main()
