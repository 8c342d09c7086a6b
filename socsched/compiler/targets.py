"""What an engine's `target` entry means: which compiler back end, for which processor, with which vector unit.

    {kind: llvm, host: true} or {kind: llvm, mcpu: native}      this machine, by its vector unit
    {kind: llvm, mtriple: aarch64-linux-gnu, mcpu: cortex-a78ae}  another CPU
    {kind: cuda, arch: sm_87}                                   a GPU
    {kind: opencl}                                              a mobile GPU (Mali, Adreno): sources and a launch plan
    {kind: hexagon, arch: v73}                                  a Hexagon DSP's scalar cores with HVX: object files
    {kind: simulated}                                           an engine without compiler here: its stages are checked
                                                                against its operator rules and compiled for this machine

A machine's own code is compiled for an x86-64 level (v2, v3, v4) rather than its exact processor: as fast, and the
cached artefacts of equal machines agree.
"""

from __future__ import annotations

import difflib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from socsched.compiler.cpu.vector import AVX2, AVX512, HVX, NEON, NEON_HALF, SSE, Vector
from socsched.descriptor.processors import PROCESSORS, architecture
from socsched.errors import CompileError, MachineError

_AVX512_FLAGS = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_AVX2_FLAGS = {"avx2", "fma", "f16c", "bmi2"}
_OWN_KEYS = ("host", "note")
_OPENCL_LIMITS = ("max_threads_per_block", "max_shared_memory_per_block")
HEXAGON = ("v68", "v69", "v73", "v75")
"""Architectures with floating point on HVX, which older ones would do one number at a time."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A resolved target: `kind` as in the entry, `tvm` what TVM is told, `native` whether its code runs here."""

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
        _require_known(own, engine)
        triple = str(own.get("mtriple", ""))
        return TargetSpec("llvm", own, not triple or triple.split("-")[0] == _machine())
    if kind == "cuda":
        if "arch" not in target:
            raise CompileError(f"{engine}: target cuda needs its architecture", "add `arch: sm_87` or the like")
        return TargetSpec("cuda", {key: value for key, value in target.items() if key != "note"}, False)
    if kind == "opencl":
        limits = {key: value for key, value in target.items() if key in _OPENCL_LIMITS}
        return TargetSpec("opencl", {"kind": "opencl", **limits, "host": {"kind": "llvm"}}, False)
    if kind == "hexagon":
        return TargetSpec("hexagon", _hexagon(str(target.get("arch", "")), engine), False)
    raise CompileError(
        f"{engine}: no compiler for target kind {kind!r}", "kinds: llvm, cuda, opencl, hexagon, simulated"
    )


def _require_known(own: Mapping[str, Any], engine: str) -> None:
    """Raise CompileError for a processor LLVM does not know: TVM would crash, or compile for a generic one."""
    triple, name = str(own.get("mtriple", "")), str(own.get("mcpu", ""))
    try:
        known = PROCESSORS[architecture(triple or _machine())]
    except KeyError:
        raise CompileError(f"{engine}: unknown target triple {triple!r}", "such as aarch64-linux-gnu") from None
    if name and name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise CompileError(
            f"{engine}: unknown processor {name!r} for {triple or _machine()}",
            f"did you mean {near[0]!r}?" if near else "name it as LLVM does, such as cortex-a78ae",
        )


def _hexagon(arch: str, engine: str) -> Mapping[str, Any]:
    """LLVM's own back end, asked for by triple: TVM's hexagon tags compile the host half, all code here, for x86-64."""
    if arch not in HEXAGON:
        raise CompileError(
            f"{engine}: target hexagon needs an architecture with HVX floating point, got {arch!r}",
            f"give `arch`, one of {', '.join(HEXAGON)}",
        )
    features = [f"+hvx{arch}", "+hvx-length128b", "+hvx-qfloat", "-hvx-ieee-fp"]
    return {"kind": "llvm", "mtriple": "hexagon", "mcpu": f"hexagon{arch}", "mattr": features}


def share_in_code(spec: TargetSpec, share: int) -> int:
    """Return what of an engine's share the code depends on.

    A CPU's kernels are split over threads when they start, unless tiles measured for a share are given; a GPU's tiles
    are chosen for its SMs when they are built.
    """
    return share if spec.kind == "cuda" else 0


def _machine() -> str:
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


@cache
def native_target() -> Mapping[str, Any]:
    """Return the LLVM target of this machine, by instruction-set level; MachineError for a CPU there is no tile for."""
    machine = _machine()
    if machine == "aarch64":
        triple = "aarch64-linux-gnu" if platform.system() == "Linux" else "arm64-apple-macos"
        half = {"mattr": ["+fullfp16"]} if "asimdhp" in cpu_flags() else {}
        return {"kind": "llvm", "mtriple": triple, **half}
    if machine != "x86_64":
        raise MachineError(f"no CPU rules for {machine}", "run on x86-64 or aarch64")
    flags = cpu_flags()
    level = "x86-64-v4" if flags >= _AVX512_FLAGS else "x86-64-v3" if flags >= _AVX2_FLAGS else "x86-64-v2"
    return {"kind": "llvm", "mcpu": level}


def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """Return the processor features the kernel reports (x86 flags, Arm features), empty where it reports none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return frozenset(flags)


def vector_unit(spec: TargetSpec) -> Vector:
    """Return the vector unit an LLVM target compiles for, asked of LLVM itself."""
    from socsched.compiler.environment import tvm

    if spec.triple.startswith(("aarch64", "arm64")):
        return NEON
    if spec.kind == "hexagon":
        return HVX
    target, has = tvm.target.Target(dict(spec.tvm)), tvm.target.codegen.target_has_features
    if has(["avx512f", "avx512vl"], target):
        return AVX512
    return AVX2 if has(["avx2", "fma"], target) else SSE


def half_unit(spec: TargetSpec) -> Vector | None:
    """Return the vector unit of an LLVM target in half-precision arithmetic, None where it has none (`+fullfp16`).

    x86-64 has none here: AVX512-FP16 is in no level a host is compiled for.  A simulated engine's code runs on the
    host, whatever the engine could do.
    """
    from socsched.compiler.environment import tvm

    if spec.kind != "llvm" or vector_unit(spec) is not NEON:
        return None
    has = tvm.target.codegen.target_has_features(["fullfp16"], tvm.target.Target(dict(spec.tvm)))
    return NEON_HALF if has else None
