"""aarch64 code: run under qemu against the host's results, and inspected where an emulator's time is meaningless."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import aarch64_emulator
import numpy as np
import pytest
import small_stages
from aarch64_emulator import ORIN_CPU
from aarch64_loops import products

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import relax, tvm
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import vector_unit
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.weights import draw_weights

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}
"""Largest difference from the host's fp32 result, relative to the largest output."""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> aarch64_emulator.Emulator:
    return aarch64_emulator.emulator(tmp_path_factory.mktemp("harness"))


def check(
    stage: Stage, arrays: list[small_stages.Array], engine: Engine, precision: str, emulator: aarch64_emulator.Emulator
) -> None:
    artifact = compile_stage(stage, engine, precision)
    given = small_stages.halved(arrays) if precision == "fp16" else arrays
    found, _ = emulator.run(artifact, given)
    assert {array.dtype.name for array in found} == {"float16" if precision == "fp16" else "float32"}
    assert small_stages.error(found, small_stages.reference(stage, arrays)) <= TOLERANCE[precision]


@pytest.mark.needs("aarch64 emulator")
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(name, precision, marks=pytest.mark.slow if (name, precision) == ("backbone", "fp16") else ())
        for name in small_stages.STAGES
        for precision in TOLERANCE
    ],
)
def test_stages(
    name: str, precision: str, emulator: aarch64_emulator.Emulator, make_engine: Callable[..., Engine]
) -> None:
    stage, arrays = small_stages.stage(name), small_stages.inputs(name)
    check(stage, arrays, make_engine(ORIN_CPU, ("fp32", "fp16")), precision, emulator)


@pytest.mark.needs("aarch64 emulator")
def test_half_precision_is_arithmetic_only_where_the_processor_has_it(
    emulator: aarch64_emulator.Emulator, make_engine: Callable[..., Engine]
) -> None:
    """A Cortex-A53 gets fp32 arithmetic between fp16 tensors, and would stop at the other code's first instruction."""
    stage, arrays = small_stages.stage("head"), small_stages.inputs("head")
    old = make_engine({**ORIN_CPU, "mcpu": "cortex-a53"}, ("fp16",))
    new = compile_stage(stage, make_engine(ORIN_CPU, ("fp16",)), "fp16")
    assert new.computes_half and not compile_stage(stage, old, "fp16").computes_half
    oldest = replace(emulator, cpu="cortex-a53")
    check(stage, arrays, old, "fp16", oldest)
    with pytest.raises(RuntimeError, match="ended with -4"):  # SIGILL
        oldest.run(new, small_stages.halved(arrays))


@pytest.mark.needs("aarch64 emulator")
@pytest.mark.parametrize("name", ["backbone", "head"])
def test_int8_stages_give_the_integers_of_the_host(
    name: str, emulator: aarch64_emulator.Emulator, make_engine: Callable[..., Engine]
) -> None:
    """The arithmetic is fixed-point, so that there is nothing to tolerate."""
    stage, arrays = small_stages.stage(name), small_stages.inputs(name)
    found, _ = emulator.run(compile_stage(stage, make_engine(ORIN_CPU, ("int8",)), "int8"), arrays)
    expected = small_stages.reference(stage, arrays, "int8")
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert small_stages.error(found, small_stages.reference(stage, arrays)) <= 0.1, "and near to fp32"


LONG = {"resnet", "mobilenet", "yolo"}


@pytest.mark.needs("aarch64 emulator")
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(name, precision, marks=pytest.mark.slow if name in LONG else ())
        for name in ("resnet", "trunk", "mobilenet", "yolo", "odd")
        for precision in TOLERANCE
    ],
)
def test_onnx_networks(
    name: str, precision: str, tmp_path: Path, emulator: aarch64_emulator.Emulator, make_engine: Callable[..., Engine]
) -> None:
    pytest.importorskip("onnx")
    stage, arrays = small_stages.onnx_stage(name, tmp_path)
    check(stage, arrays, make_engine(ORIN_CPU, ("fp32", "fp16")), precision, emulator)


@pytest.mark.needs("aarch64 emulator")
def test_a_library_for_this_machine_is_refused(
    emulator: aarch64_emulator.Emulator, make_engine: Callable[..., Engine]
) -> None:
    """What makes the comparisons mean something: the emulator does not run the host's code."""
    if resolve({"kind": "llvm", "host": True}).triple.startswith("aarch64"):
        pytest.skip("the host's own code is aarch64")
    artifact = compile_stage(small_stages.stage("head"), make_engine())
    with pytest.raises(RuntimeError, match=r"cannot open|wrong ELF|invalid ELF"):
        emulator.run(artifact, small_stages.inputs("head"))


@pytest.mark.parametrize(
    ("network", "kernels"), [(backbone_network(), 10), (head_network(), 1)], ids=["backbone", "head"]
)
@pytest.mark.slow
def test_neon_tiles_fit_the_registers(network: Network, kernels: int) -> None:
    """No vector register goes to the stack where matrices are multiplied, and most instructions multiply and add."""
    spec = resolve(ORIN_CPU)
    lowered = lower(fuse_network(network), draw_weights(network), vector_unit(spec))
    executable = relax.build(lowered.module, tvm.target.Target(dict(spec.tvm)))
    loops = products(executable.mod.imports[0].inspect_source("asm"))
    assert len(loops) >= kernels
    for body in (loop.body for loop in loops):
        assert not [line for line in body if re.search(r"\b[qv]\d+.*\[sp", line)]
        assert sum("fmla" in line for line in body) >= 0.55 * len(body)
