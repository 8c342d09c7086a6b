"""Print what planning and analysis of pipelines of many small stages cost, and the exponent with which that grows.

    python -m tools.bench.scale [--sizes 16,32,64,128,256] [--families chains,random,fan,one,eight]
                                [--policies edf,fp] [--what analyze,assess,plan,budgets,limits] [--limit 520]
    python -m tools.bench.scale --what traces [--jobs 100000,1000000,10000000] [--spread 0.4] [--limit 520]
    python -m tools.bench.scale --what sets [--tasks 1000]

chains: lines of eight stages; random: graphs in which a stage waits for one to three others; fan: graphs that split in
four and join again; all on jetson-agx-orin-64gb in MAXN, two thirds of the stages with a time on the GPU too. one and
eight: lines of eight stages on a board of one core, and on one of eight engines. `analyze`: seconds of the verb on the
plan of the list schedule; `assess`: milliseconds of judging a mapping in which one stage moved, by its score, with what
explains it, and thoroughly; `plan`: seconds of the verb, mappings judged and the verdict; `budgets`: values by
evaluations, the least twice, and whether more are worse or the same ones differ; `limits`: wall seconds of `plan`
within the limits LIMITS_S (s), and processor seconds after each, whatever else runs. `line`: one chain of all stages;
`awkward`: `chains` with periods in whole µs whose hyperperiod is beyond 10^12 ns; `planted`: full engines, of which one
mapping is known (`tools.bench.planner_finds`). `traces`: processor seconds, memory and bytes a job of every verb that
writes or reads a long trace, of 256 stages in chains; with `--spread`, that part of execution times is drawn, and
releases jitter. `sets`: processor seconds of all tests that apply to a task set of implicit deadlines, on one
processor, on eight that tasks are bound to, and on eight that they share, at two loads a processor; of sets of up to 64
tasks also those of many at once (`analyze_many`), a set. Every row has a process of its own, whose greatest memory is
that of the row; a row that takes longer than `--limit` seconds is left out.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing as mp
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

from socsched.api.analysis import analyze
from socsched.api.batches import analyze_many
from socsched.api.loading import load_taskset
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform import Dram, Engine, EngineMode, Figure, Platform, PowerMode, Precision, Preemption
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import judge, make_improvement_test, score
from socsched.planning.clock import FACTOR, LEAST
from socsched.planning.io import save
from socsched.planning.mapping.local_search import Improved, Solution, initial_mapping
from socsched.planning.plan import ExecutionTimes, Plan
from socsched.planning.plan_writer import write_plan
from socsched.planning.workload import Workload
from socsched_literature.studies.acceptance import uunifast
from tools.bench.planner_finds import instance as planted

PERIODS_MS = (20, 40, 50, 100)
LINE = 8
"""Stages of a chain."""
LOAD = 0.35
"""Mean utilisation of the lanes of a board, had all stages the times of its first engine."""
ORIN, MODE = "jetson-agx-orin-64gb", "MAXN"
Row = dict[str, float | str]


def board(count: int) -> Platform:
    """Return a board of `count` engines of one core each."""
    nothing, names = Figure(0, "measured"), [f"core{number}" for number in range(count)]

    def engine(name: str) -> Engine:
        return Engine(
            id=name, kind="cpu", title=name, units=1, unit="core", shares="whole", clock_hz=Figure(1e9, "measured"),
            precisions={"fp32": Precision("fp32", Figure(16, "measured"), "NCHW", {"default": Figure(1, "measured")})},
            bandwidth=Figure(50e9, "measured"), sram=None, preemption=Preemption("full", Figure(2_000, "measured"), ""),
            launch_ns=nothing, submit_ns=nothing, handoff_ns=nothing, converts=True,
            operators=OperatorRules(host_code=True), idle_mw=nothing, dynamic_mw=nothing, target={"kind": "llvm"},
        )  # fmt: skip

    engines = tuple(map(engine, names))
    modes = {name: EngineMode(1, 10**9, nothing) for name in names}
    mode = PowerMode(MODE, (), 0, True, None, nothing, Figure(100e9, "measured"), modes)
    memory = Dram(Figure(100e9, "measured"), Figure(100e9, "measured"), Figure(2**36, "measured"), nothing)
    return Platform(f"cores{count}", "bench", "none", engines, memory, (mode,), {})


def edges(family: str, count: int, draw: Random) -> list[list[int]]:
    """Return the numbers of the stages that each stage waits for; none: for a sensor."""
    if family == "random":
        return [sorted(draw.sample(range(max(n - 12, n // 48 * 48), n), min(draw.choice((1, 1, 2, 3)), n % 48)))
                for n in range(count)]  # fmt: skip
    if family == "fan":  # one, four, one, four ...: every ten stages split and join twice
        before: list[list[int]] = []
        for n in range(count):
            place, first = n % 10, n - n % 10
            before.append({0: [], 5: list(range(first + 1, first + 5))}.get(place, [first if place < 5 else first + 5]))
        return before
    return [[n - 1] if n % LINE else [] for n in range(count)]


def pipeline(family: str, count: int, platform: Platform, seed: int = 0) -> Pipeline:
    """Return a pipeline of `count` stages of a family, with times on the engines of a platform."""
    draw = Random(f"{family} {count} {seed}")
    lanes = sum(state.units if platform.engine(name).shares == "unit" else 1
                for name, state in platform.mode(MODE).engines.items()
                if state.units and platform.engine(name).operators.host_code)  # fmt: skip
    shares = [draw.uniform(0.3, 1.7) * LOAD * lanes / count for _ in range(count)]
    before = edges(family, count, draw)
    sensors: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    chains: dict[str, Any] = {}
    periods, paths = list[int](), list[list[str]]()
    for n, sources in enumerate(before):
        name = f"t{n}"
        if not sources:
            period, sensor = draw.choice(PERIODS_MS), f"s{n}"
            sensors[sensor] = {"kind": "any", "period": f"{period} ms", "bytes_per_frame": "10 kB", "assumed": "drawn"}
            path = [sensor, name]
        else:
            period, path = periods[sources[0]], [*max((paths[m] for m in sources), key=len), name]
        periods.append(period)
        paths.append(path)
        stages[name] = {
            "title": "drawn", "after": [f"t{m}" for m in sources] or [sensor], "precisions": ["fp32"], "share": 1,
            "queue": 8, "output_bytes": "10 kB", "costs": _costs(platform, draw, shares[n] * period * 1000),
        }  # fmt: skip
    waited = {m for sources in before for m in sources}
    for n in range(count):
        if n not in waited:
            chains[f"c{n}"] = {"path": paths[n], "deadline": f"{8 * periods[n]} ms", "assumed": "drawn"}
    content: dict[str, Any] = {"schema_version": "1", "name": f"{family}-{count}", "title": "drawn"}
    return pipeline_from_mapping({**content, "sensors": sensors, "stages": stages, "chains": chains}, "drawn")


def line(count: int) -> Pipeline:
    """Return one chain of `count` short stages, all on one core."""
    stages: dict[str, Any] = {
        f"t{n}": {
            "title": "drawn", "after": [f"t{n - 1}" if n else "s"], "precisions": ["fp32"], "share": 1, "queue": 2,
            "output_bytes": "1 kB", "costs": _costs(board(1), Random(n), 100.0),
        }
        for n in range(count)
    }  # fmt: skip
    for stage in stages.values():
        stage["costs"] = [{**cost, "platform": ORIN, "engine": "cpu", "units": 1} for cost in stage["costs"]]
    chain = {"path": ["s", *stages], "deadline": "1 s", "assumed": "drawn"}
    sensor = {"kind": "any", "period": "1 s", "bytes_per_frame": "1 kB", "assumed": "drawn"}
    content: dict[str, Any] = {
        "schema_version": "1",
        "name": f"line-{count}",
        "title": "drawn",
        "sensors": {"s": sensor},
    }
    return pipeline_from_mapping({**content, "stages": stages, "chains": {"c": chain}}, "drawn")


def awkward(count: int) -> Pipeline:
    """Return the pipeline of `chains` with periods (ns) that share few factors."""
    made, draw = pipeline("chains", count, get_platform(ORIN)), Random(count)
    sensors = tuple(replace(one, period_ns=one.period_ns + 1000 * draw.randrange(1, 999)) for one in made.sensors)
    return replace(made, sensors=sensors)


def _costs(platform: Platform, draw: Random, microseconds: float) -> list[dict[str, Any]]:
    def cost(engine: str, time_us: float, one: bool) -> dict[str, Any]:
        time_ = {"value": f"{max(round(time_us), 1)} us", "kind": "assumed", "note": "drawn", "error": 0.1}
        units = {"units": 1} if one else {}
        return {"platform": platform.name, "mode": MODE, "engine": engine, "precision": "fp32", **units, "time": time_}

    if platform.name == ORIN:
        rows = [cost("cpu", microseconds, True)]
        return [*rows, cost("gpu", microseconds * draw.uniform(0.2, 1.0), False)] if draw.random() < 2 / 3 else rows
    names = [engine.id for engine in platform.engines]
    return [cost(name, microseconds * draw.uniform(0.7, 1.5), False) for name in names]


def instance(family: str, count: int, seed: int = 0) -> tuple[Pipeline, Platform]:
    """Return the pipeline and platform of a row."""
    if family == "planted":
        return next(found[0] for one in itertools.count(seed) if (found := planted(one, count, 0.85))), get_platform(
            ORIN
        )
    if family in ("line", "awkward"):
        return (line if family == "line" else awkward)(count), get_platform(ORIN)
    platform = board({"one": 1, "eight": 8}[family]) if family in ("one", "eight") else get_platform(ORIN)
    return pipeline(family, count, platform, seed), platform


def workload_of(given: Pipeline, platform: Platform, policy: str) -> Workload:
    """Return the workload of a pipeline on a platform."""
    return Workload.of(task_graph(given), CostModel(platform, platform.mode(MODE), stage_work, None), policy)


def list_plan(given: Pipeline, platform: Platform, policy: str) -> Plan:
    """Return the plan of the list schedule, without any search."""
    workload = workload_of(given, platform, policy)
    mapping = initial_mapping(workload)
    candidate = judge(workload, mapping, False)
    found = score(candidate, ("latency",))
    solution = Solution(candidate, Improved(mapping, found, 1, True), found)
    return write_plan(solution, (solution,), ("latency",), None, given)


def time_analyze(given: Pipeline, platform: Platform, policy: str) -> Row:
    """Return the seconds of `analyze`."""
    plan = list_plan(given, platform, policy)
    started = time.process_time()
    verdict = analyze(plan).verdict
    return {"s": time.process_time() - started, "tasks": len(plan.tasks), "verdict": verdict}


def time_assess(given: Pipeline, platform: Platform, policy: str, moves: int = 20) -> Row:
    """Return the milliseconds of judging a mapping after a move of one stage: median, as a search does, and whole."""
    workload, draw = workload_of(given, platform, policy), Random(0)
    options = workload.options()
    names = [name for name, costs in options.items() if len(costs) > 1] or list(options)
    mapping, row = initial_mapping(workload), Row()
    ways: dict[str, Callable[[dict[str, Cost]], object]] = {
        "ms": lambda trial: beats(trial, (math.inf,)),
        "explained ms": lambda trial: judge(workload, trial, False),
        "thorough ms": lambda trial: judge(workload, trial, True),
    }
    beats = make_improvement_test(workload, ("latency",))
    for what, judged in ways.items():
        started = time.process_time()
        judged(mapping)
        row[f"first {what}"] = (time.process_time() - started) * 1e3
        spent: list[float] = []
        while len(spent) < moves and sum(spent) < 60:
            name = draw.choice(names)
            trial = {**mapping, name: draw.choice(options[name])}
            started = time.process_time()
            judged(trial)
            spent.append(time.process_time() - started)
        row[what] = sorted(spent)[len(spent) // 2] * 1e3
    row["s"] = float(row["ms"]) / 1e3
    return row


def time_plan(given: Pipeline, platform: Platform, policy: str) -> Row:
    """Return the seconds of `plan` with its default budget, the mappings judged, and the verdict."""
    started = time.process_time()
    plan = plan_with(given, platform, MODE, PlanOptions(policy=policy))
    spent = time.process_time() - started
    return {"s": spent, "mappings": plan.solver.evaluated or 0, "verdict": plan.verdict,
            "latency ms": (plan.solver.value or 0) / 1e6, "cut off": str(bool(plan.solver.cut_off))}  # fmt: skip


BUDGETS = tuple(LEAST * FACTOR**step for step in range(3))
_FAILED = math.inf


def time_budgets(given: Pipeline, platform: Platform, policy: str) -> Row:
    """Return the values of plans with growing budgets, and whether one is worse, or differs when it is made again."""
    row, plans, values = Row(), list[Plan](), list[float]()
    started = time.process_time()
    for budget in (BUDGETS[0], *BUDGETS):
        plans.append(plan_with(given, platform, MODE, PlanOptions(policy=policy, evaluations=budget, explain=False)))
        values.append(float(plans[-1].solver.value or 0) if plans[-1].verdict == "feasible" else _FAILED)
        row[f"with {budget}"] = f"{values[-1] / 1e6:.3f} ms of {plans[-1].solver.evaluated}"
    row |= {"worse": str(sorted(values, reverse=True) != values), "differs": str(plans[0] != plans[1])}
    return {**row, "s": time.process_time() - started}


LIMITS_S = (5, 10, 20)
SETS = 300
"""Small task sets that are analysed at once."""


def time_limits(given: Pipeline, platform: Platform, policy: str) -> Row:
    """Return the wall seconds of `plan` within limits, with the verdict and the mappings judged."""
    row = Row()
    for limit in LIMITS_S:
        at_limit, started = list[float](), time.monotonic()
        timer = Timer(limit, lambda at=at_limit: at.append(time.process_time()))  # type: ignore[misc]
        timer.start()
        plan = plan_with(given, platform, MODE, PlanOptions(policy=policy, time_limit=limit))
        timer.cancel()
        late = time.process_time() - at_limit[0] if at_limit else 0.0
        row |= {f"{limit} s": time.monotonic() - started, "late s": max(late, float(row.get("late s", 0.0)))}
        row |= {f"in {limit} s": f"{plan.verdict} {plan.solver.evaluated}"}
    return {**row, "s": float(row[f"{LIMITS_S[-1]} s"])}


MEASURES: dict[str, Callable[[Pipeline, Platform, str], Row]] = {
    "analyze": time_analyze,
    "assess": time_assess,
    "plan": time_plan,
    "budgets": time_budgets,
    "limits": time_limits,
}


def _measure(pipe: Any, what: str, family: str, count: int, policy: str) -> None:
    row = MEASURES[what](*instance(family, count), policy)
    pipe.send({**row, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def measured(what: str, family: str, count: int, policy: str, limit: float) -> Row | None:
    """Return the row of a measurement in a process of its own, None if that took longer than `limit` seconds."""
    context = mp.get_context("spawn")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(other, what, family, count, policy))
    process.start()
    other.close()
    try:
        return mine.recv() if mine.poll(limit) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def trace_rows(jobs: int, spread: float, limit: float) -> Iterator[tuple[str, Row]]:
    """Yield the verbs, in processes of their own, on a trace of about `jobs` jobs of 256 stages."""
    plan = list_plan(*instance("chains", 256), "edf")
    seconds = jobs / sum(1e9 / task.period_ns for task in plan.tasks)
    if spread:
        steps = [1 - spread * n / 32 for n in range(32, -1, -1)]
        tasks = [replace(t, times=ExecutionTimes(tuple(int(t.cost_ns * s) for s in steps), True)) for t in plan.tasks]
        sensors = [replace(sensor, jitter_ns=sensor.period_ns // 50) for sensor in plan.sensors]
        plan = replace(plan, tasks=tuple(tasks), sensors=tuple(sensors))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(plan, folder / "plan.json")
        given, out, perfetto = (str(folder / name) for name in ("plan.json", "out", "t.pftrace"))
        for verb, words, file in (
            (
                "simulate",
                ["simulate", given, "--duration", f"{seconds:.3f}s", "-o", out],
                "trace.bin",
            ),
            ("report", ["report", out], ""),
            ("why", ["why", out, "--worst"], ""),
            ("compare", ["compare", out, out], ""),
            ("pftrace", ["report", out, "-o", perfetto], "../t.pftrace"),
        ):
            started = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-m", "socsched", *words], stdout=-3, stderr=-3)
            killer = Timer(limit, process.kill)
            killer.start()
            _, status, used = os.wait4(process.pid, 0)
            killer.cancel()
            if os.WIFSIGNALED(status):
                return
            row: Row = {"s": used.ru_utime + used.ru_stime, "wall s": time.perf_counter() - started}
            row |= {"MB": used.ru_maxrss / 1024}
            yield verb, row | ({"bytes/job": (Path(out) / file).stat().st_size / jobs} if file else {})


def drawn_set(count: int, load: float, processors: int, bound: bool, draw: Random) -> list[dict[str, int]]:
    """Return the tasks of a set with periods (us) of 10 ms to 1 s, each on the least loaded processor where `bound`."""
    tasks, loads = list[dict[str, int]](), [0.0] * processors
    for share in uunifast(count, load * processors, draw):
        period, cpu = round(math.exp(draw.uniform(math.log(10_000), math.log(1_000_000)))), loads.index(min(loads))
        loads[cpu] += share
        tasks.append({"period": period, "wcet": max(1, int(share * period))} | ({"cpu": cpu} if bound else {}))
    return tasks


def set_rows(count: int) -> Iterator[tuple[str, Row]]:
    """Yield the seconds of all tests of sets of `count` tasks, and the verdict; of small sets those of many at once."""
    for way, load in (("one", 0.8), ("bound", 0.8), ("shared", 0.8), ("shared", 0.5)):
        processors = 1 if way == "one" else 8
        tasks = drawn_set(count, load, processors, way != "shared", Random(0))
        for policy in ("RM", "EDF"):
            given = load_taskset({"time_unit": "us", "policy": policy, "processors": processors, "tasks": tasks})
            started = time.process_time()
            verdict = analyze(given).verdict
            yield f"{way} {load} {policy}", {"s": time.process_time() - started, "verdict": verdict}
    for policy in ("RM", "EDF") if count <= 64 else ():
        draw = Random(1)
        sets = [
            {"time_unit": "us", "policy": policy, "tasks": drawn_set(count, 0.8, 1, False, draw)} for _ in range(SETS)
        ]
        loaded = [load_taskset(one) for one in sets]
        analyze_many(loaded[:1])  # compiled on first use
        started = time.process_time()
        table = analyze_many(loaded)
        between = time.process_time()
        alone = [analyze(one).verdict for one in loaded]
        assert table["verdict"].tolist() == alone
        row: Row = {"s": (between - started) / SETS, "one by one s": (time.process_time() - between) / SETS}
        yield f"many {policy}", row | {"verdict": f"{alone.count('feasible')} of {SETS} feasible"}


def exponent(points: list[tuple[int, float]]) -> float:
    """Return the slope of log(seconds) over log(stages), by least squares."""
    xs, ys = [math.log(n) for n, _ in points], [math.log(max(s, 1e-6)) for _, s in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def main() -> None:
    """Print a row for every measurement, and the exponent of every family."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="16,32,64,128,256")
    parser.add_argument("--families", default="chains,random,fan,one,eight")
    parser.add_argument("--policies", default="edf,fp")
    parser.add_argument("--what", default="analyze,assess,plan")
    parser.add_argument("--limit", type=float, default=520.0)
    parser.add_argument("--jobs", default="100000,1000000,10000000", help="of --what traces")
    parser.add_argument("--spread", type=float, default=0.0, help="of --what traces: drawn part of execution times")
    parser.add_argument("--tasks", type=int, default=1000, help="of --what sets")
    options = parser.parse_args()
    for what in options.what.split(","):
        if what == "sets":
            for way, spent in set_rows(options.tasks):
                figures = ", ".join(f"{k} {v * 1e3:.2f} ms" for k, v in spent.items() if isinstance(v, float))
                print(f"{way:15} {options.tasks} tasks: {figures}, {spent['verdict']}", flush=True)
            continue
        if what == "traces":
            for count in map(int, options.jobs.split(",")):
                for verb, spent in trace_rows(count, options.spread, options.limit):
                    print(
                        f"{verb:8} {count:9,} jobs: {', '.join(f'{k} {v:.2f}' for k, v in spent.items())}", flush=True
                    )
            continue
        for family in options.families.split(","):
            for policy in options.policies.split(","):
                points: list[tuple[int, float]] = []
                for count in map(int, options.sizes.split(",")):
                    row = measured(what, family, count, policy, options.limit)
                    if row is None:
                        print(f"{what:8} {family:7} {policy:4} {count:5}: not within {options.limit:g} s", flush=True)
                        break
                    points.append((count, float(row["s"])))
                    text = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
                    print(f"{what:8} {family:7} {policy:4} {count:5}: {text}", flush=True)
                if len(points) > 1:
                    print(f"{what:8} {family:7} {policy:4} exponent {exponent(points):.2f}", flush=True)


if __name__ == "__main__":
    main()
