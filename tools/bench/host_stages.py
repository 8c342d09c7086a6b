"""Time the host stages of the built-in models on one core: C, numpy, and other libraries where they are installed.

Usage: python -m tools.bench.host_stages [SCAN.bin ...]   (scans of KITTI's form; without any, synthetic ones)

Prints the processor time of the calling thread, median and minimum of calls, in milliseconds, and the ratio to the
first line of the stage.  OpenCV (resize and colour conversion, the same with normalisation, and NMS of rotated
boxes) and torchvision (NMS of axis-aligned boxes) run with one thread.  Frames of the camera come from memory, not from
a cache, as they do from a camera; a copy of as many bytes as preprocessing reads and writes shows memory's speed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.native.host_stages import compiled_stages
from socsched.executor.probe.functions import centre_maps, synthetic_scan
from socsched.models.camera_image import BIAS, GAIN, GREY
from socsched.models.centerpoint.network import AUTOWARE
from socsched.models.registry import get_model

REPEATS, RUN, WARM = 200, 10, 3
FRAMES = 16
"""Images of 6.2 MB, together larger than the caches."""
POINTS, PILLARS = 20000, 6000
FULL_POINTS, FULL_PILLARS = 128000, 18600
"""The fullest of 32 full turns of KITTI's LiDAR."""


