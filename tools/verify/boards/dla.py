"""Two processes sharing one DLA of a Jetson AGX Orin: the waits of each request, loadable by loadable.

Engines are those of the shipped descriptor's plan of both networks; how processes share them, and its sources:

- the DLA runs one loadable at a time, first come first served, to its end (NVIDIA Deep-Learning-Accelerator-SW, FAQ):
  an engine preempted at ends of segments, under `rr` with a quantum of 1 ns;
- a process submits the next loadable of a request once its CUDA stream has seen the one before end (the benchmark's own
  code: cudlaSubmitTask on one stream), which takes its GPU context: a segment without duration on the GPU before every
  loadable and after the last.  The FAQ names late submission and late completion signals as the interference of
  processes that share a DLA;
- GPU contexts take turns: one that wants the GPU gets it when the time slice of the present one ends (nvgpu, 1024 us
  by default), or once that one has left the GPU idle for 800 us ("the GPU still keeps that CUDA context for a short
  while of 800us" after handing over to the DLA, forums.developer.nvidia.com, topic 181203): an engine with `linger_ns`;
- the foreground releases requests after U{12..33} ms, the background the next one when one ends: closed loops.

Nothing is fitted to latencies of two.  The DLA itself hardly varies (FAQ: "minimum variance from inference to
inference"), so a loadable takes an eighth of the shortest standalone latency; what standalone requests take beyond that
is spent on the host before the first one, and is drawn from their published distribution.  Progressive launching
(XSched level 1): the DLA has `threshold` segments in flight, and engines are served together, `hhpf`: while the
foreground has a request, the background gets no more than it launched before.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from socsched.cost.cost import Segment
from socsched.descriptor.catalog import get_platform
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.sim.simulate import run
from tools.verify.boards import planned

PLATFORM = "jetson-agx-orin-32gb"
MS = 1_000_000
SLICE_NS = 1_024_000
LINGER_NS = 800_000
LOADABLES = 8
SHORTEST_NS, SPREAD_NS = 12 * MS, 21 * MS
"""Between requests of the foreground: the shortest time, and how much longer it may be."""


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


@dataclass(frozen=True, slots=True)
class Sharing:
    """How two share: whether contexts gate submissions, how many background loadables may be ahead (None: all)."""

    gated: bool = True
    whole_requests: bool = False
    threshold: int | None = None
    slice_ns: int = SLICE_NS
    linger_ns: int = LINGER_NS


@cache
def board(measured_ms: float = 0.0) -> Plan:
    """Return the shipped board's plan of the two networks on its DLA, with the measured time (ms) of one if given."""
    chains = {name: (planned.Part(f"{name}.infer", "resnet152", "dla0", ms=measured_ms),) for name in ("front", "back")}
    return planned.plan(chains, get_platform(PLATFORM), "MAXN", dict.fromkeys(chains, 100.0))


def plan(alone: Latency, how: Sharing, offset_ns: int = 0, measured: bool = True) -> Plan:
    """Return the plan of a foreground (its first request at `offset_ns`) and a background that share by `how`.

    `measured`: a loadable takes its share of the shortest latency measured alone, else of the descriptor's cost.
    """
    together = how.threshold is not None
    base = board(alone.at(0.0) if measured else 0.0)
    changed = {
        "cpu0": {"policy": "fp"},
        "gpu": {"policy": "hhpf" if together else "fifo", "quantum_ns": how.slice_ns, "linger_ns": how.linger_ns},
        "dla0": {"policy": "hhpf" if together else "rr", "quantum_ns": 1, "in_flight": how.threshold or 1},
    }
    engines = tuple(
        replace(e, preemption="segment", switch_ns=0, **changed[e.id]) for e in base.engines if e.id in changed
    )
    tasks = []
    for number, (name, offset, period, gap) in enumerate(
        (("front", offset_ns, SHORTEST_NS, SPREAD_NS), ("back", 0, 1, 0))
    ):
        infer = next(task for task in base.tasks if task.name == f"{name}.infer")
        least = alone.at(0.0)
        host = tuple(round((alone.at(step / 100) - least) * MS) for step in range(101))
        submit = (Segment("context", 0, 0, 0, "gpu", (0,)),) if how.gated else ()
        parts = 1 if how.whole_requests else LOADABLES
        loadable = (*submit, Segment("loadable", infer.cost_ns // parts, 0, 0))
        first = _task(f"{name}.host", number, "cpu0", number, (Segment("host", MS, 0, 0),), "", offset, infer.name)
        tasks.append(replace(first, period_ns=period, gap_ns=gap, times=ExecutionTimes(host, True)))
        tasks.append(_task(infer.name, number, "dla0", 0, (*loadable * parts, *submit), first.name, 0, ""))
    return replace(base, engines=engines, tasks=tuple(tasks), sensors=(), chains=(), transitions=(), violations=())


def _task(
    name: str, process: int, engine: str, lane: int, segments: tuple[Segment, ...], after: str, offset: int, closed: str
) -> Task:
    cost = sum(segment.time_ns for segment in segments)
    return Task(
        name=name, kind="stage", engine=engine, lanes=(lane,), precision="fp16", after=(after,) if after else (),
        reads=(), timer=not after, period_ns=1, offset_ns=offset, queue=4, cost_ns=cost, wcet_ns=cost, bytes=0,
        energy_uj=0, segments=segments, priority=process, deadline_ns=1 << 40, jitter_ns=0, criticality="firm",
        provenance="derived", source="", error=0.0, closed_by=closed, process=f"process {process}",
    )  # fmt: skip


def share(alone: Latency, how: Sharing, requests: int, seed: int, measured: bool = True) -> list[float]:
    """Return the latency (ms) of about so many foreground requests, as simulated, sorted."""
    made = plan(alone, how, Random(seed).randrange(33 * MS), measured)
    mean_ns = SHORTEST_NS + SPREAD_NS // 2
    trace = run(made, requests * mean_ns, seed).trace
    assert trace is not None
    jobs, infer = trace.columns.jobs, [task.name for task in made.tasks].index("front.infer")
    done = (jobs.task == infer) & (jobs.finish_ns >= 0)
    released = jobs.deadline_ns - made.tasks[infer].deadline_ns
    return sorted(((jobs.finish_ns - released)[done] / MS).tolist())


def quantile(values: list[float], share_below: float) -> float:
    """Return a quantile of sorted values as the publication takes it: the value at that place."""
    return values[min(int(share_below * len(values)), len(values) - 1)]
