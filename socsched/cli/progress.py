"""A progress line on the terminal for long work: rate and remaining time, from the second second on."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from socsched.progress import Step, heard

AFTER_S = 1.0
EVERY_S = 0.2
_CELLS = 12


class Bar:
    """Draws the latest step in place on `stream`; `clock` counts seconds.

    A thread redraws it periodically, so that the time advances while a solver reports nothing.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, width: int = 0) -> None:
        self.stream, self.clock, self._width = stream, clock, width
        self._lock = threading.Lock()
        self._step: Step | None = None
        self._first: tuple[str, float, float] = ("", 0.0, 0.0)
        self._drawn = self._begun = self.clock()
        self._shown = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, step: Step) -> None:
        """Record a step and draw it if the last drawing is old enough."""
        with self._lock:
            now = self.clock()
            if step.what != self._first[0] or (self._step is not None and step.done < self._step.done):
                self._first = (step.what, now, step.done)
            self._step = step
            if now - self._drawn >= EVERY_S:
                self._draw(now)
            if self._thread is None:  # start at the first step: the next one may be minutes away
                self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
                self._thread.start()

    def clear(self) -> None:
        """Remove the line, so that other text can be printed."""
        with self._lock:
            if self._shown:
                self.stream.write("\r" + " " * self._shown + "\r")
                self.stream.flush()
                self._shown = 0

    def close(self) -> None:
        """Stop the thread and remove the line."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1)
        self.clear()

    def _tick(self) -> None:
        while not self._stop.wait(EVERY_S):
            with self._lock:
                if (now := self.clock()) - self._drawn >= EVERY_S:
                    self._draw(now)

    def _draw(self, now: float) -> None:
        if self._step is None or now - self._begun < AFTER_S or self._stop.is_set():
            return
        _, since, at = self._first
        width = self._width or shutil.get_terminal_size((80, 24)).columns
        text = line(self._step, self._step.done - at, now - since)[: max(width - 1, 10)]
        self.stream.write("\r" + text + " " * max(self._shown - len(text), 0))
        self.stream.flush()
        self._shown, self._drawn = len(text), now


def line(step: Step, gained: float, seconds: float) -> str:
    """Return a step as a line; `gained`: the progress in the last `seconds`."""
    rate = gained / seconds if seconds > 0 and gained > 0 else 0.0
    parts = [step.what]
    if step.total > 0:
        share = min(max(step.done / step.total, 0.0), 1.0)
        full = int(share * _CELLS)
        parts += ["[" + "#" * full + "." * (_CELLS - full) + "]", f"{share:4.0%}"]
        parts.append(f"{_amount(step.done, step.unit)} of {_amount(step.total, step.unit)}")
    else:
        parts.append(_amount(step.done, step.unit))
    if rate:
        parts.append(f"{_amount(rate, step.unit)}/s")
        if step.total > 0:
            parts.append(f"{_clock((step.total - step.done) / rate)} left")
    else:
        parts.append(_clock(seconds))
    return "  ".join([*parts, step.detail] if step.detail else parts)


def _amount(value: float, unit: str) -> str:
    if unit == "ns":
        return f"{value / 1e9:.3g} s"
    return f"{value:.3g} {unit}".strip() if value < 1000 else f"{value:.0f} {unit}".strip()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def show_progress(quiet: Callable[[], bool]) -> Iterator[Bar | None]:
    """Show progress on stderr if it is a terminal, unless `quiet` returns True at the time of display."""
    stream = sys.stderr
    if not (hasattr(stream, "isatty") and stream.isatty()) or os.environ.get("TERM") == "dumb":
        yield None
        return
    bar = Bar(stream)
    with heard(lambda step: None if quiet() else bar.tell(step)):
        try:
            yield bar
        finally:
            bar.close()
