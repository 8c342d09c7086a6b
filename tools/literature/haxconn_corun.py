"""The measured co-runs of the HaX-CoNN artefact: what each schedule ran, and the time our model predicts.

What the artefact's scripts and its modified trtexec do (collect_data_multidnn_experiment.sh, sampleInference[12].cpp):

- a process a network, an engine file each; the layers before the transition on one engine, the others on the other;
- before every inference both wait for a flag in shared memory, by usleep(1): the later one continues at once, the
  other up to a poll later.  With --dumpProfile an enqueue returns when the inference has ended, so rounds do not
  overlap and the longer network, here always ResNet-101, arrives last;
- a row is the larger of the two mean "GPU Compute" times of 1000 rounds, or their sum.

How two processes share an engine is the one thing no table gives.  GPU contexts take turns of a time slice.  On the DLA
the processes' operations (a convolution or dense layer and what is fused with it) take turns, first come first served:
were a network's layers there one indivisible piece, ResNet-101's DLA part would be done before the other network comes
(experiment 3, Herald and H2H: 8.9 and 8.7 ms predicted, 11.5 and 11.4 measured).  No number is fitted to the ten rows,
but this rule was chosen knowing those two; experiment 1 does not decide (H2H: 9.9 in one piece, 10.7 in turns, 10.2
measured).  `report` prints what every such choice matters.

The row "GPU only" of experiment 1 is labelled a sum in the data, its first term read from another run's log.  The
version of summarize_multi_dnn_executions.py that was committed with the published figures (e415204) takes the maximum.
It cannot be a sum: next to GoogleNet's 1.9 ms on the GPU, ResNet-101 would then take no longer than alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from socsched.literature.mapping.evaluate import evaluate
from socsched.literature.mapping.search import solve
from socsched.planning.mapping.problem import JobKey, Problem, Schedule
from tools.literature.haxconn import Artefact, Part

POLL_MS = 0.06
"""usleep(1) with Linux's timer slack of 50 us."""
SLICE_MS = 1.024
"""Default time slice of a GPU context (nvgpu)."""
NOISE = 0.016
"""Root mean square difference of two runs of the same pair: twelve networks with AlexNet on the DLA, each measured
twice (output_expected/z3_overhead.txt; a solver ran on a CPU core in one of the two).  The schedule HaX-CoNN of
experiment 1 was published as 7.8 and as 7.9 ms."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How two processes share the engines, and how fine their work is cut.

    `dla_whole`: what a network runs on the DLA in one go is not interrupted.  `operations`: turns change after every
    operation, otherwise after every layer group.
    """

    dla_whole: bool = False
    operations: bool = True
    slice_ms: float = SLICE_MS
    poll_ms: float = POLL_MS


@dataclass(frozen=True, slots=True)
class Row:
    """A measured schedule and its prediction (ms); `as_labelled`: predicted as the data's label would have it."""

    label: str
    measured_ms: float
    latencies_ms: Mapping[str, float]
    predicted_ms: float
    as_labelled_ms: float


def predict(
    artefact: Artefact, experiment: Mapping[str, Any], sharing: Sharing | None = None, contention: bool = True
) -> list[Row]:
    """Return the five measured schedules of an experiment with the times the model predicts."""
    sharing = sharing or Sharing()
    networks = artefact.networks(dict(experiment))
    if sharing.operations:
        networks = {name: operations(artefact, name, parts) for name, parts in networks.items()}
    problem = artefact.problem(networks, contention)
    rows = experiment["rows"]
    found = {}
    for row in rows:
        evaluated = evaluate(problem, measured(problem, networks, row, sharing)).latencies
        found[row["label"]] = {name: value / 1e6 for name, value in evaluated.items()}
    evaluated_rows = []
    for row in rows:
        latencies = found[row["label"]]
        predicted = labelled = sum(latencies.values()) if row["aggregate"] == "sum" else max(latencies.values())
        if "label bug" in row.get("note", ""):
            name = row["dnn1"]["net"]
            predicted = max(found["GPU&DLA"][name], latencies[row["dnn2"]["net"]])
            labelled = found["GPU&DLA"][name] + latencies[row["dnn2"]["net"]]
        evaluated_rows.append(Row(row["label"], row["latency_ms"], latencies, predicted, labelled))
    return evaluated_rows


