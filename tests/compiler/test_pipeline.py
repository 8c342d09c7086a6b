"""The passes of every target, in order, and targets that reuse passes of others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import small_stages

from socsched.compiler.pipeline import after_fusion, compile_network, fused
from socsched.compiler.target import Build, Compilation, Passes, Target, resolve, target_of
from socsched.compiler.targets.cuda import passes as cuda
from socsched.compiler.targets.llvm import target as llvm
from socsched.models.weights import draw_weights

HOST = {"kind": "llvm", "host": True}
GPU = {"kind": "cuda", "arch": "sm_87"}
MALI = {"kind": "opencl", "max_threads_per_block": 256}
INTEGERS = ["choose_scales", "use_integers", "lower_integers", "generate_integers"]


def asked(entry: dict[str, object], name: str, precision: str, folder: Path = Path()) -> Build:
    network = small_stages.NETWORKS[name]()
    return Build(folder, network, draw_weights(network, 0), resolve(entry), precision)


@pytest.mark.parametrize(
    ("entry", "name", "precision", "expected"),
    [
        (HOST, "head", "fp32", ["lower_floats", "generate", "link", "list_launches"]),
        (HOST, "head", "fp16", ["round_weights", "lower_halves", "generate", "link", "list_launches"]),
        (HOST, "head", "int8", [*INTEGERS, "link", "list_launches", "keep_scales"]),
        (HOST, "scatter", "int8", ["lower_floats", "generate", "link", "list_launches"]),
        (MALI, "head", "fp16", ["bind_constants", "lower_operators", "schedule", "generate", "write_plan"]),
        (MALI, "pfn", "fp16", ["lower_pillars", "generate", "write_plan"]),
    ],
)
def test_the_passes_of_a_target(entry: dict[str, object], name: str, precision: str, expected: list[str]) -> None:
    passes = target_of(entry).passes(fused(asked(entry, name, precision)))
    assert [step.__name__ for step in after_fusion(passes)] == expected


@pytest.mark.parametrize(
    ("name", "precision", "expected"),
    [
        ("head", "fp16", ["lower_by_rules", "generate"]),
        ("head", "fp32", ["remark", "bind_constants", "generate_by_tvm"]),
        ("head", "int8", [*INTEGERS[:3], "generate", "keep_scales"]),
        ("scatter", "int8", ["remark", "bind_constants", "generate_by_tvm"]),
    ],
)
def test_the_passes_of_a_gpu_up_to_code_in_memory(name: str, precision: str, expected: list[str]) -> None:
    passes = cuda.in_memory(fused(asked(GPU, name, precision)))
    assert [step.__name__ for step in after_fusion(passes)] == expected


def test_a_target_of_another_s_passes(tmp_path: Path) -> None:
    def signed(compilation: Compilation) -> Compilation:
        (tmp_path / "signature").write_text("by a pass")
        return replace(compilation, files=(*compilation.files, "signature"))

    def passes(compilation: Compilation) -> Passes:
        own = llvm.passes(compilation)
        return replace(own, package=(*own.package, signed))

    made = compile_network(asked(HOST, "scatter", "fp32", tmp_path), Target(llvm.resolve, passes))
    assert made.files == ("stage.so", "launches.json", "constants.bin", "signature")
    assert all((tmp_path / name).is_file() for name in made.files)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_constants_are_beside_the_code_and_not_in_it(precision: str, tmp_path: Path) -> None:
    request = asked(HOST, "head", precision, tmp_path)
    compile_network(request, llvm.TARGET)
    plan = json.loads((tmp_path / "launches.json").read_text())
    places = [buffer for buffer in plan["buffers"] if buffer["role"] == "constant" and buffer["bytes"] >= 64]
    content, code = ((tmp_path / name).read_bytes() for name in ("constants.bin", "stage.so"))
    assert places
    for place in places:
        values = content[place["offset"] :][: place["bytes"]]
        assert not any(values) or values not in code
