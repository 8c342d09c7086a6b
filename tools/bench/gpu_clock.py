"""Times on a CUDA stream."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable

from socsched.compiler.targets.cuda.cuda_api import Stream, cudart


class Clock:
    """Times on a stream by CUDA events."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            assert not cudart().cudaEventCreate(ctypes.byref(event))

    def milliseconds(self, launch: Callable[[], None], repeats: int = 40, warm_up: int = 5, inner: int = 1) -> float:
        """Return the median time of `launch` over `repeats` measurements of `inner` launches each."""
        for _ in range(warm_up):
            launch()
        found = []
        for _ in range(repeats):
            cudart().cudaEventRecord(self.events[0], self.stream.handle)
            for _ in range(inner):
                launch()
            cudart().cudaEventRecord(self.events[1], self.stream.handle)
            self.stream.synchronize()
            elapsed = ctypes.c_float()
            assert not cudart().cudaEventElapsedTime(ctypes.byref(elapsed), *self.events)
            found.append(elapsed.value / inner)
        return statistics.median(found)
