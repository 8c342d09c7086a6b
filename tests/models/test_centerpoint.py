import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.models.centerpoint.decode import Settings, decode, detect
from socsched.models.centerpoint.network import AUTOWARE, CLASSES, MAPS, backbone_network, head_network
from socsched.models.centerpoint.voxelise import voxelise
from socsched.models.pointpillars import voxelise as pillars
from socsched.models.pointpillars.boxes import footprints, iou
from socsched.models.pointpillars.grid import Grid
from socsched.models.registry import get_model
from socsched.models.work import stage_work

SMALL = Grid((-1.92, -1.28, -4.0), (1.92, 1.28, 6.0), AUTOWARE.pillar)  # 12 x 8 cells
NETWORKS = ("pfn", "scatter", "backbone", "head")
NORMS = (0.3, 0.3, 0.3, 0.3, 0.0)


def multiply_adds(pillars_):
    """The network counted layer by layer from its published configuration: (in, out, kernel area, places) each."""
    full, half, quarter = 480 * 480, 240 * 240, 120 * 120
    table = [(9, 32, 1, pillars_ * 32)]
    table += [(32, 64, 9, full)] + [(64, 64, 9, full)] * 3
    table += [(64, 128, 9, half)] + [(128, 128, 9, half)] * 5
    table += [(128, 256, 9, quarter)] + [(256, 256, 9, quarter)] * 5
    # a transposed convolution with kernel = stride uses each of its taps once at every place of its input
    table += [(64, 128, 1, full), (128, 128, 4, half), (256, 128, 16, quarter)]
    table += [(384, 64, 9, full)] + [(64, 64, 1, full)] * 6 + [(64, 5 + 2 + 1 + 3 + 2 + 2, 1, full)]
    return sum(math.prod(row) for row in table)


def test_work_equals_an_independent_count():
    found = [stage_work(Stage(n, n, f"centerpoint.{n}", params={"pillars": 18600}), "fp16") for n in NETWORKS]
    total = sum(work.flops for work in found)
    assert total == 2 * multiply_adds(18600)
    assert total / 2e9 == pytest.approx(193.4, abs=0.1)


def test_parameters_fill_the_deployed_file():
    networks = backbone_network(480, 480), head_network(480, 480)
    size = 4 * sum(math.prod(shape) for network in networks for shape in network.params.values())
    deployed = 20139562  # bytes of pts_backbone_neck_head_centerpoint.onnx, graph and names included (3 classes, not 5)
    assert 0 < deployed - size < 20_000


def test_stages_fit_together():
    stages = ("voxelise", *NETWORKS, "decode")
    models = {name: get_model(f"centerpoint.{name}", {"range": [-3.84, -2.56, -4, 3.84, 2.56, 6]}) for name in stages}
    provided = {}
    for name in stages:
        for port in models[name].inputs:
            assert name == "voxelise" or provided[port.name] == port.type.shape, (name, port.name)
        provided |= {port.name: port.type.shape for port in models[name].outputs}
    assert provided["canvas"] == (1, 32, 16, 24) and provided["neck"] == (1, 384, 16, 24)
    assert models["decode"].classes == CLASSES


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 400), most=st.integers(1, 40), slots=st.integers(1, 5))
def test_voxelise_sorts_as_pointpillars_does_without_age(seed, count, most, slots):
    points = np.random.default_rng(seed).uniform([-90, -90, -5, 0], [90, 90, 7, 1], (count, 4)).astype(np.float32)
    before = points.copy()
    voxels, counts, coords = voxelise(points, most, slots)
    expected = pillars.voxelise(points, most, slots, AUTOWARE)
    np.testing.assert_array_equal(voxels[..., :3], expected[0][..., :3])
    np.testing.assert_array_equal(counts, expected[1])
    np.testing.assert_array_equal(coords, expected[2])
    assert not voxels[..., 3].any()
    np.testing.assert_array_equal(points, before)


