"""How fast the simulator is under every built-in policy, against EDF, and under one written in Python.

    python -m tools.bench.policy_speed [--repeat 7] [--seconds 300] [--only NAME,NAME]

The task sets of tools/bench/sim.py on one CPU and on four.  Every policy takes turns with EDF, in processor time;
medians of the ratios of jobs a second, and of events a second, since a policy with more sampling instants has more of
them; and starts and resumptions per job, which are a property of the policy and not of the simulator. `learned` chooses
nothing without weights, so it is measured with random ones too (training would find these sets met by the safe order,
and return that).  The last set is one of low load, where slack leaves both controllers free to choose.  `calm` is the
example of docs/policies.md, whose keys are all computed in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from random import Random
from types import ModuleType

from socsched import plugins
from socsched.sim.build import explain_interpreted, load_kernel
from socsched.sim.engine import run
from socsched.sim.policies import GROUP, REGISTERED, Policy
from socsched.sim.policies.learned import ACTIONS, FEATURES
from tools import ROOT
from tools.bench.sim import SECOND, Workload, rows, task_plan, task_sets


def main() -> None:
    """Print one line a policy and task set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=300, help="simulated time")
    parser.add_argument("--only", default="", help="policies, by the names of this table")
    options = parser.parse_args()
    load_kernel()
    print(f"kernel: {explain_interpreted() or 'compiled'}; load {os.getloadavg()[0]:.1f}; processor time")
    REGISTERED["calm"] = example()
    low = Workload("10 tasks, 1 CPU, EDF, U=0.4", task_plan(rows(10, 0.4), 1, "edf", False), 0)
    busy, wide, _ = task_sets()
    with tempfile.TemporaryDirectory() as folder:
        named = {name: name for name in [*plugins.names(GROUP, own=True), "calm"]} | learned(Path(folder))
        steered = [name for name in named if name.startswith(("adaptive", "learned"))]
        for work, names in ((busy, list(named)), (wide, list(named)), (low, ["srtf", *steered])):
            print(f"{work.name:<40}{'M jobs/s':>10}{'of EDF':>9}{'events':>9}{'starts':>9}")
            for name in names:
                if not options.only or name in options.only.split(","):
                    show(work, name, named[name], options)


def show(work: Workload, name: str, policy: str, options: argparse.Namespace) -> None:
    """Print the line of a policy."""
    pairs = [(speed(work, "edf", options.seconds), speed(work, policy, options.seconds)) for _ in range(options.repeat)]
    jobs = statistics.median(own[0] for _, own in pairs)
    ratio, events = (statistics.median(own[i] / edf[i] for edf, own in pairs) for i in (0, 1))
    print(f"  {name:<38}{jobs / 1e6:>10.2f}{ratio:>9.0%}{events:>9.0%}{pairs[0][1][2]:>9.2f}", flush=True)


def learned(folder: Path) -> dict[str, str]:
    """Return policies with weights drawn at random, by names."""
    for seed in range(4):
        draw = Random(seed)
        weights = [[draw.uniform(-1, 1) for _ in FEATURES] for _ in ACTIONS]
        data = {"features": list(FEATURES), "period_ns": 1_000_000, "weights": weights}
        (folder / f"{seed}.json").write_text(json.dumps(data), encoding="utf-8")
    return {f"learned (weights {file.stem})": f"learned:weights={file}" for file in sorted(folder.iterdir())}


def speed(work: Workload, policy: str, seconds: int) -> tuple[float, float, float]:
    """Return jobs and events a second of processor time, and starts a job."""
    start = time.thread_time()
    done = run(work.plan, seconds * SECOND, policy=policy, record=False)
    wall = time.thread_time() - start
    jobs, again = (int(done.outcome.ints(name).sum()) for name in ("released", "preempted"))
    return jobs / wall, done.outcome.number("events") / wall, 1 + again / jobs


def example() -> Policy:
    """Return the policy that docs/policies.md shows being written."""
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "def key" in block)
    module = ModuleType("calm")
    exec(compile(code, "docs/policies.md", "exec"), module.__dict__)
    made: Policy = module.POLICY
    return made


if __name__ == "__main__":
    main()
