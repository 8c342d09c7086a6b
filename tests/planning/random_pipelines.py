"""Random pipelines near the limits of a platform: host code on some cores, small networks, chains."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.graph.taskgraph import task_graph
from socsched.planning.candidate import judge
from socsched.planning.feasibility.infeasible_plan import unmappable_stages
from socsched.planning.mapping.local_search import solve
from socsched.planning.plan import Plan
from socsched.planning.workload import Unconnectable, Workload

PLATFORMS = (("jetson-agx-orin-64gb", "MODE_30W"), ("rk3588", "performance"), ("qcs8550", "performance"))
"""Platforms, and the mode planned for."""
NETWORKS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("camera.detector", {"input_height": 64, "input_width": 96}, ("fp32", "fp16", "int8")),
    ("camera.detector", {"input_height": 160, "input_width": 256}, ("fp32", "fp16")),
    ("pointpillars.backbone", {}, ("fp32", "fp16")),
)
"""Model, params and data types of the networks that are drawn."""
_ANCHOR = {"platform": "jetson-agx-orin-64gb", "mode": "MAXN", "precision": "fp32"}


def random_pipeline(draw: Random, networks: bool = True) -> dict[str, Any]:
    """Return a pipeline as file content: one or two sensors, a line of stages each, sometimes joined by a stage."""
    period = draw.choice((20, 25, 50, 100))
    lines = draw.randint(1, 2)
    sensors = {
        f"s{line}": {"kind": "camera", "period": f"{period} ms", "bytes_per_frame": "1 MB", "assumed": "drawn"}
        for line in range(lines)
    }
    stages: dict[str, Any] = {}
    chains: dict[str, Any] = {}
    ends = []
    for line in range(lines):
        path = [f"s{line}"]
        for number in range(draw.randint(1, 3)):
            name = f"t{line}{number}"
            stages[name] = _stage(draw, period, networks) | {"title": "drawn", "after": [path[-1]]}
            path.append(name)
        ends.append(path)
    if lines == 2 and draw.random() < 0.7:
        stages["join"] = _code(draw, period) | {"title": "drawn", "after": [path[-1] for path in ends]}
        ends = [[*path, "join"] for path in ends]
    if draw.random() < 0.4:
        stages["watch"] = _code(draw, period) | {
            "title": "drawn",
            "period": f"{draw.choice((period, 2 * period))} ms",
            "reads": [ends[0][-1]],
        }
    factor = draw.choice((0.15, 0.25, 0.35, 0.5, 0.7, 1.0)) * draw.uniform(0.8, 1.2)
    for line, path in enumerate(ends):
        deadline = f"{max(round(period * factor * 1000), 1)} us"
        chains[f"c{line}"] = {"path": path, "deadline": deadline, "assumed": "drawn"}
    return {
        "schema_version": "1",
        "name": "drawn",
        "title": "drawn",
        "sensors": sensors,
        "stages": stages,
        "chains": chains,
    }


def _stage(draw: Random, period: int, networks: bool) -> dict[str, Any]:
    if not networks or draw.random() < 0.6:
        return _code(draw, period)
    model, params, precisions = draw.choice(NETWORKS)
    return {"model": model, "params": params, "precisions": list(precisions)}


def _code(draw: Random, period: int) -> dict[str, Any]:
    """Return host code that takes 2 % to 60 % of a period on one core, and may use several or a GPU."""
    time = period * 1000 * draw.choice((0.02, 0.05, 0.1, 0.2, 0.4, 0.6)) * draw.uniform(0.8, 1.2)
    made: dict[str, Any] = {
        "precisions": ["fp32"],
        "assumed": "drawn",
        "output_bytes": "64 kB",
        "costs": [_ANCHOR | {"engine": "cpu", "units": 1, "time": _time(time)}],
    }
    if draw.random() < 0.3:
        made["costs"].append(_ANCHOR | {"engine": "gpu", "time": _time(time * draw.uniform(0.1, 1.5))})
    if draw.random() < 0.4:
        made["share"] = draw.choice((1, 2))
    if draw.random() < 0.3:
        made["queue"] = 2
    return made


def _time(us: float) -> dict[str, Any]:
    return {"value": f"{max(round(us), 1)} us", "kind": "assumed", "note": "drawn", "error": 0.5}


def load(draw: Random, networks: bool = True) -> Pipeline:
    """Return a drawn pipeline, checked as one from a file is."""
    return pipeline_from_mapping(random_pipeline(draw, networks), "drawn.yaml")


def feasible_neighbour(plan: Plan, pipeline: Pipeline, model: CostModel) -> str:
    """Return a change that makes an infeasible plan feasible: a stage pinned, with another share, or moved."""
    for stage in pipeline.stages:
        changes: list[dict[str, Any]] = [{"engines": (engine.id,)} for engine in plan.engines]
        changes += [{"share": share} for share in (1, 2, 3, 4) if not stage.share or share < stage.share]
        for change in changes:
            if _feasible(_changed(pipeline, stage.name, change), model, plan.policy):
                return f"{stage.name} with {change}"
    return _moved(plan, pipeline, model)


def _changed(pipeline: Pipeline, name: str, change: dict[str, Any]) -> Pipeline:
    return replace(pipeline, stages=tuple(replace(s, **change) if s.name == name else s for s in pipeline.stages))


def _feasible(pipeline: Pipeline, model: CostModel, policy: str) -> bool:
    graph = task_graph(pipeline)
    if unmappable_stages(graph, model):
        return False
    return solve(Workload.of(graph, model, policy), ("latency",), 40).candidate.verdict == "feasible"


def _moved(plan: Plan, pipeline: Pipeline, model: CostModel) -> str:
    workload = Workload.of(task_graph(pipeline), model, plan.policy)
    options, places = workload.options(), {task.name: task for task in plan.tasks}
    if not all(name in places for name in options):
        return ""  # networks are cut: moves of parts are the search's own
    here = {
        name: next(c for c in costs if (c.engine, c.precision) == (places[name].engine, places[name].precision))
        for name, costs in options.items()
    }
    for name, costs in options.items():
        for cost in costs:
            try:
                if judge(workload, {**here, name: cost}).verdict == "feasible":
                    return f"{name} on {cost.engine} {cost.precision} x{cost.share}"
            except Unconnectable:
                continue
    return ""
