"""Compile the GPU kernels of host functions for architectures that are not at hand, and print what they occupy.

    python -m tools.verify.gpu_code [--arch sm_87 sm_110] [--precision fp16]
    pip install --target FOLDER nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvcc-cu12 nvidia-cuda-runtime-cu12
    python -m tools.verify.gpu_code --arch sm_72 sm_101 --wheels FOLDER

    python -m tools.verify.gpu_code --programs FOLDER [--published PAIRS.csv.gz]

The last form reads networks that `tools.bench.networks --gpu prepare FOLDER --arch sm_87` compiled: a row for each with
its kernels, the most registers of a thread, bytes of local memory (spills among them), shared memory of a group, the
fewest groups an SM holds, and, on AGX Orin in fp16, the time (ms) planned for our kernels and for TensorRT; beside
these what PAIRS (as `socsched validate` reads them) has for networks of that name.

CUDA 13 no longer builds for Xavier (sm_72) and calls Thor sm_110, so those of CUDA 12 are built by NVRTC and ptxas from
the packages in FOLDER, which need no toolkit.

A row for each kernel and architecture: registers a thread, local (spilled) bytes, shared memory a group, groups and
threads an SM holds at once, and the share of its threads.  The limits of an SM are those of the CUDA C++ Programming
Guide, table "Technical Specifications per Compute Capability", and of the toolkit's cuda_occupancy.h.  Exit code 1 when
a kernel does not compile or spills, 3 without nvcc.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import json
import lzma
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from socsched.compiler.targets.gpu_functions.code import program_of
from socsched.compiler.targets.gpu_functions.program import FunctionRequest
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import MachineError
from socsched.models.registry import get_model
from socsched.models.work import stage_work

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


def find_nvcc() -> str:
    """Return the path of nvcc; MachineError when it is not installed."""
    path = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if path is None:
        raise MachineError(
            "nvcc is not installed: stages cannot be compiled for CUDA",
            "install the CUDA toolkit (nvcc of CUDA 11.4 or later for Jetson Orin) and put nvcc on PATH",
        )
    return path


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


_REGISTERS, _FRAME = 0x2F, 0x11
"""Attributes of a cubin's `.nv.info`: a number by symbol, of registers and of bytes of local memory a thread."""
_BOARD = "jetson-agx-orin-64gb"


def occupied(cubin: bytes) -> dict[str, tuple[int, int, int]]:
    """Return registers a thread, its bytes of local memory, and static bytes of shared memory of a cubin's kernels."""
    (table,), (count, names) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + 64 * number) for number in range(count)]

    def text(strings: int, offset: int) -> str:
        start = sections[strings][4] + offset
        return cubin[start : cubin.index(b"\0", start)].decode()

    named = {text(names, section[0]): section for section in sections}
    _, _, _, _, first, _, strings, *_ = named[".symtab"]
    found: dict[int, dict[int, int]] = {}
    at, end = named[".nv.info"][4], named[".nv.info"][4] + named[".nv.info"][5]
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == 4 and attribute in (_REGISTERS, _FRAME):
            symbol, value = struct.unpack_from("<II", cubin, at + 4)
            found.setdefault(symbol, {})[attribute] = value
        at += 4 + (size if form == 4 else 0)
    kernels = {
        text(strings, struct.unpack_from("<I", cubin, first + 24 * symbol)[0]): one for symbol, one in found.items()
    }
    shared = {name.removeprefix(".nv.shared."): section[5] for name, section in named.items()}
    return {name: (one.get(_REGISTERS, 0), one.get(_FRAME, 0), shared.get(name, 0)) for name, one in kernels.items()}


def programs(folder: Path, published: Path | None) -> int:
    """Print a row for each network in a folder; return whether one does not fit an SM."""
    known: dict[str, list[str]] = {}
    if published is not None:
        with gzip.open(published, "rt", encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if (row["platform"], row["engine"], row["precision"]) == (_BOARD, "gpu", "fp16"):
                    known.setdefault(row["network"], []).append(row["measured_ms"])
    failed = 0
    print(f"{'network':16} kernels registers local shared groups | AGX Orin: ours TensorRT, ms; published")
    for place in sorted(path.parent for path in folder.glob("*/program.json")):
        document = json.loads((place / "program.json").read_text())
        used = occupied(lzma.decompress((place / "code.cubin.xz").read_bytes()))
        launches = document["launches"]
        kernels = [
            Kernel(
                one["kernel"],
                one["block"][0] * one["block"][1],
                *used[one["kernel"]][:2],
                used[one["kernel"]][2] + one["shared"],
            )
            for one in launches
        ]
        most = [max(getattr(one, key) for one in kernels) for key in ("registers", "spilled", "shared")]
        groups = min(one.groups(document["arch"]) for one in kernels)
        others = [f"{name} {' '.join(times)}" for name, times in known.items() if name.startswith(place.name)]
        print(
            f"{place.name:16} {len(launches):7} {most[0]:9} {most[1]:5} {most[2]:6} {groups:6} | "
            f"{' '.join(planned(place.name))}; {', '.join(others) or '-'}",
            flush=True,
        )
        failed += not groups
    return int(failed > 0)


def planned(name: str) -> list[str]:
    """Return the times (ms) planned on AGX Orin for an exported network, with our kernels and with TensorRT."""
    from tools.bench.gpu_networks import exported

    file = exported(name)
    if not file.exists():
        return ["-", "-"]
    board, found = get_platform(_BOARD), []
    stage = get_pipeline(str(file)).stages[0]
    for runtime in ("tvm", "tensorrt"):
        engines = [replace(one, runtimes=tuple(r for r in one.runtimes if r.name == runtime)) for one in board.engines]
        cost = CostModel(replace(board, engines=tuple(engines)), board.modes[0], stage_work).at(
            stage, "gpu", "fp16", 16
        )
        found.append(f"{cost.time_ns / 1e6:.2f} +-{cost.error:.0%}" if cost else "-")
    return found


def main() -> int:
    """Print a table for each architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", nargs="+", choices=tuple(SM), default=["sm_87", "sm_110"])
    parser.add_argument("--wheels", type=Path, help="folder with NVIDIA's packages, instead of nvcc")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    parser.add_argument("--programs", type=Path, help="folder of compiled networks")
    parser.add_argument("--published", type=Path, help="published times beside planned ones")
    args = parser.parse_args()
    if args.programs is not None:
        return programs(args.programs, args.published)
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
