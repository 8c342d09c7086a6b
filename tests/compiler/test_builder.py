"""Artefacts: cache, provenance, targets, and the inputs a loaded stage accepts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.compiler import builder
from socsched.compiler.artifact import META, find
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import physical_shape
from socsched.compiler.loading.stages import CompiledStage, load
from socsched.compiler.passes.link import host_linker
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.processor import vector_unit
from socsched.descriptor.operator_rules import OperatorRule, OperatorRules
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, InputError, MachineError, UsageError
from socsched.graph.expand import fuse_network
from socsched.graph.rules import check_operators
from socsched.models.host import aligned as empty
from socsched.models.pointpillars.network import head_network, pfn_network
from socsched.models.weights import draw_weights
from socsched.models.work import stage_work

Make = Callable[..., Engine]
PFN = Stage("pfn", "pfn", "pointpillars.pfn")
HEAD = Stage("head", "head", "pointpillars.head")
ORIN_CPU = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae", "num-cores": 4}
E_MACHINE, AARCH64, X86_64 = 18, 183, 62


def pillars(stage: CompiledStage, count: int = 5) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(0)
    voxels = generator.normal(size=(count, 32, 4)).astype(np.float32)
    return [voxels, np.full(count, 32, np.int32), np.zeros((count, 2), np.int32)]


def test_built_once_found_by_content(fresh_cache: Path, make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = builder._apart
    monkeypatch.setattr(builder, "_apart", lambda *args: built.append(1) or original(*args))
    first = compile_stage(PFN, make_engine())
    again = compile_stage(replace(PFN, name="other"), make_engine(id="cpu1"), threads=2)
    assert len(built) == 1 and first.key == again.key and first.path == again.path
    assert (again.stage, again.engine, again.threads) == ("other", "cpu1", 2)
    assert first.weights == "seed 0" and first.input_names == ("voxels", "counts", "coords")
    other = compile_stage(PFN, make_engine(), weights=draw_weights(pfn_network(), 1))
    assert len(built) == 2 and other.key != first.key and other.weights.startswith("sha256 ")


def test_a_hit_does_not_import_the_compiler(tmp_path: Path, make_engine: Make) -> None:
    compile_stage(PFN, make_engine())
    program = (
        "import sys; from conftest_engine import engine;"
        "from socsched.compiler.builder import compile_stage; from socsched.descriptor.pipeline import Stage;"
        "compile_stage(Stage('pfn', 'pfn', 'pointpillars.pfn'), engine); print('tvm' in sys.modules)"
    )
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "conftest_engine.py").write_text(
        "from dataclasses import replace\nfrom socsched.descriptor.catalog import get_platform\n"
        "engine = replace(get_platform('raspberry-pi-5').engine('a76'), target={'kind': 'llvm', 'host': True})\n"
    )
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("damage", ["library", "description", "missing"])
def test_damaged_artefacts_are_rebuilt(fresh_cache: Path, make_engine: Make, damage: str) -> None:
    artifact = compile_stage(PFN, make_engine())
    if damage == "library":
        artifact.path.write_bytes(artifact.path.read_bytes()[:-100])
    elif damage == "description":
        (artifact.folder / META).write_text("{}")
    else:
        artifact.path.unlink()
    assert find(artifact.folder) is None
    rebuilt = compile_stage(PFN, make_engine())
    stage = load(rebuilt)
    assert rebuilt.key == artifact.key and stage(*pillars(stage))[0].shape == (5, 64)
    assert not list(artifact.folder.parent.glob(".new-*"))


def test_loaded_stage_checks_its_inputs(make_engine: Make) -> None:
    stage = load(compile_stage(PFN, make_engine()))
    voxels, counts, coords = pillars(stage)
    with pytest.raises(InputError, match="expected 3 inputs, got 2"):
        stage(voxels, counts)
    with pytest.raises(InputError, match="input 'counts': expected int32"):
        stage(voxels, counts.astype(np.int64), coords)
    with pytest.raises(InputError, match=r"input 'voxels': expected float32 \[-1, 32, 4\]"):
        stage(voxels[:, :31], counts, coords)


@pytest.mark.parametrize("offset", [1, 4, 8])
def test_misaligned_input_gives_the_same_result(make_engine: Make, offset: int) -> None:
    stage = load(compile_stage(PFN, make_engine(), threads=1))
    voxels, counts, coords = pillars(stage)
    raw = empty((voxels.size + 16,), np.float32)
    shifted = raw[offset : offset + voxels.size].reshape(voxels.shape)
    shifted[...] = voxels
    assert shifted.ctypes.data % 64
    assert np.array_equal(stage(shifted, counts, coords)[0], stage(voxels, counts, coords)[0])


def test_outputs_of_calls_are_distinct(make_engine: Make) -> None:
    stage = load(compile_stage(PFN, make_engine()))
    first = stage(*pillars(stage))[0]
    kept = first.copy()
    stage(*[a * 0 for a in pillars(stage)])
    assert np.array_equal(first, kept)


def test_half_precision_rounds_what_crosses_the_border(make_engine: Make) -> None:
    weights = draw_weights(pfn_network(), 5)
    engine = make_engine({"kind": "simulated"}, ("fp16",))
    half = load(compile_stage(PFN, engine, "fp16", weights))
    rounded = {name: array.astype(np.float16).astype(np.float32) for name, array in weights.items()}
    full = load(compile_stage(PFN, make_engine(), "fp32", rounded))
    voxels, counts, coords = pillars(half)
    found = half(voxels.astype(np.float16), counts, coords)[0]
    expected = full(voxels.astype(np.float16).astype(np.float32), counts, coords)[0]
    assert found.dtype == np.float16 and half.inputs[0].dtype == "fp16"
    assert np.array_equal(found, expected.astype(np.float16))


def test_simulated_engine_refuses_what_its_rules_forbid(make_engine: Make) -> None:
    conv = OperatorRule("conv2d", {"kernel_h": (1, 32), "out_channels": (1, 16)})
    rules = OperatorRules(allowed={"conv2d": (conv,)}, static_shapes=True)
    engine = make_engine({"kind": "simulated"}, ("fp16",), rules, "dla")
    assert check_operators(stage_work(HEAD, "fp16"), engine) == (
        "cls: conv2d: out_channels is 18, allowed 1 to 16",
        "reg: conv2d: out_channels is 42, allowed 1 to 16",
    )
    with pytest.raises(CompileError, match="cannot run on dla: cls: conv2d: out_channels is 18"):
        compile_stage(HEAD, engine, "fp16")
    with pytest.raises(CompileError, match="operator pillar_features is not supported"):
        compile_stage(PFN, engine, "fp16")


def test_rules_without_a_compiler(make_engine: Make) -> None:
    work = stage_work(HEAD, "fp32")
    assert check_operators(work, make_engine(operators=OperatorRules())) == ()
    limits = OperatorRules(max_dim=300, weight_bytes=30000, activation_bytes=10**7)
    found = check_operators(work, make_engine(operators=limits, precisions=("fp16",)))
    assert found[0] == "precision fp32 is not one of fp16"
    assert any("a dimension of 384, at most 300" in line for line in found)
    assert any("64680 B of weights, at most 30000 B" in line for line in found)
    assert any("a tensor of 82280448 B" in line for line in found)
    host_only = stage_work(Stage("p", "p", "camera.preprocess"), "fp32")
    assert "host code cannot run here" in check_operators(host_only, make_engine(operators=limits))[0]


def elf_machine(path: Path) -> int:
    header = path.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    return int.from_bytes(header[E_MACHINE : E_MACHINE + 2], "little")


@pytest.mark.parametrize("stage", [PFN, HEAD], ids=lambda s: s.name)
def test_aarch64_code(make_engine: Make, stage: Stage) -> None:
    artifact = compile_stage(stage, make_engine(ORIN_CPU))
    objects = [artifact.folder / name for name in artifact.files if name.endswith((".o", ".so"))]
    assert objects and all(elf_machine(path) == AARCH64 for path in objects)
    assert artifact.loadable is False or artifact.path.suffix == ".so"
    if artifact.path.suffix != ".so":
        assert "no compiler for aarch64-linux-gnu" in artifact.notes[0]
        with pytest.raises(MachineError, match="code for aarch64-linux-gnu"):
            load(artifact)


def test_neon_instructions_are_used(make_engine: Make, tmp_path: Path) -> None:
    """Multiply-adds on four lanes, with the broadcast taken from a lane: the head's inner loop as it should be."""
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.targets.llvm.lower import lower

    network, spec = head_network(4, 12), resolve(ORIN_CPU)
    assert vector_unit(spec).name == "neon"
    lowered = lower(fuse_network(network), draw_weights(network), vector_unit(spec))
    executable = relax.build(lowered.module, tvm.target.Target(dict(spec.tvm)))
    assembly = executable.mod.imports[0].inspect_source("asm")
    assert assembly.count("fmla\tv") >= 24


