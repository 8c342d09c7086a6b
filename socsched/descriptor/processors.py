"""The `target` of an engine in platform files: compiler back end, and a processor that LLVM knows.

Processors are listed by architecture as by LLVM 22.1 (TVM's `llvm_get_cpu_archlist`).

TVM crashes with a segmentation fault on an unknown architecture and compiles for a generic processor on an unknown one,
so both are refused when a platform is read.  A test checks the lists against the installed TVM.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WrapValidator

from socsched import plugins
from socsched.descriptor.fields import FileModel
from socsched.errors import CompileError

_NAMES = {
    "aarch64": """
        a64fx ampere1 ampere1a ampere1b ampere1c apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15
        apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 c1-nano c1-premium c1-pro c1-ultra carmel cortex-a320
        cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a520ae cortex-a53 cortex-a55 cortex-a57
        cortex-a65 cortex-a65ae cortex-a710 cortex-a715 cortex-a72 cortex-a720 cortex-a720ae cortex-a725
        cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae cortex-a78c
        cortex-r82 cortex-r82ae cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4 cortex-x925 exynos-m3
        exynos-m4 exynos-m5 falkor fujitsu-monaka gb10 generic grace kryo neoverse-512tvb neoverse-e1
        neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 neoverse-v3ae olympus oryon-1
        saphira thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tsv110
    """,
    "arm": """
        arm1020e arm1020t arm1022e arm10e arm10tdmi arm1136j-s arm1136jf-s arm1156t2-s arm1156t2f-s
        arm1176jz-s arm1176jzf-s arm710t arm720t arm7tdmi arm7tdmi-s arm8 arm810 arm9 arm920 arm920t arm922t
        arm926ej-s arm940t arm946e-s arm966e-s arm968e-s arm9e arm9tdmi cortex-a12 cortex-a15 cortex-a17
        cortex-a32 cortex-a35 cortex-a5 cortex-a510 cortex-a53 cortex-a55 cortex-a57 cortex-a7 cortex-a710
        cortex-a72 cortex-a73 cortex-a75 cortex-a76 cortex-a76ae cortex-a77 cortex-a78 cortex-a78ae
        cortex-a78c cortex-a8 cortex-a9 cortex-m0 cortex-m0plus cortex-m1 cortex-m23 cortex-m3 cortex-m33
        cortex-m35p cortex-m4 cortex-m52 cortex-m55 cortex-m7 cortex-m85 cortex-r4 cortex-r4f cortex-r5
        cortex-r52 cortex-r52plus cortex-r7 cortex-r8 cortex-x1 cortex-x1c cyclone ep9312 exynos-m3 exynos-m4
        exynos-m5 generic iwmmxt krait kryo mpcore mpcorenovfp neoverse-n1 neoverse-n2 neoverse-v1 sc000 sc300
        star-mc1 star-mc3 strongarm strongarm110 strongarm1100 strongarm1110 swift xscale
    """,
    "x86_64": """
        alderlake amdfam10 arrowlake arrowlake-s arrowlake_s athlon athlon-4 athlon-fx athlon-mp athlon-tbird
        athlon-xp athlon64 athlon64-sse3 atom atom_sse4_2 atom_sse4_2_movbe barcelona bdver1 bdver2 bdver3
        bdver4 bonnell broadwell btver1 btver2 c3 c3-2 cannonlake cascadelake clearwaterforest cooperlake
        core-avx-i core-avx2 core2 core_2_duo_sse4_1 core_2_duo_ssse3 core_2nd_gen_avx core_3rd_gen_avx
        core_4th_gen_avx core_4th_gen_avx_tsx core_5th_gen_avx core_5th_gen_avx_tsx core_aes_pclmulqdq
        core_i7_sse4_2 corei7 corei7-avx diamondrapids emeraldrapids generic geode goldmont goldmont-plus
        goldmont_plus gracemont grandridge graniterapids graniterapids-d graniterapids_d haswell i386 i486
        i586 i686 icelake-client icelake-server icelake_client icelake_server ivybridge k6 k6-2 k6-3 k8
        k8-sse3 knl knm lakemont lunarlake meteorlake mic_avx512 nehalem nocona novalake opteron opteron-sse3
        pantherlake penryn pentium pentium-m pentium-mmx pentium2 pentium3 pentium3m pentium4 pentium4m
        pentium_4 pentium_4_sse3 pentium_ii pentium_iii pentium_iii_no_xmm_regs pentium_m pentium_mmx
        pentium_pro pentiumpro prescott raptorlake rocketlake sandybridge sapphirerapids sierraforest
        silvermont skx skylake skylake-avx512 skylake_avx512 slm tigerlake tremont westmere wildcatlake
        winchip-c6 winchip2 x86-64 x86-64-v2 x86-64-v3 x86-64-v4 yonah znver1 znver2 znver3 znver4 znver5
    """,
    "riscv64": """
        andes-45-series andes-a25 andes-a45 andes-ax25 andes-ax45 andes-ax45mpv andes-n45 andes-nx45 generic
        generic-ooo generic-rv32 generic-rv64 mips-p8700 rocket rocket-rv32 rocket-rv64 rp2350-hazard3
        sifive-7-series sifive-e20 sifive-e21 sifive-e24 sifive-e31 sifive-e34 sifive-e76 sifive-p450
        sifive-p470 sifive-p550 sifive-p670 sifive-p870 sifive-s21 sifive-s51 sifive-s54 sifive-s76 sifive-u54
        sifive-u74 sifive-x280 sifive-x390 spacemit-x60 syntacore-scr1-base syntacore-scr1-max
        syntacore-scr3-rv32 syntacore-scr3-rv64 syntacore-scr4-rv32 syntacore-scr4-rv64 syntacore-scr5-rv32
        syntacore-scr5-rv64 syntacore-scr7 tt-ascalon-d8 veyron-v1 xiangshan-kunminghu xiangshan-nanhu
    """,
}
PROCESSORS = {name: frozenset(text.split()) for name, text in _NAMES.items()}
TRIPLE_PATTERN = (
    r"^(aarch64|arm64|armv[6-8][a-z]*|x86_64|riscv64)(-(unknown|pc|none|apple|linux))?"
    r"(-(linux|none|macos|darwin))?(-(gnu|gnueabi|gnueabihf|musl|musleabi|musleabihf|android|androideabi|elf))?$"
)
"""Target triples: architectures of `PROCESSORS` on Linux, Android, macOS or without an operating system."""


def architecture(triple: str) -> str:
    """Return the key of `PROCESSORS` for a target triple, that of x86-64 for none; KeyError for an unknown one."""
    name = triple.split("-")[0]
    key = {"arm64": "aarch64", "": "x86_64"}.get(name, "arm" if name.startswith("armv") else name)
    if key not in PROCESSORS or (triple and not re.fullmatch(TRIPLE_PATTERN, triple)):
        raise KeyError(triple)
    return key


TENSOR_CORES = 80
"""Compute capability from which our kernels use tensor cores (cp.async, mma.m16n8k16 and m16n8k32)."""


def capability(arch: str) -> int:
    """Return the number in a GPU's architecture, 87 for "sm_87"; CompileError for other names."""
    digits = arch.removeprefix("sm_").rstrip("a")
    if not digits.isdigit():
        raise CompileError(f"GPU architecture {arch!r} is not known", "name it like sm_87")
    return int(digits)


