import numpy as np
import pytest
import reference_pointpillars
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import Recorded

from socsched.errors import UsageError
from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.scan import read_scan
from socsched.models.pointpillars.voxelise import voxelise
from socsched.models.registry import get_model


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 300),
    spread=st.floats(0.1, 60),
    max_pillars=st.integers(1, 60),
    max_points=st.integers(1, 6),
)
def test_equals_the_definition(seed, count, spread, max_pillars, max_points):
    rng = np.random.default_rng(seed)
    centre = np.array([rng.uniform(-5, 75), rng.uniform(-42, 42), 0, 0])
    points = (centre + rng.normal(0, 1, (count, 4)) * [spread, spread, 1.5, 1]).astype(np.float32)
    points[rng.random(count) < 0.2, :2] = np.float32(0.16) * 7  # points on a border, many in one pillar
    got = voxelise(points, max_pillars, max_points)
    for mine, reference in zip(got, reference_pointpillars.voxelise(points, max_pillars, max_points), strict=True):
        assert mine.dtype == reference.dtype
        np.testing.assert_array_equal(mine, reference)


def test_range_border_is_included_below_and_excluded_above():
    low, high = np.array(KITTI.low), np.array(KITTI.high)
    points = np.array([[*low, 0.5], [*high, 0.5], [low[0], low[1], -3.000001, 0.5]], np.float32)
    _, counts, coords = voxelise(points)
    assert counts.tolist() == [1] and coords.tolist() == [[0, 0]]


@pytest.mark.parametrize("points", [np.zeros((0, 4)), np.full((9, 4), 500.0), np.full((3, 4), np.nan)])
def test_nothing_in_range_gives_no_pillars(points):
    voxels, counts, coords = voxelise(points.astype(np.float32))
    assert (voxels.shape, counts.shape, coords.shape) == ((0, 32, 4), (0,), (0, 2))


def test_more_than_65536_pillars_are_numbered_right():
    grid = KITTI
    x, y = np.meshgrid(np.arange(432), np.arange(200))
    points = np.zeros((x.size, 4), np.float32)
    points[:, 0], points[:, 1] = (x.ravel() + 0.5) * 0.16, grid.low[1] + (y.ravel() + 0.5) * 0.16
    points = np.concatenate([points, points[::-1]])
    _, counts, coords = voxelise(points, max_pillars=100_000)
    assert len(counts) == x.size and (counts == 2).all()
    np.testing.assert_array_equal(coords, np.column_stack([x.ravel(), y.ravel()]))


def test_scans_give_the_pillars_of_the_definition_bit_for_bit(recorded: Recorded) -> None:
    assert [scan.stem for scan in recorded.scans] == list(recorded.frames)
    for scan in recorded.scans:
        points, stats = read_scan(scan), recorded.frames[scan.stem]["stats"]
        found, expected = voxelise(points), reference_pointpillars.voxelise(points)
        for mine, reference in zip(found, expected, strict=True):
            assert mine.dtype == reference.dtype
            np.testing.assert_array_equal(mine, reference, scan.stem)
        assert (len(found[1]), int(found[1].sum())) == (stats["pillars"], stats["points_in_pillars"])


def test_stage_outputs_are_aligned_and_match_its_ports():
    model = get_model("pointpillars.voxelise", {"max_points": 8, "max_pillars": 50})
    points = np.random.default_rng(1).uniform([0, -30, -3, 0], [60, 30, 1, 1], (900, 4)).astype(np.float32)
    arrays = model.function(points)
    for array, port in zip(arrays, model.outputs, strict=True):
        assert array.ctypes.data % 64 == 0 and array.shape[1:] == port.type.shape[1:]
    assert len(arrays[0]) == 50 and model.outputs[0].type.shape == (50, 8, 4)


def test_work_grows_with_the_nominal_sizes():
    small, large = (
        get_model("pointpillars.voxelise", {"points": n, "pillars": n // 4}).operators[0] for n in (1000, 8000)
    )
    assert large.flops == 8 * small.flops and large.bytes == 8 * small.bytes
    assert small.read_bytes == 1000 * 16 and small.write_bytes == 250 * (32 * 16 + 4 + 8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"pilars": 3}, "no param 'pilars'"),
        ({"pillars": 0}, "'pillars' is 0"),
        ({"points": 2.5}, "'points' is 2.5"),
        ({"max_points": True}, "'max_points' is True"),
        ({"range": [0, 1, 2]}, "'range'"),
        ({"range": [0, 0, -3, 1.0, 16, 1]}, "'range'"),
        ({"range": "far"}, "'range'"),
        ({"range": [0, -16, -3, 32, 16, 5]}, "'range'"),
    ],
)
def test_wrong_params_are_usage_errors_with_a_hint(params, message):
    with pytest.raises(UsageError, match=message) as caught:
        get_model("pointpillars.voxelise", params)
    assert caught.value.hint


def test_a_smaller_range_gives_a_smaller_grid():
    model = get_model("pointpillars.voxelise", {"range": [0, -16, -3, 32, 16, 1]})
    _, counts, coords = model.function(np.array([[31.99, 15.99, 0, 0], [32.1, 0, 0, 0]], np.float32))
    assert coords.tolist() == [[199, 199]] and counts.tolist() == [1]
