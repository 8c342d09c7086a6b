"""An instant after which long computations of a thread end where they are.

A search reads a clock between the mappings that it tries (`planning.clock`).  One analysis of a thousand stages may
take longer than the whole limit, so loops inside analyses call `check`, and their caller continues with the result that
it has.  Without a limit no loop ends early: equal inputs give equal results.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class OutOfTime(Exception):
    """A computation that the deadline ended; what it has so far is of no use."""


class _Instant(threading.local):
    until = math.inf
    command = 0.0


_INSTANT = _Instant()


def left() -> float:
    """Return the time (s) left to this thread, infinite without a limit."""
    return _INSTANT.until - time.monotonic() if _INSTANT.until < math.inf else math.inf


def check() -> None:
    """Raise OutOfTime where the deadline of this thread is past."""
    if _INSTANT.until < math.inf and time.monotonic() >= _INSTANT.until:
        raise OutOfTime


@contextmanager
def command(started: float) -> Iterator[None]:
    """Count limits in the block from an instant of the monotonic clock (s): a command's, which prints after it."""
    _INSTANT.command = started
    try:
        yield
    finally:
        _INSTANT.command = 0.0


def since_command() -> float | None:
    """Return the time (s) since the command began that the limits of this thread count from, None without one."""
    return time.monotonic() - _INSTANT.command if _INSTANT.command else None


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit the block to so many seconds, and to what limits around it leave."""
    with _limited(min(_INSTANT.until, time.monotonic() + seconds)):
        yield


@contextmanager
def lifted() -> Iterator[None]:
    """Run a short block to its end: one that writes down what there is when the time is over."""
    with _limited(math.inf):
        yield


@contextmanager
def _limited(until: float) -> Iterator[None]:
    before, _INSTANT.until = _INSTANT.until, until
    try:
        yield
    finally:
        _INSTANT.until = before


def kept(best: T, make: Callable[[], T]) -> T:
    """Return what `make` returns, and `best` where the deadline ends it."""
    try:
        return make()
    except OutOfTime:
        return best
