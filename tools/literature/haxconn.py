"""The GPU/DLA problems of the HaX-CoNN artefact (Jetson AGX Xavier), from its measurements in tests/data/haxconn.

GoogleNet: measured layer groups (GPU: reformat kernels were left out, so all groups are scaled to the measured whole).
AlexNet: the artefact has eight times entered by its authors; their assignment to layers is our interpretation
(convolution and activation apart from normalisation and pooling, conv3-5 together, each dense layer).  ResNet-101: no
layer times exist; a block's time is a * convolutions + b * GFLOP, fitted to the ten groups of GoogleNet on either
engine.

Traffic is that of the shipped descriptor, and its achievable bandwidth is shared.  The experiments' own latencies are
not used; their schedules are planned and simulated by `tools.verify.boards.schedules`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from socsched.cost.cost import Segment
from socsched.cost.power import dram_capacity
from socsched.descriptor.catalog import get_platform
from socsched.planning.mapping.problem import (
    FREE,
    Edge,
    Group,
    Hop,
    Lanes,
    Option,
    Problem,
    Requirement,
)
from tools import ROOT
from tools.verify.boards import networks, planned

FOLDER = ROOT / "tests" / "data" / "haxconn"
INCEPTION = {
    "3a": (192, 28, 64, 96, 128, 16, 32, 32),
    "3b": (256, 28, 128, 128, 192, 32, 96, 64),
    "4a": (480, 14, 192, 96, 208, 16, 48, 64),
    "4b": (512, 14, 160, 112, 224, 24, 64, 64),
    "4c": (512, 14, 128, 128, 256, 24, 64, 64),
    "4d": (512, 14, 112, 144, 288, 32, 64, 64),
    "4e": (528, 14, 256, 160, 320, 32, 128, 128),
    "5a": (832, 7, 256, 160, 320, 32, 128, 128),
    "5b": (832, 7, 384, 192, 384, 48, 128, 128),
}
"""Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1: input channels, image side, and the columns."""
ALEXNET = ((0, 2, 55, 0), (2, 4, 27, 0), (4, 6, 27, 0), (6, 8, 13, 0), (8, 15, 13, 0))
ALEXNET_DENSE = ((15, 17, 9216, 4096), (17, 19, 4096, 4096), (19, 21, 4096, 1000))
"""First layer, layer after the last, image side; of dense layers inputs and outputs (Krizhevsky et al., NIPS 2012)."""


@dataclass(frozen=True, slots=True)
class Part:
    """A layer group: layers [first, end), ms on GPU and DLA, bytes moved on either, bytes handed on."""

    first: int
    end: int
    gpu_ms: float
    dla_ms: float
    gpu_bytes: int
    dla_bytes: int
    output_bytes: int


class Artefact:
    """The artefact's figures as layer groups of its networks."""

    def __init__(self, path: Path) -> None:
        def read(name: str) -> Any:
            return json.loads((path / name).read_text(encoding="utf-8"))

        self.groups = read("googlenet_xavier_layer_groups.json")
        self.layers = read("layer_names.json")["layers"]
        self.experiments = read("multi_dnn_xavier_exp1_3.json")["experiments"]
        whole = read("googlenet_xavier_splits.json")["schedules"]["-1"]["profile_total_ms"]
        runs = list(self.groups["gpu_ms_three_runs"].values())
        gpu = np.array([np.mean([run[key] for run in runs]) for key in runs[0]])
        self.gpu = gpu * whole / gpu.sum()
        self.dla = np.array([row["dla_ms"] for row in self.groups["dla_ms_recovered_from_raw_profiles"]])
        self.ranges = [(first, last + 1) for first, last in self.groups["group_layer_ranges"]]
        crossing = read("transition_costs_xavier.json")["tensor_bytes_fp16"]
        self.crossing = {int(layer): size for layer, size in crossing.items()}
        self.knee = read("pccs_xavier.json")["haxconn_constants"]["DLA"]["NormalBW"]
        board = get_platform("jetson-agx-xavier")
        self.bandwidth = dram_capacity(board, board.mode("MAXN"))
        self.fit()

    def fit(self) -> None:
        """Fit time = a * convolutions + b * GFLOP to GoogleNet's groups, relative errors squared."""
        rows = np.array([self._work("googlenet", a, b) for a, b in self.ranges])
        self.rates = [
            np.linalg.lstsq(rows / times[:, None], np.ones(len(times)), rcond=None)[0] for times in (self.gpu, self.dla)
        ]

    def _work(self, network: str, first: int, end: int) -> tuple[int, float]:
        shapes = [_shape(network, name) for _, name, kind in self.layers[network][first:end] if kind in _COMPUTING]
        return len(shapes), sum(2 * i * o * k * k * s * s / 1e9 for i, s, o, k in shapes)

    def googlenet(self) -> list[Part]:
        """Return GoogleNet's ten groups."""
        return [
            self._part("googlenet", a, b, g, d) for (a, b), g, d in zip(self.ranges, self.gpu, self.dla, strict=True)
        ]

    def alexnet(self) -> list[Part]:
        """Return AlexNet's eight groups."""
        typed = self.groups["alexnet_authors_hard_coded_inputs"]
        times = list(zip(typed["gpu_ms"], typed["dla_ms"], strict=True))
        parts = []
        for (first, end, side, _), (gpu, dla) in zip(ALEXNET, times[:5], strict=True):
            moved = _moved("alexnet", first, end)
            parts.append(Part(first, end, gpu, dla, *moved, 2 * 256 * side * side))
        for (first, end, inputs, outputs), (gpu, dla) in zip(ALEXNET_DENSE, times[5:], strict=True):
            # The typed-in times would need more than the DLA draws: so AlexNet takes 5.9 ms there, and the
            # artefact's logs of AlexNet on the DLA co-running with twelve others give 5.7 to 6.4.
            dla = max(dla, 2 * inputs * outputs / self.knee / 1e6)
            # Alone it must take the time measured, so it cannot draw more than there is to share.
            gpu_bytes, dla_bytes = (min(2 * inputs * outputs, int(self.bandwidth * ms / 1e3)) for ms in (gpu, dla))
            parts.append(Part(first, end, gpu, dla, gpu_bytes, dla_bytes, 2 * outputs))
        return parts

    def resnet101(self, cuts: tuple[int, ...] = ()) -> list[Part]:
        """Return ResNet-101 block by block, split at `cuts` as well."""
        names = self.layers["resnet101"]
        ends = [i + 1 for i, name, kind in names if kind == "ReLU" and re.fullmatch(r"res\d\w+_relu", name)]
        blocks = [i for i in ends if "branch" not in names[i - 1][1]]
        edges = sorted({0, 4, 5, len(names), *blocks, *cuts})
        parts = []
        for a, b in pairwise(edges):
            work = np.array(self._work("resnet101", a, b))
            gpu, dla = (float(work @ rate) for rate in self.rates)
            # Pooling, activation or addition on its own: as long as the launch of a convolution.
            gpu, dla = (t if work[0] else float(rate[0]) for t, rate in zip((gpu, dla), self.rates, strict=True))
            parts.append(self._part("resnet101", a, b, gpu, dla))
        return parts

    def _part(self, network: str, first: int, end: int, gpu: float, dla: float) -> Part:
        shapes = [_shape(network, name) for _, name, kind in self.layers[network][:end] if kind in _COMPUTING]
        _, side, channels, _ = shapes[-1]
        size = 2 * channels * side * side
        if network == "googlenet":
            # Measured boundaries lie up to a layer before those of the groups.
            size = next((self.crossing[at] for at in (end, end - 1) if at in self.crossing), size)
        return Part(first, end, float(gpu), float(dla), *_moved(network, first, end), size)

    def measured_ms(self, network: str, first: int, end: int, engine: str) -> float:
        """Return the time (ms) of layers [first, end) on "gpu" or "dla", a group's in equal parts by convolution."""
        parts = self.resnet101() if network == "resnet101" else getattr(self, network)()
        total = 0.0
        for part in parts:
            time = part.gpu_ms if engine == "gpu" else part.dla_ms
            convolutions = [at for at, _, kind in self.layers[network][part.first : part.end] if kind in _COMPUTING]
            inside = [at for at in convolutions if first <= at < end]
            if convolutions:
                total += time * len(inside) / len(convolutions)
            elif first <= part.first < end:
                total += time
        return total

    def problem(self, networks: dict[str, list[Part]], contention: bool = True, grain_ns: int = 1) -> Problem:
        """Return the problem of mapping networks onto the GPU and one DLA, transitions as delays as in the artefact.

        A tensor takes 4 us and its size over 12.5 GB/s (fit of the nine measured reformats).
        """

        def time(ms: float) -> int:
            return max(round(ms * 1e6 / grain_ns), 1) * grain_ns

        groups, edges = [], []
        for name, parts in networks.items():
            for position, part in enumerate(parts):
                options = (
                    Option("gpu", (Segment("run", time(part.gpu_ms), 0, part.gpu_bytes if contention else 0),)),
                    Option("dla", (Segment("run", time(part.dla_ms), 0, part.dla_bytes if contention else 0),)),
                )
                groups.append(Group(f"{name}:{part.first}", options, name))
                if position:
                    hop = Hop(delay_ns=time(0.004 + parts[position - 1].output_bytes / 12.5e6))
                    hops = ((FREE, hop), (hop, FREE))
                    edges.append(Edge(groups[-2].name, groups[-1].name, hops))
        last = [Requirement(name, (f"{name}:{parts[-1].first}",)) for name, parts in networks.items()]
        bandwidth = round(self.bandwidth) if contention else 0
        return Problem((Lanes("gpu"), Lanes("dla")), tuple(groups), tuple(edges), tuple(last), (), bandwidth)

    def networks(self, experiment: dict[str, Any]) -> dict[str, list[Part]]:
        """Return the two networks of an experiment, cut where one of its schedules cuts them."""
        names = [experiment["rows"][0][side]["net"] for side in ("dnn1", "dnn2")]
        cuts = {name: _cuts(experiment, name) for name in names}
        return {name: self.resnet101(cuts[name]) if name == "resnet101" else getattr(self, name)() for name in names}


