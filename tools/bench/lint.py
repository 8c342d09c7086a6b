"""Time of `socsched lint` for every shipped pipeline on every shipped platform, once imported and with cold caches.

    python -m tools.bench.lint [--repeat 5]

Prints per pipeline the median and the longest time over the platforms, each time with empty caches of descriptors.
"""

from __future__ import annotations

import argparse
import statistics
import time

from socsched.descriptor import catalog, operator_rules_file
from socsched.descriptor.catalog import pipeline_names, platform_names
from socsched.lint.files import lint_file


def seconds(pipeline: str, platform: str) -> float:
    """Return the time of one check with empty caches."""
    for cached in (catalog._platform, catalog._pipeline, operator_rules_file._load):
        cached.cache_clear()
    start = time.perf_counter()
    lint_file(pipeline, platform)
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    platforms = [name for name in platform_names() if name != "host"]
    lint_file(pipeline_names()[0], platforms[0])
    print(f"{'pipeline':24} {'median':>9} {'longest':>9}")
    for pipeline in pipeline_names():
        times = [statistics.median(seconds(pipeline, name) for _ in range(repeat)) for name in platforms]
        print(f"{pipeline:24} {statistics.median(times) * 1e3:6.1f} ms {max(times) * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()
