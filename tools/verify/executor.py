"""Compare the native executor with the simulator on random plans, job by job.

    python -m tools.verify.executor [--plans 2000] [--seed 0] [--flags="-fsanitize=address,undefined"]

All run on a virtual clock.  Plain runs (orders, joins, sampling, bounded queues, gangs), plain ones on engines that
preempt, and those with levels of criticality and overruns, with and without preemption, must equal the simulator in
every job and interval.  A fifth have overload policies, missing data, isolation, lost frames, failing and hanging jobs
and limp-home plans, which the simulator defines otherwise or lacks, as have the same plans with preemption: they must
end with balanced accounts.  `--flags` are added to the build.  Exit code 1 if a run differs.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections import Counter
from pathlib import Path

from socsched.executor.build import build_executor, cxx_compiler
from socsched.executor.outcome import Executed
from tests.executor.random_runs import (
    eventful_preemptive_run,
    eventful_run,
    levels_run,
    plain_run,
    preemptive_levels_run,
    preemptive_run,
)
from tools.verify.virtual_clock import differences_from_simulator, run_native

RUNS = {
    "plain": plain_run,
    "eventful": eventful_run,
    "preemptive": preemptive_run,
    "levels": levels_run,
    "preemptive levels": preemptive_levels_run,
}


def unbalanced(executed: Executed) -> list[str]:
    """Return the sources whose frames are not all accounted for."""
    return [
        f"{source}: {account}"
        for source, account in executed.accounts.items()
        if account.released != account.completed + account.dropped + account.aborted
    ]


def main() -> int:
    """Compare all runs; print the first differences and what the runs contained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flags", default="", help="further compiler flags, such as sanitizers")
    args = parser.parse_args()
    compiler = cxx_compiler()
    if compiler is None:
        print("no C++ compiler", file=sys.stderr)
        return 3
    executor = build_executor((compiler,), platform.machine(), tuple(args.flags.split()))
    wrong: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for number in range(args.plans):
        seed, sort = args.seed + number // len(RUNS), list(RUNS)[number % len(RUNS)]
        settings = RUNS[sort](seed)
        with tempfile.TemporaryDirectory() as folder:
            trace, executed = run_native(executor, settings, Path(folder))
            if sort == "preemptive":
                eventful = run_native(executor, eventful_preemptive_run(seed), Path(folder))
        seen.update(f"jobs {job.status}" for job in trace.jobs)
        seen.update(f"events {note.kind}" for note in trace.instants)
        seen["high levels"] += sum("high level of criticality begins" in note.text for note in trace.instants)
        seen["preemptions"] += sum(job.preemptions for job in trace.jobs)
        found: dict[str, list[str]] = {}
        if sort == "eventful":
            found["balance of accounts"] = unbalanced(executed)
        elif sort == "preemptive":
            found["balance of accounts"] = unbalanced(eventful[1])
            seen["preemptions in eventful runs"] += sum(job.preemptions for job in eventful[0].jobs)
        if sort != "eventful":
            found["simulator"] = differences_from_simulator(settings, trace)
        for other, lines in found.items():
            seen[f"runs compared with the {other}"] += 1
            wrong[other] += bool(lines)
            if lines and wrong[other] <= 3:
                print(f"{sort} run {seed}, {other}:", *lines, sep="\n  ")
    for what, count in sorted(seen.items()):
        print(f"{count:>9,} {what}")
    for other, count in wrong.items():
        print(f"{'MISSED' if count else 'ok    '} {count} runs differ from the {other}")
    return 1 if sum(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
