"""DeepThings: tiles against the whole network, worked examples of receptive fields and work stealing, plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import Grid, Region, fusable, gather_network, images, regions, tile_network
from socsched.models.parts import split_into_tiles
from socsched.models.registry import bindings
from socsched.models.work import stage_work
from socsched.planning.cutting.pipelines import as_planned
from socsched.planning.io import from_document, to_document
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from socsched_literature.planners.deepthings import deal_tiles, work_sharing, work_stealing
from tests.compiler import references

ORIN = "jetson-agx-orin-64gb"


def network(layers: list[tuple[str, int, int, int]], rows: int, columns: int, after: bool = True) -> Network:
    """Return a chain of (op, kernel, stride, padding), each convolution of three channels, and a branched end."""
    made: list[Layer] = []
    params: dict[str, tuple[int, ...]] = {}
    last = "image"
    for number, (op, kernel, stride, padding) in enumerate(layers):
        name = f"l{number}"
        attrs = {"kernel": kernel} if op == "max_pool" else {}
        weights = {}
        if op == "conv2d":
            params |= {f"{name}.w": (3, 3, kernel, kernel), f"{name}.b": (3,)}
            weights = {"weight": f"{name}.w", "bias": f"{name}.b"}
        made.append(Layer(name, op, (last,), weights, {**attrs, "stride": stride, "padding": padding}))
        last = name
        if op == "conv2d":
            made.append(Layer(f"{name}.relu", "relu", (name,)))
            last = f"{name}.relu"
    if after:
        params |= {"end.w": (3, 3, 1, 1), "end.b": (3,)}
        made.append(Layer("end", "conv2d", (last,), {"weight": "end.w", "bias": "end.b"}, {"stride": 1, "padding": 0}))
        made.append(Layer("sum", "add", (last, "end")))
        last = "sum"
    return Network("chain", {"image": TensorType((1, 3, rows, columns), "fp32", "NCHW")}, tuple(made), (last,), params)


LAYER = st.one_of(
    st.tuples(st.just("conv2d"), st.sampled_from([1, 3, 5]), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("max_pool"), st.sampled_from([2, 3]), st.sampled_from([1, 2]), st.just(0)),
)


@settings(max_examples=40, deadline=None)
@given(
    layers=st.lists(LAYER, min_size=1, max_size=4),
    size=st.tuples(st.integers(24, 40), st.integers(24, 40)),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    seed=st.integers(0, 99),
)
def test_tiles_compute_what_the_whole_network_computes(
    layers: list[tuple[str, int, int, int]],
    size: tuple[int, int],
    grid: tuple[int, int],
    seed: int,
) -> None:
    whole = network(layers, *size)
    depth = fusable(whole)
    wide = next((n for n, (_, kernel, _, pad) in enumerate(layers) if pad >= kernel), len(layers))
    assert depth == sum(2 if op == "conv2d" else 1 for op, *_ in layers[:wide])
    if depth == 0:
        return
    last = images(whole, depth)[-1]
    rows, columns = min(grid[0], last.rows), min(grid[1], last.columns)
    if last.rows < 1 or last.columns < 1 or rows * columns < 2:
        return
    rng = np.random.default_rng(seed)
    weights = {name: rng.normal(size=shape) for name, shape in whole.params.items()}
    image = {"image": rng.normal(size=(1, 3, *size)).astype(np.float32)}
    expected = references.run(whole, weights, image)[0]
    tiled = Grid(depth, rows, columns)
    results = {}
    for row, column in tiled.places():
        one = tile_network(whole, tiled, row, column)
        results[one.outputs[0]] = references.run(one, weights, image)[0]
    found = references.run(gather_network(whole, tiled), weights, results)[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_receptive_fields_by_hand() -> None:
    """Two 3x3 convolutions of padding 1 around a 2x2 pooling of stride 2, 8x8 in, 4x4 out, 2x2 tiles of 2x2.

    Upper left: rows 0-1 of the last need rows 0-2 of the pooled image, these 0-5 of the first result, these 0-6 of the
    input.  Lower right: 2-3, 1-3, 2-7, 1-7.
    """
    chain = network([("conv2d", 3, 1, 1), ("max_pool", 2, 2, 0), ("conv2d", 3, 1, 1)], 8, 8, after=False)
    grid = Grid(5, 2, 2)
    first = [Region(0, 0, 7, 7), Region(0, 0, 6, 6), Region(0, 0, 6, 6), Region(0, 0, 3, 3), Region(0, 0, 2, 2)]
    assert regions(chain, grid, 0, 0) == [*first, Region(0, 0, 2, 2)]
    assert [(r.top, r.bottom) for r in regions(chain, grid, 1, 1)] == [(1, 8), (2, 8), (2, 8), (1, 4), (2, 4), (2, 4)]
    tile = tile_network(chain, grid, 0, 0)
    assert [layer.attrs.get("padding") for layer in tile.layers if layer.op == "conv2d"] == [(1, 1, 0, 0)] * 2


def test_work_stealing_by_hand() -> None:
    """Four tiles of 4 on worker 0, 6 on worker 1, all with worker 0; a steal takes 1.

    0: tile 0 from 0 to 4.  1 steals the last, tile 3, at 0: 1 to 7.  0: tile 1 from 4 to 8.  1 steals tile 2: 8 to 14.
    """
    found = work_stealing([[4, 6]] * 4, [[0, 1, 2, 3], []], steal_ns=1)
    assert found.worker == (0, 0, 1, 1) and found.start_ns == (0, 4, 8, 1)
    assert found.makespan_ns == 14 and found.steals == 2
    assert work_sharing([[4, 6]] * 4, [[0, 1, 2, 3], []]) == 16
    assert deal_tiles(5, 2) == [[0, 1], [2, 3, 4]]


@pytest.mark.parametrize("seed", range(10))
def test_stealing_beats_sharing_where_workers_differ(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = [[int(t), int(3 * t)] for t in rng.integers(5, 20, 12)]
    queues = deal_tiles(12, 2)
    found = work_stealing(times, queues)
    assert found.makespan_ns < work_sharing(times, queues)
    # No worker idles while a tile waits: all workers end within one tile of one another.
    ends = [0, 0]
    for tile, (start, worker) in enumerate(zip(found.start_ns, found.worker, strict=True)):
        ends[worker] = max(ends[worker], start + times[tile][worker])
    assert abs(ends[0] - ends[1]) <= max(max(row) for row in times)


def test_what_cannot_be_tiled_is_refused() -> None:
    whole = network([("conv2d", 3, 1, 1)], 8, 8)
    with pytest.raises(UsageError, match="3 layers cannot be tiled, the first 2 can"):
        tile_network(whole, Grid(3, 2, 2), 0, 0)
    with pytest.raises(UsageError, match="no 9 x 1 tiles"):
        tile_network(whole, Grid(2, 9, 1), 0, 0)
    with pytest.raises(UsageError, match="has camera-detect, backbone") as caught:
        make_plan(planner("deepthings"), get_pipeline("perception-stack"), get_platform(ORIN), "MAXN", work=stage_work)
    assert "-O stage=NAME" in caught.value.hint


def test_a_tiled_plan_is_bounded_simulated_written_and_restored() -> None:
    pipeline = get_pipeline("camera-detection")
    options = {"rows": "2", "columns": "4", "engines": "cpu0"}
    plan = make_plan(planner("deepthings"), pipeline, get_platform(ORIN), "MAXN", work=stage_work, options=options)
    tiles = [task for task in plan.tasks if "tile" in task.name and task.kind == "stage"]
    assert len(tiles) == 8 and {task.engine for task in tiles} == {"cpu0"}
    assert {task.lanes for task in tiles} == {(0,), (1,), (2,), (3,)}
    assert plan.solver.facts["tile_bytes"] < plan.solver.facts["whole_bytes"] / 4
    trace = run(plan, 10**9).trace
    assert trace is not None
    seen = result(trace, plan)["chains"]["camera-detection"]
    bound = plan.chains[0].bound_ns
    assert bound is not None and not seen["missed"] and seen["response_time_ns"]["max"] <= bound
    assert from_document(to_document(plan)) == plan
    restored = as_planned(pipeline, plan)
    assert [s.name for s in restored.stages] == [t.name for t in plan.tasks if t.kind == "stage"]
    ports = bindings(restored)
    assert set(ports["detect"].values()) == {task.name for task in tiles}
    assert all(ports[task.name] == {"camera_input": "preprocess"} for task in tiles)


@pytest.mark.slow
def test_compiled_tiles_equal_the_compiled_network() -> None:
    """The stages of the rewritten pipeline through the compiler, on this machine: within float32 rounding."""
    from socsched.compiler.builder import compile_stage
    from socsched.compiler.loading.stages import load

    pipeline, engine = get_pipeline("camera-detection"), get_platform("host").engines[0]
    stage = replace(
        pipeline.stage("detect"),
        params={**pipeline.stage("detect").params, "input_height": 128, "input_width": 192},
        precisions=("fp32",),
        costs=(),
    )
    small = replace(pipeline, stages=tuple(stage if s.name == "detect" else s for s in pipeline.stages))
    image = np.random.default_rng(3).normal(size=(1, 3, 128, 192)).astype(np.float32)
    whole = load(compile_stage(stage, engine, "fp32", threads=1))
    expected = whole(image)[0]
    tiled = split_into_tiles(small, {"detect": Grid(3, 2, 2)})
    parts = {s.name: load(compile_stage(s, engine, "fp32", threads=1)) for s in tiled.stages if "detect" in s.name}
    results = [parts[name](image)[0] for name in parts if "tile" in name]
    found = parts["detect"](*results)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))