_Units = Annotated[int, Field(ge=1, le=2**20)]


class _Processor(FileModel):
    """A processor code is compiled for; without mtriple that of this machine."""

    mtriple: str | None = Field(None, pattern=TRIPLE_PATTERN, description="target triple, such as aarch64-linux-gnu")
    mcpu: str | None = Field(None, max_length=40, description="LLVM name of the processor, such as cortex-a78ae")
    mattr: list[Annotated[str, Field(pattern=r"^[+-][A-Za-z0-9_.-]{1,40}$")]] | None = Field(
        None, max_length=50, description="features to add and to leave out, such as +fullfp16"
    )
    num_cores: _Units | None = Field(None, alias="num-cores", description="number of cores the code is built for")
    note: str | None = Field(None, description="remarks")


class ProcessorFile(_Processor):
    """The host CPU of an engine."""

    kind: Literal["llvm"] = Field(description="the compiler back end")


def _host(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Validate a mapping against `ProcessorFile` alone, so that its faults are not reported as those of a boolean."""
    return ProcessorFile.model_validate(value) if isinstance(value, dict) else handler(value)


def _registered(kind: str) -> str:
    """Return the kind of a target; raise ValueError listing the registered kinds for any other."""
    known = plugins.names("socsched.targets")
    if kind not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return kind


class TargetFile(_Processor):
    """What an engine's stages are compiled for."""

    kind: Annotated[str, AfterValidator(_registered)] = Field(
        description="compiler back end: llvm, cuda, opencl (`socsched plugins targets`); simulated: none, "
        "stages are checked against the rules and compiled for the host"
    )
    host: Annotated[bool | ProcessorFile | None, WrapValidator(_host)] = Field(
        None, description="true: this machine; else the CPU next to the engine"
    )
    arch: str | None = Field(
        None, pattern="^(sm_[0-9]{2,3}[a-z]?|v[0-9]{2})$", description="architecture of a GPU (sm_87) or a DSP (v73)"
    )
    max_threads_per_block: _Units | None = Field(None, description="threads of a block or work items of a group")
    max_shared_memory_per_block: Annotated[int, Field(ge=0, le=2**30)] | None = Field(None, description="bytes")
    thread_warp_size: _Units | None = Field(None, description="threads that run in lockstep")
