"""PointPillars frames pipelined across this machine's processor and its GPU: throughput, comparisons, disturbance.

    python -m tools.bench.runtime [--weights FILE.npz] [--frames 300] [--rounds 3] [--arch sm_90]

Needs an NVIDIA GPU, nvcc, a C++ compiler and, for the comparison, PyTorch.  Voxelisation and decoding run on the
processor, everything between in fp16 on the GPU, on synthetic scans.  Throughput: frames released as fast as they are
accepted, `--in-flight` at once, under every executor in turn, and a PyTorch loop with the same functions before and
after (cuDNN, channels last, one CUDA graph from pillar net to heads, page-locked copies); medians of rounds that
alternate. Detections must be bit-identical under every executor.  Latency: a pipeline of hard stages at a fixed rate,
alone and co-running with one of soft stages at a rate that keeps the machine busy (with a shield, as `socsched run
--shield`).  Soft frames arrive in every other half second of a run, so that other load on the machine affects both
alike.  Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.cost.cost import Segment
from socsched.descriptor import host
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import Platform
from socsched.executor.rules import BASELINES
from socsched.executor.run_native import Inputs, execute
from socsched.faults.model import Dropout, Faults
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network
from socsched.models.registry import get_model
from socsched.models.weights import load_weights
from socsched.planning.plan import (
    Bandwidth,
    ChainResult,
    Plan,
    PlannedEngine,
    PlannedSensor,
    Power,
    SearchReport,
    Task,
    Transition,
)
from socsched.runtime.boards.local import LocalBoard
from socsched.runtime.inputs import Scenes
from socsched.runtime.options import Options
from socsched.runtime.overheads import overheads
from socsched.trace.trace import Trace
from tools.bench import gpu_common as bench
from tools.bench.torch_detectors import TorchLoop

MS = 1_000_000
STAGES = ("voxelise", "pfn", "scatter", "backbone", "head", "decode")
SIZE = {"points": 20800, "pillars": 8600}
BARS = {"sequential": 1.4, "shared-queue": 1.15, "PyTorch": 1.2}
DISTURBED = 1.3
WINDOW, SEAM = 500 * MS, 60 * MS
"""With and without best-effort frames in turn, and how much of a window is left out."""


def platform(arch: str) -> Platform:
    """Return this machine with its GPU as an engine."""
    here = host.detect()
    gpu = replace(
        here.engines[0],
        id="gpu",
        kind="gpu",
        title="GPU",
        units=1,
        unit="GPU",
        shares="whole",
        target=bench.target(arch),
    )
    return replace(here, engines=(here.engines[0], gpu))


def pipeline(names: dict[str, tuple[str, int]]) -> Pipeline:
    """Return a pipeline with one PointPillars a prefix; `names` maps a prefix to its criticality and period in ns."""
    sensors, stages, chains = [], [], []
    for prefix, (criticality, period) in names.items():
        sensor = Sensor(f"{prefix}lidar", "lidar", period)
        sensors.append(sensor)
        before = sensor.name
        for name in STAGES:
            params = dict(SIZE) if name in ("voxelise", "pfn", "scatter") else {}
            stages.append(
                Stage(prefix + name, name, f"pointpillars.{name}", (before,), params=params, criticality=criticality)
            )
            before = prefix + name
        path = (sensor.name, *(prefix + name for name in STAGES))
        chains.append(Chain(f"{prefix}detection", path, 100 * MS, criticality=criticality))
    return Pipeline("pointpillars", "PointPillars", tuple(sensors), tuple(stages), tuple(chains))


def plan(pipe: Pipeline, here: Platform) -> Plan:
    """Return the plan: each prefix has two processor lanes of its own, all share the GPU."""
    tasks: list[Task] = []
    moves: list[Transition] = []
    for number, sensor in enumerate(pipe.sensors):
        prefix = sensor.name.removesuffix("lidar")
        before = sensor.name
        weight = pipe.stage(f"{prefix}voxelise").criticality
        for name in STAGES:
            place = {"voxelise": ("cpu", 2 * number), "decode": ("cpu", 2 * number + 1)}.get(name, ("gpu", 0))
            if name in ("pfn", "decode"):
                conversion = f"{before}>{prefix}{name}"
                layouts = ("", "") if name == "pfn" else ("NHWC", "NCHW")
                dtypes = ("fp32", "fp16") if name == "pfn" else ("fp16", "fp32")
                moves.append(Transition(before, prefix + name, 0, *layouts, *dtypes, "gpu", conversion, 0))
                tasks.append(task(conversion, before, ("gpu", 0), weight, sensor.period_ns, "conversion"))
                before = conversion
            tasks.append(task(prefix + name, before, place, weight, sensor.period_ns))
            before = prefix + name
    engines = tuple(PlannedEngine(e.id, e.kind, e.units, "none", 0, "edf", 10**10, 0, 0) for e in here.engines)
    sensors = tuple(PlannedSensor(s.name, s.period_ns, 0, 0, 0) for s in pipe.sensors)
    chains = tuple(ChainResult(c.name, c.path, c.deadline_ns, 0, None, None, ()) for c in pipe.chains)
    return Plan(
        "host", "default", "pointpillars", "undecided", "edf", engines, sensors, tuple(tasks), tuple(moves), chains, (),
        Power(), Bandwidth(), SearchReport(), {},
    )  # fmt: skip


def task(name: str, after: str, place: tuple[str, int], weight: str, period: int, kind: str = "stage") -> Task:
    """Return a task of the plan; times are not known yet and only serve the monitor."""
    precision = "fp16" if place[0] == "gpu" else "fp32"
    return Task(
        name=name, kind=kind, engine=place[0], lanes=(place[1],), precision=precision, after=(after,), reads=(),
        timer=False, period_ns=period, offset_ns=0, queue=1, cost_ns=5 * MS, wcet_ns=5 * MS, bytes=0, energy_uj=0,
        segments=(Segment(name, MS, 0, 0),), priority=0, deadline_ns=100 * MS, jitter_ns=0, criticality=weight,
        provenance="assumed", source="", error=1.0,
    )  # fmt: skip


EXECUTORS = ("event-chained", *BASELINES)


def run(pipe: Pipeline, here: Platform, weights: Path | None, options: Options, **length: Any) -> Trace:
    """Execute the plan of a pipeline."""
    return execute(plan(pipe, here), pipe, Inputs(weights=weights, **length), options, board=LocalBoard(here))


def rate(trace: Trace) -> float:
    """Return frames a second, from the first release to the last end, the first tenth left out."""
    ends = sorted(job.finish_ns for job in trace.jobs if job.task == "decode" and job.status == "done")
    skipped = len(ends) // 10
    return (len(ends) - 1 - skipped) / (ends[-1] - ends[skipped]) * 1e9


def stage_medians(trace: Trace) -> str:
    """Return the median time of every task."""
    times: dict[str, list[int]] = {}
    for job in trace.jobs:
        times.setdefault(job.task, []).append(job.exec_ns)
    return ", ".join(f"{name} {statistics.median(found) / MS:.3f}" for name, found in times.items())


def throughput(args: argparse.Namespace, here: Platform) -> Iterator[tuple[str, bool]]:
    """Print frames per second of every executor; yield each requirement and whether it holds."""
    pipe = pipeline({"": ("hard", 100 * MS)})
    found: dict[str, list[float]] = {}
    boxes: dict[str, Any] = {}
    loop, scans = None, []
    if not args.no_torch:
        scenes = Scenes(0)
        scenes.preload(32)
        scans = [scenes.frame(number).outputs["points"] for number in range(32)]
        loop = TorchLoop(
            dict(load_weights(args.weights)), get_model("pointpillars.decode").function.keywords["settings"]
        )  # type: ignore[union-attr]
    for turn in range(args.rounds):
        for name in EXECUTORS:
            options = Options(name, args.in_flight, pace="asap")
            trace = run(pipe, here, args.weights, options, frames=args.frames)
            found.setdefault(name, []).append(rate(trace))
            if turn == 0:
                boxes[name] = {frame: entry.get("detections") for frame, entry in trace.details.items()}
                waits = overheads(trace)["dispatch_ns"]
                print(f"{name}: ms {stage_medians(trace)}; start after {waits['p50'] / 1e3:.0f} us", flush=True)
        if loop is not None:
            found.setdefault("PyTorch", []).append(loop.rate(scans, args.frames))
    same = all(boxes[name] == boxes["sequential"] for name in boxes)
    yield f"the same {sum(map(len, boxes['sequential'].values()))} boxes under every executor", same
    print(
        f"\n{'frames a second':18}" + "".join(f"{f'round {n + 1}':>10}" for n in range(args.rounds)) + f"{'median':>10}"
    )
    for name, rates in found.items():
        print(f"{name:18}" + "".join(f"{value:10.1f}" for value in [*rates, statistics.median(rates)]))
    for name, bar in BARS.items():
        if name in found:
            each = [mine / theirs for mine, theirs in zip(found["event-chained"], found[name], strict=True)]
            ratio = statistics.median(each)
            listed = ", ".join(f"{value:.2f}" for value in each)
            yield f"event-chained / {name} = {ratio:.2f} (bar {bar}; rounds {listed})", ratio >= bar


def undisturbed(args: argparse.Namespace, here: Platform) -> Iterator[tuple[str, bool]]:
    """Print response times of the hard pipeline, alone and with the soft one; yield whether the bar holds."""
    names = {"": ("hard", args.period * MS), "be_": ("soft", args.busy * MS)}
    found: dict[str, list[int]] = {"alone": [], "corun": []}
    parts: dict[str, dict[str, list[int]]] = {"alone": {}, "corun": {}}
    ratios: list[float] = []
    duration = 2 * args.seconds * 10**9
    silent = tuple(Dropout("be_lidar", at, at + WINDOW) for at in range(0, duration, 2 * WINDOW))
    for _ in range(args.rounds):
        options = Options(
            in_flight=args.in_flight, realtime="auto", shield=not args.no_shield, faults=Faults(dropouts=silent)
        )
        trace = run(pipeline(names), here, args.weights, options, duration_ns=duration)
        each = {title: responses(trace, title) for title in found}
        for title, taken in each.items():
            found[title] += taken.values()
            account(trace, parts[title], set(taken))
        ratios.append(rank([*each["corun"].values()], 99) / rank([*each["alone"].values()], 99))
        soft = sum(job.task == "be_decode" and job.status == "done" for job in trace.jobs)
        print(f"co-running best effort: {soft / args.seconds:.0f} frames/s; p99 ratio {ratios[-1]:.2f}", flush=True)
    for title, values in found.items():
        figures = ", ".join(f"p{share} {rank(values, share) / MS:.2f} ms" for share in (50, 90, 95, 99))
        print(f"hard pipeline {title}: {figures}, n = {len(values)}", flush=True)
    print(f"{'ms':24}{'alone p50':>12}{'p99':>8}{'co-run p50':>12}{'p99':>8}")
    for name in parts["alone"]:
        cells = [rank(parts[title][name], share) / MS for title in parts for share in (50, 99)]
        print(f"{name:24}{cells[0]:12.3f}{cells[1]:8.3f}{cells[2]:12.3f}{cells[3]:8.3f}")
    ratio, pooled = statistics.median(ratios), rank(found["corun"], 99) / rank(found["alone"], 99)
    each_ = ", ".join(f"{value:.2f}" for value in ratios)
    yield (
        f"p99 with best effort / alone = {ratio:.2f} (bar {DISTURBED}; rounds {each_}; of all frames {pooled:.2f})",
        ratio <= DISTURBED,
    )


def responses(trace: Trace, title: str) -> dict[int, int]:
    """Return the response times (ns) of the hard frames of the windows with soft ones (corun) or without (alone).

    The first frames of a window are left out: something of the window before may be under way.
    """
    releases = trace.releases["lidar"]
    ends = {job.frame: job.finish_ns for job in trace.jobs if job.task == "decode" and job.status == "done"}
    return {
        frame: end - releases[frame]
        for frame, end in ends.items()
        if (releases[frame] // WINDOW % 2 == 1) == (title == "corun") and releases[frame] % WINDOW >= SEAM
    }


def rank(values: list[int], share: int) -> int:
    """Return a percentile by nearest rank."""
    return sorted(values)[-(-len(values) * share // 100) - 1]


def account(trace: Trace, parts: dict[str, list[int]], frames: set[int]) -> None:
    """Add what hard `frames` spent in each stage and, as "> stage", between being ready and starting."""
    ready = {("lidar", frame): at for frame, at in enumerate(trace.releases["lidar"])}
    for job in trace.jobs:
        if not job.task.startswith("be_") and job.status == "done" and job.frame in frames:
            parts.setdefault(f"> {job.task}", []).append(max(job.start_ns - job.activation_ns, 0))
            parts.setdefault(job.task, []).append(job.exec_ns)
            if job.task == "voxelise":
                parts.setdefault("release", []).append(job.activation_ns - ready["lidar", job.frame])


def _random() -> dict[str, Any]:
    """Return seeded weights with which few anchors score, as in a trained detector (Lin et al., ICCV 2017, prior)."""
    networks = (pfn_network(), backbone_network(), head_network())
    found = {name: array for network in networks for name, array in bench.random_weights(network).items()}
    found["cls.weight"] *= np.float32(0.12)
    found["cls.bias"][:] = np.log(0.01 / 0.99)
    return found


def main() -> int:
    """Measure, and print what was required last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=8, help="per round, for each of alone and co-running")
    parser.add_argument("--period", type=int, default=20, help="ms between frames of the hard pipeline")
    parser.add_argument("--busy", type=int, default=20, help="ms between frames of the soft pipeline")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument(
        "--no-shield", action="store_true", help="let soft stages start while a hard frame is under way"
    )
    parser.add_argument("--only", choices=("throughput", "latency"))
    args = parser.parse_args()
    if args.weights is None:  # both sides start from the same numbers
        args.weights = Path(tempfile.mkdtemp()) / "weights.npz"
        np.savez(args.weights, **_random())
    here = platform(args.arch)
    results = [] if args.only == "throughput" else [*undisturbed(args, here)]
    results += [] if args.only == "latency" else throughput(args, here)
    if not args.no_torch:
        import torch

        print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, NumPy {np.__version__}")
    for text, held in results:
        print(("ok      " if held else "MISSED  ") + text)
    return 0 if all(held for _, held in results) else 1


if __name__ == "__main__":
    sys.exit(main())
