"""Networks on this machine's processor: our kernels, ONNX Runtime, and which of them a plan takes.

Both compute the same inputs in one process with the same number of threads, call by call in turns, so that a busy
machine slows both.  Each network and thread count gets a process of its own, since thread pools are set up once, on
cores of its own: as many as the largest count, two at least.  Prints the thread count, medians (ms), their ratio (below
1: ours is faster), the program that a plan takes and its time over ONNX Runtime's, predicted over measured times of
both, seconds of compilation and the process's peak memory after it (GB), and the largest difference of the outputs
relative to the largest output.  A network that we have no kernels for is ONNX Runtime's in a plan too.

    python -m tools.bench.networks [--threads 1,2] [--repeat 11] [--precision int8] [--cached] [--at-once 7]
        FILE.onnx|NAME ...

NAME: a network of `network_zoo` with dense random weights, such as resnet50, torchvision/mobilenet_v2 or pointpillars
(without its PFN); needs PyTorch.

With --gpu, networks on a GPU against `torch.compile` (`gpu_networks`):

    python -m tools.bench.networks --gpu prepare FOLDER [--arch sm_90] [--only vit_s swin_t]
    python -m tools.bench.networks --gpu run FOLDER [--seconds 540] [--layers] [--autotune [NAME ...]] [--jobs 8]
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.executor import probe
from tools.bench.gpu_networks import export

OURS, THEIRS = "tvm", "onnxruntime"


def main() -> int:
    """Measure one thread count, or start a process for each of several."""
    if "--gpu" in sys.argv:
        from tools.bench import gpu_networks

        return gpu_networks.main([word for word in sys.argv[1:] if word != "--gpu"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}", help="thread counts, comma separated")
    parser.add_argument("--repeat", type=int, default=11, help="timed calls of each")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "int8"), help="int8: of files that state it")
    parser.add_argument("--cached", action="store_true", help="use the cache, so that compilation takes no time")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="networks at a time, on cores of their own")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="+", metavar="FILE.onnx|NAME")
    options = parser.parse_args()
    counts = [int(count) for count in options.threads.split(",")]
    if options.here:
        os.environ["TVM_NUM_THREADS"] = options.threads
        with tempfile.TemporaryDirectory() as folder:
            path = Path(options.files[0])
            if path.suffix != ".onnx":
                path = Path(folder) / f"{path.name}.onnx"
                export(options.files[0], path)
            measure(path, counts[0], options)
        return 0
    heads = ("ours", 9), ("ORT", 9), ("ratio", 7), ("plan", 13), ("to ORT", 8), ("pred ours", 10), ("pred ORT", 9)
    more = ("compile s", 10), ("GB", 5), ("difference", 11)
    print("threads".ljust(22) + "".join(head.rjust(width) for head, width in (*heads, *more)))
    ratios = side_by_side(options, counts)
    for count, pairs in ratios.items():
        for title, of_one in zip(("ours", "plan"), zip(*pairs, strict=True), strict=False):
            known = [one for one in of_one if np.isfinite(one)]  # without those that we have no kernels for
            mean = np.exp(np.mean(np.log(known)))
            print(
                f"{count}, {len(known)} networks, {title} over ORT: geometric mean {mean:.2f}, worst {max(known):.2f}"
            )
    return 0


def side_by_side(options: argparse.Namespace, counts: list[int]) -> dict[int, list[tuple[float, float]]]:
    """Measure every network with every count, some at a time; return our and the plan's times over ONNX Runtime's."""
    cores, width = sorted(os.sched_getaffinity(0)), max(2, *counts)
    free = queue.SimpleQueue[str]()
    for first in range(0, min(options.at_once * width, len(cores) - width + 1) or 1, width):
        free.put(",".join(map(str, cores[first : first + width])))
    rest = ["--here", "--repeat", str(options.repeat), "--precision", options.precision, "--cached"]
    command = [sys.executable, "-m", "tools.bench.networks", *rest[: None if options.cached else -1]]
    ratios: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}

    def run(file: str) -> None:
        mine = free.get()
        for count in counts:
            whole = ["taskset", "-c", mine, *command, "--threads", str(count), file]
            done = subprocess.run(whole, capture_output=True, text=True, check=False)
            lines = done.stdout.splitlines() or [f"{Path(file).stem}: {(done.stderr.splitlines() or ['?'])[-1][:200]}"]
            print(count, lines[-1], flush=True)
            if done.returncode == 0:
                words = lines[-1].split()
                ratios[count].append((float(words[3]), float(words[5])))
        free.put(mine)

    with ThreadPoolExecutor(free.qsize()) as pool:
        list(pool.map(run, options.files))
    return ratios


def measure(file: Path, threads: int, options: argparse.Namespace) -> None:
    """Print a network's line."""
    import onnxruntime

    probe.ensure(options.precision == "int8")
    predicted = {name: predict(file, name, threads, options.precision) for name in (OURS, THEIRS)}
    start = time.perf_counter()
    loaded = compiled(file, threads, options) if predicted[OURS] else None
    took, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = threads, 3
    settings.add_session_config_entry("session.set_denormal_as_zero", "1")  # as our kernels do
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    given = {item.name: random.normal(size=item.shape).astype(np.float32) for item in session.get_inputs()}
    calls: dict[str, Callable[[], Any]] = {THEIRS: lambda: session.run(None, given)}
    difference = 0.0
    if loaded is not None:
        own = laid_out(list(given.values()), loaded)
        calls = {OURS: lambda: loaded(*own), **calls}
        pairs = zip(plain(loaded(*own), loaded), session.run(None, given), strict=True)
        difference = max(float(np.abs(a.reshape(b.shape) - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    medians = {name: float(np.median(times)) * 1e3 for name, times in alternate(calls, options.repeat).items()}
    taken = min((name for name in medians if predicted[name]), key=lambda name: predicted[name], default=THEIRS)
    theirs = medians[THEIRS]
    ours, of_plan = medians.get(OURS, float("nan")), medians[taken] / theirs
    line = f"{file.stem:20}{ours:9.2f}{theirs:9.2f}{ours / theirs:7.2f}{taken:>13}{of_plan:8.2f}"
    shares = f"{predicted[OURS] / ours:10.2f}{predicted[THEIRS] / theirs:9.2f}"
    print(f"{line}{shares}{took:10.1f}{memory:5.1f}{difference:11.1e}", flush=True)


def compiled(file: Path, threads: int, options: argparse.Namespace) -> Any:
    """Return a network as our kernels compute it, compiled into an empty cache if that is to be timed."""
    from socsched.compiler.builder import compile_stage
    from socsched.compiler.loading.stages import load
    from socsched.descriptor.catalog import get_pipeline, get_platform

    engine = get_platform("host").engines[0]
    (stage,) = get_pipeline(str(file)).stages
    kept = os.environ.get("SOCSCHED_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        if not options.cached:
            os.environ["SOCSCHED_CACHE"] = folder
        loaded = load(compile_stage(stage, engine, options.precision, None, threads))
    if not options.cached:
        os.environ.pop("SOCSCHED_CACHE") if kept is None else os.environ.update(SOCSCHED_CACHE=kept)
    return loaded


def predict(file: Path, runtime: str, threads: int, precision: str) -> float:
    """Return the time (ms) that a plan expects of a network under a runtime, 0 where it takes none."""
    from socsched.api.planning import choose_runtimes, get_mode
    from socsched.cost.model import CostModel
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.precision import settled
    from socsched.models.work import stage_work

    platform = choose_runtimes(get_platform("host"), (runtime,))
    (stage,) = settled(get_pipeline(str(file)), (precision,)).stages
    model = CostModel(platform, get_mode(platform, None), stage_work)
    found = model.at(stage, platform.engines[0].id, precision, threads)
    return found.time_ns / 1e6 if found is not None else 0.0


def alternate(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, list[float]]:
    """Return `repeat` durations (s) of each call, taken in turns after two rounds of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(repeat + 2):
        for name, call in calls.items():
            rest()
            call()  # brings weights back into the caches that the other has filled
            start = time.perf_counter()
            call()
            if round_ > 1:
                times[name].append(time.perf_counter() - start)
    return times


def rest() -> None:
    """Wait, three seconds at most, until no other thread of this process runs.

    Workers look for work for a while after a call, TVM's for 0.2 s: meanwhile another program's have no core to run on.
    """
    end, before = time.monotonic() + 3, dict[str, str]()
    while time.monotonic() < end:
        others = (task for task in Path("/proc/self/task").iterdir() if task.name != str(threading.get_native_id()))
        now = {task.name: (task / "schedstat").read_text().split()[0] for task in others}
        if now == before:
            return
        before = now
        time.sleep(0.05)


def plain(results: Any, stage: Any) -> list[Any]:
    """Return a stage's outputs in NCHW."""
    from socsched.compiler.layouts import convert

    pairs = zip(results, stage.outputs, strict=True)
    return [convert(a, t, replace(t, layout="NCHW")) if len(t.shape) == 4 else a for a, t in pairs]


def laid_out(arrays: list[Any], loaded: Any) -> list[Any]:
    """Return plain arrays in the layouts that a stage wants."""
    from socsched.compiler.layouts import convert

    return [
        convert(array, replace(kind, layout="NCHW"), kind) if len(kind.shape) == 4 else array
        for array, kind in zip(arrays, loaded.inputs, strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
