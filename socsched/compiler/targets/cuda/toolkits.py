"""CUDA toolkits of this machine: nvcc, and NVRTC from NVIDIA's Python packages, which is all that cubins need.

Packages are looked for on Python's path and in the folders of $SOCSCHED_CUDA, as `pip install --target FOLDER` makes
them: nvidia-cuda-nvrtc-cu12, -runtime-cu12, -cccl-cu12; of CUDA 13 nvidia-cuda-nvrtc, -runtime, -crt, -cccl.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from socsched.compiler.native.compilers import fetch
from socsched.errors import CompileError, MachineError

# Machine code for a GPU: nvcc, the CUDA source inside a compiled module, and what TVM is given on its request.
#
# TVM calls a registered function both when a module is built on a machine with a GPU and when a module built without
# a GPU is loaded.  TVM's own function needs a compiler on the board; these do not.

SOURCE, BINARY = "stage.cu", "stage.cubin"
"""Files of an artefact."""


def device_source(module: Any) -> str:
    """Return the CUDA source among a compiled module and its imports; CompileError when there is none.

    TVM includes a header that NVRTC's packages of CUDA 12 lack a part of, and that kernels by rules do not use.
    """
    for part in _modules(module):
        if part.kind == "cuda":
            source = str(part.inspect_source())
            return source if "nvcuda::" in source else source.replace("#include <mma.h>", "")
    raise CompileError("no kernel of the stage was placed on the GPU")


def _modules(module: Any) -> Iterator[Any]:
    yield module
    for imported in module.imports:
        yield from _modules(imported)


def write_cubin(compiler: str, source: Path, binary: Path, arch: str, options: Sequence[str] = ()) -> None:
    """Compile CUDA source to a cubin for `arch` ("sm_87"); CompileError with nvcc's message if it fails."""
    flags = ["-cubin", f"-arch={arch}", "-O3", "--disable-warnings", *options]
    command = [compiler, *flags, "-o", str(binary), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        old = "Unsupported gpu architecture" in done.stderr
        hint = f"this toolkit no longer builds for {arch}: put the nvcc of an older one first on PATH (CUDA 12 or 11)"
        raise CompileError(
            f"nvcc refused {source.name} for {arch}: {done.stderr.strip()[:2000]}",
            hint if old else "check the toolkit's version",
        )


_HOOK = "tvm_callback_cuda_compile"
_LOCK = Lock()


@contextmanager
def supply_cubins(compile_source: Callable[[str], bytes]) -> Iterator[None]:
    """Supply TVM with cubins from `compile_source` within the block; one thread at a time."""
    from socsched.compiler.loading.tvm_runtime import tvm

    with _LOCK:
        before = tvm.get_global_func(_HOOK, allow_missing=True)
        tvm.register_global_func(_HOOK, lambda source: bytearray(compile_source(str(source))), override=True)
        try:
            yield
        finally:
            if before is not None:
                tvm.register_global_func(_HOOK, before, override=True)


FOLDERS = "SOCSCHED_CUDA"
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_FIRST = {"sm_87": (11, 4), "sm_89": (11, 8), "sm_90": (11, 8), "sm_100": (12, 8), "sm_101": (12, 8), "sm_120": (12, 8)}
"""The first release for an architecture ("CUDA Toolkit release notes"); others are in every one from 11.4 on."""
_OLDEST = (13, 0), 75
"""From this release on, architectures below that number are no longer built."""
_RENAMED = (13, 0), "sm_101", "sm_110"
"""From this release on, Thor's architecture has the second name."""
_OF_CUDA_13 = 100
"""Boards with architectures from that number on have CUDA 13 (JetPack 7); Orin has 12 (JetPack 6), older ones 11."""
_OF_CARDS = (70, 75, 80, 86, 89, 90)
"""Architectures that only cards have, not boards; a card's driver is as new as the toolkit on its machine."""
_WHEELS = {
    12: (
        ("nvidia-cuda-nvrtc-cu12==12.6.85", "nvidia-cuda-runtime-cu12==12.6.77", "nvidia-cuda-cccl-cu12==12.6.77"),
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ),
    11: (
        (
            "nvidia-cuda-nvrtc-cu11==11.8.89",
            "nvidia-cuda-runtime-cu11==11.8.89",
            "nvidia-cuda-cccl-cu11==11.8.89.post1",
        ),
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2",
    ),
}
"""Packages of NVRTC by major version, and its library in them."""
_MEGABYTES = 80
_FOR_NVRTC = "-DINFINITY=__int_as_float(0x7f800000)", "-default-device", "-std=c++17"
"""What math.h defines, which NVRTC has not; device code without __device__, as nvcc takes constant expressions; the
language that NVRTC of CUDA 11 does not take by itself."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A compiler of CUDA source: nvcc, or NVRTC's library with folders to `include`."""

    version: tuple[int, int]
    program: str
    include: tuple[str, ...] = ()

    def architecture(self, arch: str) -> str:
        """Return the name of an architecture ("sm_87") in this release, empty if it does not build for it."""
        since, old, new = _RENAMED
        if arch in (old, new):
            arch = new if self.version >= since else old
        base = arch.rstrip("af")
        number = int(base.removeprefix("sm_")) if base.startswith("sm_") and base[3:].isdigit() else 0
        dropped = self.version >= _OLDEST[0] and number < _OLDEST[1]
        return "" if dropped or self.version < _FIRST.get(base, (0, 0)) else arch

    def cubin(self, source: str, arch: str, options: Sequence[str] = ()) -> bytes:
        """Return machine code for an architecture; CompileError with the compiler's message if it fails."""
        if self.include:
            return self._by_nvrtc(source, arch, options)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stage.cu"
            file.write_text(source)
            write_cubin(self.program, file, file.with_suffix(".cubin"), arch, options)
            return file.with_suffix(".cubin").read_bytes()

    def build(self, source: str, arch: str, options: Sequence[str] = ()) -> bytes:
        """Return machine code for an architecture under any of its names; see `cubin`."""
        return self.cubin(source, self.architecture(arch) or arch, options)

    def _by_nvrtc(self, source: str, arch: str, options: Sequence[str]) -> bytes:
        library, program = _library(self.program), ctypes.c_void_p()
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"stage.cu", 0, None, None)
        flags = [f"-arch={arch}", *_FOR_NVRTC, *(f"-I{folder}" for folder in self.include), *options]
        texts = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        refused = library.nvrtcCompileProgram(program, len(flags), texts)
        size, about = ctypes.c_size_t(), "ProgramLog" if refused else "CUBIN"
        getattr(library, f"nvrtcGet{about}Size")(program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{about}")(program, made)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        if refused:
            raise CompileError(
                f"NVRTC {_dotted(self.version)} refuses code for {arch}: {made.value.decode()[:2000]}",
                "install the packages of one release",
            )
        return made.raw

    def __str__(self) -> str:
        return f"CUDA {_dotted(self.version)}"


def toolkits() -> tuple[Toolkit, ...]:
    """Return the toolkits found, newest first, one of each major version: its code loads under all of that version."""
    return _toolkits(os.environ.get("PATH", ""), os.environ.get(FOLDERS, ""), tuple(sys.path))


def toolkit_for(arch: str) -> Toolkit:
    """Return the newest toolkit that builds for an architecture ("sm_87"): one that is here, or else CUDA 12's NVRTC,

    fetched by pip into the cache.  MachineError if there is none.
    """
    return next((one for one in toolkits() if one.architecture(arch)), None) or _fetched(12)


def board_toolkits(arch: str) -> tuple[Toolkit, ...]:
    """Return the toolkits that are here, and that of the CUDA release which a board of an architecture has.

    It is fetched if it is missing, since a driver loads no code of a newer major version; for cards what is here is
    enough.  MachineError if pip fails.
    """
    number = int("".join(filter(str.isdigit, arch)) or 0)
    major = 11 if number < _OLDEST[1] else 12 if number < _OF_CUDA_13 else 0
    found = toolkits()
    if number in _OF_CARDS and any(one.architecture(arch) for one in found):
        return found
    if not major or any(one.version[0] == major for one in found):
        return found
    return (*found, _fetched(major))


def _fetched(major: int) -> Toolkit:
    wheels, library = _WHEELS[major]
    folder = fetch(wheels, library, f"the compiler of CUDA {major} code", _MEGABYTES).parents[3]
    made = next(_nvrtcs((str(folder),)), None)
    if made is None:
        raise MachineError(f"{folder}: NVRTC of CUDA {major} cannot be loaded", "install that CUDA toolkit")
    return made


@cache
def _toolkits(path: str, folders: str, packages: tuple[str, ...]) -> tuple[Toolkit, ...]:
    places = dict.fromkeys(filter(None, (*folders.split(os.pathsep), *packages)))
    found = sorted(_nvccs(path), key=lambda made: made.version, reverse=True)
    found += sorted(_nvrtcs(places), key=lambda made: made.version, reverse=True)
    by_major: dict[int, Toolkit] = {}
    for toolkit in found:
        by_major.setdefault(toolkit.version[0], toolkit)
    return tuple(by_major[major] for major in sorted(by_major, reverse=True))


def _nvccs(path: str) -> Iterator[Toolkit]:
    installed = sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))
    on_path = shutil.which("nvcc", path=path)
    for program in dict.fromkeys(filter(None, (on_path, *map(str, installed)))):
        told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if release := _RELEASE.search(told):
            yield Toolkit((int(release[1]), int(release[2])), program)


def _nvrtcs(places: Sequence[str] | dict[str, None]) -> Iterator[Toolkit]:
    for place in places:
        home = Path(place) / "nvidia"
        for library in sorted(home.glob("*/lib/libnvrtc.so.*")) if home.is_dir() else ():
            own = library.parents[1]
            folders = (own / "include", own / "include" / "cccl", *home.glob("cuda_*/include"))
            include = tuple(str(folder) for folder in dict.fromkeys(folders) if folder.is_dir())
            if not any((Path(folder) / "cuda_fp16.h").is_file() for folder in include):
                continue
            major, minor = ctypes.c_int(), ctypes.c_int()
            try:
                _library(str(library)).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
            except OSError:
                continue
            yield Toolkit((major.value, minor.value), str(library), include)


@cache
def _library(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
