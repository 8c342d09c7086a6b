"""Cuts: parts compose to the network, crossing tensors are counted, compiled parts compose to the compiled whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import references
import small_stages
from chains import chain
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.compiler.builder import compile_stage, network_of, weights_for
from socsched.descriptor.operator_rules import OperatorRule, OperatorRules
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import Cut, Part, cut, cut_after, parse_part, prefixes, take, units
from socsched.models.camera import detector_network
from socsched.models.parts import PART, parts_of
from socsched.models.pointpillars.network import backbone_network, pfn_network
from socsched.models.weights import draw_weights
from socsched.models.work import stage_work

Array = np.ndarray[Any, Any]
Make = Callable[..., Engine]
SIDE = 4
IMAGE = TensorType((1, 2, SIDE, SIDE), "fp32", "NCHW")
BACKBONE = Stage("backbone", "backbone", "pointpillars.backbone")
MIDDLE = ("blocks.1.3.relu", "de.0.relu")
"""Inside the second block, the first upsampling done."""


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Random DAGs of two-channel images: convolutions, activations, additions, one or two inputs, several outputs."""
    inputs = {f"in{i}": IMAGE for i in range(draw(st.integers(1, 2)))}
    layers: list[Layer] = []
    values = list(inputs)
    for index in range(draw(st.integers(2, 9))):
        op = draw(st.sampled_from(("conv2d", "relu", "add", "max_pool")))
        count = 2 if op == "add" else 1
        # Mostly the latest value, so that chains as well as branches come up.
        sources = tuple(draw(st.one_of(st.just(values[-1]), st.sampled_from(values))) for _ in range(count))
        attrs: dict[str, Any] = {"kernel": 3, "stride": 1, "padding": 1} if op == "max_pool" else {}
        weights = {}
        if op == "conv2d":
            weights, attrs = {"weight": f"l{index}.weight", "bias": f"l{index}.bias"}, {"stride": 1, "padding": 1}
        layers.append(Layer(f"l{index}", op, sources, weights, attrs))
        values.append(f"l{index}")
    read = {name for layer in layers for name in layer.inputs}
    ends = [layer.name for layer in layers if layer.name not in read]
    extra = draw(st.lists(st.sampled_from([layer.name for layer in layers]), max_size=2))
    params: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        if layer.weights:
            params |= {layer.weights["weight"]: (2, 2, 3, 3), layer.weights["bias"]: (2,)}
    return Network("random", inputs, tuple(layers), tuple(dict.fromkeys([*ends, *extra])), params)


def types_of(network: Network) -> dict[str, TensorType]:
    return {layer.name: IMAGE for layer in network.layers}


def feed(network: Network, seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(size=t.shape).astype(np.float32) for name, t in network.inputs.items()}


def frontiers(network: Network, types: Mapping[str, TensorType], torn: bool = False) -> tuple[Cut, ...]:
    """Return every cut of a network except its two ends, by number of layers before it."""
    groups = units(network, torn)
    home = {name: index for index, group in enumerate(groups) for name in group}
    layers = {layer.name: layer for layer in network.layers}
    needs = [
        frozenset(home[source] for name in group for source in layers[name].inputs if source in home) - {index}
        for index, group in enumerate(groups)
    ]
    level, cuts = {frozenset[int]()}, list[Cut]()
    for _ in range(len(groups) - 1):
        level = {done | {i} for done in level for i, need in enumerate(needs) if i not in done and need <= done}
        sets = [frozenset(name for i in done for name in groups[i]) for done in level]
        cuts += [cut_after(network, before, types, 0) for before in sorted(sets, key=sorted)]
    return tuple(cuts)


def compose(
    parts: Iterable[Network], inputs: Mapping[str, Any], run: Callable[[Network, dict[str, Any]], Iterable[Any]]
) -> dict[str, Any]:
    """Run `parts` in order, passing tensors by name, and return all of them; `run` computes the outputs of one part."""
    values = dict(inputs)
    for part in parts:
        results = run(part, {name: values[name] for name in part.inputs})
        values.update(zip(part.outputs, results, strict=True))
    return values