def test_what_cannot_be_compiled(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is host code"):
        compile_stage(Stage("p", "p", "camera.preprocess"), make_engine())
    with pytest.raises(UsageError, match="has no model"):
        compile_stage(Stage("p", "p", None), make_engine())
    with pytest.raises(CompileError, match="no compilation in int4"):
        compile_stage(PFN, make_engine(), "int4")
    with pytest.raises(CompileError, match="no compiler for target kind 'fpga'"):
        compile_stage(PFN, make_engine({"kind": "fpga"}))
    with pytest.raises(CompileError, match="needs its architecture"):
        compile_stage(PFN, make_engine({"kind": "cuda"}))
    with pytest.raises(InputError, match=r"pfn.weight \[64, 9\] is missing; pfn.bias is \[63\], expected \[64\]"):
        compile_stage(PFN, make_engine(), weights={"pfn.bias": np.zeros(63)})
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MachineError, match=r"no C\+\+ compiler") as caught:
        host_linker()
    assert "apt-get install build-essential" in caught.value.hint


def test_border_tensors_stay_blocked(make_engine: Make) -> None:
    artifact = compile_stage(HEAD, make_engine())
    assert artifact.inputs[0].layout.endswith("c+1") and len(physical_shape(artifact.inputs[0])) == 5
    assert [t.layout for t in artifact.outputs] == ["NCHW"] * 3


def test_threads_do_not_change_results(make_engine: Make) -> None:
    stages = [load(compile_stage(PFN, make_engine(), threads=n)) for n in (1, 2)]
    one, two = (stage(*pillars(stage, 50))[0] for stage in stages)
    assert np.array_equal(one, two)
