"""The target processor (this machine's, or one known to LLVM by name) and its vector unit.

Code for this machine targets an x86-64 level (v2, v3, v4) rather than the exact processor: it is as fast, and
equivalent machines produce the same cached artefacts.
"""

from __future__ import annotations

import difflib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from socsched.compiler.target import TargetSpec
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, NEON_HALF, SSE, Vector
from socsched.descriptor.processors import PROCESSORS, architecture
from socsched.errors import CompileError, MachineError

_AVX512_FLAGS = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX2_FLAGS = {"avx2", "fma", "f16c", "bmi2"}


def require_known(own: Mapping[str, Any], engine: str) -> None:
    """Raise CompileError for a processor unknown to LLVM: TVM would crash or compile for a generic one."""
    triple, name = str(own.get("mtriple", "")), str(own.get("mcpu", ""))
    try:
        known = PROCESSORS[architecture(triple or machine())]
    except KeyError:
        raise CompileError(f"{engine}: unknown target triple {triple!r}", "such as aarch64-linux-gnu") from None
    if name and name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise CompileError(
            f"{engine}: unknown processor {name!r} for {triple or machine()}",
            f"did you mean {near[0]!r}?" if near else "name it as LLVM does, such as cortex-a78ae",
        )


def machine() -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


@cache
def native_target() -> Mapping[str, Any]:
    """Return the LLVM target of this machine, by instruction-set level; MachineError for an unsupported CPU."""
    name = machine()
    if name == "aarch64":
        triple = "aarch64-linux-gnu" if platform.system() == "Linux" else "arm64-apple-macos"
        half = {"mattr": ["+fullfp16"]} if "asimdhp" in cpu_flags() else {}
        return {"kind": "llvm", "mtriple": triple, **half}
    if name != "x86_64":
        raise MachineError(f"no CPU rules for {name}", "run on x86-64 or aarch64")
    flags = cpu_flags()
    level = "x86-64-v4" if flags >= _AVX512_FLAGS else "x86-64-v3" if flags >= _AVX2_FLAGS else "x86-64-v2"
    return {"kind": "llvm", "mcpu": level}


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the CPU features reported by the kernel (x86 flags, Arm features), empty if it reports none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return frozenset(flags)


def vector_unit(spec: TargetSpec) -> Vector:
    """Return the vector unit of an LLVM target, as reported by LLVM."""
    from socsched.compiler.environment import tvm

    if spec.triple.startswith(("aarch64", "arm64")):
        return NEON
    target, has = tvm.target.Target(dict(spec.tvm)), tvm.target.codegen.target_has_features
    if has(["avx512f", "avx512vl"], target):
        return AVX512
    return AVX2 if has(["avx2", "fma"], target) else SSE


def half_unit(spec: TargetSpec) -> Vector | None:
    """Return the half-precision vector unit of an LLVM target, None without half-precision arithmetic (`+fullfp16`).

    x86-64 has none here: none of the levels used for hosts includes AVX512-FP16.  A simulated engine's code runs on the
    host, regardless of the engine's capabilities.
    """
    from socsched.compiler.environment import tvm

    if spec.kind != "llvm" or vector_unit(spec) is not NEON:
        return None
    has = tvm.target.codegen.target_has_features(["fullfp16"], tvm.target.Target(dict(spec.tvm)))
    return NEON_HALF if has else None
