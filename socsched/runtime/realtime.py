"""Whether this user may have real-time priorities; the executor asks for them itself (`native/realtime.hpp`)."""

from __future__ import annotations

import os
import threading


def refusal() -> str:
    """Return the reason SCHED_FIFO is refused, empty if it is granted; tried in a short-lived thread."""
    found: list[str] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except (OSError, AttributeError) as error:
            found.append(f"SCHED_FIFO refused ({getattr(error, 'strerror', error)})")

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0] if found else ""
