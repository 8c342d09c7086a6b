"""Compiled host stages against the numpy code they replace: bit-identical for all data."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.compiler.native import compilers as native
from socsched.compiler.native import host_stages
from socsched.compiler.native.host_stages import SOURCES, NativeStages, compiled_stages
from socsched.models.camera_image import Target, prepare
from socsched.models.elementary import angle_of, exponential, sine_cosine
from socsched.models.pointpillars.boxes import anchor_tables
from socsched.models.pointpillars.decode import decode
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.pointpillars.voxelise import voxelise
from socsched.runtime.backends.built_in import FunctionBackend
from tests.compiler.native.stage_cases import SCANS, camera_cases, equal, lidar_cases, same

SMALL = Grid((0.0, -3.2, -3.0), (5.12, 3.2, 1.0), (0.32, 0.32, 4.0))
STAGES = compiled_stages()
pytestmark = pytest.mark.skipif(STAGES is None, reason="no C compiler, or SOCSCHED_KERNEL=python")


@pytest.mark.parametrize("seed", range(3))
def test_pillars_and_boxes_are_those_of_numpy(seed: int) -> None:
    assert STAGES is not None
    wrong = [case for case in lidar_cases(seed, 10 * len(SCANS)) if not same(case, STAGES)]
    assert not wrong, (len(wrong), wrong[0].stage, wrong[0].params)


@pytest.mark.slow
def test_pillars_and_boxes_of_ten_thousand_scans_are_those_of_numpy() -> None:
    assert STAGES is not None
    assert all(same(case, STAGES) for case in lidar_cases(99, 10_000))


def test_images_and_boxes_in_them_are_those_of_numpy() -> None:
    assert STAGES is not None
    wrong = [case for case in camera_cases(5, 150) if not same(case, STAGES)]
    assert not wrong, (len(wrong), wrong[0].stage, wrong[0].params)


def test_images_are_those_of_numpy_with_vectors_of_16_bytes_as_well() -> None:
    code = native.build_shared_object(*SOURCES, flags=("-DSOCSCHED_128_BIT",))
    assert code is not None
    narrow = NativeStages(code)
    wrong = [case for case in camera_cases(6, 150) if not same(case, narrow)]
    assert not wrong, (len(wrong), wrong[0].stage, wrong[0].params)


def test_what_is_no_plain_scan_goes_through_numpy() -> None:
    points = np.random.default_rng(1).random((40, 8)).astype(np.float32)[:, ::2]
    assert not points.flags.c_contiguous
    assert equal(voxelise(points, compiled=STAGES), voxelise(points))
    assert equal(voxelise(points.astype(np.float64), compiled=STAGES), voxelise(points.astype(np.float64)))


def test_what_is_no_plain_image_goes_through_numpy() -> None:
    image = np.random.default_rng(1).integers(0, 256, (30, 40, 6), np.uint8)[..., ::2]
    assert np.array_equal(prepare(image, Target(32, 32), STAGES), prepare(image, Target(32, 32)))


def test_a_scan_and_its_maps_of_full_size() -> None:
    rng = np.random.default_rng(3)
    points = (rng.random((20000, 4)) * [70, 80, 4, 1] - [0, 40, 3, 0]).astype(np.float32)
    assert equal(voxelise(points, compiled=STAGES), voxelise(points))
    rows, columns = KITTI.cells[1] // 2, KITTI.cells[0] // 2
    made = [rng.normal(m, 1.5, (n * 6, rows, columns)).astype(np.float32) for n, m in ((3, -4), (7, 0), (2, 0))]
    assert equal(decode(*made, compiled=STAGES), decode(*made))


def test_threads_do_not_share_workspaces() -> None:
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(5)
    scans = [(rng.random((3000, 4)) * [5, 6, 4, 1] - [0, 3, 3, 0]).astype(np.float32) for _ in range(8)]
    expected = [voxelise(scan, 100, 5, SMALL) for scan in scans]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = pool.map(lambda scan: voxelise(scan, 100, 5, SMALL, STAGES), scans)
            assert all(equal(a, b) for a, b in zip(found, expected, strict=True))


def test_without_a_compiler_host_functions_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(STAGES, NativeStages)
    native.build_shared_object.cache_clear()
    try:
        monkeypatch.setenv("SOCSCHED_KERNEL", "python")
        assert native.build_shared_object(*SOURCES) is None
        native.build_shared_object.cache_clear()
        monkeypatch.delenv("SOCSCHED_KERNEL")
        monkeypatch.setenv("CC", "/nonexistent/cc")
        monkeypatch.setenv("SOCSCHED_CACHE", "/dev/null/none")
        assert native.build_shared_object(*SOURCES) is None
    finally:
        native.build_shared_object.cache_clear()
    assert FunctionBackend.real


def test_voxel_buffers_are_reused_but_never_while_still_read() -> None:
    assert STAGES is not None
    rng = np.random.default_rng(2)
    scans = [(rng.random((800, 4)) * [7, 8, 5, 1] - [1, 4, 3.5, 0]).astype(np.float32) for _ in range(6)]
    expected = [voxelise(points, grid=SMALL) for points in scans]
    held = [voxelise(points, grid=SMALL, compiled=STAGES)[0] for points in scans]
    views = [voxels[3:, :, 1] for voxels in held]  # a part keeps the whole
    del held
    assert all(np.array_equal(view, plain[0][3:, :, 1]) for view, plain in zip(views, expected, strict=True))
    places = {view.ctypes.data for view in views}
    assert len(places) == 6 and all(view.ctypes.data % 4 == 0 for view in views)
    del views
    again = [voxelise(points, grid=SMALL, compiled=STAGES)[0] for points in scans]
    assert {voxels[3:, :, 1].ctypes.data for voxels in again} == places, "and no memory is allocated"
    assert all(voxels.ctypes.data % 64 == 0 for voxels in again)


def test_rows_of_an_image_can_be_shared_between_threads() -> None:
    """Each part of the rows has its own workspace; together they are the whole."""
    image = np.random.default_rng(4).integers(0, 256, (45, 80, 3), np.uint8)
    target = Target(64, 96, fit="letterbox", precision="fp16")
    params, parts = host_stages.preprocess(target, "rgb", 45, 80), np.empty((1, 3, 64, 96), np.float16)
    for first, last in ((0, 5), (5, 5), (5, 40), (40, 64)):
        assert call("preprocess", params, image, parts, ctypes.c_int32(first), ctypes.c_int32(last)) == last - first
    assert equal([parts], [prepare(image, target)])
    for first, last in ((-1, 3), (4, 3), (0, 65)):
        assert call("preprocess", params, image, parts, ctypes.c_int32(first), ctypes.c_int32(last)) == -2


def test_halves_are_rounded_as_numpy_rounds_them() -> None:
    """Subnormal, ordinary and infinite halves, with ties."""
    rng, target = np.random.default_rng(0), Target(32, 64, precision="fp16")
    for _ in range(60):
        params = host_stages.PARAMS["preprocess"].from_buffer_copy(host_stages.preprocess(target, "rgb", 32, 64))
        gain, bias = np.float32(10 ** rng.uniform(-12, 6)), np.float32(rng.choice([0, 1, -1e-6, 1e-7, 6e4]))
        params.gain[:], params.bias[:] = [gain] * 3, [bias] * 3
        image, found = rng.integers(0, 256, (32, 64, 3), np.uint8), np.empty((1, 3, 32, 64), np.float16)
        assert call("preprocess", params, image, found, ctypes.c_int32(0), ctypes.c_int32(32)) == 32
        planes = image.transpose(2, 0, 1)[None].astype(np.float32)
        with np.errstate(over="ignore"):
            assert equal([found], [(planes * gain - bias).astype(np.float16)])


def call(name: str, params: Any, *arguments: Any, spare: int = 0) -> int:
    """Return the result of a C function given a workspace of the size that it asks for, and `spare` bytes."""
    assert isinstance(STAGES, NativeStages)
    size = STAGES._sizes[name](ctypes.byref(params))
    raw = np.empty(size + 128, np.uint8)
    raw[:] = 0xA5  # what it holds does not matter
    start = -raw.ctypes.data % 64
    passed = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments]
    workspace = ctypes.c_void_p(raw.ctypes.data + start)
    code: int = STAGES._stages[name](ctypes.byref(params), *passed, workspace, ctypes.c_size_t(size + spare))
    return code


def test_unusable_arguments_are_refused() -> None:
    points = np.zeros((3, 4), np.float32)
    outputs = [np.zeros((3, 5, 4), np.float32), np.zeros(3, np.int32), np.zeros((3, 2), np.int32)]
    good = host_stages.voxelise(SMALL, 3, 5, False)
    count = ctypes.c_int64(3)
    assert call("voxelise", good, points, count, *outputs) == 1
    assert call("voxelise", good, points, count, *outputs, spare=-1) == -3
    assert call("voxelise", good, None, count, *outputs) == -2
    assert call("voxelise", good, points, ctypes.c_int64(-1), *outputs) == -2
    for field, value in (("max_pillars", 0), ("max_points", -4), ("cells", (16, 0, 1)), ("cells", (2**30, 2**30, 1))):
        bad = host_stages.PARAMS["voxelise"].from_buffer_copy(good)
        setattr(bad, field, (ctypes.c_int32 * 3)(*value) if isinstance(value, tuple) else value)
        assert call("voxelise", bad, points, count, *outputs) == -1


@pytest.mark.parametrize("name", ["decode_anchors", "decode_centres", "decode_image_boxes", "preprocess"])
def test_params_without_sizes_and_null_pointers_are_refused(name: str) -> None:
    made = {
        "decode_anchors": (host_stages.PARAMS["anchors"], 7),
        "decode_centres": (host_stages.PARAMS["centres"], 11),
        "decode_image_boxes": (host_stages.PARAMS["image_boxes"], 5),
        "preprocess": (host_stages.PARAMS["preprocess"], 4),
    }
    kind, count = made[name]
    assert call(name, kind(), *[None] * count) == -1
    sizes = {"classes", "rows", "columns", "candidates", "max_boxes", "height", "width"}
    sizes |= {"output_height", "output_width", "fit_height", "fit_width"}
    assert call(name, kind(**{field: 8 for field, *_ in kind._fields_ if field in sizes}), *[None] * count) == -2


def test_anchors_stand_where_they_always_did() -> None:
    for edges in (False, True):
        xs, ys, _ = anchor_tables(KITTI, edges)
        if edges:
            assert np.array_equal(xs, np.linspace(0, 69.12, 216).astype(np.float32))
            assert np.array_equal(ys, np.linspace(-39.68, 39.68, 248).astype(np.float32))
        else:
            assert xs[0] == np.float32(0.16) and ys[-1] == np.float32(39.52)


def test_elementary_functions_are_accurate() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-700, 700, 3000), rng.normal(0, 3, 3000)])
    np.testing.assert_allclose(exponential(x), [math.exp(value) for value in x], rtol=5e-16)
    for found, expected in zip(sine_cosine(x), (np.sin(x), np.cos(x)), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-16)
    y, x = rng.normal(0, 1, (2, 3000))
    np.testing.assert_allclose(angle_of(y, x), np.arctan2(y, x), atol=1e-13)
    assert exponential([-np.inf, -800, 800, np.inf]).tolist() == [0, 0, np.inf, np.inf]
    assert np.isnan(exponential(np.nan)) and np.isnan(angle_of(np.nan, 1)) and angle_of(0, 0) == 0


def test_c_sources_come_with_their_header() -> None:
    assert {path.name for path in SOURCES} >= {"stages.h", "common.h", "elementary.h", "voxelise.c", "preprocess.c"}
    assert Path(native.__file__).parent / "stages" == SOURCES[0].parent