def test_the_grid_lies_all_around():
    assert AUTOWARE.cells == (480, 480, 1)
    points = np.array([[-76.8, -76.8, -4, 0], [76.79, 76.79, 5.9, 0], [0.1, 0.1, 0, 0], [77, 0, 0, 0], [0, 0, 6, 0]])
    _, counts, coords = voxelise(points.astype(np.float32))
    assert coords.tolist() == [[0, 0], [479, 479], [240, 240]] and counts.tolist() == [1, 1, 1]


def quiet_maps(grid):
    nx, ny, _ = grid.cells
    maps = [np.zeros((channels, ny, nx), np.float32) for _, channels in MAPS]
    maps[0][:] = -9
    maps[4][1] = 1  # heading 0
    return maps


def put(maps, row, column, label, logit, **values):
    maps[0][label, row, column] = logit
    for index, (name, _) in enumerate(MAPS):
        if name in values:
            maps[index][:, row, column] = values[name]


def test_known_boxes_are_decoded():
    maps = quiet_maps(AUTOWARE)
    put(maps, 300, 100, 0, 2, reg=(0.25, 0.75), height=-0.8, dim=np.log([1.8, 4.4, 1.5]), rot=(1, 0), vel=(3, -1))
    put(maps, 20, 470, 4, 1, reg=(0, 0), height=0.1, dim=np.log([0.6, 0.7, 1.7]), rot=(-0.1, -0.1))
    boxes, scores, labels, velocities = decode(*(array[None] for array in maps))
    assert labels.tolist() == [0, 4]
    np.testing.assert_allclose(scores, [1 / (1 + math.exp(-2)), 1 / (1 + math.exp(-1))], rtol=1e-6)
    x, y = -76.8 + 100.25 * 0.32, -76.8 + 300.75 * 0.32
    expected = [[x, y, -0.8 - 0.75, 1.8, 4.4, 1.5, math.pi / 2]]
    expected += [[-76.8 + 470 * 0.32, -76.8 + 20 * 0.32, 0.1 - 0.85, 0.6, 0.7, 1.7, -0.75 * math.pi]]
    np.testing.assert_allclose(boxes, expected, rtol=1e-5)
    assert velocities.tolist() == [[3, -1], [0, 0]]


def test_a_heading_too_short_counts_for_all_but_pedestrians():
    maps = quiet_maps(AUTOWARE)
    for label in range(5):
        put(maps, 50, 40 * (label + 1), label, 2, rot=(0.2, 0.2))
    assert detect(*maps).labels.tolist() == [4]


