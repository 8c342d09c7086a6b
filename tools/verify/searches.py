"""Searches end by work: plans repeat byte by byte, and a larger budget is never worse by the search's own measure.

Usage: python -m tools.verify.searches repeat [--runs 10] [--workers 1] [--pipeline NAME ...] [--platform NAME ...]
       python -m tools.verify.searches monotone [--pipelines 200] [--seed 0] [--workers 1]
       python -m tools.verify.searches table [--pipeline perception-stack] [--platform NAME ...] [--workers 1]

*repeat*: `socsched plan` of every shipped pipeline on every platform, each run in a process with another hash seed;
with more workers than cores, or under `taskset -c 0`, the runs starve each other.  Files and exit codes must be equal.
*monotone*: drawn pipelines on drawn boards, planned with a growing budget.  *table*: value, evaluations and time by
budget.  Exit code 1 if a plan differs, or a larger budget is worse.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.descriptor.catalog import pipeline_names, platform_names
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform_file import platform_from_mapping
from socsched.planning.clock import EVALUATIONS, FACTOR, LEAST
from tools.verify.random_plans import draw_case, platform_file

BUDGETS = tuple(LEAST * FACTOR**step for step in range(4))
MOST = 10**12
"""Value of a plan that does not meet every requirement: any other is better."""
A = TypeVar("A")
B = TypeVar("B")


def outcome(run: tuple[str, str, int]) -> tuple[int, str]:
    """Return the exit code and the digest of the plan of a pipeline on a platform, by a process with a hash seed."""
    pipeline, platform, seed = run
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        command = [sys.executable, "-m", "socsched", "plan", pipeline, "-p", platform, "-q", "-o", str(file)]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": str(seed)}, capture_output=True)
        return done.returncode, hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "no plan"


def values(seed: int) -> list[float]:
    """Return the values of a drawn pipeline's plans by budget."""
    case = draw_case(seed)
    platform = platform_from_mapping(platform_file(case.board), "platform.yaml")
    pipeline = pipeline_from_mapping(case.pipeline, "pipeline.yaml")
    found = []
    for budget in BUDGETS[:-1]:
        options = PlanOptions(policy=case.policy, evaluations=budget, explain=False)
        plan = plan_with(pipeline, platform, "M", options)
        found.append(float(plan.solver.value or 0) if plan.verdict == "feasible" else MOST)
    return found


def row(case: tuple[str, str, int]) -> str:
    """Return a line of the table: a pipeline on a platform with a budget."""
    pipeline, platform, budget = case
    started = time.process_time()
    plan = plan_with(pipeline, platform, None, PlanOptions(evaluations=budget, explain=False))
    value = f"{(plan.solver.value or 0) / 1e6:9.2f} ms" if plan.verdict == "feasible" else f"{'–':>12}"
    spent = f"{plan.solver.evaluated or 0:7} evaluated, {time.process_time() - started:6.1f} s of a core"
    return f"{pipeline:20} {platform:22} {budget:6} {plan.verdict:10} {plan.mode:12} {value} {spent}"


def spread(function: Callable[[A], B], cases: Iterable[A], workers: int) -> Iterator[B]:
    """Yield the results of all cases in order, by so many processes."""
    if workers == 1:
        yield from map(function, cases)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(function, cases)


def main() -> int:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("repeat", "monotone", "table"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pipeline", nargs="*")
    parser.add_argument("--platform", nargs="*", default=platform_names())
    given = parser.parse_args()
    if given.part == "table":
        cases = product(given.pipeline or ["perception-stack"], given.platform, BUDGETS)
        for line in spread(row, cases, given.workers):
            print(line, flush=True)
        return 0
    if given.part == "monotone":
        seeds = range(given.seed, given.seed + given.pipelines)
        worse = better = feasible = 0
        for seed, found in zip(seeds, spread(values, seeds, given.workers), strict=True):
            feasible += found[-1] < MOST
            better += found[-1] < found[0]
            if any(b > a for a, b in pairwise(found)):
                worse += 1
                print(f"seed {seed}: {found}", flush=True)
        counted = (
            f"{len(seeds)} pipelines, budgets {BUDGETS[:-1]}: {feasible} feasible, {better} better with the largest"
        )
        print(f"{counted} budget, {worse} worse with a larger one")
        return int(worse > 0)
    pairs = list(product(given.pipeline or pipeline_names(), given.platform))
    differing = 0
    with ThreadPoolExecutor(given.workers) as pool:
        runs = pool.map(outcome, ((*pair, seed) for pair in pairs for seed in range(given.runs)))
        for pipeline, platform in pairs:
            seen = {next(runs) for _ in range(given.runs)}
            differing += len(seen) > 1
            code, digest = min(seen)
            shown = f"exit {code}, {digest[:12]}" if len(seen) == 1 else f"DIFFER: {sorted(seen)}"
            print(f"{pipeline:20} {platform:22} {given.runs} runs: {shown}", flush=True)
    print(f"{len(pairs)} pairs, {EVALUATIONS} evaluations at most, {differing} with plans that differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
