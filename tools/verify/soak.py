"""Run a plan on this machine for a long time and watch the executor's memory, open files and threads.

    python -m tools.verify.soak PLAN.json [--minutes 30] [OPTION of `socsched run` ...]

Once a second resident memory (VmRSS), descriptors and threads of the executor are read from /proc.  After the first
minute (of short runs the first half) memory may grow by less than half a MiB, as a least-squares line over the rest
says, and no descriptor or thread may be added.  Trace and frames go to files, as with `socsched run -o`.  Exit code 1
when something grew, or the run lost count of a frame.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ALLOWED_BYTES = 2**19
FIRST_S = 60.0


def executor_of(process: int) -> int | None:
    """Return the number of the executor's process among the descendants of a process, once it has started."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().startswith("socsched-execu"):
                return child
            if (found := executor_of(child)) is not None:
                return found
    return None


def sample(process: int) -> tuple[int, int, int]:
    """Return resident bytes, descriptors and threads of a process."""
    place = Path(f"/proc/{process}")
    resident = int((place / "statm").read_text().split()[1]) * 4096
    return resident, sum(1 for _ in (place / "fd").iterdir()), sum(1 for _ in (place / "task").iterdir())


def watch(command: list[str]) -> tuple[list[tuple[float, int, int, int]], str]:
    """Run a command; return samples with their seconds since the executor began, and what the command printed."""
    samples: list[tuple[float, int, int, int]] = []
    began = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        while run.poll() is None:
            time.sleep(1.0)
            try:
                if (executor := executor_of(run.pid)) is not None:
                    began = began or time.monotonic()
                    samples.append((time.monotonic() - began, *sample(executor)))
            except OSError:
                continue  # ended meanwhile
        assert run.stdout is not None
        return samples, run.stdout.read()


def main() -> int:
    """Run, watch, print what grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--minutes", type=float, default=30.0)
    options, rest = parser.parse_known_args()
    length = f"{options.minutes * 60:.0f}s"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "socsched", "run", options.plan, "--duration", length, "--json", "-o", folder]
        samples, printed = watch([*command, *rest])
    accounts = json.loads(printed)["run"]["accounts"]
    table = np.array(samples)
    table = table[table[:, 0] >= min(FIRST_S, options.minutes * 60 / 2)]
    rate = np.polyfit(table[:, 0], table[:, 1], 1)[0]
    grown = rate * (table[-1, 0] - table[0, 0])
    files, threads = table[-1, 2:] - table[0, 2:]
    print(f"resident {table[0, 1] / 2**20:.2f} to {table[-1, 1] / 2**20:.2f} MiB; {accounts}")
    rows = (
        (f"memory grew by {grown / 2**20:.2f} MiB (bar {ALLOWED_BYTES / 2**20:g} MiB)", grown < ALLOWED_BYTES),
        (f"descriptors {files:+.0f}, threads {threads:+.0f}", files <= 0 and threads <= 0),
        ("every frame accounted for", all(a["released"] == sum(a.values()) - a["released"] for a in accounts.values())),
    )
    for text, held in rows:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
