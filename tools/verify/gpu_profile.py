"""Record networks on an NVIDIA GPU with the PyTorch profiler (CUPTI), import it, and compare with times of our own.

    python -m tools.verify.gpu_profile FOLDER [--jobs 200] [--keep trace.json]

FOLDER is one of `tools.bench.gpu_scan --build`; needs an NVIDIA GPU, TVM's runtime and PyTorch.  Backbone and heads of
PointPillars, one CUDA graph each, and the same network in PyTorch run in turns under the profiler, each in a
`record_function` range, before and after that under CUDA events: jobs alone, with the start of a graph, and ten queued
in a row, which hides it.  The trace is imported as `socsched profile import` does.  Exit code 1 if an imported median
is more than 3 % above that of jobs alone, or more than 3 % below that of queued ones.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

BAR = 0.03
QUEUED = 10
STAGES = ("pointpillars.backbone", "pointpillars.head")


def works(folder: Path, torch: Any) -> dict[str, tuple[Callable[[], None], Callable[[], None], Any]]:
    """Return range -> (start a job, wait for it, time jobs: the median ms of as many with some queued at once)."""
    from socsched.compiler.artifact import find
    from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
    from socsched.compiler.targets.cuda.runtime import GpuStage
    from tools.bench.gpu_clock import Clock
    from tools.bench.torch_networks import graph_of, pointpillars, random_weights, torch_forward, torch_milliseconds

    found: dict[str, tuple[Callable[[], None], Callable[[], None], Any]] = {}
    for name in STAGES:
        artifact = find(folder / "pointpillars" / name)
        if artifact is None:
            raise SystemExit(f"{folder}: no {name}; build it with tools.bench.gpu_scan --build")
        stage, rng = GpuStage(artifact), np.random.default_rng(1)
        ready = stage.captured(*(physical_shape(kind) for kind in stage.inputs))
        for tensor, kind in zip(ready.inputs, stage.inputs, strict=True):
            tensor.copyfrom(rng.normal(size=physical_shape(kind)).astype(NUMPY_DTYPES[kind.dtype]))
        clock = Clock(stage._stream)
        start = lambda stage=stage, ready=ready: stage.launch(ready)  # noqa: E731
        timed = lambda jobs, inner, clock=clock, start=start: clock.milliseconds(start, jobs, inner=inner)  # noqa: E731
        found[name] = (start, stage.synchronize, timed)
    network = pointpillars()
    forward = torch_forward(network, random_weights(network), torch, torch.float16)
    shape = next(iter(network.inputs.values())).shape
    image = torch.randn(shape, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    with torch.no_grad():
        graph = graph_of(lambda: forward(image), torch)

    def measured(jobs: int, inner: int) -> float:
        queue = SimpleNamespace(replay=lambda: [graph.replay() for _ in range(inner)])
        return torch_milliseconds(queue, torch, jobs) / inner

    found["PyTorch"] = (graph.replay, torch.cuda.synchronize, measured)
    return found


def main() -> int:
    """Record, import, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="keep the profiler's trace here")
    args = parser.parse_args()
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from socsched.interchange import torch_profiler

    torch.backends.cudnn.benchmark = True
    ran = works(args.folder, torch)
    rounds = [{name: (clock(args.jobs, 1), clock(args.jobs // QUEUED, QUEUED)) for name, (*_, clock) in ran.items()}]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorder:
        for _ in range(args.jobs):
            for name, (start, wait, _) in ran.items():
                with record_function(name):
                    start()
                    wait()
    rounds += [{name: (clock(args.jobs, 1), clock(args.jobs // QUEUED, QUEUED)) for name, (*_, clock) in ran.items()}]
    with tempfile.TemporaryDirectory() as scratch:
        file = args.keep or Path(scratch) / "trace.json"
        recorder.export_chrome_trace(str(file))
        sections = {section.stage: section for section in torch_profiler.recording(file).sections}
    failed = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, medians of {args.jobs} jobs, ms")
    print(f"{'range':24}{'imported':>10}{'alone':>10}{'queued':>10}{'/alone':>8}{'/queued':>9}")
    for name in ran:
        if name not in sections:
            print(f"{name:24} not in the profile: {', '.join(sections)}")
            failed = True
            continue
        imported = statistics.median(sections[name].times_ns) / 1e6
        alone, queued = (sum(own[name][which] for own in rounds) / 2 for which in (0, 1))
        failed = failed or imported > alone * (1 + BAR) or imported < queued * (1 - BAR)
        line = f"{name:24}{imported:10.4f}{alone:10.4f}{queued:10.4f}{imported / alone:8.3f}{imported / queued:9.3f}"
        print(f"{line}  {sections[name].note}")
    print("failed: more than 3 % outside" if failed else "every imported median within 3 %")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