@given(networks(), st.data(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_parts_compose_to_the_network(network: Network, data: st.DataObject, torn: bool) -> None:
    types = types_of(network)
    points = list(frontiers(network, types, torn=torn))
    chosen = []
    while points and data.draw(st.booleans()):
        chosen.append(data.draw(st.sampled_from(points)))
        points = [point for point in points if chosen[-1].before < point.before]
    parts = cut(network, chosen, types)
    assert [layer for part in parts for layer in part.layers] != [] and len(parts) == len(chosen) + 1
    assert sorted(layer.name for part in parts for layer in part.layers) == sorted(types)
    weights = draw_weights(network, 1)
    values = compose(parts, feed(network), lambda part, given: references.run(part, weights, given))
    for name, expected in zip(network.outputs, references.run(network, weights, feed(network)), strict=True):
        assert np.array_equal(values[name], expected), name


@given(networks(), st.booleans())
@settings(max_examples=400, deadline=None)
def test_what_crosses_is_what_the_other_side_reads(network: Network, torn: bool) -> None:
    found = frontiers(network, types_of(network), torn=torn)
    assert len({point.before for point in found}) == len({point.after for point in found}) == len(found)
    for point in found:
        first, second = cut(network, [point], types_of(network))
        crossing = [name for name in second.inputs if name not in network.inputs]
        assert sorted(point.crossing) == sorted(crossing) and set(crossing) <= set(first.outputs)
        assert point.bytes == sum(4 * 2 * SIDE * SIDE for _ in crossing)
        assert {layer.name for layer in first.layers} == point.before
    assert {p.before for p in prefixes(network, types_of(network), torn=torn)} <= {point.before for point in found}


def test_every_cut_of_the_backbone() -> None:
    """All frontiers of PointPillars' backbone on a small canvas, in the reference arithmetic."""
    network = backbone_network(taps=True, ny=16, nx=8)
    types, weights, given = layer_types(network), draw_weights(network), feed(network)
    expected = references.run(network, weights, given)
    points = frontiers(network, types)
    assert len(points) == 47 and {("blocks.1.3.relu",), MIDDLE} <= {point.after for point in points}
    for point in points:
        parts = cut(network, [point], types)
        values = compose(parts, given, lambda part, inputs: references.run(part, weights, inputs))
        for name, array in zip(network.outputs, expected, strict=True):
            assert np.array_equal(values[name], array), point.after
        size = sum(values[name].size * 4 for name in point.crossing)  # the reference computes in float64
        assert point.bytes == size


def test_a_residual_joins_the_branch_that_comes_last() -> None:
    """Whichever side of the addition it is on: the other way round nothing could be cut between the branches."""
    weights = {"weight": "w", "bias": "b"}
    names = (("skip", "x"), ("a", "x"), ("b", "a"))
    layers = tuple(Layer(name, "conv2d", (source,), weights, {"padding": 1}) for name, source in names)
    for inputs in (("b", "skip"), ("skip", "b")):
        network = Network("n", {"x": IMAGE}, (*layers, Layer("sum", "add", inputs)), ("sum",))
        assert units(network) == (("skip",), ("a",), ("b", "sum"))


def test_fused_layers_stay_together() -> None:
    assert units(pfn_network()) == (("decorate", "linear", "relu", "features"),)
    groups = units(detector_network())
    assert ("layer1.0.conv2", "layer1.0.add", "layer1.0") in groups and ("pool",) in groups
    assert ("layer2.0.downsample", "layer2.0.add", "layer2.0") in groups and ("layer2.0.conv2",) in groups
    backbone = backbone_network(taps=True)
    assert ("blocks.0.3", "blocks.0.3.relu") in units(backbone) and ("neck",) in units(backbone)
    types = layer_types(backbone)
    names = {name for point in frontiers(backbone, types) for name in point.crossing}
    assert all(name.endswith(".relu") for name in names)
    assert "blocks.0.1" in {name for point in prefixes(backbone, types, torn=True) for name in point.crossing}


def test_bytes_of_varying_size_are_nominal() -> None:
    network = pfn_network(slots=32)
    last = list(prefixes(network, layer_types(network), nominal=100, torn=True))[-1]
    assert last.after == ("relu",) and last.bytes == 100 * 32 * 64 * 4


def test_what_is_no_cut() -> None:
    network = backbone_network()
    types = layer_types(network)
    with pytest.raises(UsageError, match="has no layer 'x'"):
        take(network, Part((), ("x",)), types)
    with pytest.raises(UsageError, match=r"no layer in the part neck:blocks\.0\.0"):
        take(network, Part(("neck",), ("blocks.0.0",)), types)
    with pytest.raises(UsageError, match="no layer in the part"):
        cut(network, [("blocks.1.0.relu",), ("blocks.0.0.relu",)], types)
    with pytest.raises(UsageError, match="is not a part of a network"):
        parse_part("neck")
    assert parse_part(str(Part(MIDDLE, ()))) == Part(MIDDLE)


@pytest.mark.parametrize(
    "middle",
    [
        pytest.param(("blocks.1.3.relu",), id="block", marks=pytest.mark.slow),
        pytest.param(MIDDLE, id="late", marks=pytest.mark.slow),
        pytest.param(("blocks.1.3",), id="torn"),
    ],
)
@pytest.mark.slow
def test_compiled_parts_chain_to_the_whole(make_engine: Make, middle: tuple[str, ...]) -> None:
    """Cut inside the second block, with the first upsampling before or after, and between convolution and ReLU."""
    backbone = small_stages.stage("backbone")
    (canvas,) = small_stages.inputs("backbone")
    whole = chain([compile_stage(backbone, make_engine())], {"canvas": canvas})["neck"]
    parts = [compile_stage(backbone, make_engine(), part=p) for p in (Part((), middle), Part(middle, ()))]
    assert [part.part for part in parts] == [f":{'+'.join(middle)}", f"{'+'.join(middle)}:"]
    assert parts[0].input_names == ("canvas",) and parts[1].output_names == ("neck",)
    assert len({part.key for part in parts} | {compile_stage(backbone, make_engine()).key}) == 3
    found = chain(parts, {"canvas": canvas})["neck"]
    assert np.abs(found - whole).max() <= 1e-5 * np.abs(whole).max()


def test_work_of_parts_adds_up(make_engine: Make) -> None:
    whole = stage_work(BACKBONE, "fp16")
    parts = [stage_work(BACKBONE, "fp16", part) for part in (Part((), MIDDLE), Part(MIDDLE, ()))]
    assert sum(part.flops for part in parts) == whole.flops
    assert parts[0].inputs == whole.inputs and parts[1].outputs == whole.outputs
    crossing = {t.shape for t in parts[1].inputs}
    assert crossing == {(1, 128, 124, 108), (1, 128, 248, 216), (1, 128, 124, 108)}


def test_rules_judge_only_the_part(make_engine: Make) -> None:
    """An engine without transposed convolutions takes the part without them."""
    rules = OperatorRules(allowed={"conv2d": (OperatorRule("conv2d"),)})
    engine = make_engine({"kind": "simulated"}, ("fp16",), rules, "dla")
    artifact = compile_stage(BACKBONE, engine, "fp16", part=Part((), ("blocks.0.3.relu",)))
    assert artifact.part == ":blocks.0.3.relu" and artifact.outputs[0].shape == (1, 64, 248, 216)
    with pytest.raises(CompileError, match=r"de_0.*conv2d_transpose is not supported"):
        compile_stage(BACKBONE, engine, "fp16", part=Part(("blocks.0.3.relu",), ()))


@pytest.mark.slow  # compiles a ResNet-18 twice
def test_a_stage_the_planner_cut_computes_what_the_whole_does(make_engine: Make) -> None:
    """Parts as stages of a pipeline, seeded weights being the whole's; skip connections go past a part."""
    network, types = detector_network(32, 64), layer_types(detector_network(32, 64))
    points = [cut.after for cut in prefixes(network, types)]
    stage = Stage("detect", "detect", "camera.detector", params={"input_height": 32, "input_width": 64})
    found = parts_of("detect", network, [points[6], points[7]], types)
    stages = [replace(stage, name=part.name, params={**stage.params, PART: part.param()}) for part in found]
    image = {"camera_input": np.random.default_rng(4).standard_normal((1, 3, 32, 64)).astype(np.float32)}
    whole = chain([compile_stage(stage, make_engine())], image)
    parts = chain([compile_stage(each, make_engine()) for each in stages], image)
    np.testing.assert_allclose(parts["camera_output"], whole["camera_output"], rtol=1e-5, atol=1e-5)


def test_parts_share_the_seeded_weights_of_the_whole() -> None:
    network = detector_network()
    points = [cut.after for cut in prefixes(network, layer_types(network))]
    drawn = draw_weights(network, 0)
    for part in parts_of("detect", network, [points[9]], layer_types(network)):
        model, own = network_of(Stage(part.name, "", "camera.detector", params={PART: part.param()}))
        weights, source = weights_for(model, own, None)
        assert source == "seed 0" and set(weights) == set(own.params)
        assert all(np.array_equal(weights[name], drawn[name]) for name in own.params)
