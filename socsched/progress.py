"""How far long work has come, told to whoever listens; nobody does unless the command line runs on a terminal.

Any part may call `tell`: it costs a comparison where nobody listens, and never changes what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """`done` of `total` (0: not known) `unit`s ("ns" is time) of some work, and what is to be said besides."""

    what: str
    done: float
    total: float
    unit: str = ""
    detail: str = ""


Listener = Callable[[Step], None]
_listeners: list[Listener] = []


def listening() -> bool:
    """Whether anybody listens: what is only for show need not be worked out otherwise."""
    return bool(_listeners)


def tell(what: str, done: float, total: float, unit: str = "", detail: str = "") -> None:
    """Tell how far work has come."""
    if _listeners:
        _listeners[-1](Step(what, done, total, unit, detail))


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Have a listener told what happens inside."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
