"""Tiles for a share: every choice gives the same result, tables enter the cache key with their share, GPU tiles too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import references
import small_stages

from socsched import plugins
from socsched.compiler.builder import compile_stage
from socsched.compiler.loading.stages import load as load_artifact
from socsched.compiler.targets.cuda.shapes import Convolution
from socsched.compiler.targets.cuda.tiles import estimate, fastest_tile, gpu, tile_for
from socsched.compiler.targets.llvm.shapes import Window
from socsched.compiler.targets.llvm.share_tuning import Choice, Layer, Tuning, candidates, load, save
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, tile
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError, InputError, UsageError
from socsched.graph.network import Layer as NetworkLayer
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port
from socsched.models.weights import draw_weights

THREE = Layer(32, 64, 20, 24, Window((3, 3), (1, 1), (1, 1)))
ONE = Layer(64, 32, 20, 24, Window((1, 1)))


def network() -> Network:
    layers, params, last, inputs = [], {}, "x", 32
    for name, outputs, side in (("three", 64, 3), ("one", 32, 1)):
        params |= {f"{name}.w": (outputs, inputs, side, side), f"{name}.b": (outputs,)}
        weights = {"weight": f"{name}.w", "bias": f"{name}.b"}
        layers += [
            NetworkLayer(name, "conv2d", (last,), weights, {"stride": 1, "padding": side // 2}),
            NetworkLayer(f"{name}.relu", "relu", (name,)),
        ]
        last, inputs = f"{name}.relu", outputs
    return Network("tuned", {"x": TensorType((1, 32, 20, 24), "fp32", "NCHW")}, tuple(layers), (last,), params)


def model(params: object) -> Model:
    ends = (Port(n, TensorType((1, 32, 20, 24), "fp32", "NCHW")) for n in ("x", "y"))
    source, result = ends
    return Model("tuned", (source,), (result,), network=network)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    plugins.provide("socsched.models", "test.tuned", f"{__name__}:model")
    return Stage("tuned", "tuned", "test.tuned")


def compiled(stage: Stage, share: int, tuning: Tuning | None) -> Any:
    return compile_stage(stage, get_platform("host").engines[0], "fp32", threads=1, share=share, tuning=tuning)


@pytest.mark.slow
def test_every_way_computes_the_same(stage: Stage) -> None:
    rng = np.random.default_rng(1)
    image = rng.normal(size=(1, 32, 20, 24)).astype(np.float32)
    weights = draw_weights(network(), 0)
    (expected,) = references.run(network(), weights, {"x": image})
    for choices in (
        {},
        {THREE.key: Choice(0, 3, 1, rows_first=True), ONE.key: Choice(0, 6, 2, parts=8, rows_first=False)},
        {THREE.key: Choice(2, together=2)},
        {THREE.key: Choice(4, together=4), ONE.key: Choice(0, 4, 1, rows_first=True)},
    ):
        run = load_artifact(compiled(stage, 1, Tuning(1, choices)))
        given = small_stages.convert(image, small_stages.plain(run.inputs[0], image), run.inputs[0])
        found = run(given)[0]
        plain = small_stages.convert(found, run.outputs[0], small_stages.plain(run.outputs[0], found))
        np.testing.assert_allclose(plain, expected, rtol=1e-4, atol=2e-5 * float(np.abs(expected).max()))


@pytest.mark.slow
def test_the_key_carries_the_share_a_table_was_made_for(stage: Stage) -> None:
    choices = {THREE.key: Choice(2)}
    one, again, two = (compiled(stage, k, Tuning(k, choices)).key for k in (1, 1, 2))
    assert one == again and one != two
    # Without a table the code does not depend on the share, and is the same artefact.
    assert compiled(stage, 1, None).key == compiled(stage, 2, None).key not in (one, two)
    with pytest.raises(UsageError, match="tiles tuned for 2 cores, but the stage gets 1"):
        compiled(stage, 1, Tuning(2, choices))


def test_a_tile_that_does_not_fit_is_refused(stage: Stage) -> None:
    with pytest.raises(CompileError, match="a tile of 7 x 9 blocks does not fit"):
        compiled(stage, 1, Tuning(1, {THREE.key: Choice(0, 7, 9)}))


@pytest.mark.parametrize("vector", [AVX512, AVX2, NEON])
@pytest.mark.parametrize("layer", [THREE, ONE])
def test_candidates_fit_and_hold_what_the_rules_choose(layer: Layer, vector: Any) -> None:
    found = list(candidates(layer, vector, vector.block))
    blocks = -(-layer.outputs // vector.block)
    direct = [choice for choice in found if not choice.winograd]
    assert len(set(found)) == len(found)
    assert tile(vector, blocks, layer.columns) in [choice.tile() for choice in direct]
    for choice in direct:
        assert blocks % choice.blocks == 0 and choice.pixels <= layer.columns
        assert (choice.pixels + 1) * choice.blocks * vector.per_block <= vector.registers
    assert {choice.winograd for choice in found} == ({0, 2, 4} if layer is THREE else {0})


def test_tables_are_files(tmp_path: Path) -> None:
    table = Tuning(3, {THREE.key: Choice(4, together=2), ONE.key: Choice(0, 7, 2, 8, True)})
    save(table, tmp_path / "t.json")
    assert load(tmp_path / "t.json") == table
    (tmp_path / "t.json").write_text('{"share": 3, "choices": {"a": {"tiles": 1}}}')
    with pytest.raises(InputError, match="no table of tuned tiles"):
        load(tmp_path / "t.json")


def test_gpu_tiles_are_chosen_for_the_sms_they_get() -> None:
    """14x14x256 by 256 on Orin: split in two to fill 16 SMs, not for four; a table measured on all SMs is not asked."""
    shape = Convolution(12, 20, 256, 256, 3, 3, 1, 1, relu=True)
    whole, quarter = fastest_tile(shape, "sm_87"), fastest_tile(shape, "sm_87", 4)
    assert whole.splits > quarter.splits == 1
    assert estimate(shape, quarter, "sm_87", 4) < estimate(shape, whole, "sm_87", 4)
    assert estimate(shape, whole, "sm_87") < estimate(shape, quarter, "sm_87")
    assert tile_for(shape, "sm_87", 4) == quarter and tile_for(shape, "sm_87", 16) == tile_for(shape, "sm_87")
    measured = Convolution(14, 14, 256, 256, 3, 3, 1, 1, relu=True)
    assert tile_for(measured, "sm_90", 16) == fastest_tile(measured, "sm_90", 16) != tile_for(measured, "sm_90")
    assert tile_for(measured, "sm_90", gpu("sm_90").sms) == tile_for(measured, "sm_90")