def head_maps(seed: int = 1, active: int = 400) -> list[np.ndarray[Any, Any]]:
    """Return class, offset and direction maps in which `active` anchors pass the score threshold."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-6, 0.7, (1, 18, 248, 216)).astype(np.float32)
    logits.reshape(-1)[rng.permutation(logits.size)[:active]] = rng.normal(0, 1, active)
    offsets = rng.normal(0, 0.3, (1, 42, 248, 216)).astype(np.float32)
    return [logits, offsets, rng.normal(0, 0.5, (1, 12, 248, 216)).astype(np.float32)]


def times_of(ways: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, list[float]]:
    """Return the thread's processor time (ms) of each of `repeats` calls of every way.

    Ways alternate after RUN calls each, of which the first ones, whose data another way has evicted, do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(max(repeats // RUN, 1)):
        for name, call in ways.items():
            for turn in range(-WARM, RUN):
                start = time.thread_time_ns()
                call()
                if turn >= 0:
                    times[name].append((time.thread_time_ns() - start) / 1e6)
    return times


def show(label: str, ways: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> None:
    """Print one line per way; the first is what the others are compared with."""
    found = times_of(ways, repeats)
    first = statistics.median(next(iter(found.values())))
    for name, times in found.items():
        middle = statistics.median(times)
        ratio = "" if middle == first else f"   {middle / first:6.2f} x"
        print(f"{label:42} {name:30} median {middle:7.3f} ms   min {min(times):7.3f} ms{ratio}", flush=True)


def both(name: str, arrays: list[Any], params: dict[str, Any] | None = None) -> dict[str, Callable[..., Any]]:
    """Return a stage of the built-in models in C, if it can be compiled, and in numpy."""
    function, compiled = get_model(name, params).function, compiled_stages()
    if function is None:
        raise SystemExit(f"{name} is no host function")
    ways = {"C": partial(function, *arrays, compiled=compiled)} if compiled else {}
    return {**ways, "numpy": partial(function, *arrays)}


def opencv_ways(nv12: bool, bars: bool) -> dict[str, Callable[[Any], Any]]:
    """Return OpenCV's preprocessing of a 1920 x 1080 image to 640 x 384, if it is installed."""
    try:
        import cv2
    except ImportError:
        return {}
    cv2.setNumThreads(1)
    size = (640, 360) if bars else (640, 384)

    def resized(image: Any) -> Any:
        rgb = cv2.cvtColor(image, cv2.COLOR_YUV2RGB_NV12) if nv12 else image
        return cv2.resize(rgb, size, interpolation=cv2.INTER_LINEAR)

    def whole(image: Any) -> Any:
        small = resized(image)
        if bars:
            small = cv2.copyMakeBorder(small, 12, 12, 0, 0, cv2.BORDER_CONSTANT, value=(GREY,) * 3)
        return [cv2.subtract(cv2.multiply(plane, gain, dtype=cv2.CV_32F), bias) for plane, gain, bias in zip(
            cv2.split(small), GAIN.tolist(), BIAS.tolist(), strict=True)]  # fmt: skip

    return {"OpenCV, resize": resized, "OpenCV, resize and normalise": whole}


def torchvision_ways(boxes: Any, scores: Any, labels: Any, iou: float) -> dict[str, Callable[[], Any]]:
    """Return torchvision's suppression of axis-aligned boxes [n, 4], if it is installed."""
    try:
        import torch
        from torchvision.ops import batched_nms
    except (ImportError, RuntimeError):  # the latter: built for another PyTorch
        return {}
    torch.set_num_threads(1)
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in (boxes, scores, labels)]
    return {f"torchvision, NMS of {len(scores)}": lambda: batched_nms(*tensors, iou)}


def rotated_ways(boxes: Any, scores: Any, iou: float) -> dict[str, Callable[[], Any]]:
    """Return OpenCV's suppression of rotated boxes of one class, if it is installed."""
    try:
        from cv2 import dnn
    except ImportError:
        return {}
    rects = [((box[0], box[1]), (box[3], box[4]), float(np.degrees(-box[6]))) for box in boxes.tolist()]
    values = scores.tolist()
    return {f"OpenCV, rotated NMS of {len(values)}": lambda: dnn.NMSBoxesRotated(rects, values, 0.0, iou)}


def cold(frames: Sequence[Any], call: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return `call` with the next of `frames`, together larger than the caches, at every turn."""
    turns = cycle(frames)
    return lambda: call(next(turns))


def aligned(boxes: Any) -> Any:
    """Return the bounds [n, 4] of boxes [n, 7] seen from above, without their angles."""
    return np.column_stack([boxes[:, :2] - boxes[:, 3:5] / 2, boxes[:, :2] + boxes[:, 3:5] / 2])


def main() -> None:
    """Print one line per stage, input and library."""
    rng = np.random.default_rng(1)
    scans = [np.fromfile(path, np.float32).reshape(-1, 4) for path in map(Path, sys.argv[1:])] or [synthetic_scan()]
    turns = scans if sys.argv[1:] else [synthetic_scan(FULL_POINTS, FULL_PILLARS, grid=AUTOWARE)]
    for scan in scans:
        show(f"pointpillars.voxelise, {len(scan)} points", both("pointpillars.voxelise", [scan]))
    for turn in turns:
        show(f"centerpoint.voxelise, {len(turn)} points", both("centerpoint.voxelise", [turn]), REPEATS // 4)
    open_ = {"iou": 1.0, "max_boxes": 500}
    for name, maps in (("pointpillars.decode", head_maps()), ("centerpoint.decode", centre_maps())):
        ways = both(name, maps)
        boxes, scores, labels = ways["numpy"].func(*maps, settings=replace(_settings(name), **open_))[:3]  # type: ignore[attr-defined]
        peers = torchvision_ways(aligned(boxes), scores, labels.astype(np.int64), _settings(name).iou)
        peers |= rotated_ways(boxes, scores, _settings(name).iou)
        show(f"{name}, {len(scores)} boxes before NMS", {**ways, **peers}, REPEATS // 2)
    camera_map = rng.normal(0, 1.5, (1, 40, 12, 20)).astype(np.float32)
    show("camera.decode, 100 of 1200 boxes", both("camera.decode", [camera_map]))
    frames = {"rgb": [rng.integers(0, 256, (1080, 1920, 3), np.uint8) for _ in range(FRAMES)]}
    frames["bgr"] = frames["rgb"]
    frames["nv12"] = [rng.integers(0, 256, (1620, 1920), np.uint8) for _ in range(2 * FRAMES)]
    for form, fit, precision in (
        ("rgb", "stretch", "fp32"), ("bgr", "letterbox", "fp32"), ("rgb", "stretch", "fp16"),
        ("nv12", "stretch", "fp32"), ("nv12", "letterbox", "fp16"),
    ):  # fmt: skip
        images = frames[form]
        moved = images[0].nbytes + 3 * 384 * 640 * (4 if precision == "fp32" else 2)
        room = np.ones(moved // 2, np.uint8)
        sources = [np.ones(moved // 2, np.uint8) for _ in range(2 * FRAMES)]
        ways = both("camera.preprocess", [], {"format": form, "fit": fit, "precision": precision})
        ways |= opencv_ways(form == "nv12", fit == "letterbox")
        calls = {name: cold(images, way) for name, way in ways.items()}
        calls[f"copying {moved / 2e6:.1f} MB"] = cold(sources, partial(np.copyto, room))
        show(f"camera.preprocess, {form}, {fit}, {precision}", calls, REPEATS // 4)


def _settings(name: str) -> Any:
    function: Any = get_model(name).function
    return function.keywords["settings"]


if __name__ == "__main__":
    main()
