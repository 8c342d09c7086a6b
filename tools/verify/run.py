"""Predict a run of a pipeline on this machine, run it, and compare the two.

    python -m tools.verify.run [PIPELINE] [--seconds 60] [--repeat 100] [--preemptive] [-o FOLDER]

Every stage is profiled alone, for --repeat frames, on the lanes of the plan, since a stage that reads much data is a
third faster on its producer's processor: plan, profile and plan again until the lanes are stable.  All rates and
deadlines are stretched by the smallest of a few factors for which the plan is feasible, with stages on as many lanes as
the planner chooses, or on one each.  With --preemptive the plan lets urgent jobs interrupt others: short deadlines
beside long networks need it.  The plan is then simulated, with execution times drawn from the profile, twenty
times as long as it is then run, so that its percentiles are significant.  Printed: every chain and stage as predicted
and as measured, and the bars:

  misses           late or lost frames of the run <= those of the simulation + 0.1 %
  stage medians    median of every stage within 10 % of the profiled one
  chains           mean absolute error of p50 <= 5 %, of p99 <= 10 %
  dispatch         median <= 30 us; release jitter is printed
  accounts         released = completed + dropped + aborted

Exit code 1 when a bar is missed.  Use an idle machine: the effects of other load cannot be predicted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from socsched.cost.profile import Profile, save_profile
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.executor.run_native import Inputs, alone, execute
from socsched.models.work import stage_work
from socsched.planning import io
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.reporting.compare import Tolerance, predict
from socsched.runtime.options import Options
from socsched.runtime.overheads import overheads
from socsched.runtime.profile import measure
from socsched.sim.simulate import run as simulate
from socsched.trace.metrics import result

ROUNDS = 3
FACTORS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0)
DISPATCH_NS, LOST, STAGES, P50, P99 = 30_000, 0.001, 0.10, 0.05, 0.10


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def stretched(pipeline: Pipeline, factor: float) -> Pipeline:
    """Return the pipeline with all periods, offsets and deadlines `factor` times as long."""

    def longer(value: int | None) -> Any:
        return None if value is None else round(value * factor)

    return replace(
        pipeline,
        sensors=tuple(replace(s, period_ns=longer(s.period_ns)) for s in pipeline.sensors),
        stages=tuple(replace(s, period_ns=longer(s.period_ns)) for s in pipeline.stages),
        chains=tuple(
            replace(c, deadline_ns=longer(c.deadline_ns), max_age_ns=longer(c.max_age_ns)) for c in pipeline.chains
        ),
    )


def this_machine(preemptive: bool) -> Platform:
    """Return the platform of this machine, whose jobs run to completion unless `preemptive`."""
    here = get_platform("host")
    if not preemptive:
        return here
    full = (replace(engine, preemption=replace(engine.preemption, kind="full")) for engine in here.engines)
    return replace(here, engines=tuple(full))


def feasible(pipeline: Pipeline, profile: Profile, here: Platform, least: float = 1.0) -> tuple[Plan, Pipeline, float]:
    """Return the plan for the smallest stretching from `least` on that is feasible, for the largest if none is."""
    lanes = sum(engine.units for engine in here.engines)
    for factor, narrow in product([f for f in FACTORS if f >= least], (False, True)):
        slower = stretched(pipeline, factor)
        if narrow:  # stages that take all lanes block everybody: one lane each may be what is feasible first
            slower = replace(slower, stages=tuple(replace(stage, share=1) for stage in slower.stages))
        plan = make_plan(slower, here, work=stage_work, profile=profile)
        load = sum(t.wcet_ns * len(t.lanes) / t.period_ns for t in plan.tasks) / lanes
        first = plan.violations[0] if plan.violations else None
        why = f" ({first.requirement}: {first.demand} > {first.bound} {first.unit})" if first else ""
        say(f"rates / {factor:g}{', a lane each' if narrow else ''}: {plan.verdict}, load {load:.2f}{why}")
        if plan.verdict == "feasible":
            return plan, slower, factor
    return plan, slower, factor  # run all the same: the verdict is a bar of its own


def profiled(pipeline: Pipeline, here: Platform, repeat: int) -> tuple[Plan, Pipeline, float, Profile]:
    """Return a plan made of measured costs only, and the profile it is made of."""
    known = measure(make_plan(pipeline, here, work=stage_work), pipeline, alone(pipeline), repeat=repeat, note=say)
    plan, slower, factor = feasible(pipeline, known, here)
    for _ in range(ROUNDS):
        measured = {task.name: task.lanes for task in plan.tasks}
        fresh = measure(plan, pipeline, alone(pipeline), repeat=repeat, note=say).costs
        again = {(cost.stage, cost.share) for cost in fresh}
        others = tuple(cost for cost in known.costs if (cost.stage, cost.share) not in again)
        known = replace(known, costs=(*fresh, *others))
        plan, slower, factor = feasible(pipeline, known, here, factor)
        if measured == {task.name: task.lanes for task in plan.tasks}:
            break
    return plan, slower, factor, known


def share_lost(figures: Mapping[str, Any]) -> float:
    """Return the share of all chains' frames that came late or not at all."""
    chains = figures["chains"].values()
    return sum(c["missed"] + c["dropped"] for c in chains) / max(sum(c["released"] for c in chains), 1)


