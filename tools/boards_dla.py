"""Two processes sharing one DLA of a Jetson AGX Orin: what each request waits for, loadable by loadable.

What is modelled, and who says so:

- the DLA runs one loadable at a time, first come first served, to its end (NVIDIA Deep-Learning-Accelerator-SW, FAQ);
- a process submits the next loadable of a request once its CUDA stream has seen the one before end (the benchmark's own
  code: cudlaSubmitTask on one stream), which takes its GPU context: the FAQ names late submission and late completion
  signals as the interference of processes that share a DLA;
- GPU contexts take turns: one that wants the GPU gets it when the time slice of the present one ends (nvgpu, 1024 us
  by default), or once that one has given the GPU nothing to do for 800 us ("the GPU still keeps that CUDA context for
  a short while of 800us" after handing over to the DLA, forums.developer.nvidia.com, topic 181203);
- the foreground releases requests after U{12..33} ms, the background the next one when one ends.

Nothing is fitted.  The DLA itself hardly varies (FAQ: "minimum variance from inference to inference"), so a loadable
takes an eighth of the shortest standalone latency; what standalone requests take beyond that is spent on the host
before the first one, and is drawn from their published distribution.  Progressive launching (XSched level 1): a queue
may have `threshold` loadables at the hardware; while the foreground has a request, the background gets no more than
are there.

The simulator cannot yet express contexts that gate submissions, closed loops and in-flight thresholds; `share` stands
in until it does.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from random import Random

MS = 1_000_000
SLICE_NS = 1_024_000
LINGER_NS = 800_000
LOADABLES = 8
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Latency:
    """A published latency distribution (ms): quantile -> value, from 0 to 1."""

    quantiles: tuple[tuple[float, float], ...]

    def at(self, quantile: float) -> float:
        """Return the value at a quantile, straight lines between the published ones."""
        index = min(bisect_right(self.quantiles, (quantile, float("inf"))), len(self.quantiles) - 1)
        (q0, v0), (q1, v1) = self.quantiles[index - 1], self.quantiles[index]
        return v0 + (v1 - v0) * (quantile - q0) / (q1 - q0)


def load(file: Path) -> tuple[Latency, Latency]:
    """Return the published latencies alone and time-shared."""
    rows = json.loads(file.read_text(encoding="utf-8"))["dla"]["fixed_priority_latency"]
    names = {0.0: "min_ms", 0.5: "p50_ms", 0.9: "p90_ms", 0.99: "p99_ms", 1.0: "max_ms"}

    def latency(name: str) -> Latency:
        return Latency(tuple((q, rows[name][field]) for q, field in names.items()))

    return latency("standalone"), latency("native_two_processes_time_shared")


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


@dataclass(frozen=True, slots=True)
class Sharing:
    """How two share: whether contexts gate submissions, how many background loadables may be ahead (None: all)."""

    gated: bool = True
    whole_requests: bool = False
    threshold: int | None = None
    slice_ns: int = SLICE_NS
    linger_ns: int = LINGER_NS


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


def quantile(values: list[float], share_below: float) -> float:
    """Return a quantile of sorted values as the publication takes it: the value at that place."""
    return values[min(int(share_below * len(values)), len(values) - 1)]
