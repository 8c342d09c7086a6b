"""Supplies machine code for CUDA source on TVM's request: from nvcc when building, the artefact's cubin when loading.

TVM calls a registered function both when a module is built on a machine with a GPU and when a module built without a
GPU is loaded.  TVM's own function needs a compiler on the board; these do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

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