def verdicts(
    plan: Plan, profile: Profile, simulated: Mapping[str, Any], measured: Mapping[str, Any], figures: Mapping[str, Any],
    accounts: Mapping[str, Mapping[str, int]],
) -> Iterator[tuple[str, bool]]:  # fmt: skip
    """Print what was predicted and measured; yield every bar and whether it holds."""
    found = predict(plan, simulated, measured, Tolerance(P50, P99, STAGES, LOST))
    print(f"\n{'':34}{'predicted':>12}{'measured':>12}{'error':>9}")
    for line in found.lines:
        if line.measured is not None and line.predicted is not None and line.what != "energy":
            title = f"{line.what} {line.name} {line.figure}"
            error = f"{line.error:+.1%}" if line.error is not None else ""
            print(f"{title:34}{line.predicted / 1e6:12.3f}{line.measured / 1e6:12.3f}{error:>9}")
    yield f"the plan is {plan.verdict}", plan.verdict == "feasible"
    lost = {what: share_lost(found_) for what, found_ in (("run", measured), ("sim", simulated))}
    yield (
        f"frames late or lost: {lost['run']:.2%} run, {lost['sim']:.2%} simulated (bar: 0.1 % more)",
        lost["run"] <= lost["sim"] + LOST,
    )
    medians = {(c.stage, c.share): c.median_ns for c in profile.costs}
    errors = {
        task.name: measured["stages"][task.name]["exec_ns"]["p50"] / medians[task.name, len(task.lanes)] - 1
        for task in plan.tasks
        if (task.name, len(task.lanes)) in medians
    }
    if errors:
        middle = statistics.median(abs(error) for error in errors.values())
        worst = max(errors, key=lambda name: abs(errors[name]))
        yield (
            f"stage medians: {middle:.1%} off the profile, worst {worst} {errors[worst]:+.1%} (bar 10 %)",
            all(abs(error) <= STAGES for error in errors.values()),
        )
    for name, bar in (("chain p50", P50), ("chain p99", P99)):
        error = found.errors[name]
        if error is not None:
            yield f"{name}: mean absolute error {error:.1%} (bar {bar:.0%})", error <= bar
    waits = figures["dispatch_ns"]
    each = ", ".join(f"{name} {found['p50'] / 1e3:.0f}" for name, found in figures["dispatch_ns_by_stage"].items())
    print(f"dispatch, median by stage (us): {each}")
    yield (
        f"dispatch: median {waits['p50'] / 1e3:.1f} us, p99 {waits['p99'] / 1e3:.0f} us (bar 30 us)",
        (waits["p50"] <= DISPATCH_NS),
    )
    balanced = all(a["released"] == a["completed"] + a["dropped"] + a["aborted"] for a in accounts.values())
    yield "every frame accounted for", balanced


def main() -> int:
    """Profile, plan, simulate, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", nargs="?", default="perception-stack")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeat", type=int, default=100, help="frames each stage is measured for")
    parser.add_argument("--preemptive", action="store_true", help="plan for preemption at any instant")
    parser.add_argument("--realtime", default="off", choices=("off", "auto", "fifo", "deadline"))
    parser.add_argument("--awake", type=float, help="us for which workers stay awake for expected jobs")
    parser.add_argument("-o", "--output", type=Path, help="folder for profile.json and plan.json")
    args = parser.parse_args()
    began = time.monotonic()
    plan, pipeline, factor, profile = profiled(
        get_pipeline(args.pipeline), this_machine(args.preemptive), args.repeat,
    )  # fmt: skip
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        save_profile(profile, args.output / "profile.json")
        io.save(plan, args.output / "plan.json")
    duration = round(args.seconds * 1e9)
    say(f"simulating and running {args.seconds:g} s (after {time.monotonic() - began:.0f} s)")
    foreseen = simulate(plan, 20 * duration, 0).trace
    assert foreseen is not None
    accounts: dict[str, dict[str, int]] = {}
    awake = None if args.awake is None else round(args.awake * 1e3)
    options = Options(realtime=args.realtime, awake_ns=awake)
    trace = execute(plan, pipeline, Inputs(duration_ns=duration), options, accounts=accounts)
    figures = overheads(trace)
    where = {task.name: f"{task.engine}{list(task.lanes)}" for task in plan.tasks}
    print(f"{args.pipeline} at 1/{factor:g} of its rates, {args.seconds:g} s, load average {os.getloadavg()[0]:.1f}")
    print("lanes: " + ", ".join(f"{name} {place}" for name, place in where.items()))
    for source, late in figures["release_jitter_ns"].items():
        if late:
            delays = ", ".join(f"{key} {late[key] / 1e3:.0f}" for key in ("p50", "p99", "max"))
            print(f"release jitter of {source} (us): {delays}; {accounts[source]}")
    rows = list(verdicts(plan, profile, result(foreseen, plan), result(trace, plan), figures, accounts))
    for text, held in rows:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
