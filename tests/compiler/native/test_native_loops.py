"""Compiled host loops against the numpy code they replace: bit-identical for all data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.compiler.native import shared_object as native
from socsched.compiler.native.loops import CompiledLoops, loops
from socsched.models.pointpillars.decode import Settings, decode, detect
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.pointpillars.nms import iou_matrix, suppress
from socsched.models.pointpillars.voxelise import voxelise
from socsched.runtime.backends.function import FunctionBackend

SMALL = Grid((0.0, -3.2, -3.0), (5.12, 3.2, 1.0), (0.32, 0.32, 4.0))
LOOPS = loops()
pytestmark = pytest.mark.skipif(LOOPS is None, reason="no C compiler, or SOCSCHED_KERNEL=python")


def equal(got: Any, expected: Any) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for a, b in zip(map(np.ascontiguousarray, got), map(np.ascontiguousarray, expected), strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 400), st.integers(1, 60), st.integers(1, 5), st.booleans())
def test_voxels_are_those_of_numpy(seed: int, count: int, most: int, slots: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    points = (rng.random((count, 4)) * [7, 8, 5, 1] - [1, 4, 3.5, 0]).astype(np.float32)
    points[:, :2] = np.where(rng.random((count, 1)) < 0.3, np.round(points[:, :2] / 0.32) * 0.32, points[:, :2])
    if odd and count:
        points[rng.integers(0, count, 8), rng.integers(0, 4, 8)] = rng.choice([np.nan, np.inf, -np.inf, 1e30, -0.0], 8)
    assert equal(voxelise(points, most, slots, SMALL, LOOPS), voxelise(points, most, slots, SMALL))


def test_what_is_no_plain_scan_goes_through_numpy() -> None:
    points = np.random.default_rng(1).random((40, 8)).astype(np.float32)[:, ::2]
    assert not points.flags.c_contiguous
    assert equal(voxelise(points, loops=LOOPS), voxelise(points))
    assert equal(voxelise(points.astype(np.float64), loops=LOOPS), voxelise(points.astype(np.float64)))


def maps(seed: int, steps: float, broken: int) -> list[Any]:
    """Return the head's maps on the small grid; logits in `steps`, so that many are equal."""
    rng = np.random.default_rng(seed)
    cls, reg, turn = (rng.normal(0, s, (n * 6, 10, 8)).astype(np.float32) for n, s in ((3, 4.0), (7, 0.7), (2, 1.0)))
    cls = np.round(cls / steps).astype(np.float32) * np.float32(steps)
    for array in (cls, reg, turn):
        where = rng.integers(0, array.size, broken)
        array.reshape(-1)[where] = rng.choice([np.nan, np.inf, -np.inf, 3e38, 25.0, 40.0], broken)
    return [cls, reg, turn]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.5, 2.0]), st.integers(0, 40), st.integers(1, 600),
    st.sampled_from([0.0, 0.1, 0.5, 0.999]), st.sampled_from([0.0, 0.01, 0.3]),
)  # fmt: skip
def test_detections_are_those_of_numpy(
    seed: int, steps: float, broken: int, candidates: int, score: float, iou: float
) -> None:
    chosen = Settings(score, iou, candidates, 30, SMALL)
    given_ = maps(seed, steps, broken)
    got, expected = detect(*given_, chosen, LOOPS), detect(*given_, chosen)
    assert got.dropped == expected.dropped
    assert equal((got.boxes, got.scores, got.labels), (expected.boxes, expected.scores, expected.labels))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 25), st.booleans())
def test_overlaps_are_those_of_numpy_to_the_last_bit(seed: int, count: int, straight: bool) -> None:
    """Every IoU that occurs is a threshold in turn: an error of one unit in the last place would turn a comparison."""
    rng = np.random.default_rng(seed)
    rects = np.column_stack([rng.random((count, 2)) * 4, rng.random((count, 2)) * 3, rng.normal(0, 2, count)])
    if straight:  # edges that touch, boxes that are equal
        rects = np.round(rects * 2) / 2
        rects[:, 4] = np.round(rects[:, 4]) * np.pi / 2
    assert LOOPS is not None
    matrix = iou_matrix(rects)
    for least in [0.0, 1.0, *rng.choice(matrix.reshape(-1), 12)] if count else [0.0]:
        overlaps = LOOPS.overlaps(rects, float(least))
        assert np.array_equal(overlaps, matrix > least)
        order = rng.permutation(count)[: rng.integers(0, count + 1)]
        assert LOOPS.suppress(overlaps, order) == suppress(overlaps, order)


def test_a_scan_and_its_maps_of_full_size() -> None:
    rng = np.random.default_rng(3)
    points = (rng.random((20000, 4)) * [70, 80, 4, 1] - [0, 40, 3, 0]).astype(np.float32)
    assert equal(voxelise(points, loops=LOOPS), voxelise(points))
    rows, columns = KITTI.cells[1] // 2, KITTI.cells[0] // 2
    made = [rng.normal(m, 1.5, (n * 6, rows, columns)).astype(np.float32) for n, m in ((3, -4), (7, 0), (2, 0))]
    assert equal(decode(*made, loops=LOOPS), decode(*made))


def test_threads_do_not_share_scratch_memory() -> None:
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(5)
    scans = [(rng.random((3000, 4)) * [5, 6, 4, 1] - [0, 3, 3, 0]).astype(np.float32) for _ in range(8)]
    expected = [voxelise(scan, 100, 5, SMALL) for scan in scans]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = pool.map(lambda scan: voxelise(scan, 100, 5, SMALL, LOOPS), scans)
            assert all(equal(a, b) for a, b in zip(found, expected, strict=True))


def test_without_a_compiler_host_functions_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(LOOPS, CompiledLoops)
    source = Path(native.__file__).with_name("loops.c")
    native.build_shared_object.cache_clear()
    try:
        monkeypatch.setenv("SOCSCHED_KERNEL", "python")
        assert native.build_shared_object(source) is None
        native.build_shared_object.cache_clear()
        monkeypatch.delenv("SOCSCHED_KERNEL")
        monkeypatch.setenv("CC", "/nonexistent/cc")
        monkeypatch.setenv("SOCSCHED_CACHE", "/dev/null/none")
        assert native.build_shared_object(source) is None
    finally:
        native.build_shared_object.cache_clear()
    assert FunctionBackend.real


def test_voxel_buffers_are_reused_but_never_while_still_read() -> None:
    assert LOOPS is not None
    rng = np.random.default_rng(2)
    scans = [(rng.random((800, 4)) * [7, 8, 5, 1] - [1, 4, 3.5, 0]).astype(np.float32) for _ in range(6)]
    expected = [voxelise(points, grid=SMALL) for points in scans]
    held = [voxelise(points, grid=SMALL, loops=LOOPS)[0] for points in scans]
    views = [voxels[3:, :, 1] for voxels in held]  # a part keeps the whole
    del held
    assert all(np.array_equal(view, plain[0][3:, :, 1]) for view, plain in zip(views, expected, strict=True))
    places = {view.ctypes.data for view in views}
    assert len(places) == 6 and all(view.ctypes.data % 4 == 0 for view in views)
    del views
    again = [voxelise(points, grid=SMALL, loops=LOOPS)[0] for points in scans]
    assert {voxels[3:, :, 1].ctypes.data for voxels in again} == places, "and no memory is allocated"
    assert all(voxels.ctypes.data % 64 == 0 for voxels in again)
