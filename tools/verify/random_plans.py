"""Random pipelines on small random platforms, as people write them: YAML text, planned by socsched's own planner.

A `Case` is plain data, so that a case which shows a fault can be shrunk attribute by attribute and printed as files.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import yaml

from socsched.cost.cost import Segment
from socsched.cost.model import CostModel
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform_file import platform_from_mapping
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import judge, score
from socsched.planning.mapping.local_search import Improved, Solution, initial_mapping
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.planning.plan_writer import write_plan
from socsched.planning.workload import Workload

Json = dict[str, Any]
PERIODS_US = (5_000, 8_000, 10_000, 12_000, 20_000, 30_000, 33_333, 50_000)
THEMES = ("anything", "levels", "joins", "engines")
"""What is drawn more often than elsewhere: rare combinations would else take very many cases."""
CONVERSIONS = "conversions"
"""Key of the edits that insert conversions, which the planner does between stages whose models differ in format."""
EDITED = 0.2
"""Share of plans that are changed after planning, as a plan.json may be."""
MS = 10**6


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn board, a pipeline as the content of its file, the policy, and changes to the plan.

    `mapping`: the seed of a random mapping, None for the planner's list schedule.
    `edits`: for an engine, sensor or task of the plan, by name, values of its fields.
    """

    board: Json
    pipeline: Json
    policy: str
    mapping: int | None = None
    edits: Mapping[str, Json] = field(default_factory=dict)

    def text(self) -> str:
        """Return the case as YAML documents."""
        documents: list[Json] = [
            {"policy": self.policy, "mapping": self.mapping, "edits": dict(self.edits), "board": self.board},
            self.pipeline,
        ]
        return yaml.safe_dump_all(documents, sort_keys=False, width=160, default_flow_style=None)

    @staticmethod
    def of(text: str) -> Case:
        """Return the case of the YAML documents of `text`."""
        how, pipeline = yaml.safe_load_all(text)
        return Case(how["board"], pipeline, how["policy"], how["mapping"], how["edits"])


def make_plan(case: Case) -> Plan:
    """Return the plan of a case: the list schedule, without a search for a better one, or the mapping of a seed."""
    workload = case_workload(case)
    mapping = initial_mapping(workload)
    if case.mapping is not None:
        draw = Random(case.mapping)
        mapping = {name: draw.choice(costs) for name, costs in workload.options().items()}
    candidate = judge(workload, mapping, case.mapping is None)
    found = score(candidate, ("latency",))
    solution = Solution(candidate, Improved(mapping, found, 1, True), found)
    plan = write_plan(solution, (solution,), ("latency",), None, workload.graph.pipeline)
    return edited(plan, case.edits)


def case_workload(case: Case) -> Workload:
    """Return the workload of a case."""
    platform = platform_from_mapping(platform_file(case.board), "platform.yaml")
    model = CostModel(platform, platform.mode("M"), stage_work, None)
    return Workload.of(task_graph(pipeline_from_mapping(case.pipeline, "pipeline.yaml")), model, case.policy)


def edited(plan: Plan, edits: Mapping[str, Json]) -> Plan:
    """Return a plan with values of fields of its engines, sensors and tasks replaced, by name; undecided then."""
    if not edits:
        return plan

    plan = _converted(plan, edits.get(CONVERSIONS, {}))

    def new(row: Any, name: str) -> Any:
        values = {key: value for key, value in edits.get(name, {}).items() if hasattr(row, key)}
        if "times" in values:
            values["times"] = ExecutionTimes(tuple(values["times"]))
        if "lanes" in values and isinstance(row, Task):
            values["lanes"] = tuple(values["lanes"])
        return replace(row, **values)

    chains = tuple(replace(chain, bound_ns=None, expected_ns=0) for chain in plan.chains)
    return replace(
        plan,
        verdict="undecided",
        chains=chains,
        engines=tuple(new(engine, engine.id) for engine in plan.engines),
        sensors=tuple(new(sensor, sensor.name) for sensor in plan.sensors),
        tasks=tuple(new(task, task.name) for task in plan.tasks),
    )


