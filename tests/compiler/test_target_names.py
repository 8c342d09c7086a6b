"""Processors and architectures that LLVM does not know are rejected when read instead of crashing TVM."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from socsched.compiler.target import resolve
from socsched.descriptor.catalog import get_platform, platform_names
from socsched.descriptor.processors import PROCESSORS, TRIPLE_PATTERN, architecture
from socsched.errors import CompileError, DescriptorError
from socsched.resources import find

TRIPLES = {
    "aarch64": ("aarch64-linux-gnu", "arm64-apple-macos", "aarch64-none-elf", "aarch64-linux-android"),
    "arm": ("armv7l-linux-gnueabihf", "armv6-linux-gnueabi", "armv8a-none-elf"),
    "x86_64": ("x86_64-linux-gnu", "x86_64-unknown-linux-musl"),
    "riscv64": ("riscv64-linux-gnu",),
}


def test_the_processors_are_those_of_the_llvm_in_use() -> None:
    """Every triple is checked in a separate process: TVM crashes with SIGSEGV for an unknown one."""
    code = (
        "import sys\nfrom tvm.target import Target, codegen\n"
        "for triple in sys.argv[1:]:\n"
        "    made = Target({'kind': 'llvm', 'mtriple': triple})\n"
        "    codegen.target_has_features(['x'], made)\n"
        "    print(triple, *codegen.llvm_get_cpu_archlist(made))\n"
    )
    triples = [triple for group in TRIPLES.values() for triple in group]
    done = subprocess.run([sys.executable, "-c", code, *triples], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    found = {line.split()[0]: frozenset(line.split()[1:]) for line in done.stdout.splitlines()}
    for key, group in TRIPLES.items():
        for triple in group:
            assert re.match(TRIPLE_PATTERN, triple) and architecture(triple) == key
            assert found[triple] == PROCESSORS[key], triple


BAD = ["nonsense-linux-gnu", "aarch64-$(id)", "armv99", "x86_64-linux\n", "hexagon-x", "-"]


@pytest.mark.parametrize("triple", BAD)
def test_an_unknown_triple_is_refused(triple: str) -> None:
    with pytest.raises(CompileError, match="unknown target triple"):
        resolve({"kind": "llvm", "mtriple": triple})


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(CompileError, match="unknown processor 'cortex-a78a'") as caught:
        resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78a"})
    assert "cortex-a78" in caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("mtriple: aarch64-linux-gnu", "mtriple: nonsense-linux-gnu", "target.mtriple: expected a target triple"),
        ("mcpu: cortex-a78ae", "mcpu: cortex-a78a3", "target.mcpu: unknown processor 'cortex-a78a3'; did you mean"),
        ("num-cores: 4", "num-cores: 0", "target.num-cores: expected a number not below 1"),
        ("num-cores: 4", "cores: 4", "target.cores: unknown field"),
        ("arch: sm_87", "arch: sm_87; rm", "target.arch: expected text like"),
        ("kind: cuda", "kind: metal", "target.kind: expected one of cuda, llvm"),
    ],
)
def test_the_check_of_a_platform_names_the_place(old: str, new: str, field: str, tmp_path: Path) -> None:
    text = find("platforms", "jetson-agx-orin-64gb").read_text()
    assert old in text
    changed = tmp_path / "jetson-agx-orin-64gb.yaml"
    changed.write_text(text.replace(old, new, 1))
    with pytest.raises(DescriptorError) as caught:
        get_platform(str(changed))
    line = next(number for number, row in enumerate(changed.read_text().splitlines(), 1) if new in row)
    assert any(field in str(finding) and finding.line == line for finding in caught.value.findings)


def test_every_shipped_target_is_known() -> None:
    for name in platform_names():
        for engine in get_platform(name).engines:
            resolve(engine.target, engine.id)
