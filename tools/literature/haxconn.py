"""The GPU/DLA problems of the HaX-CoNN artefact (Jetson AGX Xavier), from its measurements in tests/data/haxconn.

GoogleNet: measured layer groups (GPU: reformat kernels were left out, so all groups are scaled to the measured whole).
AlexNet: the artefact has eight times entered by its authors; their assignment to layers is our interpretation
(convolution and activation apart from normalisation and pooling, conv3-5 together, each dense layer).  ResNet-101: no
layer times exist; a block's time is a * convolutions + b * GFLOP, fitted to the ten groups of GoogleNet on either
engine.

Traffic is not measured by layer either: convolutions draw what GoogleNet draws on average (the memory-controller load
measured for single convolutions of its image sizes), a dense layer reads its weights once.  How much more the DLA
moves, and how much of the bandwidth there is to share, follow from the one measured pair of co-runs: two GoogleNets, on
the GPU 1.959 -> 3.303 ms, on the DLA 3.656 -> 4.678 ms (HaX-CoNN, PPoPP 2024, artefact).  The experiments' own
latencies are not used.  How the measured schedules ran, two processes on one board, is in `haxconn_corun`.

    python -m tools.literature.haxconn      prints measured and predicted latencies, ranks, and what each choice matters
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from socsched.cost.cost import Segment
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

FOLDER = ROOT / "tests" / "data" / "haxconn"
PEAK_GBPS = 136.5
CO_RUN = (3.303 / 1.959, 4.678 / 3.656)
"""Slowdown of GoogleNet on the GPU and on the DLA while the other runs it too."""
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
    """The artefact's figures as layer groups of its networks.

    `layer_loads`: a convolution draws what was measured for its image size, not the mean.  `typed_dense`: AlexNet's
    dense layers take what the authors typed in.  Both only to show what the choices matter.
    """

    def __init__(self, path: Path, layer_loads: bool = False, typed_dense: bool = False) -> None:
        def read(name: str) -> Any:
            return json.loads((path / name).read_text(encoding="utf-8"))

        self.groups = read("googlenet_xavier_layer_groups.json")
        self.layers = read("layer_names.json")["layers"]
        self.experiments = read("multi_dnn_xavier_exp1_3.json")["experiments"]
        whole = read("googlenet_xavier_splits.json")["schedules"]["-1"]["profile_total_ms"]
        emc = read("emc_conv_xavier.json")["runs"]["87f5f25 output_expected"]
        self.load = {side: np.mean(list(emc[name].values())) / 100 for side, name in _SIDES.items()}
        runs = list(self.groups["gpu_ms_three_runs"].values())
        gpu = np.array([np.mean([run[key] for run in runs]) for key in runs[0]])
        self.gpu = gpu * whole / gpu.sum()
        self.dla = np.array([row["dla_ms"] for row in self.groups["dla_ms_recovered_from_raw_profiles"]])
        self.ranges = [(first, last + 1) for first, last in self.groups["group_layer_ranges"]]
        crossing = read("transition_costs_xavier.json")["tensor_bytes_fp16"]
        self.crossing = {int(layer): size for layer, size in crossing.items()}
        self.knee = read("pccs_xavier.json")["haxconn_constants"]["DLA"]["NormalBW"]
        self.fit()
        mean = sum(self._drawn("googlenet", a, b) * t for (a, b), t in zip(self.ranges, self.gpu, strict=True))
        mean /= self.gpu.sum()
        self.mean = None if layer_loads else mean
        self.typed_dense = typed_dense
        self.bandwidth = 2 * mean / CO_RUN[0]
        self.more = self.dla.sum() / self.gpu.sum() * CO_RUN[1] / CO_RUN[0]

    def fit(self) -> None:
        """Fit time = a * convolutions + b * GFLOP to GoogleNet's groups, relative errors squared."""
        rows = np.array([self._work("googlenet", a, b) for a, b in self.ranges])
        self.rates = [
            np.linalg.lstsq(rows / times[:, None], np.ones(len(times)), rcond=None)[0] for times in (self.gpu, self.dla)
        ]

    def _work(self, network: str, first: int, end: int) -> tuple[int, float]:
        shapes = [_shape(network, name) for _, name, kind in self.layers[network][first:end] if kind in _COMPUTING]
        return len(shapes), sum(2 * i * o * k * k * s * s / 1e9 for i, s, o, k in shapes)

    def _drawn(self, network: str, first: int, end: int) -> float:
        """Return the measured mean traffic (GB/s) of convolutions like these on the GPU."""
        shapes = [_shape(network, name) for _, name, kind in self.layers[network][first:end] if kind in _COMPUTING]
        loads = [self.load[max(side for side in self.load if side <= max(s, 0))] for _, s, _, _ in shapes]
        return PEAK_GBPS * float(np.mean(loads)) if loads else PEAK_GBPS * self.load[0]

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
            moved = self._moved(PEAK_GBPS * self.load[max(s for s in self.load if s <= side)], gpu, dla)
            parts.append(Part(first, end, gpu, dla, *moved, 2 * 256 * side * side))
        for (first, end, inputs, outputs), (gpu, dla) in zip(ALEXNET_DENSE, times[5:], strict=True):
            # The typed-in times would need more than the DLA draws: so AlexNet takes 5.9 ms there, and the
            # artefact's logs of AlexNet on the DLA co-running with twelve others give 5.7 to 6.4.
            dla = dla if self.typed_dense else max(dla, 2 * inputs * outputs / self.knee / 1e6)
            # Alone it must take the time measured, so it cannot draw more than there is to share.
            gpu_bytes, dla_bytes = (min(2 * inputs * outputs, int(self.bandwidth * ms * 1e6)) for ms in (gpu, dla))
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
        moved = self._moved(self._drawn(network, first, end), gpu, dla)
        return Part(first, end, float(gpu), float(dla), *moved, size)

    def _moved(self, drawn: float, gpu: float, dla: float) -> tuple[int, int]:
        """Return the bytes that layers move on GPU and DLA, where they take so many ms."""
        if self.mean is not None:
            return int(self.mean * gpu * 1e6), int(self.bandwidth / 2 * CO_RUN[1] * dla * 1e6)
        moved = min(drawn, self.bandwidth) * gpu * 1e6
        return int(moved), min(int(moved * self.more), int(self.bandwidth * dla * 1e6))

    def measured_ms(self, network: str, first: int, end: int, engine: str) -> float:
        """Return the time (ms) of layers [first, end) on "gpu" or "dla", a group's time in equal parts by convolution."""
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
        bandwidth = round(self.bandwidth * 1e9) if contention else 0
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
_SIDES = {0: "conv5", 56: "conv4", 112: "conv2"}
"""Image side from which on a measured convolution represents others."""


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


def main() -> int:
    """Print how the measured schedules of the experiments compare with their predictions."""
    from tools.literature.haxconn_corun import report

    report(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
