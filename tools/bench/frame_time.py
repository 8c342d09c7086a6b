"""Processor time that the executor takes for a frame of a plan, and frames a second.

    python -m tools.bench.frame_time PLAN.json [--frames 2000]

All threads of the executor count, those of a GPU's driver too, from time zero to the last frame's end: first as fast
as possible with one frame in flight and with two, then at the plan's rate, with a twentieth of the frames, 50 at most.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from unittest import mock

from socsched.api.execution import run
from socsched.executor import run_native
from socsched.executor.outcome import Executed


def main() -> None:
    """Print a line for each way of releasing frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("--frames", type=int, default=2000)
    args = parser.parse_args()
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "one in flight": (args.frames, {"pace": False, "in_flight": 1}),
        "two in flight": (args.frames, {"pace": False, "in_flight": 2}),
        "at its rate": (min(args.frames // 20, 50), {}),
    }
    for title, (frames, how) in ways.items():
        print(f"{title:14} {frames} frames: {_run(args.plan, frames, how)}", flush=True)


def _run(plan: Path, frames: int, how: dict[str, Any]) -> str:
    """Return the processor time of a frame of a run, its frames a second and losses in words."""
    outcomes: list[Executed] = []
    accounts_of = run_native.accounts_of

    def noting(executed: Executed) -> Any:
        outcomes.append(executed)
        return accounts_of(executed)

    with mock.patch.object(run_native, "accounts_of", noting):
        done = run(plan, frames=frames, **how)
    chain = next(iter(done.figures["chains"].values()))
    response = chain["response_time_ns"]
    assert response["p50"] is not None and response["p99"] is not None, "no frame has ended"
    said = f"p50 {response['p50'] / 1e3:.0f} us, p99 {response['p99'] / 1e3:.0f} us, {chain['dropped']} dropped"
    each, rate = outcomes[0].processor_ns / frames / 1e3, frames / outcomes[0].duration_ns * 1e9
    return f"{each:.1f} us a frame, {rate:,.0f} frames/s, {said}"


if __name__ == "__main__":
    main()
