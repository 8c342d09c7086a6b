"""Measure the host functions at several sizes on one core and print the table of `socsched/cost/host_functions.py`.

Usage: taskset -c 1 python -m tools.bench.host_table [--repeats 60] [--native]

A function's time at its first size is printed with its growth by quantity of work, fitted to the other sizes.  The
code is built with vectors of 128 bits as those of Arm's cores; --native builds it as it runs here.  Images come from
memory, as those of a camera do.
The 7-zip score of the same core belongs to the table: 7-zip 16.02, `7za b -mmt1 1`, in the same quiet minute.
"""

from __future__ import annotations

import argparse

from socsched.compiler.native.compilers import build_shared_object
from socsched.compiler.native.host_stages import SOURCES, NativeStages
from socsched.executor.probe.functions import GROWS, Size, cases, median_ms, rates


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--native", action="store_true", help="vectors as wide as this machine's")
    args = parser.parse_args()
    code = build_shared_object(*SOURCES, flags=() if args.native else ("-DSOCSCHED_128_BIT",))
    assert code is not None, "no C compiler"
    measured: dict[str, list[Size]] = {}
    for case in cases(NativeStages(code)):
        taken = median_ms(case, args.repeats)
        measured.setdefault(case.model.device, []).append((case.work, taken))
        size = " ".join(f"{name} {case.work[name]:.0f}" for name in GROWS[case.model.device])
        print(f"# {case.model.device:18} {taken:7.3f} ms  {size}")
    for device, found in measured.items():
        base, *grows = rates(GROWS[device], found)
        held = {name: round(found[0][0][name]) for name in GROWS[device]}
        taken = base + sum(rate * held[name] for name, rate in zip(GROWS[device], grows, strict=True))
        per = ", ".join(f'"{name}": _figure({r * 1e6:.4g})' for name, r in zip(GROWS[device], grows, strict=True) if r)
        print(f'    "{device}": FunctionCost(_figure({taken:.3g}), {held}, {{{per}}}),'.replace("'", '"'))


if __name__ == "__main__":
    main()
