"""Processor time that the executor takes for a frame of a plan, and frames a second.

    python -m tools.bench.frame_time PLAN.json [--frames 2000]

Both are differences between a long run and a short one, so that starting and the warm-up do not count: first as fast
as possible with one frame in flight and with two, then at the plan's rate, with a twentieth of the frames.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from typing import Any

from socsched.api.execution import run

SHORT = 0.1
"""The short run's share of the frames."""


def main() -> None:
    """Print a line for each way of releasing frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("--frames", type=int, default=2000)
    args = parser.parse_args()
    ways: dict[str, tuple[int, dict[str, Any]]] = {
        "one in flight": (args.frames, {"pace": False, "in_flight": 1}),
        "two in flight": (args.frames, {"pace": False, "in_flight": 2}),
        "at its rate": (args.frames // 20, {}),
    }
    for title, (frames, how) in ways.items():
        (few, _), (many, rate) = (_run(args.plan, count, how) for count in (round(SHORT * frames), frames))
        each = 1e6 * (many - few) / (frames - round(SHORT * frames))
        print(f"{title:14} {frames} frames: {each:.1f} us a frame, {rate}")


def _run(plan: Path, frames: int, how: dict[str, Any]) -> tuple[float, str]:
    """Return the seconds of processor time of a run, and its frames a second and losses in words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(plan, frames=frames, **how)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    chain = next(iter(done.figures["chains"].values()))
    response = chain["response_time_ns"]
    assert response["p50"] is not None and response["p99"] is not None, "no frame has ended"
    said = f"p50 {response['p50'] / 1e3:.0f} us, p99 {response['p99'] / 1e3:.0f} us, {chain['dropped']} dropped"
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


if __name__ == "__main__":
    main()
