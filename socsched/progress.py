"""How far long work has come, and what people should know of how it is done; the command line shows both.

Any part may call `tell` or `notice`: neither changes what is computed.
"""

from __future__ import annotations

import sys
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


def _print(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


_said: set[str] = set()
_speakers: list[Callable[[str], None]] = [_print]


def notice(subject: str, text: str) -> None:
    """Print a warning, one a subject and process."""
    if subject not in _said:
        _said.add(subject)
        _speakers[-1](text)


@contextmanager
def speaking(speaker: Callable[[str], None]) -> Iterator[None]:
    """Have a speaker print what is noticed inside; what was said before may be said again."""
    _said.clear()
    _speakers.append(speaker)
    try:
        yield
    finally:
        _speakers.remove(speaker)
