"""The measured schedules of HaX-CoNN (Jetson AGX Xavier, two processes), planned and simulated as pipelines.

What the artefact's scripts and its modified trtexec do (collect_data_multidnn_experiment.sh, sampleInference[12].cpp):

- a process a network, an engine file each; the layers before the transition on one engine, the others on the other;
- before every inference both wait for a flag in shared memory, by usleep(1): the later one continues at once, the
  other up to a poll later.  Rounds do not overlap, and the longer network, here always ResNet-101, arrives last;
- a row is the larger of the two mean "GPU Compute" times of 1000 rounds, or their sum.

GPU contexts take turns of a time slice (`rr`).  A process's work on the DLA is cut into its operations (a convolution
or dense layer and what is fused with it), which take turns with those of the other, first come first served: were a
network's layers there one piece, ResNet-101's part would be done before the other network comes (experiment 3, Herald
and H2H).  No number is fitted to the ten rows, but this rule was chosen knowing those two.

Two variants: costs of the shipped descriptor alone, and with the board's measured layer groups as a profile
(`tools.literature.haxconn.Artefact`).  Contention is that of the descriptor in both.

The row "GPU only" of experiment 1 is labelled a sum in the data, its first term read from another run's log; the
version of summarize_multi_dnn_executions.py that was committed with the published figures (e415204) takes the maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from socsched.cost.cost import Segment
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Contention, Platform
from socsched.planning.plan import Plan, Task
from tools.literature.haxconn import Artefact
from tools.verify.boards import networks, planned
from tools.verify.boards.planned import Part

POLL_NS = 60_000
"""usleep(1) with Linux's timer slack of 50 us."""
SLICE_NS = 1_024_000
"""Default time slice of a GPU context (nvgpu)."""
FRAME_MS = 100.0
NOISE = 0.016
"""Root mean square difference of two runs of the same pair: twelve networks with AlexNet on the DLA, each measured
twice (output_expected/z3_overhead.txt).  The schedule HaX-CoNN of experiment 1 was published as 7.8 and as 7.9 ms."""


@dataclass(frozen=True, slots=True)
class Row:
    """A measured schedule and its prediction (ms), with the latency of each network."""

    label: str
    measured_ms: float
    predicted_ms: float
    latencies_ms: Mapping[str, float]

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_ms / self.measured_ms - 1


def xavier(contention: bool = True) -> Platform:
    """Return the shipped AGX Xavier, without its contention model if that is asked for."""
    board = get_platform("jetson-agx-xavier")
    return board if contention else replace(board, dram=replace(board.dram, contention=Contention("")))


def predict(artefact: Artefact, experiment: Mapping[str, Any], profiled: bool, contention: bool = True) -> list[Row]:
    """Return the five schedules of an experiment; `profiled`: with the board's measured layer groups."""
    found = {}
    for row in experiment["rows"]:
        chains = {row[side]["net"]: _parts(row[side], artefact if profiled else None) for side in ("dnn1", "dnn2")}
        plan = planned.plan(chains, xavier(contention), "MAXN", dict.fromkeys(chains, FRAME_MS))
        found[row["label"]] = planned.latencies_ms(as_processes(plan, row["dnn1"]["net"]), chains)
    rows = []
    for row in experiment["rows"]:
        own = found[row["label"]]
        total = sum(own.values()) if row["aggregate"] == "sum" else max(own.values())
        if "label bug" in row.get("note", ""):
            total = max(found["GPU&DLA"][row["dnn1"]["net"]], own[row["dnn2"]["net"]])
        rows.append(Row(row["label"], row["latency_ms"], total, own))
    return rows


def _parts(side: Mapping[str, Any], artefact: Artefact | None) -> list[Part]:
    """Return a network's layers as its schedule maps them."""
    name = side["net"]
    found = []
    for part in side["mapping"]:
        engine = {"GPU": "gpu", "DLA": "dla0"}[part["on"]]
        first, end = part["layers"][0], min(part["layers"][1] + 1, networks.built(name).end)
        ms = artefact.measured_ms(name, first, end, engine[:3]) if artefact else 0.0
        found.append(Part(f"{name}.{first}", name, engine, first, end, ms))
    return found


def as_processes(plan: Plan, late: str) -> Plan:
    """Return a plan as two processes run it: time slices on the GPU, turns on the DLA, frames of `late` a poll late."""
    sliced = {"gpu": ("rr", SLICE_NS), "dla": ("rr", 1)}
    engines = []
    for engine in plan.engines:
        policy, quantum = sliced.get(engine.kind, (engine.policy, engine.quantum_ns))
        engines.append(replace(engine, policy=policy, quantum_ns=quantum, preemption="segment"))
    tasks = tuple(
        replace(t, segments=_operations(t)) if t.engine.startswith("dla") and t.params else t for t in plan.tasks
    )
    sensors = tuple(replace(s, offset_ns=POLL_NS) if s.name == f"{late}-frames" else s for s in plan.sensors)
    return replace(plan, engines=tuple(engines), tasks=tasks, sensors=sensors)


def _operations(task: Task) -> tuple[Segment, ...]:
    """Return the work of a loadable in equal pieces, one an operation, what it pays once in the first."""
    whole, *hand_over = task.segments
    count = networks.operations(str(task.params["network"]), int(task.params["first"]), int(task.params["end"]))
    time, size = whole.time_ns - whole.fixed_ns, whole.bytes
    made = []
    for number in range(count):
        piece = time * (number + 1) // count - time * number // count
        moved = size * (number + 1) // count - size * number // count
        fixed = 0 if number else whole.fixed_ns
        made.append(Segment(f"{task.name}.{number}", piece + fixed, fixed, moved))
    return (*made, *hand_over)


def swapped(rows: Sequence[Row]) -> list[tuple[str, str, float, float]]:
    """Return pairs ranked otherwise than measured: (faster, slower) as measured, and by what share of the slower they
    differ, measured and predicted (negative: the other way round)."""
    return [
        (a.label, b.label, 1 - a.measured_ms / b.measured_ms, (b.predicted_ms - a.predicted_ms) / b.predicted_ms)
        for a in rows
        for b in rows
        if a.measured_ms < b.measured_ms and a.predicted_ms >= b.predicted_ms
    ]


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank."""
    first, second = (
        np.array([(np.sum(np.array(v) < x) + np.sum(np.array(v) <= x) + 1) / 2 for x in v]) for v in (a, b)
    )
    return float(np.corrcoef(first, second)[0, 1])


def rho(rows: Sequence[Row]) -> float:
    """Return the rank correlation of an experiment's predictions with its measurements."""
    return rank_correlation([row.measured_ms for row in rows], [row.predicted_ms for row in rows])
