"""Print the median wall-clock time of `socsched --help` in ms, and what it imports that it should not.

usage: python tools/bench_help.py [RUNS]
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time

HEAVY = ("tvm", "numpy", "pydantic", "rich", "perfetto", "yaml", "google", "PIL")


def main() -> None:
    """Time the command in fresh processes; exit 1 when something heavy is imported."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    command = [sys.executable, "-m", "socsched", "--help"]
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1000)
    print(f"socsched --help: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms of {runs}")
    heavy = imported(command[1:])
    print(f"heavy imports: {', '.join(heavy) or 'none'}")
    sys.exit(1 if heavy else 0)


def imported(arguments: list[str]) -> list[str]:
    """Return which heavy packages the command imports."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], check=True, capture_output=True, text=True)
    names = re.findall(r"\|\s+(\S+)$", done.stderr, re.MULTILINE)
    return sorted({name.split(".")[0] for name in names} & set(HEAVY))


if __name__ == "__main__":
    main()
