"""Device code of the GPU rules as compiled by nvcc, the choice of tiles, and operators left to general schedules."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import gpu_networks
import numpy as np
import pytest
from cuda_sources import build_executable, needs_nvcc, report, source_of

from socsched.compiler.targets.cuda import gemm, intrinsics, kernels, sequence_lower, sequence_rules
from socsched.compiler.targets.cuda.lower import _EMITTERS, lower
from socsched.compiler.targets.cuda.rules import GATES, KINDS, unsupported_reason
from socsched.compiler.targets.cuda.schedule import schedule
from socsched.compiler.targets.cuda.tile_table import TABLE
from socsched.compiler.targets.cuda.tiles import Convolution, Tile, candidates, gpu, tile_for
from socsched.compiler.targets.cuda.toolkits import device_source
from socsched.errors import CompileError
from socsched.graph import index_maps
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.models.weights import draw_weights

SHAPES = {
    "3x3 stride 2": (Convolution(20, 24, 64, 64, 3, 3, 2, 1, relu=True), Tile(64, 64, 32, 32, 32, 3)),
    "addition": (Convolution(9, 9, 64, 128, relu=True, residual=True), Tile(32, 64, 32, 32, 32, 2)),
    "split": (Convolution(7, 7, 128, 64, 3, 3, 1, 1), Tile(64, 64, 64, 32, 32, 3, splits=4)),
    "upsampling into a slice": (Convolution(6, 5, 64, 32, scale=2, first=32, total=96), Tile(32, 64, 32, 32, 32, 2)),
    "planes": (Convolution(8, 8, 64, 80, planes=(18, 42, 12, 8)), Tile(32, 80, 64, 32, 80, 1, store=2)),
    "7x7 of few channels": (Convolution(30, 30, 8, 64, 7, 7, 2, 3), Tile(32, 64, 64, 32, 64, 3)),
}


@needs_nvcc
def test_products_use_tensor_cores_and_asynchronous_copies_and_no_stack(tmp_path: Path) -> None:
    functions = {}
    for number, (shape, tile) in enumerate(SHAPES.values()):
        assert tile.fits(shape)
        functions[f"product{number}"] = schedule(gemm.convolution(shape, tile), tile)
    source = source_of(functions)
    bodies = re.findall(r'extern "C" __global__[^;{]*\{.*?\n\}', source, re.S)
    assert len(bodies) == len(SHAPES)
    for body in bodies:
        assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in body and "ldmatrix" in body
    assert sum("ptx_cp_async" in body for body in bodies) == len(SHAPES) - 1, "a single stage copies as it goes"
    assert "cp.async.cg.shared.global" in source
    found = report(source, tmp_path)
    assert found.count("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") == len(SHAPES)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize("name", ["residual", "pyramid", "loose"])
def test_whole_networks_are_accepted(name: str, arch: str, tmp_path: Path) -> None:
    net = getattr(gpu_networks, name)()
    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    built = build_executable(net, draw_weights(net, 0), target, "fp16")
    assert not built.notes
    assert "bytes stack frame" in (found := report(device_source(built.executable.mod), tmp_path, arch))
    assert all(line.strip().startswith("0 bytes") for line in found.splitlines() if "stack frame" in line)


def test_fragments_are_a_bijection() -> None:
    places = {intrinsics.fragment(i, j) for i, j in product(range(16), range(16))}
    assert places == set(product(range(32), range(8)))
    assert all(intrinsics.element(*intrinsics.fragment(i, j)) == (i, j) for i, j in product(range(16), range(16)))


def test_the_table_holds_tiles_that_fit() -> None:
    pattern = r"(\d+)x(\d+)x(\d+)-(\d+) (\d+)x(\d+)s(\d+)p(\d+)u(\d+)"
    for arch, entries in TABLE.items():
        for key, fields in entries.items():
            numbers = [int(n) for n in re.fullmatch(pattern, key).groups()]  # type: ignore[union-attr]
            shape = Convolution(*numbers)
            assert shape.key == key
            assert Tile(*fields).fits(shape), (arch, key)
            assert Tile(*fields).shared_bytes <= gpu(arch).shared
            assert tile_for(shape, arch) == Tile(*fields)


@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize(
    "shape",
    [
        Convolution(1, 1, 16, 16),
        Convolution(3, 5, 48, 16, 3, 3, 1, 1),
        Convolution(100, 100, 8, 240, 5, 5, 2, 2),
        Convolution(33, 17, 112, 48, scale=3),
        Convolution(200, 300, 256, 512, 3, 3, 1, 1),
    ],
    ids=lambda value: getattr(value, "key", value),
)
def test_any_shape_gets_a_tile(shape: Convolution, arch: str) -> None:
    tile = tile_for(shape, arch)
    assert tile.fits(shape) and tile in set(candidates(shape, arch))


def test_deep_and_small_products_are_split() -> None:
    small, large = Convolution(7, 7, 512, 512, 3, 3, 1, 1), Convolution(248, 216, 64, 64, 3, 3, 1, 1)
    assert tile_for(small, "sm_80").splits > 1
    assert tile_for(large, "sm_80").splits == 1


def test_unknown_architecture() -> None:
    with pytest.raises(CompileError, match="not known"):
        tile_for(Convolution(8, 8, 64, 64), "gfx90a")


def test_heads_are_one_product_and_the_concatenation_is_free() -> None:
    net = gpu_networks.pyramid()
    form = lower(fuse_network(net), draw_weights(net, 0), "sm_87", bound=False)
    names = [variable.name_hint for variable in form.module.get_global_vars()]
    assert not any(name.startswith(("copy", "add")) for name in names)
    head = form.products[-1][0]
    assert head.planes == (18, 42, 12, 8) and len(form.products) == 10
    assert {(s.first, s.total) for s, _ in form.products if s.total} == {(0, 96), (32, 96), (64, 96)}


def test_additions_join_the_convolution_before_them() -> None:
    net = gpu_networks.residual()
    form = lower(fuse_network(net), draw_weights(net, 0), "sm_87", bound=False)
    assert sum(shape.residual for shape, _ in form.products) == 3
    assert not any(variable.name_hint.startswith("add") for variable in form.module.get_global_vars())


@pytest.mark.parametrize(
    ("attrs", "shape", "reason"),
    [({"groups": 4}, (40, 8, 3, 3), "groups"), ({"dilation": (1, 2)}, (32, 32, 3, 3), "dilations")],
)
def test_what_has_no_rule_is_named(attrs: dict[str, Any], shape: tuple[int, ...], reason: str) -> None:
    layer = Layer("c", "conv2d", ("x",), {"weight": "w"}, {"stride": 1, "padding": 1, **attrs})
    net = Network("net", {"x": gpu_networks.image(32, 8, 8)}, (layer,), ("c",), {"w": shape})
    assert reason in unsupported_reason(fuse_network(net))
    target = {"kind": "cuda", "arch": "sm_87", "max_threads_per_block": 1024, "thread_warp_size": 32}
    built = build_executable(net, {"w": np.zeros(shape, np.float32)}, target, "fp16")
    assert "general schedules" in built.notes[0] and reason in built.notes[0]
    assert built.inputs[0].layout == "NCHW"


@pytest.mark.parametrize(("arch", "precision"), [("sm_87", "fp32"), ("sm_75", "fp16")])
def test_fp32_and_older_gpus_take_general_schedules(arch: str, precision: str) -> None:
    layer = Layer("c", "conv2d", ("x",), {"weight": "w"}, {"stride": 1, "padding": 0})
    net = Network("net", {"x": gpu_networks.image(16, 4, 4)}, (layer,), ("c",), {"w": (16, 16, 1, 1)})
    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    built = build_executable(net, {"w": np.zeros((16, 16, 1, 1), np.float32)}, target, precision)
    assert "general schedules" in built.notes[0] and built.inputs[0].dtype == precision


def test_every_kind_with_a_rule_has_an_emitter() -> None:
    emitted = {*_EMITTERS, *sequence_lower.EMITTERS, *index_maps.KINDS, "grid_sample"}  # the last by `pooled`
    assert {*KINDS, *GATES, "recurrent"} == emitted
    assert set(sequence_rules.KINDS) == {*sequence_lower.EMITTERS, "grid_sample"} - {"gelu", "recurrent"}


def test_kernels_bind_their_third_loop_to_vectors() -> None:
    source = source_of({"copy": kernels.spread(kernels.copy(10, 64, 0, 64, 64))})
    assert "uint4" in source
