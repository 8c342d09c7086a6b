"""The hexagon target: objects for the DSP only, with the symbols a loader needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import small_stages

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import relax, tvm
from socsched.compiler.loading.stages import load
from socsched.compiler.passes.link import write_library
from socsched.compiler.passes.relax_form import bind_weights, import_network
from socsched.compiler.target import TargetSpec, resolve
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import native_target, vector_unit
from socsched.compiler.toolchains.hexagon import AARCH64, ENTRY, QDSP6, X86_64, check_objects, read_elf
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, InputError, MachineError
from socsched.graph.expand import fuse_network
from socsched.models.weights import draw_weights

Make = Callable[..., Engine]
DSP = {"kind": "hexagon", "arch": "v73"}
RUNTIME = re.compile(r"_GLOBAL_OFFSET_TABLE_|TVMFFI\w+|TVMBackend\w+|__hexagon_\w+|mem(set|cpy|move)|[a-z]+f?")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(name, precision, marks=pytest.mark.slow if name == "backbone" else ())
        for name in small_stages.STAGES
        for precision in ("fp32", "fp16")
    ],
)
@pytest.mark.slow
def test_objects_and_symbols(name: str, precision: str, make_engine: Make) -> None:
    artifact = compile_stage(small_stages.stage(name), make_engine(DSP, ("fp32", "fp16"), id="dsp"), precision)
    assert artifact.target == "hexagon" and artifact.triple == "hexagon" and not artifact.loadable
    elves = [read_elf(artifact.folder / file) for file in artifact.files]
    assert all((elf.machine, elf.bits) == (QDSP6, 32) for elf in elves)
    defined = frozenset().union(*(elf.defined for elf in elves))
    kernel = {"pfn": "pillar_net", "scatter": "scatter", "backbone": "conv2d_winograd", "head": "conv2d"}[name]
    assert {ENTRY, "__TVMBackendParallelLaunch", f"__tvm_ffi_{kernel}"} <= defined
    needed = frozenset().union(*(elf.undefined for elf in elves)) - defined
    assert needed and not [symbol for symbol in needed if not RUNTIME.fullmatch(symbol)]
    assert any("never executed" in note for note in artifact.notes)
    with pytest.raises(MachineError, match="code for hexagon, which this machine cannot run"):
        load(artifact)


def test_vectors_are_used() -> None:
    """HVX multiplications in the loops; on the scalar core a stage would be useless."""
    network, spec = small_stages.NETWORKS["head"](), resolve(DSP)
    assert vector_unit(spec).block == 32
    lowered = lower(fuse_network(network), draw_weights(network), vector_unit(spec))
    executable = relax.build(lowered.module, target=tvm.target.Target(dict(spec.tvm)))
    assembly = executable.mod.imports[0].inspect_source("asm")
    assert len(re.findall(r"qf32 = vmpy\(v\d+\.sf,v\d+\.sf\)", assembly)) >= 12
    assert "sfmpy" not in assembly


def test_what_tvm_s_own_tag_makes_is_refused(tmp_path: Path) -> None:
    network = small_stages.NETWORKS["head"]()
    module = bind_weights(import_network(network), network, draw_weights(network))
    executable = relax.build(module, target=tvm.target.Target("qcom/hexagon-v73"))
    folder = tmp_path / "objects"
    folder.mkdir()
    files, _ = write_library(executable, folder, TargetSpec("hexagon", {"mtriple": "hexagon"}, False))
    with pytest.raises(CompileError, match="not for Hexagon"):
        check_objects(folder, files)


def test_architectures_without_vector_floats_are_refused(make_engine: Make) -> None:
    for arch in ("v65", "", "sm_87"):
        with pytest.raises(CompileError, match="HVX floating point") as caught:
            compile_stage(small_stages.stage("head"), make_engine({"kind": "hexagon", "arch": arch}))
        assert "v73" in caught.value.hint


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf (binutils) is not installed")
@pytest.mark.slow
def test_symbols_are_those_readelf_finds(make_engine: Make) -> None:
    artifacts = [compile_stage(small_stages.stage("head"), make_engine(target)) for target in (DSP, None)]
    for path in (artifacts[0].path, artifacts[1].path):
        printed = subprocess.run(["readelf", "-sW", str(path)], capture_output=True, text=True, check=True).stdout
        table = printed[printed.index("Symbol table '.symtab'") :] if ".symtab" in printed else ""
        rows = [line.split() for line in table.splitlines() if re.match(r"\s*\d+: ", line)]
        wanted = {(row[7].split("@")[0], row[6] == "UND") for row in rows if row[4] != "LOCAL" and len(row) > 7}
        elf = read_elf(path)
        assert wanted
        assert {(s.split("@")[0], False) for s in elf.defined} | {
            (s.split("@")[0], True) for s in elf.undefined
        } == wanted


def test_elf_reader(tmp_path: Path, make_engine: Make) -> None:
    library = compile_stage(small_stages.stage("head"), make_engine()).path
    native = {"x86_64": X86_64, "aarch64": AARCH64}["aarch64" if "aarch64" in str(native_target()) else "x86_64"]
    assert read_elf(library).machine == native and read_elf(library).bits == 64
    data = library.read_bytes()
    for content in (b"", b"MZ" + bytes(100), data[: len(data) // 2]):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(InputError, match="ELF file"):
            read_elf(tmp_path / "file")


@pytest.mark.slow
def test_networks_without_rules(tmp_path: Path, make_engine: Make) -> None:
    pytest.importorskip("onnx")
    stage, arrays = small_stages.onnx_stage("mobilenet", tmp_path)
    artifact = compile_stage(stage, make_engine(DSP, id="dsp"))
    assert np.asarray(arrays[0]).size and any("general schedules" in note for note in artifact.notes)
    assert read_elf(artifact.path).machine == QDSP6
