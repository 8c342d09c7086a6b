"""Job queues of workers; a queue's owner can stay awake while a job is expected.

Waking a thread on a sleeping core takes tens of microseconds.  An owner that expects a job stays awake for a bounded
time, without the interpreter lock, on the core it is pinned to.  If C cannot be compiled, or the system has no futex,
the queue is Python's own and expectations are ignored.
"""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from socsched.compiler import native
from socsched.compiler.native.shared_object import build_shared_object


class Mailbox(Protocol):
    """A queue with one owner; only the owner calls `get`."""

    def put(self, item: Any) -> None:
        """Add an item, and wake the owner if it sleeps."""
        ...

    def get(self) -> Any:
        """Return the oldest item, waiting for one if necessary."""
        ...

    def expect(self, from_ns: int, until_ns: int) -> None:
        """Keep the owner awake from `from_ns` to `until_ns` (monotonic), or until an item arrives."""
        ...


def mailbox() -> Mailbox:
    """Return a queue whose owner can expect items if the system supports it, else a plain queue."""
    return _Parked(*found) if (found := _code()) else _Plain()


class _Plain(SimpleQueue[Any]):
    def expect(self, from_ns: int, until_ns: int) -> None:
        """Do nothing: a plain queue cannot keep its owner awake."""


class _Box(ctypes.Structure):
    _fields_ = (
        ("posts", ctypes.c_uint32),
        ("bell", ctypes.c_uint32),
        ("awake", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("from_ns", ctypes.c_int64),
        ("until_ns", ctypes.c_int64),
        ("line", ctypes.c_uint8 * 32),  # pads to a full cache line
    )


class _Parked:
    """A queue in C; `keeping` calls hold the interpreter lock, `leaving` calls release it."""

    def __init__(self, leaving: Any, keeping: Any) -> None:
        self._items: deque[Any] = deque()
        self._box = _Box()
        self._at, self._seen = ctypes.byref(self._box), 0
        self._post, self._expect = keeping.post, keeping.expect
        self._hand_over, self._park = leaving.hand_over, leaving.park

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._box.awake:
            self._hand_over(self._at)  # the owner needs the interpreter lock now and would otherwise sleep for it
        else:
            self._post(self._at)

    def get(self) -> Any:
        while not self._items:
            self._seen = self._park(self._at, self._seen)
        return self._items.popleft()

    def expect(self, from_ns: int, until_ns: int) -> None:
        self._expect(self._at, from_ns, until_ns)


@cache
def _code() -> tuple[ctypes.CDLL, ctypes.PyDLL] | None:
    found = build_shared_object(Path(native.__file__).with_name("parking.c"))
    if found is None:
        return None
    keeping = ctypes.PyDLL(found._name)
    for code in (found, keeping):
        code.park.argtypes, code.park.restype = (ctypes.c_void_p, ctypes.c_uint32), ctypes.c_uint32
        code.post.argtypes = code.hand_over.argtypes = (ctypes.c_void_p,)
        code.expect.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        code.post.restype = code.hand_over.restype = code.expect.restype = None
    return found, keeping
