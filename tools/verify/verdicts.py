"""Verdicts of random small pipelines whose answer is known: feasible by simulation, or infeasible by construction.

Usage: python -m tools.verify.verdicts [--feasible 2000] [--infeasible 2000] [--seed 1] [--phases 60] [--workers 1]
       python -m tools.verify.verdicts --shipped [--reversed] [--output FILE.json]

*Feasible*: pipelines on boards of their own (random_plans.py) are planned without deadlines and simulated from `phases`
vectors of phases and seeds; the deadlines are then 2 % above the longest responses seen, and the pipeline is planned
again.  `infeasible` is wrong, `undecided` a weakness of the analysis, or the simulation missed the worst case.
*Infeasible*: a requirement is exceeded by at least 2 % whatever the mapping and the schedule, by kind; `feasible` is
wrong, and the share proved is printed.  `--shipped`
prints the verdict of every shipped pipeline on every shipped platform, what `infeasible` rests on, and a digest of the
plan: the same for another PYTHONHASHSEED, and with `--reversed`, which plans in the other order.
Exit code 1 if a verdict is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.api.simulation import simulate_plan
from socsched.descriptor.catalog import get_platform, pipeline_names, platform_names
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform import Platform
from socsched.descriptor.platform_file import platform_from_mapping
from socsched.planning.io import to_document
from socsched.planning.plan import Plan
from tools.verify.cases import Tally, divided, spread
from tools.verify.plan_runs import shifted, sources
from tools.verify.random_plans import draw_case, platform_file

BOARDS: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    ("jetson-agx-orin-64gb", "MAXN", ("cpu", "gpu"), 12),
    ("jetson-agx-orin-64gb", "15W", ("cpu", "gpu"), 4),
    ("juno", "performance", ("a57", "a53", "gpu"), 6),
)
"""Platform, mode, engines that get times (ids or kinds), cores."""
PERIODS = (10, 20, 25, 40, 50, 100)
FAR = "10 s"
MARGIN = 1.02
"""Deadlines over the longest response seen; least demand over what is allowed in infeasible pipelines."""
OPTIONS = PlanOptions(evaluations=1200)
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A pipeline as file content, the board and mode it is planned for, and the caps of its plan."""

    document: Document
    board: Platform
    mode: str
    options: PlanOptions = OPTIONS

    def plan(self, **changes: Any) -> Plan:
        """Return the plan of the pipeline through the ordinary procedure."""
        pipeline = pipeline_from_mapping(self.document, "drawn.yaml")
        return plan_with(pipeline, self.board, self.mode, replace(self.options, **changes))


