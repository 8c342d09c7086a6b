#!/usr/bin/env python3
"""How fast the simulator is under every built-in policy, against EDF, and under one written in Python.

    python tools/bench_policy_speed.py [--repeat 7] [--seconds 60]

The task sets of tools/bench_sim.py on one CPU and on four.  Every policy takes turns with EDF, in processor time;
medians of the ratios of jobs a second, and of events a second, since a policy that looks more often has more of them.
The last lines are the example of docs/policies.md, whose every key Python is asked for.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from bench_sim import SECOND, Workload, task_sets  # noqa: E402

from socsched.sim.build import kernel, why_interpreted  # noqa: E402
from socsched.sim.engine import run  # noqa: E402
from socsched.sim.policies import POLICIES, Policy  # noqa: E402


def main() -> None:
    """Print one line a policy and task set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=60, help="simulated time")
    options = parser.parse_args()
    kernel()
    print(f"kernel: {why_interpreted() or 'compiled'}; load {os.getloadavg()[0]:.1f}; processor time")
    POLICIES["calm"] = example()
    for work in task_sets()[:2]:
        print(f"{work.name:<40}{'M jobs/s':>10}{'of EDF':>9}{'events':>9}")
        for name in POLICIES:
            pairs = [
                (speed(work, "edf", options.seconds), speed(work, name, options.seconds)) for _ in range(options.repeat)
            ]
            jobs = statistics.median(own[0] for _, own in pairs)
            ratio, events = (statistics.median(own[i] / edf[i] for edf, own in pairs) for i in (0, 1))
            print(f"  {name:<38}{jobs / 1e6:>10.2f}{ratio:>9.0%}{events:>9.0%}", flush=True)


def speed(work: Workload, policy: str, seconds: int) -> tuple[float, float]:
    """Return jobs and events a second of processor time."""
    start = time.thread_time()
    done = run(work.plan, seconds * SECOND, policy=policy, record=False)
    wall = time.thread_time() - start
    return int(done.outcome.ints("released").sum()) / wall, done.outcome.number("events") / wall


def example() -> Policy:
    """Return the policy that docs/policies.md shows being written."""
    page = (HERE.parent / "docs" / "policies.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "def key" in block)
    module = ModuleType("calm")
    exec(compile(code, "docs/policies.md", "exec"), module.__dict__)
    made: Policy = module.POLICY
    return made


if __name__ == "__main__":
    main()
