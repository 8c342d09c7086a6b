"""Times of the host functions on this machine, each at several sizes, on one core.

What is counted is the processor time of the thread, so that other programs cost a function their share of the caches
only; between two calls other data drive its own out of the core's cache, as the stages between do.  Every call gets
another frame: a processor that has seen the same data a few times foresees every branch, and takes two thirds of the
time that the frames of a sensor take.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from socsched.compiler.native.host_stages import NativeStages, compiled_stages
from socsched.cost.kernel_times import CONFIDENCE, nonnegative
from socsched.descriptor.platform import Figure, FunctionCost
from socsched.executor.probe.calls import first_on_a_processor, is_alone
from socsched.models.centerpoint.network import MAPS
from socsched.models.model import Model
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.registry import get_model

Array = np.ndarray[Any, Any]
Size = tuple[Mapping[str, float], float]
"""Counts of work by quantity, and time (ms)."""

GROWS = {
    "voxelise": ("points", "pillars"),
    "anchor-decode": ("anchors", "candidates"),
    "center-decode": ("candidates",),
    "camera-preprocess": ("output_pixels", "neighbours"),
    "camera-resize": ("output_pixels",),
    "camera-normalise": ("output_pixels",),
    "camera-decode": ("candidates",),
}
"""Quantities by which the time of each function grows."""
DATA, SIZED = 0.25, 0.14
"""Relative error that is left of a time at the size it was measured: functions depend on what the data are (scans of a
sensor take a quarter less or more than drawn points), and those of pixels on where these lie in caches only."""
LONGEST_S, FEWEST = 0.25, 2
"""Time for a function at one size, after which `FEWEST` calls do: on a busy machine."""
FRAMES = 6
"""Frames that follow each other; images have 6.2 MB."""
_OBJECT = 8
"""Anchors in a row that an object gives scores."""
_NOISE = 999_983
"""Random bytes, repeated in images; a prime, so that no two rows are alike."""
_EVICTED = 3 << 22
"""Bytes read between two calls, more than a core has of its own."""


@dataclass(frozen=True)
class Case:
    """A function at one size of work with its arguments, frame by frame; `empty`: none has a candidate."""

    model: Model
    frames: Sequence[list[Any]]
    compiled: NativeStages
    empty: bool = False

    @property
    def work(self) -> Mapping[str, float]:
        """Return the counts of work by quantity."""
        return self.model.operators[0].attrs

    @property
    def decodes(self) -> bool:
        """Return whether a stage before has just written what the function reads, rather than a sensor."""
        return self.model.device.endswith("decode")

    def function(self) -> Callable[..., Any]:
        """Return the function as the executor calls it."""
        assert self.model.function is not None
        return partial(self.model.function, compiled=self.compiled) if self.model.compiled else self.model.function


def cases(compiled: NativeStages) -> Iterator[Case]:
    """Yield every function at its reference size first, then at others."""

    def case(name: str, params: Mapping[str, Any], *frames: list[Any], empty: bool = False) -> Case:
        return Case(get_model(name, params), frames, compiled, empty)

    for points, pillars in ((20000, 6000), (20000, 3000), (10000, 3000), (20000, 8600)):
        size = {"points": points, "pillars": pillars}
        yield case("pointpillars.voxelise", size, *scans(points, pillars))
    near = [0, -39.68, -3, 34.56, 39.68, 1]
    for params, active in (({}, 400), ({"candidates": 50}, 400), ({"range": near}, 400), ({}, 0)):
        maps = anchor_maps(get_model("pointpillars.decode", params), active)
        yield case("pointpillars.decode", params, *shifted(maps), empty=not active)
    centres = shifted(centre_maps())
    for params in ({}, {"candidates": 250}):
        yield case("centerpoint.decode", params, *centres)
    yield case("centerpoint.decode", {}, *shifted(centre_maps(objects=0)), empty=True)
    images = np.resize(np.frombuffer(np.random.default_rng(1).bytes(_NOISE), np.uint8), FRAMES * 1080 * 1920 * 3)
    for steps in ({}, {"steps": "resize"}, {"steps": "normalise"}):
        for height, width in ((384, 640), (224, 416), (544, 960), (192, 320), (448, 768))[: 3 if steps else None]:
            shape = {**steps, "input_height": height, "input_width": width}
            resized = [[small(height, width)]] if steps.get("steps") == "normalise" else None
            frames = resized or [[image] for image in images.reshape(FRAMES, 1080, 1920, 3)]
            yield case("camera.preprocess", shape, *frames)
    camera_map = np.random.default_rng(1).normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    for params, low in (({}, 0), ({"candidates": 50}, 0), ({}, 20)):
        yield case("camera.decode", params, *shifted([camera_map - low]), empty=low > 0)


def synthetic_scan(points: int = 20000, pillars: int = 6000, seed: int = 1, grid: Grid = KITTI) -> Array:
    """Return [N, 4] float32 points in the range of `grid` that fall into about `pillars` pillars."""
    rng = np.random.default_rng(seed)
    columns, rows, _ = grid.cells
    cells = rng.permutation(columns * rows)[:pillars]
    # Every pillar holds a point, the rest crowd into few of them, as near ground rings do.
    chosen = np.concatenate([cells, cells[(pillars * rng.random(points - pillars) ** 3).astype(int)]])
    y, x = np.divmod(chosen, columns)
    size = grid.pillar[0]
    jitter = rng.random((2, points)) * size * 0.9375
    places = [x * size + grid.low[0] + jitter[0], y * size + grid.low[1] + jitter[1]]
    scan = np.stack([*places, rng.random(points) * 3 - 2.5, rng.random(points)])
    return np.ascontiguousarray(scan.T[rng.permutation(points)], np.float32)


def scans(points: int, pillars: int) -> list[list[Any]]:
    """Return frames of synthetic scans of a size."""
    return [[synthetic_scan(points, pillars, seed)] for seed in range(FRAMES)]


def shifted(maps: list[Array]) -> list[list[Any]]:
    """Return frames of a decoder: the scores of the first have other places in each."""
    scores, *others = maps
    return [[np.roll(scores, number * 7919).copy(), *others] for number in range(FRAMES)]


def anchor_maps(model: Model, active: int) -> list[Array]:
    """Return maps for the anchor decoder in which `active` anchors, as objects in a row, pass the score threshold."""
    rng = np.random.default_rng(1)
    logits, *others = (_noise(port.type.shape) for port in model.inputs)
    logits -= 6
    starts = rng.permutation(logits.size - _OBJECT)[: active // _OBJECT]
    logits.reshape(-1)[starts[:, None] + np.arange(_OBJECT)] = rng.normal(0, 1, (len(starts), _OBJECT))
    return [logits, *others]


def centre_maps(seed: int = 1, objects: int = 2000, cells: int = 5) -> list[Array]:
    """Return CenterPoint's maps in which `cells` cells around each of `objects` centres pass the score threshold."""
    rng = np.random.default_rng(seed)
    maps = [_noise((1, channels, 480, 480)) for _, channels in MAPS]
    heat, heading = maps[0][0], maps[4][0]
    heat -= 4
    heading[1] += 1
    maps[3][0] += np.log([[[2.0]], [[4.5]], [[1.6]]])
    for y, x in rng.integers(2, 478, (objects, 2)):
        spots = rng.permutation(25)[:cells]
        heat[rng.integers(0, 5), y - 2 + spots // 5, x - 2 + spots % 5] = rng.normal(1, 0.5, cells)
    return maps


def _noise(shape: tuple[int, ...]) -> Array:
    """Return normal noise of deviation 0.3, repeated after some 60,000 values, which takes a tenth of drawing all."""
    drawn = np.random.default_rng(2).normal(0, 0.3, 60_013).astype(np.float32)
    return np.resize(drawn, shape)


def small(height: int, width: int) -> Array:
    """Return a resized image of noise."""
    return np.random.default_rng(1).integers(0, 256, (1, 3, height, width), np.uint8)


def median_ms(case: Case, repeats: int) -> float:
    """Return the median processor time of a call (ms) on a core of its own, of fewer calls on a busy machine."""
    function, evicted = case.function(), np.ones(_EVICTED, np.uint8)
    times: dict[bool, list[float]] = {True: [], False: []}
    end = time.monotonic() + LONGEST_S
    with first_on_a_processor():
        for number in range(2 * repeats + 2):
            arguments = case.frames[number % len(case.frames)]
            for array in [evicted, *arguments] if case.decodes else [evicted]:
                array.max()
            alone, start = is_alone(), time.thread_time_ns()
            function(*arguments)
            taken = time.thread_time_ns() - start
            if number >= 2:
                times[alone and is_alone()].append(taken / 1e6)
            if len(times[True]) >= repeats or (number > FEWEST and time.monotonic() > end):
                break
    return statistics.median(times[True] or times[False])


def rates(names: Sequence[str], measured: Sequence[Size]) -> list[float]:
    """Return the time (ms) of a call and of an item of each quantity, none negative, that fit all sizes best."""
    return nonnegative([(1.0, *(work[name] for name in names)) for work, _ in measured], [time for _, time in measured])


def time_functions(repeats: int = 4) -> dict[str, FunctionCost]:
    """Return what every host function costs on one core; empty without a C compiler."""
    compiled = compiled_stages()
    if not isinstance(compiled, NativeStages):
        return {}
    known = list(cases(compiled))
    # in two turns, of which the quicker counts: what other programs do to the caches lasts longer than a few calls
    turns = [[median_ms(case, repeats) for case in known] for _ in range(2)]
    measured: dict[str, list[Size]] = {}
    empty = dict.fromkeys(GROWS, math.inf)
    for case, *times in zip(known, *turns, strict=True):
        if case.empty:
            empty[case.model.device] = min(times)
        else:
            measured.setdefault(case.model.device, []).append((case.work, min(times)))
    return {device: _cost(GROWS[device], sizes, empty[device]) for device, sizes in measured.items()}


def _cost(names: Sequence[str], sizes: Sequence[Size], empty: float = math.inf) -> FunctionCost:
    """Return the cost of a function at its first size.

    Its error is that of the sizes measured, and reaches `empty` frames (ms), or half of the time.
    """
    base, *per_item = rates(names, sizes)
    first = sizes[0][0]

    def time(found: Sequence[float], work: Mapping[str, float]) -> float:
        return found[0] + sum(rate * work[name] for name, rate in zip(names, found[1:], strict=True))

    off = [time((base, *per_item), work) / taken - 1 for work, taken in sizes]
    known = (SIZED if "output_pixels" in names else DATA) + CONFIDENCE * float(np.sqrt(np.mean(np.square(off))))
    most = time((base, *per_item), first)
    error = (1 + known) * most / min(max(empty, most / 2), most) - 1
    note = "processor time on one core, median, caches cold"
    figure = partial(Figure, kind="measured", source="detect", note=note, error=round(error, 3))
    per_million = {name: figure(rate * 1e12) for name, rate in zip(names, per_item, strict=True) if rate}
    return FunctionCost(figure(most * 1e6), {name: first[name] for name in names}, per_million, units=1)
