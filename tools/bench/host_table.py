"""Measure the host functions at several sizes on one core and print the table of `socsched/cost/host_functions.py`.

Usage: taskset -c 1 python -m tools.bench.host_table [--repeats 60] [--native] [--peers]

A function's time at its first size is printed with its growth by quantity of work, fitted to the other sizes.  The
code is built with vectors of 128 bits as those of Arm's cores; --native builds it as it runs here.  Images come from
memory, as those of a camera do.  --peers adds numpy's times, and for preprocessing that of a copy of as many bytes as
it reads and writes, and OpenCV's where it is installed.
The 7-zip score of the same core belongs to the table: 7-zip 16.02, `7za b -mmt1 1`, in the same quiet minute.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from socsched.compiler.native.compilers import build_shared_object
from socsched.compiler.native.host_stages import SOURCES, NativeStages
from socsched.executor.probe.functions import GROWS, Case, Size, cases, median_ms, rates
from socsched.graph.operators import tensor_bytes
from socsched.models.camera_image import BIAS, GAIN


def peers(case: Case, repeats: int) -> str:
    """Return the times of numpy, of a copy and of OpenCV as text."""
    plain = replace(case, compiled=None)  # type: ignore[arg-type]
    text = f"  numpy {median_ms(plain, repeats):7.3f} ms"
    if case.model.device != "camera-preprocess":
        return text
    half = (case.frames[0][0].nbytes + tensor_bytes(case.model.outputs[0].type)) // 2
    room, sources = np.ones(half, np.uint8), [[np.ones(half, np.uint8)] for _ in range(16)]
    copying = replace(case.model, function=partial(np.copyto, room), compiled=False)
    text += f"  copy {median_ms(replace(plain, model=copying, frames=sources), repeats):7.3f} ms"
    try:
        import cv2
    except ImportError:
        return text
    cv2.setNumThreads(1)
    height, width = case.model.outputs[0].type.shape[2:]

    def whole(image: Any) -> Any:
        small = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        planes = zip(cv2.split(small), GAIN.tolist(), BIAS.tolist(), strict=True)
        return [cv2.subtract(cv2.multiply(plane, gain, dtype=cv2.CV_32F), bias) for plane, gain, bias in planes]

    theirs = replace(plain, model=replace(case.model, function=whole, compiled=False))
    return f"{text}  OpenCV {median_ms(theirs, repeats):7.3f} ms"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--native", action="store_true", help="vectors as wide as this machine's")
    parser.add_argument("--peers", action="store_true", help="times of numpy, a copy and OpenCV too")
    args = parser.parse_args()
    code = build_shared_object(*SOURCES, flags=() if args.native else ("-DSOCSCHED_128_BIT",))
    assert code is not None, "no C compiler"
    measured: dict[str, list[Size]] = {}
    for case in cases(NativeStages(code)):
        taken = median_ms(case, args.repeats)
        measured.setdefault(case.model.device, []).append((case.work, taken))
        size = " ".join(f"{name} {case.work[name]:.0f}" for name in GROWS[case.model.device])
        others = peers(case, args.repeats) if args.peers else ""
        print(f"# {case.model.device:18} {taken:7.3f} ms{others}  {size}")
    for device, found in measured.items():
        base, *grows = rates(GROWS[device], found)
        held = {name: round(found[0][0][name]) for name in GROWS[device]}
        taken = base + sum(rate * held[name] for name, rate in zip(GROWS[device], grows, strict=True))
        per = ", ".join(f'"{name}": _figure({r * 1e6:.4g})' for name, r in zip(GROWS[device], grows, strict=True) if r)
        print(f'    "{device}": FunctionCost(_figure({taken:.3g}), {held}, {{{per}}}),'.replace("'", '"'))


if __name__ == "__main__":
    main()
