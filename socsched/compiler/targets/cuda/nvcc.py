"""Machine code for a GPU: nvcc, the CUDA source inside a compiled module, and what TVM is given on its request.

TVM calls a registered function both when a module is built on a machine with a GPU and when a module built without a
GPU is loaded.  TVM's own function needs a compiler on the board; these do not.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from socsched.errors import CompileError

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