def operations(artefact: Artefact, name: str, parts: Sequence[Part]) -> list[Part]:
    """Return layer groups cut into their convolutions, of equal length, since no other figures are known."""
    found = []
    for part in parts:
        kinds = [kind for _, _, kind in artefact.layers[name][part.first : part.end]]
        count = max(1, kinds.count("Convolution"))
        edges = [part.first + (part.end - part.first) * i // count for i in range(count + 1)]
        found += [
            replace(
                part,
                first=a,
                end=b,
                gpu_ms=part.gpu_ms / count,
                dla_ms=part.dla_ms / count,
                gpu_bytes=part.gpu_bytes // count,
                dla_bytes=part.dla_bytes // count,
            )
            for a, b in pairwise(edges)
        ]
    return found


def measured(
    problem: Problem, networks: Mapping[str, Sequence[Part]], row: Mapping[str, Any], sharing: Sharing
) -> Schedule:
    """Return a measured schedule: where its operations run, and the order in which two processes get the engines.

    A cut inside a part moves to the nearer of its ends.
    """
    ways = []
    for name, parts in networks.items():
        side = next(row[d] for d in ("dnn1", "dnn2") if row[d]["net"] == name)
        middles = [(part.first + part.end - 1) // 2 for part in parts]
        homes = [next(m["on"] for m in side["mapping"] if m["layers"][0] <= x <= m["layers"][1]) for x in middles]
        ways.append([int(home == "DLA") for home in homes])
    starts = _dispatched(list(networks.values()), ways, sharing)
    before = np.cumsum([0, *map(len, ways)])
    order = [JobKey(0, int(before[number]) + place) for _, number, place in sorted(starts)]
    return Schedule(tuple(way for row_ in ways for way in row_), tuple(order))


def _dispatched(
    parts: Sequence[Sequence[Part]], ways: Sequence[Sequence[int]], sharing: Sharing
) -> list[tuple[float, int, int]]:
    """Return (start ms, network, place) of every part: an engine serves in order of arrival, in turns of a slice."""
    turn = (sharing.slice_ms, float("inf") if sharing.dla_whole else 0.0)
    places = [0] * len(parts)
    # The last network of an experiment is the longest one, which is the last to come.
    ready = [sharing.poll_ms] * (len(parts) - 1) + [0.0]
    free, holder, since = [0.0, 0.0], [-1, -1], [0.0, 0.0]
    starts = []
    while left := [n for n in range(len(parts)) if places[n] < len(parts[n])]:
        candidates = []
        for engine in (0, 1):
            wanting = [n for n in left if ways[n][places[n]] == engine]
            if not wanting:
                continue
            at = max(free[engine], min(ready[n] for n in wanting))
            here = [n for n in wanting if ready[n] <= at]
            others = [n for n in here if n != holder[engine]]
            stays = holder[engine] in here and (not others or at - since[engine] < turn[engine])
            candidates.append((at, engine, holder[engine] if stays else min(others, key=lambda n: (ready[n], n))))
        at, engine, network = min(candidates)
        if holder[engine] != network:
            holder[engine], since[engine] = network, at
        place = places[network]
        part = parts[network][place]
        starts.append((at, network, place))
        free[engine] = ready[network] = at + (part.gpu_ms, part.dla_ms)[engine]
        places[network] += 1
        if place + 1 < len(parts[network]) and ways[network][place + 1] != engine:
            ready[network] += 0.004 + part.output_bytes / 12.5e6
    return starts


def swapped(rows: Sequence[Row]) -> list[tuple[str, str, float, float]]:
    """Return pairs ranked otherwise than measured: (faster, slower) as measured, by what share of the slower they
    differ, measured and predicted (negative: the other way round)."""
    found = []
    for a in rows:
        for b in rows:
            if a.measured_ms < b.measured_ms and a.predicted_ms >= b.predicted_ms:
                expected = (b.predicted_ms - a.predicted_ms) / b.predicted_ms
                found.append((a.label, b.label, 1 - a.measured_ms / b.measured_ms, expected))
    return found


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Return Spearman's rank correlation; equal values share their mean rank."""
    first, second = (
        np.array([(np.sum(np.array(v) < x) + np.sum(np.array(v) <= x) + 1) / 2 for x in v]) for v in (a, b)
    )
    return float(np.corrcoef(first, second)[0, 1])


def rho(rows: Sequence[Row], labelled: bool = False) -> float:
    """Return the rank correlation of an experiment's predictions with its measurements."""
    expected = [row.as_labelled_ms if labelled else row.predicted_ms for row in rows]
    return rank_correlation([row.measured_ms for row in rows], expected)


def report(path: Path, time_limit: float = 60.0) -> None:
    """Print measured schedules, predictions, ranks and our own schedule, and what each choice of the model matters."""
    artefact = Artefact(path)
    for experiment in artefact.experiments:
        rows = predict(artefact, experiment)
        _predictions(f"experiment {experiment['id']}: {' + '.join(rows[0].latencies_ms)}", rows)
        result = solve(artefact.problem(artefact.networks(experiment)), "auto", time_limit)
        ours, best = result.evaluation.makespan_ns / 1e6, min(row.predicted_ms for row in rows)
        how = f"{result.status}, {result.seconds:.2f} s"
        print(f"  own schedule {ours:.2f} ms ({how}), best of theirs {best:.2f} predicted")
    print("\nrank correlation with one choice of the model made otherwise (experiments 1 and 3)")
    for name, model, sharing, contention in (
        ("as above", artefact, Sharing(), True),
        ("a network's DLA part is one piece", artefact, Sharing(dla_whole=True), True),
        ("turns after a layer group", artefact, Sharing(operations=False), True),
        ("GPU turns after an operation", artefact, Sharing(slice_ms=0), True),
        ("GPU slices of 2 ms", artefact, Sharing(slice_ms=2), True),
        ("the other process 0.03 ms late", artefact, Sharing(poll_ms=0.03), True),
        ("the other process 0.1 ms late", artefact, Sharing(poll_ms=0.1), True),
        ("the other process 0.2 ms late", artefact, Sharing(poll_ms=0.2), True),
        ("traffic by image size", Artefact(path, layer_loads=True), Sharing(), True),
        ("dense layers as typed in", Artefact(path, typed_dense=True), Sharing(), True),
        ("no contention", artefact, Sharing(), False),
    ):
        found = [predict(model, experiment, sharing, contention) for experiment in artefact.experiments]
        worst = max(abs(row.predicted_ms / row.measured_ms - 1) for rows in found for row in rows)
        print(f"  {name:<36}" + "".join(f"{rho(rows):>6.2f}" for rows in found) + f"   largest error {worst:.0%}")


def _predictions(title: str, rows: Sequence[Row]) -> None:
    print(f"\n{title}")
    for row in rows:
        each = ", ".join(f"{name} {value:.2f}" for name, value in row.latencies_ms.items())
        note = f"; as labelled, a sum: {row.as_labelled_ms:.2f}" if row.as_labelled_ms != row.predicted_ms else ""
        error = row.predicted_ms / row.measured_ms - 1
        print(
            f"  {row.label:<10}{row.measured_ms:>6.1f} measured{row.predicted_ms:>7.2f} {error:+6.1%}  ({each}{note})"
        )
    print(f"  rank correlation {rho(rows):.2f}; with sums where the data says so {rho(rows, labelled=True):.2f}")
    for faster, slower, seen, expected in swapped(rows):
        where = "within" if seen < NOISE else "beyond"
        print(
            f"  swapped: {slower} was {seen:.1%} slower than {faster} ({where} the noise of {NOISE:.1%}), "
            f"{-expected:.1%} faster predicted"
        )
