"""Two processes on one DLA in an independent event loop, as a reference for the simulator.

It knows nothing of plans, engines or policies; what is modelled says `tools.verify.boards.dla`.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.verify.boards.dla import LOADABLES, MS, Latency, Sharing

_NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class Client:
    """A process: its request's loadables (ns), how many ended as the stream saw it, where the next one is.

    `state`: idle, host (preparing a request), stream (the GPU context must act: submit the next loadable or report the
    end), held (its scheduler lets nothing more through), device (a loadable is queued or runs).  `granted`: loadables
    handed to the hardware.
    """

    name: str
    wake_ns: int
    loadables: list[int]
    state: str = "idle"
    seen: int = 0
    granted: int = 0
    start_ns: int = 0


def share(alone: Latency, how: Sharing, requests: int, seed: int) -> list[float]:
    """Return the latency (ms) of every foreground request, sorted."""
    rng, least = Random(seed), alone.at(0.0)
    parts = 1 if how.whole_requests else LOADABLES
    loadables = [round(least * MS / parts)] * parts
    front, back = Client("front", rng.randrange(33 * MS), loadables), Client("back", 0, loadables)
    queue: list[Client] = []
    running: Client | None = None
    ends_ns, holder, since_ns, idle_ns, release_ns = _NEVER, back, 0, 0, 0
    latencies: list[float] = []
    now = 0
    while len(latencies) < requests:
        for client in (front, back):
            if client.state == "idle" and client.wake_ns <= now:
                client.start_ns, client.state = now, "host"
                client.wake_ns = now + round((alone.at(rng.random()) - least) * MS)
                if client is front:
                    release_ns = now + rng.randrange(12, 34) * MS
            if client.state == "host" and client.wake_ns <= now:
                client.seen, client.granted, client.state = 0, 0, "stream"
        if running and ends_ns <= now:
            running.seen, running.state, running = running.seen + 1, "stream", None
        for client in (front, back):
            _grant(client, front, how)
        other = back if holder is front else front
        wanted_ns = _NEVER
        if how.gated and other.state == "stream":
            turns = (now - since_ns) // how.slice_ns
            wanted_ns = min(max(idle_ns + how.linger_ns, now), since_ns + (turns + 1) * how.slice_ns)
            if wanted_ns <= now or (holder.state != "stream" and now == since_ns + turns * how.slice_ns > since_ns):
                holder, since_ns, idle_ns = other, now, now
                continue
        acted = False
        for client in (front, back):
            if client.state != "stream" or (how.gated and client is not holder):
                continue
            acted, idle_ns = True, now
            if client.seen < len(client.loadables):
                client.state = "device"
                queue.append(client)
            else:
                client.state = "idle"
                client.wake_ns = now
                if client is front:
                    latencies.append((now - client.start_ns) / MS)
                    client.wake_ns = max(release_ns, now)
        if not running and queue:
            running = queue.pop(0)
            ends_ns = now + running.loadables[running.seen]
        if acted:
            continue
        events = [client.wake_ns for client in (front, back) if client.state in ("idle", "host")]
        now = min([*events, wanted_ns, ends_ns if running else _NEVER])
    return sorted(latencies)


def _grant(client: Client, front: Client, how: Sharing) -> None:
    """Let loadables through to the hardware, and hold a client whose next one may not pass."""
    if client.state in ("idle", "host", "device"):
        return
    limit = len(client.loadables)
    if client is front or how.threshold is None:
        client.granted = limit
    elif front.state in ("idle", "host"):
        client.granted = min(client.seen + how.threshold, limit)
    held = client.seen == client.granted < limit
    client.state = "held" if held else "stream"
