"""Power of this machine during a run, from the package energy counters if the user may read them.

Without such a counter nothing is recorded: a run reports only measured power.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path


class PowerMeter:
    """Samples energy counters (microjoules, wrapping at `max_energy_range_uj`) in a thread; a context manager."""

    def __init__(self, counters: tuple[Path, ...], interval_s: float = 0.05) -> None:
        self.samples: list[tuple[int, float]] = []
        self._counters = counters
        self._interval = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)

    def __enter__(self) -> PowerMeter:
        if self._counters:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._counters:
            self._thread.join(timeout=2)

    def steps(self, start_ns: int, samples: list[tuple[int, float]] | None = None) -> list[tuple[int, float]]:
        """Return (ns since `start_ns`, mW) of every interval that began after it, from `samples` or from all."""
        known = self.samples if samples is None else samples
        return [(time_ns - start_ns, power) for time_ns, power in known if time_ns >= start_ns]

    def counters(self, start_ns: int) -> dict[str, list[tuple[int, float]]]:
        """Return `steps` as the counter power_mw, empty if nothing was measured; returned samples are discarded."""
        steps = self.steps(start_ns, found := self.samples[:])
        del self.samples[: len(found)]
        return {"power_mw": steps} if steps else {}

    def _run(self) -> None:
        before, then = self._read(), time.monotonic_ns()
        while not self._stop.wait(self._interval):
            after, now = self._read(), time.monotonic_ns()
            used = sum((b - a) % span for a, b, span in zip(before, after, self._spans(), strict=True))
            self.samples.append((then, used * 1e6 / max(now - then, 1)))
            before, then = after, now

    def _read(self) -> list[int]:
        return [int(counter.read_text()) for counter in self._counters]

    def _spans(self) -> list[int]:
        return [int((counter.parent / "max_energy_range_uj").read_text()) + 1 for counter in self._counters]
