"""Who turns CUDA source into machine code when TVM asks: nvcc while building, the artefact's cubin while loading.

TVM calls a registered function both where a module is built next to a GPU and where one built without a GPU is loaded.
Its own needs a compiler on the board; these do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

_HOOK = "tvm_callback_cuda_compile"
_LOCK = Lock()


@contextmanager
def supplied(compile_source: Callable[[str], bytes]) -> Iterator[None]:
    """While it lasts, `compile_source` gives TVM the cubin of CUDA source; one thread at a time."""
    from socsched.compiler.tvm_runtime import tvm

    with _LOCK:
        before = tvm.get_global_func(_HOOK, allow_missing=True)
        tvm.register_global_func(_HOOK, lambda source: bytearray(compile_source(str(source))), override=True)
        try:
            yield
        finally:
            if before is not None:
                tvm.register_global_func(_HOOK, before, override=True)
