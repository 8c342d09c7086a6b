"""Processor time that the executor takes for a frame of a plan, and frames a second.

    python -m tools.bench.frame_time PLAN.json|BUNDLE [--frames 2000]

All threads of the executor count, those of a GPU's driver too, from time zero to the last frame's end: first as fast
as possible with one frame in flight and with two, then at the plan's rate, with a twentieth of the frames, 50 at most.
Of a bundle, its own executor runs, with one frame in flight and with two.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from socsched.api.execution import run
from socsched.executor import run_native
from socsched.executor.application import program_of
from socsched.executor.outcome import Executed, read_executed
from socsched.executor.settings import PLAN, SETTINGS


def main() -> None:
    """Print a line for each way of releasing frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, metavar="PLAN.json|BUNDLE")
    parser.add_argument("--frames", type=int, default=2000)
    args = parser.parse_args()
    if args.plan.is_dir():
        for in_flight in (1, 2):
            print(
                f"{in_flight} in flight    {args.frames} frames: {_bundle(args.plan, args.frames, in_flight)}",
                flush=True,
            )
        return
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
    return f"{_each(outcomes[0], frames)}, {said}"


def _bundle(folder: Path, frames: int, in_flight: int) -> str:
    """Return the same of a bundle's own executor on this machine."""
    settings = json.loads((folder / SETTINGS).read_text())
    period = max(sensor["period_ns"] for sensor in json.loads((folder / PLAN).read_text())["sensors"])
    with TemporaryDirectory() as scratch:
        home = Path(scratch)
        for file in folder.iterdir():
            (home / file.name).symlink_to(file.resolve())
        (home / SETTINGS).unlink()
        (home / SETTINGS).write_text(json.dumps(settings | {"in_flight": in_flight, "horizon_ns": frames * period}))
        (home / "results").mkdir()
        program = program_of(folder, platform.machine())
        subprocess.run([program, home / SETTINGS, "-o", home / "results"], check=True)
        return _each(read_executed(home / "results"), frames)


def _each(executed: Executed, frames: int) -> str:
    each, rate = executed.processor_ns / frames / 1e3, frames / executed.duration_ns * 1e9
    return f"{each:.1f} us a frame, {rate:,.0f} frames/s"


if __name__ == "__main__":
    main()
