"""CUDA toolkits: what is found, for which architectures each builds, and code by NVIDIA's packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from socsched.compiler.targets.cuda import toolkits as module
from socsched.compiler.targets.cuda.toolkits import FOLDERS, Toolkit, board_toolkits, toolkits
from socsched.errors import CompileError

KERNEL = """
#include <cuda_fp16.h>
static int twice(int x) { return 2 * x; }
extern "C" __global__ void k(const __half* in, float* out) { out[threadIdx.x] = __half2float(in[twice(threadIdx.x)]); }
"""
EM_CUDA = 190


@pytest.mark.parametrize(
    ("arch", "version", "name"),
    [
        ("sm_72", (12, 9), "sm_72"), ("sm_72", (13, 0), ""), ("sm_87", (11, 2), ""), ("sm_87", (11, 4), "sm_87"),
        ("sm_90a", (11, 4), ""), ("sm_90a", (13, 0), "sm_90a"), ("sm_110", (12, 9), "sm_101"),
        ("sm_101", (13, 0), "sm_110"), ("sm_110", (12, 6), ""), ("sm_75", (13, 0), "sm_75"), ("other", (13, 0), ""),
    ],
)  # fmt: skip
def test_architectures_by_release(arch: str, version: tuple[int, int], name: str) -> None:
    assert Toolkit(version, "nvcc").architecture(arch) == name


@pytest.mark.needs("nvcc")
def test_code_by_every_toolkit_found() -> None:
    found = toolkits()
    assert found and len({toolkit.version[0] for toolkit in found}) == len(found)
    assert [toolkit.version for toolkit in found] == sorted((t.version for t in found), reverse=True)
    for toolkit in found:
        header = toolkit.cubin(KERNEL.replace("static", "static __device__"), "sm_87")[:64]
        assert header[:4] == b"\x7fELF" and int.from_bytes(header[18:20], "little") == EM_CUDA
        with pytest.raises(CompileError, match="refuse"):
            toolkit.cubin("no code", "sm_87")


@pytest.mark.skipif(not os.environ.get(FOLDERS), reason=f"{FOLDERS} names no folder with NVIDIA's packages")
def test_nvrtc_is_found_in_folders_of_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert any(toolkit.include for toolkit in toolkits())
    monkeypatch.setenv(FOLDERS, str(tmp_path))
    assert all(not toolkit.include for toolkit in toolkits())


def test_cards_need_no_toolkit_of_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    here = (Toolkit((13, 0), "nvcc"),)
    monkeypatch.setattr(module, "toolkits", lambda: here)
    monkeypatch.setattr(module, "_fetched", lambda major: Toolkit((major, 6), "fetched"))
    assert board_toolkits("sm_90") == here
    assert [one.version[0] for one in board_toolkits("sm_87")] == [13, 12]
    assert [one.version[0] for one in board_toolkits("sm_70")] == [13, 11]
