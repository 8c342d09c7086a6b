"""Measure the host functions at several sizes on one core and print the table of `socsched/cost/host_functions.py`.

Usage: taskset -c 1 python -m tools.bench.host_table [--repeats 60] [--native]

A function's time at its first size is printed with its growth by quantity of work, fitted to the other sizes.  The
code is built with vectors of 128 bits as those of Arm's cores; --native builds it as it runs here.  Images come from
memory, as those of a camera do.
The 7-zip score of the same core belongs to the table: 7-zip 16.02, `7za b -mmt1 1`, in the same quiet minute.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from socsched.compiler.native.host_stages import SOURCES, NativeStages
from socsched.compiler.native.shared_object import build_shared_object
from socsched.models.model import Model
from socsched.models.registry import get_model
from tools.bench.host_stages import FRAMES, centre_maps, synthetic_scan

Array = np.ndarray[Any, Any]
GROWS = {
    "voxelise": ("points", "pillars"),
    "anchor-decode": ("anchors", "candidates"),
    "center-decode": ("candidates",),
    "camera-preprocess": ("output_pixels",),
    "camera-resize": ("output_pixels",),
    "camera-normalise": ("output_pixels",),
    "camera-decode": ("candidates",),
}
"""Quantities by which the time of each function is fitted."""


@dataclass(frozen=True)
class Case:
    """A function at one size of work with its arguments, frame by frame."""

    model: Model
    frames: Sequence[list[Any]]
    compiled: NativeStages

    @property
    def work(self) -> Mapping[str, float]:
        """Return the counts of work by quantity."""
        return self.model.operators[0].attrs

    def function(self) -> Callable[..., Any]:
        """Return the function as the executor calls it."""
        assert self.model.function is not None
        if not self.model.compiled:
            return self.model.function
        return partial(self.model.function, compiled=self.compiled)


def cases(compiled: NativeStages) -> Iterator[Case]:
    """Yield every function at its reference size first, then at others."""

    def case(model: Model, *frames: list[Any]) -> Case:
        return Case(model, frames, compiled)

    for points, pillars in ((20000, 6000), (20000, 3000), (10000, 3000), (20000, 8600)):
        model = get_model("pointpillars.voxelise", {"points": points, "pillars": pillars})
        yield case(model, [synthetic_scan(points, pillars)])
    near = [0, -39.68, -3, 34.56, 39.68, 1]
    for params in ({}, {"candidates": 50}, {"range": near}):
        decode = get_model("pointpillars.decode", params)
        yield case(decode, anchor_maps(decode, 400))
    for params in ({}, {"candidates": 250}):
        yield case(get_model("centerpoint.decode", params), centre_maps())
    images = np.random.default_rng(1).integers(0, 256, (FRAMES, 1080, 1920, 3), np.uint8)
    for steps in ({}, {"steps": "resize"}, {"steps": "normalise"}):
        for height, width in ((384, 640), (192, 320), (544, 960)):
            preprocess = get_model("camera.preprocess", {**steps, "input_height": height, "input_width": width})
            resized = steps.get("steps") == "normalise"
            yield case(preprocess, *([[small(height, width)]] if resized else ([image] for image in images)))
    camera_map = np.random.default_rng(1).normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    for params in ({}, {"candidates": 50}):
        yield case(get_model("camera.decode", params), [camera_map])


def anchor_maps(model: Model, active: int) -> list[Array]:
    """Return maps for the anchor decoder in which `active` anchors pass the score threshold."""
    rng = np.random.default_rng(1)
    logits, *others = (rng.normal(0, 0.3, port.type.shape).astype(np.float32) for port in model.inputs)
    logits -= 6
    logits.reshape(-1)[rng.permutation(logits.size)[:active]] = rng.normal(0, 1, active)
    return [logits, *others]


def small(height: int, width: int) -> Array:
    """Return a resized image of noise."""
    return np.random.default_rng(1).integers(0, 256, (1, 3, height, width), np.uint8)


def median_ms(case: Case, repeats: int) -> float:
    """Return the median processor time of a call (ms); other work on the machine does not count."""
    function, times = case.function(), []
    for number in range(repeats + 3):
        arguments = case.frames[number % len(case.frames)]
        start = time.thread_time_ns()
        function(*arguments)
        if number >= 3:
            times.append((time.thread_time_ns() - start) / 1e6)
    return statistics.median(times)


def slopes(names: tuple[str, ...], measured: list[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Return the growth (ms per million items) by quantity, at least 0, from work and time (ms) of every case."""
    (first, reference), *others = measured
    found: dict[str, float] = {}
    used = [name for name in names if any(work[name] != first[name] for work, _ in others)]
    if used:
        table = np.array([[(work[name] - first[name]) / 1e6 for name in used] for work, _ in others])
        rest = np.array([taken - reference for _, taken in others])
        found = dict(zip(used, np.linalg.lstsq(table, rest, rcond=None)[0].tolist(), strict=True))
    return {name: slope for name, slope in found.items() if slope > 0}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--native", action="store_true", help="vectors as wide as this machine's")
    args = parser.parse_args()
    code = build_shared_object(*SOURCES, flags=() if args.native else ("-DSOCSCHED_128_BIT",))
    assert code is not None, "no C compiler"
    measured: dict[str, list[tuple[Mapping[str, float], float]]] = {}
    for case in cases(NativeStages(code)):
        taken = median_ms(case, args.repeats)
        measured.setdefault(case.model.device, []).append((case.work, taken))
        size = " ".join(f"{name} {case.work[name]:.0f}" for name in GROWS[case.model.device])
        print(f"# {case.model.device:18} {taken:7.3f} ms  {size}")
    for device, found in measured.items():
        work, taken = found[0]
        grows = slopes(GROWS[device], found)
        held = {name: round(work[name]) for name in GROWS[device]}
        per = ", ".join(f'"{name}": _figure({slope:.4g})' for name, slope in grows.items())
        print(f'    "{device}": FunctionCost(_figure({taken:.3g}), {held}, {{{per}}}),'.replace("'", '"'))


if __name__ == "__main__":
    main()
