"""What an engine's `target` entry means: which compiler back end, for which processor, with which vector unit.

    {kind: llvm, host: true} or {kind: llvm, mcpu: native}      this machine, by its vector unit
    {kind: llvm, mtriple: aarch64-linux-gnu, mcpu: cortex-a78ae}  another CPU
    {kind: cuda, arch: sm_87}                                   a GPU
    {kind: simulated}                                           an engine without compiler here: its stages are checked
                                                                against its operator rules and compiled for this machine

A machine's own code is compiled for an x86-64 level (v2, v3, v4) rather than its exact processor: as fast, and the
cached artefacts of equal machines agree.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from socsched.compile.cpu.vector import AVX2, AVX512, NEON, SSE, Vector
from socsched.errors import CompileError, MachineError

_AVX512_FLAGS = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX2_FLAGS = {"avx2", "fma", "f16c", "bmi2"}
_OWN_KEYS = ("host", "note")


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A resolved target: `kind` llvm | cuda | simulated, `tvm` what TVM is told, `native` whether it runs here."""

    kind: str
    tvm: Mapping[str, Any]
    native: bool

    @property
    def triple(self) -> str:
        """The target triple of the code a processor runs, empty for this machine."""
        host = self.tvm.get("host", {})
        return str(self.tvm.get("mtriple") or (host.get("mtriple", "") if isinstance(host, Mapping) else ""))


def resolve(target: Mapping[str, Any], engine: str = "engine") -> TargetSpec:
    """Return the meaning of an engine's target entry; CompileError when it names none that is known."""
    kind = target.get("kind")
    if kind == "simulated":
        return TargetSpec("simulated", native_target(), True)
    if kind == "llvm":
        if target.get("host") is True or target.get("mcpu") == "native":
            return TargetSpec("llvm", native_target(), True)
        own = {key: value for key, value in target.items() if key not in _OWN_KEYS}
        triple = str(own.get("mtriple", ""))
        return TargetSpec("llvm", own, not triple or triple.split("-")[0] == _machine())
    if kind == "cuda":
        if "arch" not in target:
            raise CompileError(f"{engine}: target cuda needs its architecture", "add `arch: sm_87` or the like")
        return TargetSpec("cuda", {key: value for key, value in target.items() if key != "note"}, False)
    raise CompileError(f"{engine}: no compiler for target kind {kind!r}", "kinds: llvm, cuda, simulated")


def _machine() -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


@cache
def native_target() -> Mapping[str, Any]:
    """Return the LLVM target of this machine, by instruction-set level; MachineError for a CPU there is no tile for."""
    machine = _machine()
    if machine == "aarch64":
        return {"kind": "llvm", "mtriple": "aarch64-linux-gnu" if platform.system() == "Linux" else "arm64-apple-macos"}
    if machine != "x86_64":
        raise MachineError(f"no CPU rules for {machine}", "run on x86-64 or aarch64")
    flags = cpu_flags()
    level = "x86-64-v4" if flags >= _AVX512_FLAGS else "x86-64-v3" if flags >= _AVX2_FLAGS else "x86-64-v2"
    return {"kind": "llvm", "mcpu": level}


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the x86 feature flags the kernel reports, empty where it reports none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return frozenset(flags)


def vector_unit(spec: TargetSpec) -> Vector:
    """Return the vector unit an LLVM target compiles for, asked of LLVM itself."""
    from socsched.compile.environment import tvm

    if spec.triple.startswith(("aarch64", "arm64")):
        return NEON
    target, has = tvm.target.Target(dict(spec.tvm)), tvm.target.codegen.target_has_features
    if has(["avx512f", "avx512vl"], target):
        return AVX512
    return AVX2 if has(["avx2", "fma"], target) else SSE