class Writer:
    """A pipeline under construction: one after another, sensors, stages and chains with the times of their costs."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.board, self.mode, self.engines, self.cores = draw.choice(BOARDS)
        self.sensors: Document = {}
        self.stages: Document = {}
        self.chains: Document = {}
        self.period: dict[str, int] = {}

    def sensor(self, period: int, **fields: Any) -> str:
        """Add a sensor with a period in ms; return its name."""
        name = f"s{len(self.sensors)}"
        self.sensors[name] = {"kind": "camera", "period": f"{period} ms", "assumed": "drawn"} | fields
        self.sensors[name].setdefault("bytes_per_frame", "1 kB")
        self.period[name] = period
        return name

    def stage(self, times: Mapping[str, float], **fields: Any) -> str:
        """Add a stage that takes the given time (ms) by engine, on one unit of it; return its name."""
        name = f"t{len(self.stages)}"
        costs = [
            {
                "platform": self.board,
                "mode": self.mode,
                "engine": engine,
                "precision": "fp32",
                **({} if engine in ("gpu", "dla") else {"units": 1}),
                "time": {"value": f"{round(ms * 1000)} us", "kind": "assumed", "note": "drawn", "error": 0.1},
            }
            for engine, ms in times.items()
        ]
        made = {"title": "drawn", "assumed": "drawn", "precisions": ["fp32"], "share": 1, "output_bytes": "1 kB"}
        self.stages[name] = made | {"costs": costs} | fields
        triggers = fields.get("after", ())
        self.period[name] = self.period[triggers[0]] if triggers else int(fields["period"].split()[0])
        return name

    def chain(self, path: list[str], deadline: str = FAR, **fields: Any) -> None:
        """Add a chain."""
        self.chains[f"c{len(self.chains)}"] = {"path": path, "deadline": deadline, "assumed": "drawn"} | fields

    def drawn(self, **options: Any) -> Drawn:
        """Return what was written so far, planned with further options."""
        document = {
            "schema_version": "1",
            "name": "drawn",
            "title": "drawn",
            "sensors": self.sensors,
            "stages": self.stages,
            "chains": self.chains,
        }
        return Drawn(document, get_platform(self.board), self.mode, replace(OPTIONS, **options))

    def times(self, least: float, most: float) -> dict[str, float]:
        """Draw times (ms) on one engine or several."""
        names = self.draw.sample(self.engines, self.draw.choice((1, 1, 1, 2, len(self.engines))))
        first = self.draw.uniform(least, most)
        return {name: first * (1.0 if name == names[0] else self.draw.uniform(0.5, 2.0)) for name in names}


def feasible_pipeline(draw: Random) -> Drawn:
    """Return a small pipeline of everything that a pipeline file can say, on a board of its own, without deadlines."""
    case = draw_case(draw.randrange(2**32))
    chains = {
        name: {**chain, "deadline": FAR} | ({"max_age": FAR} if "max_age" in chain else {})
        for name, chain in case.pipeline["chains"].items()
    }
    board = platform_from_mapping(platform_file(case.board), "platform.yaml")
    return Drawn({**case.pipeline, "chains": chains}, board, "M")


def longest_seen(plan: Plan, phases: int, draw: Random) -> dict[str, tuple[int, int]] | None:
    """Return the longest response and the greatest age (ns) of every chain; None if a frame was lost or late.

    The stated phases come first, with `phases` seeds; then sources shift where nothing ties them to each other.
    """
    longest, groups = max([t.period_ns for t in plan.tasks]), sources(plan)
    seen: dict[str, tuple[int, int]] = {}
    for number in range(phases):
        moved = shifted(plan, groups, [draw.randrange(10**8) for _ in groups]) if number % 2 else plan
        found = simulate_plan(moved, 12 * longest, seed=number, record=False)
        for name, chain in found.figures["chains"].items():
            if chain["dropped"] or chain["missed"]:
                return None
            if not chain["completed"]:
                continue
            now = chain["response_time_ns"]["max"] or 0, chain["data_age_ns"]["max"] or 0
            before = seen.get(name, (0, 0))
            seen[name] = max(before[0], now[0]), max(before[1], now[1])
    return seen


def above(document: Document, seen: Mapping[str, tuple[int, int]]) -> Document:
    """Return a pipeline with deadlines and ages 2 % above what was seen."""

    def limit(value: int) -> str:
        return f"{max(round(value * MARGIN), 1)} ns"

    chains = {
        name: chain
        | ({"deadline": limit(seen[name][0])} if name in seen else {})
        | ({"max_age": limit(seen[name][1])} if name in seen and "max_age" in chain else {})
        for name, chain in document["chains"].items()
    }
    return document | {"chains": chains}


def check_feasible(seed: str, phases: int) -> Tally:
    """Return the verdict on one pipeline that a simulated plan meets."""
    draw = Random(seed)
    drawn, tally = feasible_pipeline(draw), Tally()
    free = drawn.plan(explain=False) if drawn.document["chains"] else None
    if free is None or free.verdict != "feasible":
        return tally
    seen = longest_seen(free, phases, draw)
    if not seen:
        return tally
    plan = replace(drawn, document=above(drawn.document, seen)).plan(explain=False)
    tally.count(plan.verdict, "feasible by simulation")
    if plan.verdict == "infeasible":
        tally.faults.append(f"{seed}: infeasible although simulated: {plan.solver.proof}")
    for open_ in {v.requirement.split(" of ")[0] for v in plan.violations} if plan.verdict == "undecided" else ():
        tally.count("left open", open_)
    return tally


def _lanes(w: Writer, engine: str) -> int:
    """Return the lanes of an engine, or of all of a kind, in the mode."""
    board = get_platform(w.board)
    states = [(e, board.mode(w.mode).engines[e.id]) for e in board.engines if engine in (e.id, e.kind)]
    return sum(state.units if e.shares == "unit" else bool(state.units) for e, state in states)


def _capacity(draw: Random, w: Writer) -> Drawn:
    """More work on one kind of engine than its units have time for."""
    engine = draw.choice(w.engines)
    lanes, total = _lanes(w, engine), 0.0
    while total <= lanes * MARGIN + 0.01:
        period = draw.choice(PERIODS)
        load = draw.uniform(0.3, 0.95)
        total += load
        name = w.stage({engine: load * period}, period=f"{period} ms")
        w.chain([name])
    return w.drawn()


def _jointly(draw: Random, w: Writer) -> Drawn:
    """More work than all engines have time for, whatever the division: every stage runs on each at another speed."""
    units = {name: _lanes(w, name) for name in w.engines}
    price = {name: draw.uniform(0.5, 2.0) for name in w.engines}
    room = sum(price[name] * units[name] for name in w.engines)
    total = 0.0
    while total <= room * (MARGIN + 0.01):
        period = draw.choice(PERIODS)
        worth = draw.uniform(0.2, 0.45)
        loads = {name: min(worth * draw.uniform(1.0, 1.3) / price[name], 0.95) for name in w.engines}
        total += min(price[name] * load for name, load in loads.items())
        name = w.stage({name: load * period for name, load in loads.items()}, period=f"{period} ms")
        w.chain([name])
    return w.drawn()


def _longer_than_period(draw: Random, w: Writer) -> Drawn:
    """A stage whose frames follow each other faster than it ends one."""
    period = draw.choice(PERIODS)
    sensor = w.sensor(period)
    w.chain([sensor, w.stage({draw.choice(w.engines): period * draw.uniform(MARGIN, 2.0)}, after=[sensor], queue=3)])
    return w.drawn()


def _path(draw: Random, w: Writer) -> Drawn:
    """A deadline below the times on the path from a source of the chain, or from one that it waits for."""
    period = draw.choice(PERIODS[2:])
    late = round(draw.uniform(0, 0.5) * period, 3) if draw.random() < 0.5 else 0.0
    first = w.sensor(period)
    second = w.sensor(period, offset=f"{late} ms")
    sums, ends = [], []
    for sensor in (first, second):
        before, total = sensor, 0.0
        for _ in range(draw.randint(1, 2)):
            ms = draw.uniform(0.05, 0.3) * period
            before, total = w.stage({draw.choice(w.engines): ms}, after=[before]), total + ms
        sums.append(total)
        ends.append(before)
    last = draw.uniform(0.05, 0.2) * period
    end = w.stage({draw.choice(w.engines): last}, after=ends)
    least = max(sums[0], sums[1] + late) + last
    path = [first, *(n for n in w.stages if n != end and _leads(w, first, n)), end]
    w.chain(path, f"{round(least / MARGIN * 1e6)} ns")
    return w.drawn()


def _leads(w: Writer, source: str, name: str) -> bool:
    return any(
        n == source or _leads(w, source, n) for n in w.stages[name].get("after", ()) if n in w.stages or n == source
    )


def _traffic(draw: Random, w: Writer) -> Drawn:
    """More bytes than the DRAM moves."""
    room = float(get_platform(w.board).dram.peak.value)
    cap = draw.uniform(0.05, 0.5) * room
    total = 0.0
    while total <= cap * MARGIN * 1.05:
        period = draw.choice(PERIODS)
        size = draw.randint(1, 100) * 10**6
        if draw.random() < 0.7:
            total += size * 1000 / period
            sensor = w.sensor(period, bytes_per_frame=f"{size} B")
            w.chain([sensor, w.stage(w.times(0.02 * period, 0.05 * period), after=[sensor], output_bytes="0 B")])
        else:
            ms = draw.uniform(0.01, 0.03) * period
            size = round(2e6 * ms)  # less than an engine moves in this time
            total += size * 1000 / period
            w.chain([w.stage({"gpu": ms}, period=f"{period} ms", output_bytes=f"{size} B")])
    return w.drawn(bandwidth_cap=int(cap))


def _memory(draw: Random, w: Writer) -> Drawn:
    """More buffers than main memory holds: every output takes the one written and the one that waits or is read."""
    dram = get_platform(w.board).dram
    room = dram.size.value - (dram.reserved.value if dram.reserved else 0)
    total = 0.0
    while total <= room * MARGIN:
        size = draw.randint(20, 200) * 10**7
        total += 2 * size
        sensor = w.sensor(100)
        before = w.stage({"gpu": 0.5}, after=[sensor], output_bytes=f"{size} B")
        w.chain([sensor, before, w.stage({draw.choice(w.engines): 0.5}, after=[before])])
    return w.drawn()


def _power(draw: Random, w: Writer) -> Drawn:
    """A cap on power below base, idle and the energy of the jobs."""
    period = draw.choice(PERIODS)
    for _ in range(draw.randint(1, 4)):
        w.chain([w.stage({draw.choice(w.engines): period * draw.uniform(0.2, 0.5)}, period=f"{period} ms")])
    drawn = w.drawn()
    plan = replace(drawn).plan(explain=False, objective="energy")
    idle = plan.base_mw + sum(engine.idle_mw for engine in plan.engines)
    dynamic = (plan.power.expected_mw or 0.0) - idle
    return w.drawn(power_cap=max(int(idle + dynamic * draw.uniform(0.2, 0.8)), 1), objective="energy")


def _nowhere(draw: Random, w: Writer) -> Drawn:
    """A stage that no engine runs."""
    period = draw.choice(PERIODS)
    w.chain([w.stage({"npu": period * 0.1}, period=f"{period} ms")])
    return w.drawn()


INFEASIBLE: dict[str, Callable[[Random, Writer], Drawn]] = {
    "capacity": _capacity,
    "joint engines": _jointly,
    "longer than period": _longer_than_period,
    "path": _path,
    "traffic": _traffic,
    "memory": _memory,
    "power": _power,
    "no engine": _nowhere,
}


def check_infeasible(kind: str, seed: str) -> Tally:
    """Return the verdict on one pipeline that no plan meets."""
    draw, tally = Random(seed), Tally()
    plan = INFEASIBLE[kind](draw, Writer(draw)).plan(explain=False)
    tally.count(plan.verdict, kind)
    if plan.verdict == "feasible":
        tally.faults.append(f"{seed}: feasible although {kind} is exceeded")
    for theorem in _theorems(plan):
        tally.count("proofs by", theorem)
    return tally


def _theorems(plan: Plan) -> list[str]:
    """Return what an infeasible verdict rests on."""
    proof = plan.solver.proof
    if proof is None:
        return []
    found = getattr(proof, "necessities", None)
    return list(dict.fromkeys(one.theorem for one in found)) if found else [proof.method]


def check(phases: int, kind: str, name: str) -> Tally:
    """Check a pipeline of one kind."""
    return check_infeasible(kind, name) if kind in INFEASIBLE else check_feasible(name, phases)


def shipped(output: str, step: int) -> int:
    """Print a table of the verdicts of shipped pipelines on shipped platforms by the list search; return 0."""
    rows = {}
    for pipeline in pipeline_names()[::step]:
        for platform in platform_names()[::step]:
            plan = plan_with(pipeline, platform, None, PlanOptions(solver="heft", explain=False, refine=False))
            proof = plan.solver.proof
            rests = f"{', '.join(_theorems(plan))}: {proof.text}" if proof else ""
            document = to_document(plan)
            document["inputs"].pop("socsched")  # of the code: another for any change
            digest = sha256(json.dumps(document).encode()).hexdigest()[:12]
            rows[f"{pipeline} {platform}"] = {"verdict": plan.verdict, "rests on": rests, "digest": digest}
            print(f"{pipeline:22} {platform:22} {digest} {plan.verdict:10} {rests}", flush=True)
    whole = sha256("".join(f"{name} {rows[name]['digest']}\n" for name in sorted(rows)).encode()).hexdigest()[:12]
    print(dict(Counter(row["verdict"] for row in rows.values())), f"{len(rows)} plans, digest of all {whole}")
    if output:
        Path(output).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def main() -> int:
    """Run the checks, print counts and wrong verdicts, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feasible", type=int, default=2000)
    parser.add_argument("--infeasible", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--output", default="", help="with --shipped: a JSON file of the table")
    parser.add_argument("--reversed", action="store_true", help="with --shipped: in the other order")
    chosen = parser.parse_args()
    if chosen.shipped:
        return shipped(chosen.output, -1 if chosen.reversed else 1)
    amounts = {"feasible": chosen.feasible} | divided(chosen.infeasible, list(INFEASIBLE))
    total = spread(partial(check, chosen.phases), chosen.seed, amounts, chosen.workers, 10)
    for table, counts in total.counts.items():
        print(f"{table}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
