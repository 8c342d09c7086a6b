"""IOS: its dynamic programming against all schedules, its baselines, and the plan of a schedule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from socsched import plugins
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.graph.network import Layer, Network
from socsched.graph.operators import Operator, TensorType
from socsched.graph.partition import parse_part, take
from socsched.models.model import Model, Port
from socsched.models.parts import part_of
from socsched.models.work import stage_work
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from socsched_literature.planners.ios import Stages, blocks, components, endings, greedy, search_schedule, sequential
from socsched_literature.planners.sharing import Kernel, fills, group_ns, merge_convolutions, share_units
from tests.literature.planners.small_graphs import graph, kernel, random_graph

ORIN = "jetson-agx-orin-64gb"


def partitions(stages: Stages, left: frozenset[int], r: int, s: int) -> Iterator[int]:
    """Yield the time of every sequence of stages of `left`, first stage first: subsets whose needs are done."""
    if not left:
        yield 0
        return
    graph = stages.graph
    for size in range(1, len(left) + 1):
        for chosen in itertools.combinations(sorted(left), size):
            first = frozenset(chosen)
            groups = components(graph, first)
            if any(graph.nodes[n].needs & (left - first) for n in first):
                continue
            if len(groups) > s or any(len(group) > r for group in groups):
                continue
            stage = stages.stage(first)
            if stage is not None:
                for rest in partitions(stages, left - first, r, s):
                    yield stage[0] + rest


@pytest.mark.parametrize("seed", range(12))
def test_dynamic_programming_finds_what_brute_force_finds(seed: int) -> None:
    rng = Random(seed)
    made = random_graph(rng, rng.randint(2, 6))
    r, s = rng.randint(1, 3), rng.randint(1, 4)
    stages = Stages(made, rng.randint(0, 8), grain=rng.randint(1, 2))
    everything = frozenset(range(len(made.nodes)))
    time, slots = search_schedule(stages, everything, r, s)
    assert time == min(partitions(stages, everything, r, s))
    # The schedule is one: every node once, after what it needs, groups within r and s, and as long as it says.
    done: set[int] = set()
    for slot in slots:
        own = {n for group in slot.groups for n in group}
        assert not own & done and len(slot.groups) <= s and max(map(len, slot.groups)) <= r
        assert all(made.nodes[n].needs <= done | set(group) for group in slot.groups for n in group)
        done |= own
    assert done == everything


@pytest.mark.parametrize("seed", range(6))
def test_endings_are_the_sets_closed_under_successors(seed: int) -> None:
    made = random_graph(Random(seed), 6)
    everything = frozenset(range(6))
    expected = {
        frozenset(chosen)
        for size in range(1, 7)
        for chosen in itertools.combinations(range(6), size)
        if not any(made.nodes[n].needs & set(chosen) for n in everything - set(chosen))
        and all(len(group) <= 3 for group in components(made, frozenset(chosen)))
        and len(components(made, frozenset(chosen))) <= 2
    }
    found = list(endings(made, everything, 3, 2))
    assert set(found) == expected and len(found) == len(expected)


def test_the_example_by_hand() -> None:
    """The paper's figure 2 in small: a (fills half), then b and c (a half each), d after b; one launch each of 2 ns.

    Sequential: 4 x (10 + 2) = 48.  Best: {a} 12, then {b, c} concurrently 12 and a barrier of 1, then {d} 12: 37;
    {b, d} and {c} take 24 + 1 after a, as long, and one stage less: also 37.  Greedy takes {a}, {b, c}, {d}: 37.
    With c twice as long {b, d} and c take 24 + 1: 37 in all, greedy 12 + 22 + 1 + 12 = 47.
    """
    needs = ((), (0,), (0,), (1,))
    even = graph(needs, [kernel(name, 10, 2, 2) for name in "abcd"])
    stages = Stages(even, 1)
    assert sequential(stages)[0] == 48
    assert greedy(stages)[0] == 37
    assert search_schedule(stages, frozenset(range(4)), 3, 8)[0] == 37
    long = graph(needs, [kernel(name, 20 if name == "c" else 10, 2, 2) for name in "abcd"])
    stages = Stages(long, 1)
    time, slots = search_schedule(stages, frozenset(range(4)), 3, 8)
    assert (time, greedy(stages)[0], sequential(stages)[0]) == (37, 47, 58)
    assert [slot.groups for slot in slots] == [((0,),), ((1, 3), (2,))]
    assert search_schedule(stages, frozenset(range(4)), 1, 8)[0] == 47  # r = 1: b and d are no group


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_the_best_there_are(seed: int) -> None:
    rng = Random(seed)
    groups = [
        [kernel("", rng.randint(1, 99), rng.randint(1, 8), 1) for _ in range(rng.randint(1, 3))] for _ in range(3)
    ]
    found = share_units(groups, 8, 0.0)
    best = min(
        max(group_ns(group, k, 8) for group, k in zip(groups, shares, strict=True))
        for shares in itertools.product(range(1, 9), repeat=3)
        if sum(shares) <= 8
    )
    assert found is not None and found.time_ns == best and sum(found.units) <= 8
    assert share_units(groups, 8, 0.0, grain=4) is None


def test_traffic_of_all_groups_bounds_a_stage() -> None:
    groups = [[kernel("", 10, 1, 0, 0, 500)], [kernel("", 10, 1, 0, 0, 500)]]
    found = share_units(groups, 4, 1e9)
    assert found is not None and found.time_ns == 1000


def test_units_an_operator_fills_and_what_fewer_cost() -> None:
    tensor = TensorType((1, 64, 56, 56), "fp16")
    operator = Operator("c", "conv2d", "fp16", (tensor,), (tensor,), 1, 1, 1)
    assert fills(operator, 16) == 16 and fills(operator, 100) == 49  # 64 * 56 * 56 / 4096
    small = Kernel("k", 100.0, 20.0, 5, 4, 0)
    assert small.time_ns(16, 16) == small.time_ns(4, 16) == 105
    assert small.time_ns(2, 16) == 205
    assert Kernel("m", 1.0, 20.0, 5, 1, 0).time_ns(2, 16) == 85  # a quarter of what fills the memory


def test_stacked_convolutions_pay_for_padding_and_read_once() -> None:
    image, result_ = TensorType((1, 8, 10, 10), "fp16"), TensorType((1, 4, 10, 10), "fp16")

    def conv(side: int) -> Kernel:
        attrs = {"kernel_h": side, "kernel_w": side, "stride_h": 1, "stride_w": 1, "dilation": 1, "groups": 1}
        one = Operator("c", "conv2d", "fp16", (image,), (result_,), 1, 1600, 800, 64 * side * side, attrs)
        return Kernel("c", 9.0 * side * side, 1.0, 5, 1, 2400, one)

    both = merge_convolutions([conv(1), conv(3)], 1e9, 16)
    assert both is not None
    assert both.compute_ns == 81 + 81  # the 1x1 grows to a 3x3
    assert both.bytes == 1600 + 2 * 800 + 2 * 576 and both.memory_ns == both.bytes
    operator = conv(1).operator
    assert operator is not None
    strided = replace(operator, attrs={**operator.attrs, "stride_h": 2})
    assert merge_convolutions([conv(3), Kernel("d", 1.0, 1.0, 5, 1, 0, strided)], 1e9, 16) is None


def branched() -> Network:
    """A stem, three branches (one of two layers) and a concatenation: an inception block in small."""
    params: dict[str, tuple[int, ...]] = {}
    layers: list[Layer] = []

    def conv(name: str, source: str, inputs: int, outputs: int, side: int) -> None:
        params[f"{name}.weight"] = (outputs, inputs, side, side)
        layers.append(
            Layer(name, "conv2d", (source,), {"weight": f"{name}.weight"}, {"stride": 1, "padding": side // 2})
        )

    conv("stem", "image", 3, 32, 3)
    conv("a", "stem", 32, 32, 1)
    conv("b", "stem", 32, 16, 1)
    conv("c", "b", 16, 32, 3)
    layers.append(Layer("p", "max_pool", ("stem",), attrs={"kernel": 3, "stride": 1, "padding": 1}))
    conv("d", "p", 32, 32, 1)
    layers.append(Layer("out", "concat", ("a", "c", "d"), attrs={"axis": 1}))
    return Network("branched", {"image": TensorType((1, 3, 28, 28), "fp32", "NCHW")}, tuple(layers), ("out",), params)


def branched_model(params: object) -> Model:
    image = Port("camera_input", TensorType((1, 3, 28, 28), "fp32", "NCHW"))
    return Model("branched", (image,), (Port("y", TensorType((1, 96, 28, 28), "fp32", "NCHW")),), network=branched)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    plugins.provide("socsched.models", "test.branched", f"{__name__}:branched_model")
    whole = get_pipeline("camera-detection")
    stage = replace(
        whole.stage("detect"), model="test.branched", params={}, after=("camera",), precisions=("fp16",), costs=()
    )
    return replace(whole, stages=(stage,), chains=(replace(whole.chains[0], path=("camera", "detect")),))


def test_a_network_becomes_faster_and_its_groups_may_be_tasks(pipeline) -> None:  # type: ignore[no-untyped-def]
    platform = get_platform(ORIN)

    def made(**options: str):  # type: ignore[no-untyped-def]
        plan = make_plan(planner("ios"), pipeline, platform, "50W", work=stage_work, options=options)
        trace = run(plan, 10**9).trace
        assert trace is not None
        figures = result(trace, plan)["chains"]["camera-detection"]
        assert not figures["missed"] and not figures["dropped"]
        assert plan.chains[0].bound_ns is None or figures["response_time_ns"]["max"] <= plan.chains[0].bound_ns
        return plan, figures["response_time_ns"]["mean"]

    serial, slow = made(strategy="sequential")
    whole, fast = made(merge="no")
    split, apart = made(merge="no", split="yes")
    assert fast < slow and whole.verdict == serial.verdict == "feasible"
    # One job whose segments are stages, or a task a group on units of its own: the same schedule.
    assert apart == pytest.approx(fast, rel=0.02)
    groups = [task for task in split.tasks if task.kind == "stage"]
    assert len(groups) > 3
    assert any(not set(a.lanes) & set(b.lanes) for a, b in itertools.combinations(groups, 2))
    network = branched()
    types = dict.fromkeys([layer.name for layer in network.layers], TensorType((1, 1, 1, 1), "fp32"))
    layers = []
    for task in groups:
        part = part_of(task.params)
        assert part is not None
        layers += [layer.name for layer in take(network, parse_part(part.cut), types).layers]
    assert sorted(layers) == sorted(layer.name for layer in network.layers)


def test_blocks_end_where_one_tensor_crosses() -> None:
    needs = ((), (0,), (0,), (1, 2), (3,), (3,), (4, 5))
    made = graph(needs, [kernel(str(n), 1, 1) for n in range(7)])
    assert blocks(made, 99) == [{0}, {1, 2, 3}, {4, 5, 6}]
    assert blocks(made, 2) == [{0}, {1, 2}, {3}, {4, 5}, {6}]
