"""Compare LiDAR and camera functions on a GPU with numpy, on random scans, maps and frames.

    python -m tools.verify.gpu_functions [--cases 10000] [--seed 0]

needs an OpenCL device (PoCL runs kernels on the processor); CUDA's code is made of the same sources.  Scans are empty,
one point, all in one pillar, above the limits of pillars and points, with NaN and infinities, with duplicate points;
maps have ties, values that are not finite, and more candidates than the decoder considers.  Every output must be equal
bit by bit, on a device with double precision.  Exit code 1 when a case fails, 3 without a device.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from socsched.compiler.builder import compile_stage
from socsched.descriptor.pipeline import Stage
from socsched.errors import MachineError
from socsched.models.registry import get_model
from tools.verify.opencl_device import Device
from tools.verify.opencl_stage import OpenClStage

Array = np.ndarray[Any, Any]

RANGE = [0.0, -2.56, -3.0, 5.12, 2.56, 1.0]
CENTRE_RANGE = [-5.12, -5.12, -4.0, 5.12, 5.12, 6.0]
"""Small grids of 32 x 32 cells, so that limits are met often."""
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "voxelise": ("pointpillars.voxelise", {"range": RANGE, "max_pillars": 300, "max_points": 8}),
    "voxelise, large": ("pointpillars.voxelise", {}),
    "voxelise, ages": ("centerpoint.voxelise", {"range": CENTRE_RANGE, "max_pillars": 500, "max_points": 5}),
    "anchors": ("pointpillars.decode", {"range": RANGE}),
    "anchors, few": ("pointpillars.decode", {"range": RANGE, "candidates": 33, "max_boxes": 7, "turn": 0.7854}),
    "centres": ("centerpoint.decode", {"range": CENTRE_RANGE, "candidates": 200, "max_boxes": 40}),
    "camera": ("camera.decode", {}),
    "frame": ("camera.preprocess", {"height": 90, "width": 160, "input_height": 64, "input_width": 96}),
    "letterbox": (
        "camera.preprocess",
        {"height": 90, "width": 160, "input_height": 96, "input_width": 96, "format": "nv12", "fit": "letterbox"},
    ),
    "pixels": (
        "camera.preprocess",
        {"height": 45, "width": 61, "input_height": 64, "input_width": 96, "format": "bgr"},
    ),
    "channels last": (
        "camera.preprocess",
        {
            "height": 46,
            "width": 62,
            "input_height": 64,
            "input_width": 96,
            "format": "nv12",
            "precision": "fp16",
            "layout": "NHWC",
        },
    ),
    "camera, letterbox": ("camera.decode", {"fit": "letterbox", "height": 1208, "candidates": 60}),
}


def scan(rng: np.random.Generator, low: Sequence[float], high: Sequence[float], most: int = 3000) -> Array:
    """Return a random scan [N, 4] in and around a range."""
    count = int(rng.choice([0, 1, 2, 255, 256, 257, int(rng.integers(3, most))]))
    lower, upper = np.array(low), np.array(high)
    points = np.empty((count, 4), np.float32)
    points[:, :3] = rng.uniform(lower - 0.3, upper + 0.3, (count, 3))
    points[:, 3] = rng.random(count)
    kind = rng.integers(0, 6)
    if kind == 1:  # all in one pillar
        points[:, :3] = lower + 0.2 + rng.uniform(0, 0.1, (count, 3))
    elif kind == 2 and count:  # duplicates
        points = points[rng.integers(0, max(count // 9, 1), count)]
    elif kind == 3 and count:  # what a faulty driver sends
        bad = rng.integers(0, count, count // 3 + 1)
        points[bad, rng.integers(0, 4, len(bad))] = rng.choice([np.nan, np.inf, -np.inf, 3e38, -0.0], len(bad))
    elif kind == 4 and count:  # on the borders of cells
        step = 0.16 if low[0] == 0 else 0.32
        points[:, :2] = np.round((points[:, :2] - lower[:2]) / step) * step + lower[:2]
    elif kind == 5 and count:  # dense ones ahead of others
        points = points[np.sort((count * rng.random(count) ** 3).astype(int))]
    return np.ascontiguousarray(points, np.float32)


def maps(rng: np.random.Generator, name: str, params: Mapping[str, Any]) -> list[Array]:
    """Return random output maps of a detector's head."""
    found = [np.asarray(rng.normal(0, 0.4, port.type.shape), np.float32) for port in get_model(name, params).inputs]
    scores = found[0]
    scores += np.float32(rng.choice([-6.0, -3.0, -1.0, 0.0, 3.0, 20.0, 30.0]))
    scores *= np.float32(rng.choice([0.3, 1.0, 3.0]))
    if name.startswith("centerpoint"):
        found[3] += np.log(np.array([2.0, 4.5, 1.6], np.float32))[None, :, None, None]
        found[4] += np.float32(0.3)
    ties = rng.random() < 0.3
    if ties and name.startswith("camera"):  # of whole cells: a product of rounded scores has none of its own
        found[0][..., 1::2] = found[0][..., : found[0].shape[3] // 2]
    elif ties:  # as half precision has them
        scores[...] = np.round(scores * 4) / 4
    if rng.random() < 0.3:
        for array in found:
            bad = rng.integers(0, array.size, rng.integers(1, 9))
            array.reshape(-1)[bad] = rng.choice(np.array([np.nan, np.inf, -np.inf, 1e30], np.float32), len(bad))
    return found


def arguments(rng: np.random.Generator, name: str, params: Mapping[str, Any]) -> list[Array]:
    """Return random inputs of a function."""
    if name.endswith("voxelise"):
        grid = get_model(name, params).function.keywords["grid"]  # type: ignore[union-attr]
        return [scan(rng, grid.low, grid.high, 3000 if "range" in params else 20000)]
    if name == "camera.preprocess":
        return [rng.integers(0, 256, get_model(name, params).inputs[0].type.shape, np.uint8)]
    return maps(rng, name, params)


def expected(name: str, params: Mapping[str, Any], given: Sequence[Array]) -> tuple[Array, ...]:
    """Return numpy's outputs."""
    function = get_model(name, params).function
    assert function is not None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that are not finite
        result: tuple[Array, ...] = function(*given)
    return result


def difference(found: Sequence[Array], wanted: Sequence[Array], outputs: Sequence[str]) -> str:
    """Return what differs, empty if nothing does; rows of `found` past those of `wanted` must be unused."""
    for name, mine, theirs in zip(outputs, found, wanted, strict=True):
        rows = len(theirs)
        if name == "counts" and mine[rows:].any():
            return "more pillars"
        if name.endswith("labels") and (mine[rows:] >= 0).any():
            return f"{int((mine >= 0).sum())} boxes, not {rows}"
        if mine.dtype != theirs.dtype or mine[:rows].tobytes() != np.ascontiguousarray(theirs).tobytes():
            return name
    return ""


def compare(name: str, params: Mapping[str, Any], run: Callable[..., Sequence[Array]], rng: np.random.Generator) -> str:
    """Return what differs for one random case."""
    given = arguments(rng, name, params)
    outputs = [port.name for port in get_model(name, params).outputs]
    return difference(run(*given), expected(name, params, given), outputs)


def runners(cases: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any], Any]]:
    """Yield case, model, params and the compiled function."""
    engine = SimpleNamespace(id="gpu", kind="gpu", target={"kind": "opencl"})
    device = Device()
    for title, (name, params) in cases.items():
        artifact = compile_stage(Stage(title, title, name, params=params), engine, "fp32")  # type: ignore[arg-type]
        yield title, name, params, OpenClStage(artifact, device)


def main() -> int:
    """Run the cases of every function and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES))
    args = parser.parse_args()
    chosen = {title: CASES[title] for title in args.only or CASES}
    failed = 0
    try:
        for title, name, params, run in runners(chosen):
            rng = np.random.default_rng(args.seed)
            count = args.cases if "large" not in title else args.cases // 20
            problems = [p for p in (compare(name, params, run, rng) for _ in range(count)) if p]
            failed += len(problems)
            print(f"{title:18} {count:6} cases, {len(problems)} differ  {'; '.join(problems[:3])}", flush=True)
    except MachineError as missing:
        print(f"{missing}: {missing.hint}", file=sys.stderr)
        return 3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
