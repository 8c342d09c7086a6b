"""int8 code for aarch64 under qemu: equal to the definition and to an accelerator's golden layers, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import int8_reference as reference
import numpy as np
import pytest

from socsched.compiler.artifact import Artifact
from socsched.compiler.environment import relax, tvm
from socsched.compiler.passes.link import write_library
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.target import TargetSpec, resolve
from socsched.compiler.targets.llvm.int8_dot import Dot, dot_for, int8_options
from socsched.compiler.targets.llvm.int8_lower import lower_int8
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.weights import draw_weights

aarch64_emulator: Any = pytest.importorskip("aarch64_emulator")

Array = np.ndarray[Any, Any]
ORIN_CPU = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae", "num-cores": 4}
TX2_CPU = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a57", "num-cores": 4}
NETWORKS = {"backbone": backbone_network(taps=True, ny=32, nx=40), "head": head_network(8, 12)}
LONG = {("backbone", "lanes")}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return aarch64_emulator.emulator(tmp_path_factory.mktemp("harness"))


def built(integers: QuantisedGraph, spec: TargetSpec, folder: Path) -> Artifact:
    """The network as a shared library, with what the emulator asks an artefact for."""
    lowered = lower_int8(integers, {}, *dot_for(spec))
    executable = relax.build(lowered.module, tvm.target.Target(int8_options(spec)))
    files, _ = write_library(executable, folder, spec)
    names = tuple(integers.graph.inputs), tuple(integers.graph.outputs)
    texts = ("net", "net", "cpu", "cpu", "llvm", spec.triple, "int8", 0, "")
    return Artifact(*texts, folder, files, names[0], lowered.inputs, names[1], lowered.outputs, "", False)


def integers_of(network: Network) -> QuantisedGraph:
    weights = draw_weights(network, 0)
    scales = calibrate(network, weights, seeded_samples(network))
    return quantise(fuse_network(network), weights, scales)


@pytest.mark.needs("aarch64 emulator")
@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name, target, id=f"{name}-{unit}", marks=pytest.mark.slow if (name, unit) in LONG else ())
        for name in NETWORKS
        for unit, target in (("sdot", ORIN_CPU), ("lanes", TX2_CPU))
    ],
)
def test_equals_the_definition(name: str, target: dict[str, Any], tmp_path: Path, emulator: Any) -> None:
    integers = integers_of(NETWORKS[name])
    (sample,) = seeded_samples(NETWORKS[name], 1)
    found, _ = emulator.run(built(integers, resolve(target), tmp_path), list(sample.values()))
    for array, expected in zip(found, reference.outputs(integers, sample), strict=True):
        assert np.array_equal(array, expected)


@pytest.mark.needs("aarch64 emulator")
@pytest.mark.slow
def test_every_layer_equals_the_golden_one(accelerator: tuple[Path, Path], tmp_path: Path, emulator: Any) -> None:
    pytest.importorskip("onnx")
    import npu_golden

    integers, source, golden = npu_golden.load(*accelerator)
    found, _ = emulator.run(built(integers, resolve(ORIN_CPU), tmp_path), [source])
    assert len(found) == len(golden) >= 11
    for (name, expected), array in zip(golden.items(), found, strict=True):
        assert np.array_equal(array, expected), name


def test_dot_products_by_processor() -> None:
    """Orin's processor has the instruction, TX2's and 32-bit ones have not."""
    old = {"kind": "llvm", "mtriple": "armv7l-linux-gnueabihf", "mcpu": "cortex-a15"}
    assert dot_for(resolve(ORIN_CPU))[1] == Dot("sdot", 4, signed=True)
    assert dot_for(resolve(TX2_CPU))[1] == Dot("lanes", 4)
    assert dot_for(resolve(old))[1].name == "lanes"


def test_sdot_is_what_the_inner_loops_are_made_of() -> None:
    spec = resolve(ORIN_CPU)
    lowered = lower_int8(integers_of(NETWORKS["head"]), {}, *dot_for(spec))
    executable = relax.build(lowered.module, tvm.target.Target(int8_options(spec)))
    assembly = executable.mod.imports[0].inspect_source("asm")
    assert assembly.count("sdot\tv") >= 16 and "smull" not in assembly