def _converted(plan: Plan, times: Mapping[str, int]) -> Plan:
    """Return a plan in which outputs are converted before they are used: time (ns) by ``producer>consumer``."""
    tasks = {task.name: task for task in plan.tasks}
    for name, time in times.items():
        source, sink = (tasks[end] for end in name.split(">"))
        tasks[name] = replace(
            source, name=name, kind="conversion", after=(source.name,), reads=(), timer=False, offset_ns=0,
            release_jitter_ns=0, lanes=source.lanes[:1], cost_ns=time, wcet_ns=time, bytes=0, times=None, degraded=(),
            segments=(Segment(name, time, 0, 0),), priority=len(tasks), on_late="continue", high_ns=0,
            criticality=sink.criticality, queue=max(source.queue, sink.queue), overflow="newest",
        )  # fmt: skip
        after, reads = (tuple(name if n == source.name else n for n in names) for names in (sink.after, sink.reads))
        tasks[sink.name] = replace(sink, after=after, reads=reads)
    return replace(plan, tasks=tuple(tasks.values()))


def _edits(draw: Random, case: Case) -> dict[str, Json]:
    """Return values that the planner does not write, of fields of plan.json that the analysis claims to cover."""
    sensors, stages = case.pipeline["sensors"], case.pipeline["stages"]
    found: dict[str, Json] = {}
    timers = [name for name, stage in stages.items() if "period" in stage]
    ranks = list(range(len(stages)))
    draw.shuffle(ranks)
    for name, rank in zip(stages, ranks, strict=True):
        row: Json = {"priority": rank}
        if draw.random() < 0.3:
            row["deadline_ns"] = draw.randint(1, 60) * MS
        if draw.random() < 0.2:
            row["queue"] = draw.choice((1, 3, 8))
        if draw.random() < 0.2:
            row["on_late"] = draw.choice(("skip", "abort"))
        if draw.random() < 0.2:
            row["weights_bytes"] = draw.choice((1000, 10**6))
        if draw.random() < 0.15:
            row["wcet_ns"] = 1
        if draw.random() < 0.15 and "high" not in stages[name]:
            row["times"] = sorted(draw.randint(1, 6 * MS) for _ in range(3))
        if name in timers and draw.random() < 0.3:
            row["release_jitter_ns"] = draw.randint(0, 25 * MS)
        if name in timers and draw.random() < 0.3:
            row["gap_ns"] = draw.randint(0, 40 * MS)
        if name in timers and draw.random() < 0.2:
            row["closed_by"] = name
        found[name] = row
    for name in sensors:
        if draw.random() < 0.3:
            found[name] = {"jitter_ns": draw.randint(0, 25 * MS), "gap_ns": draw.choice((0, draw.randint(0, 40 * MS)))}
    for name, engine in case.board["engines"].items():
        row = {"switch_ns": draw.choice((0, 100_000)), "reshape_ns": draw.choice((0, 0, 50_000))}
        row |= {"migration_ns": draw.choice((0, 0, 50_000)), "reset_ns": draw.choice((0, 100_000))}
        row |= {"in_flight": draw.choice((1, 2, 4)), "preemption": draw.choice(("full", "segment", "none", "restart"))}
        if draw.random() < 0.4:
            row |= {"memory_bytes": draw.choice((1, 10**6)), "swap_bandwidth": draw.choice((0, 10**9, 10**10))}
        if engine["units"] == 1 and draw.random() < 0.1:
            row["linger_ns"] = MS
        found[name] = row
    kept = draw.sample(list(found), draw.randint(1, len(found)))
    links = [(n, name) for name, stage in stages.items() for n in (*stage.get("after", ()), *stage.get("reads", ()))]
    handed = [f"{one}>{other}" for one, other in dict.fromkeys(links) if one in stages and draw.random() < 0.3]
    if handed:
        found[CONVERSIONS] = {name: draw.randint(1, 20) * MS // 10 for name in handed}
        kept.append(CONVERSIONS)
    return {name: found[name] for name in found if name in kept or ("priority" in found[name] and case.policy == "fp")}


def draw_case(seed: int | str) -> Case:
    """Return the case of a seed."""
    draw = Random(f"plan/{seed}")
    theme = draw.choice(THEMES)
    board = _board(draw, theme)
    policy = draw.choice(("edf", "fp"))
    mapping = draw.randrange(100) if draw.random() < 0.5 else None
    case = Case(board, _pipeline(draw, board, theme), policy, mapping)
    return replace(case, edits=_edits(draw, case)) if draw.random() < EDITED else case


def _figure(value: str | int | float) -> Json:
    return {"value": value, "kind": "assumed", "note": "drawn"}


def platform_file(board: Json) -> Json:
    """Return the content of the platform file of a drawn board: what is drawn, and placeholders for the rest."""
    engines, units = {}, {}
    for name, drawn in board["engines"].items():
        preemption = {key: _figure(v) if key in _FIGURES else v for key, v in drawn["preemption"].items()}
        if preemption["kind"] == "segment":
            preemption["segment"] = "kernel"
        cpu = name == "cpu"
        engines[name] = {
            "kind": name, "title": "drawn", "unit": "core", "shares": "unit" if cpu else "whole", "assumed": "drawn",
            "units": drawn["units"], "clock": _figure("1 GHz"), "bandwidth": _figure(drawn["bandwidth"]),
            "precisions": {
                "fp32": {"ops_per_cycle": _figure(8), "layout": "NCHW", "efficiency": {"default": _figure(0.2)}}
            },
            "preemption": preemption, "launch": _figure("0 us"), "submit": _figure("0 us"),
            "handoff": _figure(drawn.get("handoff", "0 us")), "converts": cpu, "idle": _figure("100 mW"),
            "dynamic": _figure("1 W"), "operators": {"host_code": cpu}, "target": {"kind": "llvm"},
        }  # fmt: skip
        if "reconfigure" in drawn:
            engines[name]["reconfigure"] = _figure(drawn["reconfigure"])
        if "capacities" in drawn:
            engines[name]["capacities"] = drawn["capacities"]
        units[name] = {"units": drawn["units"], "clock": "1 GHz"}
    dram = {"size": "8 GiB", "peak": "200 GB/s", "achievable": board["dram"], "energy": "40 pJ/B"}
    memory: Json = {key: _figure(value) for key, value in dram.items()}
    if "contention" in board:
        factors = {"error": 0.03, **board["contention"]}
        memory["contention"] = {"model": "pairwise", "assumed": "drawn", "parameters": factors}
    mode = {"name": "M", "id": 0, "default": True, "assumed": "drawn", "base": _figure("1 W"), "engines": units}
    return {
        "schema_version": "1", "name": "drawn", "title": "drawn", "vendor": "drawn",
        "dram": memory, "thermal": {"throttle": _figure("95 C")},
        "engines": engines, "modes": [{**mode, "dram": _figure("200 GB/s")}],
    }  # fmt: skip


_FIGURES = ("cost", "reset", "migration")


def _board(draw: Random, theme: str) -> Json:
    """Return a board: cores, and up to two accelerators that are preempted in some other way, or not at all."""
    engines = {"cpu": _engine(draw, "cpu", draw.choice((1, 1, 2, 3)), draw.choice(("full", "full", "full", "none")))}
    for name in ("gpu", "npu")[: 1 if theme == "engines" else draw.choice((0, 1, 1, 2))]:
        engines[name] = _engine(draw, name, 1, draw.choice(("segment", "segment", "none", "restart", "restart")))
    board: Json = {"dram": draw.choice(("2 GB/s", "4 GB/s", "100 GB/s")), "engines": engines}
    if draw.random() < 0.15:
        board["contention"] = {one: {other: draw.choice((1.05, 1.4)) for other in engines} for one in engines}
    return board


def _engine(draw: Random, name: str, units: int, preemption: str) -> Json:
    how: Json = {"kind": preemption, "cost": draw.choice(("0 us", "5 us", "40 us"))}
    if preemption == "segment":
        how["in_flight"] = draw.choice((1, 1, 2, 3))
    if preemption == "restart":
        how["reset"] = draw.choice(("1 us", "30 us", "300 us"))
    if units > 1 and draw.random() < 0.3:
        how["migration"] = "20 us"
    engine: Json = {"units": units, "bandwidth": draw.choice(("2 GB/s", "8 GB/s")), "preemption": how}
    if draw.random() < 0.3:
        engine["handoff"] = "15 us"
    if name == "cpu" and units > 1:
        if draw.random() < 0.2:
            engine["reconfigure"] = "25 us"
        if draw.random() < 0.2:
            engine["capacities"] = [1024] * (units - 1) + [draw.choice((300, 700))]
    return engine


def _us(value: float) -> str:
    return f"{max(round(value), 1)} us"


def _offset(draw: Random, period: int) -> Json:
    """Return an offset on either side of the period (us), most often none."""
    kind = draw.random()
    if kind < 0.5:
        return {}
    return {"offset": _us(draw.uniform(0, period) if kind < 0.85 else draw.uniform(period, 5 * period))}


def _pipeline(draw: Random, board: Json, theme: str) -> Json:
    palette = draw.sample(PERIODS_US, 1 if theme == "joins" else draw.choice((1, 2, 2, 3)))
    levels = theme == "levels" or draw.random() < 0.3
    traffic = draw.random() < 0.5
    load = draw.uniform(0.1, 0.5 if levels else 0.9) * len(board["engines"])
    apart = theme == "levels" and draw.random() < 0.2  # a classic set of mixed criticality: timers on cores
    count = draw.randint(2 if levels else 1, 7)
    sensors: Json = {}
    periods: dict[str, int] = {}
    source_of: dict[str, str] = {}
    for number in range(draw.randint(1, 3)):
        name = f"s{number}"
        periods[name] = period = draw.choice(palette)
        sensors[name] = {"kind": "camera", "period": _us(period), "assumed": "drawn", **_offset(draw, period)}
        if draw.random() < 0.35:
            sensors[name]["jitter"] = _us(draw.choice((0.05, 0.3, 0.9)) * period)
        source_of[name] = ""
        if draw.random() < 0.15:
            sensors[name]["sporadic"] = _us(draw.uniform(0.1, 2) * period)
            source_of[name] = name
        if traffic and draw.random() < 0.5:
            sensors[name]["bytes_per_frame"] = f"{draw.choice((1, 100))} kB"
    stages: Json = {}
    for number in range(count):
        name = f"t{number}"
        stage: Json = {"title": "drawn"}
        known = [*sensors, *stages]
        if apart or draw.random() < (0.1 if theme == "joins" else 0.28):
            periods[name] = period = draw.choice((*palette, draw.choice(PERIODS_US)))
            stage |= {"period": _us(period), **_offset(draw, period)}
            if not apart and draw.random() < 0.3:
                stage["jitter"] = _us(draw.choice((0.05, 0.3, 0.8)) * period)
            source_of[name] = ""
            if draw.random() < 0.85:
                stage["reads"] = draw.sample(known, min(draw.choice((1, 1, 2)), len(known)))
        else:
            first = draw.choice(known)
            alike = [n for n in known if (periods[n], source_of[n]) == (periods[first], source_of[first])]
            same = [n for n in alike if n != first]
            more = draw.choice((0, 1, 1, 2) if theme in ("joins", "levels") else (0, 0, 0, 1, 1, 2))
            stage["after"] = [first, *draw.sample(same, min(more, len(same)))]
            periods[name] = period = periods[first]
            source_of[name] = source_of[first]
            others = [n for n in known if n not in stage["after"]]
            if others and draw.random() < 0.15:
                stage["reads"] = [draw.choice(others)]
        stage["criticality"] = draw.choice(("hard", "hard", "hard", "firm", "soft")) if levels else "firm"
        if stage["criticality"] == "hard" and draw.random() < 0.5:
            stage["high"] = round(draw.uniform(1.02, draw.choice((1.5, 3.0))), 2)
        stage |= _treatment(draw, levels)
        stage["costs"] = _costs(draw, board, period, load / count, "apart" if apart else theme)
        stage["share"] = draw.choice((1, 1, 1, 0))
        if traffic:
            time = float(stage["costs"][0]["time"]["value"].split()[0])
            stage["output_bytes"] = f"{max(round(time * draw.choice((0, 0.2, 1, 2))), 0)} kB"
        stages[name] = stage
    chains = _chains(draw, sensors, stages, periods, levels)
    for chain in chains.values():
        if levels and draw.random() < 0.6:  # a hard chain: its stages are hard, what else triggers them need not be
            stages |= {name: {**stages[name], "criticality": "hard"} for name in chain["path"] if name in stages}
    return {
        "schema_version": "1", "name": "drawn", "title": "drawn",
        "sensors": sensors, "stages": stages, "chains": chains,
    }  # fmt: skip


def _treatment(draw: Random, levels: bool) -> Json:
    """Return queue, overflow, treatment of late jobs and execution times of a stage."""
    found: Json = {"queue": draw.choice((1, 2, 4))}
    if draw.random() < 0.15:
        found["overflow"] = "oldest"
    if draw.random() < 0.2:
        found["on_late"] = draw.choice(("skip", "abort", "degrade"))
        if found["on_late"] == "degrade":
            found["degraded"] = {"cost": 0.4}
    if draw.random() < 0.15:
        found["execution"] = {"uniform": [0.2, 1.0 if levels else draw.choice((1.0, 1.3))], "assumed": "drawn"}
    return found


def _costs(draw: Random, board: Json, period: int, share: float, theme: str) -> list[Json]:
    found = []
    names = list(board["engines"])
    if theme == "engines" and draw.random() < 0.8:
        names = names[1:]
    if theme == "apart":
        names = names[:1]
    for engine in draw.sample(names, draw.randint(1, len(names))):
        time = period * share * draw.uniform(0.3, 1.5)
        units = board["engines"][engine]["units"]
        for number in (1, units) if units > 1 else (1,):
            row: Json = {"platform": "drawn", "mode": "M", "engine": engine, "precision": "fp32"}
            row |= {"units": number} if engine == "cpu" else {}
            row["time"] = _figure(_us(time if number < 2 else time * 0.7)) | {"error": 0.1}
            if board["engines"][engine]["preemption"]["kind"] == "segment" and draw.random() < 0.8:
                row["slice"] = _us(time / draw.choice((2, 3, 7)))
            found.append(row)
    return found


def _chains(draw: Random, sensors: Json, stages: Json, periods: Mapping[str, int], levels: bool) -> Json:
    chains: Json = {}
    for number in range(draw.randint(1, 3)):
        path = [draw.choice(list(stages))]
        while path[0] in stages:
            inputs = [*stages[path[0]].get("after", ()), *stages[path[0]].get("reads", ())]
            timer = "period" in stages[path[0]]
            if timer and (not inputs or draw.random() < 0.15):
                break
            path.insert(0, draw.choice([name for name in inputs if name not in path]))
        if path in [chain["path"] for chain in chains.values()]:
            continue
        span = sum(periods[name] for name in path)
        room = draw.choice((1, 2, 6))
        chain = {"path": path, "deadline": _us(span * draw.uniform(0.5, 1) * room), "assumed": "drawn"}
        if draw.random() < 0.4:
            chain["max_age"] = _us(span * draw.uniform(0.5, 1) * room)
        if levels and draw.random() < 0.6:
            chain["criticality"] = "hard"
        chains[f"c{number}"] = chain
    return chains


def dropped(case: Case, section: str, name: str) -> Case | None:
    """Return a case without a sensor, stage or chain, None if others need it."""
    pipeline = deepcopy(case.pipeline)
    rows = pipeline[section]
    del rows[name]
    if section != "chains":
        for stage in pipeline["stages"].values():
            for key in ("after", "reads"):
                if name in stage.get(key, ()):
                    stage[key] = [other for other in stage[key] if other != name]
                    if not stage[key]:
                        del stage[key]
            if "after" not in stage and "period" not in stage:
                return None
        for chain in [*pipeline["chains"]]:
            if name in pipeline["chains"][chain]["path"]:
                del pipeline["chains"][chain]
    return replace(case, pipeline=pipeline) if pipeline["stages"] else None
