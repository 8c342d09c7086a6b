"""Progress display of a running study: finished rows, rate, remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_EVERY_S = 5.0
_ON_A_TERMINAL_S = 0.2


class Progress:
    """Reports finished rows to `note`: updated in place on a terminal, otherwise one line every five seconds."""

    def __init__(self, total: int, done: int, note: Callable[[str], None] | None, unit: str = "configurations") -> None:
        self.total, self.done, self._first = total, done, done
        self._note, self._unit = note, unit
        self._started = self._told = time.monotonic()
        self._terminal = note is not None and sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Count finished rows, and report periodically."""
        if not count:
            return
        self.done += count
        now = time.monotonic()
        if self._note and now - self._told >= (_ON_A_TERMINAL_S if self._terminal else _EVERY_S):
            self._told = now
            if self._terminal:
                sys.stderr.write(f"\r\033[K{self.text()}")
                sys.stderr.flush()
            else:
                self._note(self.text())

    def found(self, count: int) -> None:
        """Count rows of an earlier session, which do not enter the rate of this one."""
        self.done += count
        self._first += count

    def end(self) -> None:
        """End the progress line on a terminal."""
        if self._terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def rate(self) -> float:
        """Return the finished rows per second, excluding earlier sessions."""
        return (self.done - self._first) / max(time.monotonic() - self._started, 1e-9)

    def text(self) -> str:
        """Return the line: rows, rate, remaining time."""
        rate = self.rate()
        left = f", {_span((self.total - self.done) / rate)} left" if rate > 0 and self.done < self.total else ""
        return f"{self.done}/{self.total} {self._unit}, {rate:.3g}/s{left}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
