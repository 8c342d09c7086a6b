"""The pinned pair of TVM and its FFI, and the processor TVM compiles for."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from socsched.compiler.environment import check_versions
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.processor import cpu_flags, native_target, vector_unit
from socsched.compiler.versions import PINNED
from socsched.errors import MachineError


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
