"""The pinned pair of TVM and its FFI, and the processor TVM compiles for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from socsched.compiler.environment import check_versions
from socsched.compiler.store import PINNED
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.processor import cpu_flags, native_target, vector_unit
from socsched.descriptor.catalog import get_platform, platform_names
from socsched.descriptor.processors import PROCESSORS, TRIPLE_PATTERN, architecture
from socsched.errors import CompileError, DescriptorError, MachineError
from socsched.resources import find


def test_the_pinned_pair_is_what_is_declared_and_installed(checkout: Path) -> None:
    check_versions()
    declared = (checkout / "pyproject.toml").read_text()
    assert PINNED == {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"}
    assert all(f'"{package}=={version}"' in declared for package, version in PINNED.items())


def test_another_pair_is_refused() -> None:
    with pytest.raises(MachineError, match=r"apache-tvm-ffi 0\.1\.15 is installed, but only 0\.1\.14\.post0") as caught:
        check_versions({**PINNED, "apache-tvm-ffi": "0.1.15"}.__getitem__)
    assert "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0" in caught.value.hint

    def absent(package: str) -> str:
        raise PackageNotFoundError(package)

    with pytest.raises(MachineError, match="apache-tvm is not installed"):
        check_versions(absent)


@pytest.mark.parametrize("given", [None, "3"])
@pytest.mark.sampled(2)
def test_threads_are_set_unless_the_user_did(given: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("TVM_NUM_THREADS", "TVM_BIND_THREADS")}
    if given:
        environment["TVM_NUM_THREADS"] = given
    program = (
        "import os; import socsched.compiler.environment as e;"
        "print(os.environ['TVM_NUM_THREADS'], os.environ['TVM_BIND_THREADS'], e.online_cores())"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    threads, bind, cores = done.stdout.split()
    assert threads == (given or cores) and bind == "0"


def test_vector_units_as_llvm_knows_them() -> None:
    expected = {"x86-64-v4": "avx512", "znver4": "avx512", "x86-64-v3": "avx2", "haswell": "avx2", "x86-64-v2": "sse"}
    found = {cpu: vector_unit(resolve({"kind": "llvm", "mcpu": cpu})).name for cpu in expected}
    assert found == expected
    arm = resolve({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a78ae"})
    assert vector_unit(arm).name == "neon"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse4_2", "x86-64-v2"),
        ("fpu avx2 fma f16c bmi2", "x86-64-v3"),
        ("avx2 fma f16c bmi2 avx512f avx512bw avx512cd avx512dq avx512vl", "x86-64-v4"),
    ],
)
def test_native_level_follows_the_kernel_s_flags(
    flags: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    found = cpu_flags(str(info))
    monkeypatch.setattr("socsched.compiler.targets.llvm.processor.cpu_flags", lambda: found)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    native_target.cache_clear()
    try:
        assert native_target() == {"kind": "llvm", "mcpu": level}
    finally:
        native_target.cache_clear()


# Processors and architectures that LLVM does not know are rejected when read instead of crashing TVM.

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
