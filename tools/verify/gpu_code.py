"""Compile the GPU kernels of host functions for architectures that are not at hand, and print what they occupy.

    python -m tools.verify.gpu_code [--arch sm_87 sm_110] [--precision fp16]
    pip install --target FOLDER nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-runtime-cu12
    python -m tools.verify.gpu_code --arch sm_72 sm_101 --wheels FOLDER

CUDA 13 no longer builds for Xavier (sm_72) and calls Thor sm_110, so those of CUDA 12 are built by NVRTC and ptxas from
the packages in FOLDER, which need no toolkit.

A row for each kernel and architecture: registers a thread, local (spilled) bytes, shared memory a group, groups and
threads an SM holds at once, and the share of its threads.  The limits of an SM are those of the CUDA C++ Programming
Guide, table "Technical Specifications per Compute Capability", and of the toolkit's cuda_occupancy.h.  Exit code 1 when
a kernel does not compile or spills, 3 without nvcc.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from socsched.compiler.targets.cuda.nvcc import find_nvcc
from socsched.compiler.targets.gpu_functions.code import program_of
from socsched.compiler.targets.gpu_functions.program import FunctionRequest
from socsched.errors import MachineError
from socsched.models.registry import get_model

FUNCTIONS = {
    "voxelise": "pointpillars.voxelise",
    "anchor-decode": "pointpillars.decode",
    "center-decode": "centerpoint.decode",
    "camera-preprocess": "camera.preprocess",
    "camera-decode": "camera.decode",
}
ITEMS, MOST_ITEMS = 256, 1024
_OPTIONS = ("-O3", "-fmad=false", "--disable-warnings", "-Xptxas", "-v", "-cubin")
_KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_SPILLS = re.compile(r"(\d+) bytes spill stores")


@dataclass(frozen=True, slots=True)
class Limits:
    """An SM's limits: threads, groups, bytes of shared memory, and registers."""

    threads: int
    groups: int
    shared: int
    registers: int = 65536


SM = {
    "sm_72": Limits(2048, 32, 96 << 10),
    "sm_87": Limits(1536, 16, 164 << 10),
    "sm_90": Limits(2048, 32, 228 << 10),
    "sm_101": Limits(1536, 24, 228 << 10),
    "sm_110": Limits(1536, 24, 228 << 10),
}
"""By architecture: Xavier, Orin, Hopper, Thor (sm_101 in CUDA 12.8 and 12.9, sm_110 from 13.0 on)."""
_SYSTEM_SHARED = {"sm_72": 0}
"""Bytes of shared memory that the system takes of every group; 1 KiB from compute capability 8 on."""
_PARTS, _REGISTER_UNIT, _WARP, _SHARED_UNIT = 4, 256, 32, {"sm_72": 256}
"""Registers are given to a warp, out of a quarter of the SM's, and shared memory to a group, in these units; 128 bytes
from 8.0 on."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel: `items` threads a group, and what each of them and the group take."""

    name: str
    items: int
    registers: int
    spilled: int
    shared: int

    def groups(self, arch: str) -> int:
        """Return the number of groups that an SM holds at once."""
        limits, warps = SM[arch], -(-self.items // _WARP)
        per_warp = -(-self.registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
        unit = _SHARED_UNIT.get(arch, 128)
        shared = -(-(self.shared + _SYSTEM_SHARED.get(arch, 1024)) // unit) * unit
        by_registers = limits.registers // _PARTS // per_warp * _PARTS // warps
        by_shared = limits.shared // shared if shared else limits.groups
        return min(limits.groups, limits.threads // (warps * _WARP), by_registers, by_shared)


def kernels(compiler: str | Path, source: str, arch: str, items: Mapping[str, int]) -> Iterator[Kernel]:
    """Yield the kernels of a source; MachineError with the compiler's message if it does not compile.

    `compiler` is nvcc's path, or the folder of the packages' libraries.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stage.cu"
        binary = str(file.with_suffix(".cubin"))
        file.write_text(source)
        command = [str(compiler), *_OPTIONS, f"-arch={arch}", "-o", binary, str(file)]
        if isinstance(compiler, Path):
            file.write_bytes(assembly(compiler, source, arch))
            tool = compiler / "cuda_nvcc" / "bin" / "ptxas"
            tool.chmod(0o755)
            command = [str(tool), "-O3", "-v", f"-arch={arch}", "-o", binary, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{arch} is refused: {done.stderr.strip()[:1000]}", "use another version of CUDA")
    name, spilled = "", 0
    for line in done.stderr.splitlines():
        if found := _KERNEL.search(line):
            name = found[1]
        elif found := _SPILLS.search(line):
            spilled = int(found[1])
        elif (found := _USED.search(line)) and name in items:
            yield Kernel(name, items[name], int(found[1]), spilled, int(found[2] or 0))


def assembly(wheels: Path, source: str, arch: str) -> bytes:
    """Return PTX of a source, made by NVRTC; MachineError with its message if it does not compile."""
    library = ctypes.CDLL(str(next((wheels / "cuda_nvrtc" / "lib").glob("libnvrtc.so.*"))))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"stage.cu", 0, None, None)
    infinity = "-DINFINITY=__int_as_float(0x7f800000)"  # of math.h, which NVRTC has not
    flags = [
        f"-arch={arch.replace('sm', 'compute')}",
        "-fmad=false",
        f"-I{wheels / 'cuda_runtime' / 'include'}",
        infinity,
    ]
    given = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    refused = library.nvrtcCompileProgram(program, len(flags), given)
    about = "ProgramLog" if refused else "PTX"
    getattr(library, f"nvrtcGet{about}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{about}")(program, text)
    if refused:
        raise MachineError(f"NVRTC refuses {arch}: {text.value.decode()[:1000]}", "use another version of CUDA")
    return text.value


def rows(compiler: str | Path, arch: str, precision: str) -> Iterator[tuple[str, Kernel]]:
    """Yield every function's kernels, compiled for the sizes of its model's default params."""
    for title, model in FUNCTIONS.items():
        layout = "NHWC" if precision == "fp16" else "NCHW"
        program = program_of(FunctionRequest(get_model(model), precision, layout, ITEMS, MOST_ITEMS))
        items = {launch["kernel"]: int(launch["items"][0]) for launch in program.plan()["launches"]}
        for kernel in kernels(compiler, program.source("cuda"), arch, items):
            yield title, kernel


def main() -> int:
    """Print a table for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", choices=tuple(SM), default=["sm_87", "sm_110"])
    parser.add_argument("--wheels", type=Path, help="folder with NVIDIA's packages, instead of nvcc")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    args = parser.parse_args()
    failed = 0
    try:
        compiler = args.wheels / "nvidia" if args.wheels else find_nvcc()
        for arch in args.arch:
            print(f"\n{arch}, {args.precision}: registers, spilled B, shared B, groups an SM, threads an SM, occupancy")
            for title, kernel in rows(compiler, arch, args.precision):
                groups = kernel.groups(arch)
                share = groups * kernel.items / SM[arch].threads
                figures = f"{kernel.registers:4} {kernel.spilled:5} {kernel.shared:6} {groups:3}"
                print(
                    f"  {title:18} {kernel.name:16} {kernel.items:5} {figures} {groups * kernel.items:5} {share:5.0%}"
                )
                failed += bool(kernel.spilled) or not groups
    except MachineError as missing:
        print(f"{missing}: {missing.hint}", file=sys.stderr)
        return 3 if "not installed" in str(missing) else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
