"""Orion and padding by kernels on REEF's published profiles."""

# ruff: noqa: E501 - sentences of a table

from __future__ import annotations

from statistics import fmean, geometric_mean

from socsched_literature.sharing.corun import Client, CoRun, Policy, corun
from socsched_literature.sharing.kernel_traces import UNITS, read_client
from socsched_literature.sharing.orion import Exclusive, Nobody, Orion, Streams
from socsched_literature.sharing.padding import DynamicPadding, ElasticPadding
from tools.literature.claims._published import data
from tools.literature.claims.claim import Claim

SYSTEM = "Padding by kernels"
PAPERS = "Orion, EuroSys 2024; REEF, OSDI 2022; Miriam, SenSys 2023"
PAIRS = (
    ("resnet152", ("resnet18",), 20.0),
    ("vgg", ("mobilenet", "bert"), 50.0),
    ("densenet", ("bert",), 50.0),
    ("bert", ("densenet",), 40.0),
    ("resnet", ("mobilenet", "vgg"), 15.0),
)
"""In real time, at best effort, and requests a second of the first: a third of what the GPU can do of it alone."""
LENGTH = 5_000_000_000


def claims() -> list[Claim]:
    """Return the rows."""
    policies: dict[str, Policy] = {
        "alone": Nobody(), "turns": Exclusive(), "streams": Streams(), "orion": Orion(),
        "reef": DynamicPadding(), "miriam": ElasticPadding(any_class=True), "opposite": ElasticPadding(),
    }  # fmt: skip
    runs: dict[str, list[CoRun]] = {name: [] for name in policies}
    for urgent, others, rate in PAIRS:
        first = client(urgent, rate)
        rest = [client(name, 0.0) for name in others]
        for name, policy in policies.items():
            runs[name].append(corun(UNITS, first, rest, policy, LENGTH))
    slower = {
        name: fmean(mean(one) / mean(alone) - 1 for one, alone in zip(found, runs["alone"], strict=True))
        for name, found in runs.items()
    }
    tail = {
        name: max(
            one.percentile(0.99) / alone.percentile(0.99) - 1
            for one, alone in zip(found, runs["alone"], strict=True)
        )
        for name, found in runs.items()
    }  # fmt: skip
    most = {
        name: geometric_mean([total(one) / total(alone) for one, alone in zip(found, runs["alone"], strict=True)])
        for name, found in runs.items()
    }
    over = {
        name: geometric_mean([one.rate / turns.rate for one, turns in zip(found, runs["turns"], strict=True)])
        for name, found in runs.items() if name != "alone"
    }  # fmt: skip
    workload = (
        "five pairs of REEF's networks by kernel on 60 compute units, Poisson requests in real time for a third of the "
        "GPU, others without end; class by kernel name, contention by assumed demands"
    )
    return [
        Claim(
            SYSTEM, PAPERS, "Orion: tail latency in real time stays near that alone, with more throughput",
            workload, "p99 within 14 % of alone, up to 7.3x throughput",
            f"p99 within {tail['orion']:.0%} (streams alone {tail['streams']:.0%}), requests of all {most['orion']:.1f}x those "
            f"in real time alone, at best effort {over['orion']:.2f}x time sharing",
            tail["orion"] <= 0.14 and most["orion"] > 1,
            "at best effort no more than in turns: these networks are convolutions nearly throughout, which rarely meet "
            "their opposite, and with a request of a few ms 2.5 % of it let two or three kernels start between waits"
            if over["orion"] < 1 else "",
        ),
        Claim(
            SYSTEM, PAPERS, "Orion: less interference than stream priorities alone", workload, "no figure",
            f"mean latency {slower['orion']:+.1%} against {slower['streams']:+.1%}", slower["orion"] < slower["streams"],
        ),
        Claim(
            SYSTEM, PAPERS, "REEF, reset and padding: latency in real time within 2 % of alone at several times the "
            "throughput of a GPU kept for it", workload, "+0.8 % by padding, below 2 % in all; up to 7.7x throughput",
            f"mean latency {slower['reef']:+.1%}, requests of all {most['reef']:.1f}x; at best effort {over['reef']:.2f}x "
            "time sharing",
            slower["reef"] <= 0.02 and most["reef"] > 2,
            "reset at every arrival included; what exceeds it is contention for arithmetic between padded kernels"
            if slower["reef"] > 0.02 else "",
        ),
        Claim(
            SYSTEM, PAPERS, "Miriam: shards co-running with critical kernels add throughput at less than 10 % of "
            "latency", workload, "+92 % throughput, below 10 % overhead",
            f"mean latency {slower['miriam']:+.1%}, at best effort {over['miriam']:.2f}x time sharing; opposite classes only "
            f"{slower['opposite']:+.1%} and {over['opposite']:.2f}x",
            slower["miriam"] <= 0.10 and over["miriam"] > 1,
            "gains are smaller: time sharing leaves two thirds of the GPU to best effort already",
        ),
    ]  # fmt: skip


def client(name: str, rate: float) -> Client:
    """Return a published network."""
    return read_client(data("reef", f"{name}.json"), rate)


def mean(run: CoRun) -> float:
    """Return the mean latency in real time."""
    return fmean(run.latencies)


def total(run: CoRun) -> float:
    """Return requests per second of every client."""
    return len(run.latencies) * 1e9 / run.duration_ns + run.rate
