"""Time of `socsched lint` for every shipped pipeline on every shipped platform, once imported and with cold caches.

    python -m tools.bench.lint [--repeat 5]

Prints per pipeline the median and the longest time over the platforms, each time with empty caches of descriptors:
elapsed, and of the processor, which other work on the machine lengthens less.
"""

from __future__ import annotations

import argparse
import statistics
import time

from socsched.descriptor import catalog, operator_rules_file
from socsched.descriptor.catalog import pipeline_names, platform_names
from socsched.lint.files import lint_file


def seconds(pipeline: str, platform: str) -> tuple[float, float]:
    """Return the time of one check with empty caches: elapsed, and of the processor."""
    for cached in (catalog._platform, catalog._pipeline, operator_rules_file._load):
        cached.cache_clear()
    start = time.perf_counter(), time.process_time()
    lint_file(pipeline, platform)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    platforms = [name for name in platform_names() if name != "host"]
    lint_file(pipeline_names()[0], platforms[0])
    print(f"{'pipeline':24} {'median':>9} {'longest':>9} {'processor':>9} {'longest':>9}")
    for pipeline in pipeline_names():
        runs = [[seconds(pipeline, name) for _ in range(repeat)] for name in platforms]
        cells = ""
        for elapsed_or_used in (0, 1):
            times = [statistics.median(run[elapsed_or_used] for run in of_platform) for of_platform in runs]
            cells += f" {statistics.median(times) * 1e3:6.1f} ms {max(times) * 1e3:6.1f} ms"
        print(f"{pipeline:24}{cells}")


if __name__ == "__main__":
    main()