def cell_by_cell(maps, options):
    """The definition: every cell a box, sorted, then box after box against all that came before."""
    heatmap, reg, height, dim, rot, vel = (array.astype(np.float64) for array in maps)
    found = []
    for row in range(options.grid.cells[1]):
        for column in range(options.grid.cells[0]):
            scores = [1 / (1 + math.exp(-value)) for value in heatmap[:, row, column]]
            label = max(range(5), key=lambda k: scores[k])
            norm = math.hypot(*rot[:, row, column])
            assume(abs(norm - NORMS[label]) > 1e-6 and abs(scores[label] - options.score) > 1e-6)
            if norm < NORMS[label] or scores[label] <= options.score:
                continue
            w, l, h = (math.exp(value) for value in dim[:, row, column])  # noqa: E741
            x = (column + reg[0, row, column]) * 0.32 + options.grid.low[0]
            y = (row + reg[1, row, column]) * 0.32 + options.grid.low[1]
            box = [x, y, height[0, row, column] - h / 2, w, l, h, math.atan2(*rot[:, row, column])]
            found.append((scores[label], label, np.array([box]), vel[:, row, column]))
    found.sort(key=lambda entry: -entry[0])
    apart = []
    for entry in found[: options.candidates]:
        gaps = [math.dist(entry[2][0, :2], other[2][0, :2]) for other in apart]
        assume(all(abs(gap - options.circle) > 1e-5 for gap in gaps))
        if all(gap >= options.circle for gap in gaps):
            apart.append(entry)
    apart, clear = apart[: options.max_boxes], []
    for index, entry in enumerate(apart):
        overlaps = [iou(footprints(entry[2]), footprints(other[2]))[0] for other in apart[:index]]
        assume(all(abs(overlap - options.iou) > 1e-5 for overlap in overlaps))
        if all(overlap <= options.iou for overlap in overlaps):
            clear.append(entry)
    return clear


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    mean=st.floats(-4, 3),
    size=st.floats(-2.5, 0.5),
    score=st.sampled_from([0.0, 0.35, 0.8]),
    circle=st.sampled_from([0.0, 0.5, 1.0]),
    overlap=st.sampled_from([0.0, 0.1, 0.5]),
    candidates=st.integers(1, 110),
    most=st.integers(1, 40),
)
def test_equals_the_definition(seed, mean, size, score, circle, overlap, candidates, most):
    rng = np.random.default_rng(seed)
    maps = [rng.normal(0, 0.5, (channels, 8, 12)).astype(np.float32) for _, channels in MAPS]
    # half-integer logits make many equal scores
    maps[0] = (np.round(rng.normal(mean, 1.5, (5, 8, 12)) * 2) / 2).astype(np.float32)
    maps[3] += np.float32(size)
    options = Settings(score, circle, overlap, candidates, most, SMALL)
    found, expected = detect(*maps, options), cell_by_cell(maps, options)
    assert found.labels.tolist() == [label for _, label, _, _ in expected]
    np.testing.assert_allclose(found.scores, [entry[0] for entry in expected], atol=1e-6)
    np.testing.assert_allclose(found.boxes, np.array([e[2][0] for e in expected]).reshape(-1, 7), atol=1e-5)
    np.testing.assert_allclose(found.velocities, np.array([e[3] for e in expected]).reshape(-1, 2), atol=1e-6)


@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_cells_without_finite_values_are_left_out_and_counted(part, value):
    maps = quiet_maps(AUTOWARE)
    put(maps, 10, 10, 1, 5)
    put(maps, 90, 90, 2, 4)
    maps[part][0, 10, 10] = value
    if part == 3 and value == -np.inf:  # a box of no width is no number's fault
        assert detect(*maps).boxes[0, 3] == 0
        return
    if part == 0 and value == -np.inf:  # the best class is another
        assert detect(*maps).labels.tolist() == [1, 2]
        return
    if part == 4 and not np.isnan(value):  # an endless heading still points somewhere
        assert detect(*maps).dropped == 0
        return
    found = detect(*maps)
    assert (found.labels.tolist(), found.dropped) == ([2], 1)
    with pytest.warns(RuntimeWarning, match="1 cells with non-finite values"):
        decode(*maps)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_maps_of_one_extreme_value_do_not_crash(value):
    maps = [np.full((channels, 8, 12), value, np.float32) for _, channels in MAPS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = detect(*maps, Settings(score=0.0, grid=SMALL))
    assert np.isfinite(found.boxes).all()


@pytest.mark.parametrize("stage", ["voxelise", *NETWORKS, "decode"])
@pytest.mark.parametrize(
    "params",
    [{"pilars": 3}, {"pillars": 0}, {"range": [0, 0, -4, 1.28, 0.96, 6]}, {"range": [0, 0, -4, 1.28, 1.28, 5]}],
)
def test_wrong_params_are_usage_errors_that_name_the_stage(stage, params):
    with pytest.raises(UsageError, match=next(iter(params))) as caught:
        get_model(f"centerpoint.{stage}", params)
    assert f"centerpoint.{stage}" in str(caught.value) and caught.value.hint


def test_decode_ports_and_work():
    model = get_model("centerpoint.decode", {"max_boxes": 9})
    assert [port.type.shape for port in model.inputs] == [(1, c, 480, 480) for _, c in MAPS]
    (work,) = model.operators
    assert work.read_bytes > 5 * 480 * 480 * 4 and work.flops > 480 * 480
    arrays = model.function(*(array[None] for array in quiet_maps(AUTOWARE)))
    for array, port in zip(arrays, model.outputs, strict=True):
        assert array.shape[1:] == port.type.shape[1:] and len(array) == 0