def _cuts(experiment: dict[str, Any], name: str) -> tuple[int, ...]:
    sides = [row[side] for row in experiment["rows"] for side in ("dnn1", "dnn2") if row[side]["net"] == name]
    return tuple(sorted({part["layers"][0] for side in sides for part in side["mapping"][1:]}))


_COMPUTING = ("Convolution", "InnerProduct")


@cache
def _moved(network: str, first: int, end: int) -> tuple[int, int]:
    """Return the bytes that layers [first, end) move on GPU and DLA by the shipped descriptor."""
    known = networks.built(network)
    place = (first, min(end, known.end))
    if not any(place[0] <= at < place[1] for at in known.index.values()):
        return 0, 0
    moved = []
    for engine in ("gpu", "dla0"):
        chain = {"part": (planned.Part("part", network, engine, *place),)}
        plan = planned.plan(chain, get_platform("jetson-agx-xavier"), "MAXN", {"part": 100.0})
        moved.append(sum(task.bytes for task in plan.tasks))
    return moved[0], moved[1]


def _shape(network: str, name: str) -> tuple[int, int, int, int]:
    """Return input channels, image side, output channels and kernel side of a layer."""
    return _googlenet(name) if network == "googlenet" else _resnet(name)


def _googlenet(name: str) -> tuple[int, int, int, int]:
    known = {"conv1/7x7_s2": (3, 112, 64, 7), "conv2/3x3_reduce": (64, 56, 64, 1), "conv2/3x3": (64, 56, 192, 3)}
    if name in known:
        return known[name]
    found = re.fullmatch(r"inception_(\w\w)/(\w+)", name)
    if not found:
        return 1024, 1, 1000, 1
    inputs, side, one, reduce3, three, reduce5, five, pool = INCEPTION[found[1]]
    ways = {"1x1": (inputs, one, 1), "3x3_reduce": (inputs, reduce3, 1), "3x3": (reduce3, three, 3)}
    ways |= {"5x5_reduce": (inputs, reduce5, 1), "5x5": (reduce5, five, 5), "pool_proj": (inputs, pool, 1)}
    source, result, kernel = ways[found[2]]
    return source, side, result, kernel


def _resnet(name: str) -> tuple[int, int, int, int]:
    """He et al., "Deep residual learning for image recognition", CVPR 2016, table 1."""
    found = re.fullmatch(r"res(\d)(\w+?)_branch(1|2a|2b|2c)", name)
    if not found:
        return (3, 112, 64, 7) if name == "conv1" else (2048, 1, 1000, 1)
    stage, first = int(found[1]), found[2] == "a"
    side, middle = {2: 56, 3: 28, 4: 14, 5: 7}[stage], 2 ** (stage + 4)
    outside = 4 * middle
    inputs = (64 if stage == 2 else outside // 2) if first else outside
    ways = {"1": (inputs, outside, 1), "2a": (inputs, middle, 1), "2b": (middle, middle, 3), "2c": (middle, outside, 1)}
    source, result, kernel = ways[found[3]]
    return source, side, result, kernel
