"""From scans to boxes on one GPU: latency, throughput and kernel times by stage, against PyTorch, in one run.

    python -m tools.bench.gpu_scan --build FOLDER [--arch sm_90] [--weights FILE.npz] [--scans FILE.bin ...]
    python -m tools.bench.gpu_scan --run FOLDER [--frames 600] [--depth 4]

The first command needs nvcc and TVM, but no GPU: it compiles PointPillars, PointPillars-S and CenterPoint, and computes
the boxes of a few scans on the processor in fp32.  The second needs a GPU, TVM's runtime and PyTorch.  A frame is one
copy in, one CUDA graph, one copy out.  Peers run PointPillars with the same weights: a PyTorch loop with voxelisation
and decoding on the processor (as C functions where there is a C compiler), and PyTorch wholly on the GPU as one CUDA
graph, with as many frames in flight.  The loop spins while it waits for the GPU, so one frame that spins is measured
too; all others sleep.  Every output is checked: pillars bit by bit, boxes against the numpy decoder on the same maps,
and against the processor's boxes.  Exit code 1 when a result is wrong or a bar is missed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact, find
from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model

NETWORKS = {
    "pointpillars": ("pointpillars.voxelise", "pointpillars", "pointpillars.decode"),
    "pointpillars-s": ("pointpillars.voxelise", "pointpillars-s", "pointpillars.decode"),
    "centerpoint": ("centerpoint.voxelise", "centerpoint", "centerpoint.decode"),
}
ROOMS = {"pointpillars": 32768, "pointpillars-s": 32768, "centerpoint": 131072}
LATENCY_MS, RATE, LOOP_RATIO, DEVICE_RATIO = 0.9, 1500.0, 5.0, 2.0
TRAINED = ("pointpillars", "pointpillars-s")
"""Networks whose boxes are compared with the processor's: random weights detect noise."""


def stages(name: str) -> list[str]:
    """Return the models of a detector's stages in order."""
    first, body, last = NETWORKS[name]
    return [first, *(f"{body}.{part}" for part in ("pfn", "scatter", "backbone", "head")), last]


def build(args: argparse.Namespace) -> None:
    """Compile all stages into the folder, and compute the expected boxes."""
    from socsched.compiler.builder import compile_stage
    from socsched.descriptor.pipeline import Stage
    from socsched.models.weights import load_weights
    from tools.bench.host_stages import synthetic_scan

    weights = load_weights(args.weights) if args.weights else None
    gpu = {"kind": "cuda", "arch": args.arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    engine = SimpleNamespace(id="gpu", kind="gpu", target=gpu, units=1, unit="SM", shares="whole", precisions={})
    for name in args.only or NETWORKS:
        for model in stages(name):
            given = weights if name == "pointpillars" else None
            artifact = compile_stage(Stage(model, model, model), engine, "fp16", given)
            place = args.build / name / model
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(artifact.folder, place)
    from socsched.models.pointpillars.scan import read_scan

    scans = [synthetic_scan(seed=seed) for seed in (1, 2)]
    scans += [read_scan(path) for path in args.scans]
    np.savez(args.build / "scans.npz", *scans)
    for name in TRAINED:
        if name not in (args.only or NETWORKS):
            continue
        detect = host_detector(name, weights if name == "pointpillars" else None)
        found = [detect(scan) for scan in scans]
        np.savez(args.build / f"{name}.boxes.npz", **{f"{i}.{k}": a for i, f in enumerate(found) for k, a in f.items()})
    if weights is not None:
        np.savez(args.build / "weights.npz", **{k: a.astype(np.float16) for k, a in weights.items()})


def host_detector(name: str, weights: Any) -> Callable[[Any], dict[str, Any]]:
    """Return the detector on this machine's processor in fp32."""
    from socsched.compiler.builder import compile_stage
    from socsched.compiler.loading.stages import load
    from socsched.descriptor.pipeline import Stage

    cpu = {"kind": "llvm", "host": True}
    engine = SimpleNamespace(id="cpu", kind="cpu", target=cpu, units=2, unit="core", shares="any", precisions={})
    made: list[Any] = []
    for model in stages(name)[1:-1]:
        made.append(load(compile_stage(Stage(model, model, model), engine, "fp32", weights)))

    def detect(scan: Any) -> dict[str, Any]:
        values = dict(zip(("voxels", "counts", "coords"), _function(stages(name)[0])(scan), strict=True))
        types: dict[str, TensorType] = {}
        for stage in made:
            names = stage.artifact.input_names
            given = [
                convert(values[n], types.get(n, TensorType(values[n].shape, t.dtype)), t)
                for n, t in zip(names, stage.inputs, strict=True)
            ]
            outputs = zip(stage.artifact.output_names, stage(*given), stage.outputs, strict=True)
            for n, array, kind in outputs:
                values[n], types[n] = array, kind
        maps = [plain(values[n], types[n]) for n in ("cls", "reg", "dir")]
        return dict(zip(("boxes", "scores", "labels"), _function(stages(name)[-1])(*maps), strict=True))

    return detect


def _function(model: str) -> Callable[..., Any]:
    function = get_model(model).function
    assert function is not None
    return function


def plain(array: Any, kind: TensorType) -> Any:
    """Return a map in fp32 NCHW."""
    return convert(array, kind, TensorType(kind.shape, "fp32", "NCHW"))


def load_chain(folder: Path, name: str) -> Any:
    """Return the compiled chain of a detector."""
    from socsched.compiler.targets.cuda.frame import Chain

    found: list[Artifact] = []
    for model in stages(name):
        artifact = find(folder / name / model)
        if artifact is None:
            raise SystemExit(f"{folder / name / model}: no complete artefact; build it first")
        found.append(artifact)
    return Chain(found, ROOMS[name])


def fetched(frame: Any, name: str, kind: TensorType) -> Any:
    """Return a tensor of a frame on the host."""
    from socsched.compiler.targets.cuda import driver

    array = np.empty(physical_shape(kind), NUMPY_DTYPES[kind.dtype])
    value = frame._values[name]
    driver.copy(array.ctypes.data, value if isinstance(value, int) else int(value.data_ptr()), array.nbytes)
    return array


def check(frame: Any, scan: Any, name: str) -> list[str]:
    """Return what is wrong with a frame's pillars, and with its boxes given its maps."""
    frame.submit(scan)
    found = frame.results()
    chain, wrong = frame.chain, []
    first, last = chain.artifacts[0], chain.artifacts[-1]
    wanted = _function(stages(name)[0])(scan)
    for port, kind, expected in zip(first.output_names, first.outputs, wanted, strict=True):
        array, count = fetched(frame, port, kind), len(expected)
        if not np.array_equal(array[:count], expected.astype(array.dtype)) or (
            port == "counts" and array[count:].any()
        ):
            wrong.append(f"{port} differ")
    maps = [plain(fetched(frame, n, t), t) for n, t in zip(last.input_names, last.inputs, strict=True)]
    expected = _function(stages(name)[-1])(*maps)
    if len(found[2]) != len(expected[2]):
        return [*wrong, f"{len(found[2])} boxes, numpy finds {len(expected[2])} in the same maps"]
    for port, mine, theirs in zip(last.output_names, found, expected, strict=True):
        gap = float(np.abs(mine.astype(np.float64) - theirs).max(initial=0))
        if gap > 1e-3 * max(1.0, float(np.abs(theirs).max(initial=0))):
            wrong.append(f"{port} differ by {gap:.2g} from numpy on the same maps")
    return wrong


def matched(found: Sequence[Any], expected: Any, number: int, least: float = 0.3) -> tuple[int, int, float]:
    """Return how many expected boxes scoring over `least` were found, how many there are, and the largest distance."""
    boxes, scores, labels = (expected[f"{number}.{key}"] for key in ("boxes", "scores", "labels"))
    chosen = np.flatnonzero(scores > least)
    hits, worst = 0, 0.0
    for index in chosen:
        same = np.flatnonzero(found[2] == labels[index])
        gaps = np.hypot(*(found[0][same, :2] - boxes[index, :2]).T) if len(same) else np.array([np.inf])
        if gaps.min(initial=np.inf) < 0.2:
            hits, worst = hits + 1, max(worst, float(gaps.min()))
    return hits, len(chosen), worst


def latency(call: Callable[[Any], Any], scans: Sequence[Any], frames: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a frame alone, in ms, from scan in host memory to boxes there."""
    times = []
    for number in range(frames + 20):
        scan = scans[number % len(scans)]
        start = time.perf_counter_ns()
        call(scan)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return statistics.median(times[20:]), float(np.percentile(times[20:], 99))


def rate(frames: Sequence[Any], scans: Sequence[Any], count: int) -> float:
    """Return frames a second with all `frames` in flight."""
    free, busy = deque(frames), deque[Any]()
    start, done = 0.0, 0
    for number in range(count + 50):
        if not free:
            frame = busy.popleft()
            frame.results()
            free.append(frame)
            done += 1
            if done == 50:
                start = time.perf_counter()
        frame = free.popleft()
        frame.submit(scans[number % len(scans)])
        busy.append(frame)
    while busy:
        busy.popleft().results()
        done += 1
    return (done - 50) / (time.perf_counter() - start)


def stage_times(frame: Any, repeats: int = 30) -> list[tuple[str, float]]:
    """Return the microseconds of every stage of a frame on its own, graph launches queued in a row."""
    from socsched.compiler.targets.cuda.function_run import GpuFunction
    from tools.bench.gpu_clock import Clock

    clock, found = Clock(frame.stream), []

    def microseconds(work: Callable[[], None]) -> float:
        frame.stream.begin_capture()
        work()
        graph = frame.stream.end_capture()
        return clock.milliseconds(lambda: graph.launch(frame.stream), repeats, inner=10) * 1e3

    for number, step in enumerate(frame.steps):
        part, held = slice(number, number + 1), list[Any]()
        for _ in range(2):  # fills the memory pool, which a recording cannot enlarge
            frame.run([], part)
        frame.stream.synchronize()
        found.append((step.artifact.model, microseconds(lambda held=held, part=part: frame.run(held, part))))
        if isinstance(step.stage, GpuFunction):
            found += kernel_times(frame, step, microseconds)
    return found


def kernel_times(frame: Any, step: Any, microseconds: Callable[[Callable[[], None]], float]) -> list[tuple[str, float]]:
    """Return what each kernel of a function adds to those before it in one graph, in microseconds."""
    given = [frame._values[name] for name in step.artifact.input_names]
    places = [[v if isinstance(v, int) else int(v.data_ptr()) for v in side] for side in (given, step.outputs)]
    bound = step.stage.bind(*places, step.scratch, frame.chain.room, step.count)
    found, before = [], 0.0
    for number, each in enumerate(bound.launches):
        part = replace(bound, launches=bound.launches[: number + 1])
        time_us = microseconds(lambda part=part: part.launch(frame.stream))
        found.append((f"  {each.kernel}", time_us - before))
        before = time_us
    return found


def run(args: argparse.Namespace) -> int:
    """Check and measure; print the table last."""
    import torch

    from socsched.compiler.targets.cuda.frame import Frame
    from tools.bench.torch_detectors import TorchDevice, TorchLoop

    torch.backends.cudnn.benchmark = True
    torch.set_grad_enabled(False)
    with np.load(args.run / "scans.npz") as file:
        scans = [file[name] for name in file.files]
    failed: list[str] = []
    lines: list[str] = []
    times: dict[str, Any] = {}
    for name in args.only or NETWORKS:
        chain = load_chain(args.run, name)
        frames = [Frame(chain) for _ in range(args.depth)]
        wrong = sorted({problem for scan in scans for problem in check(frames[0], scan, name)})
        print(f"{name}: {'; '.join(wrong) if wrong else f'{len(scans)} scans as numpy'}", flush=True)
        failed += [f"{name}: results"] if wrong else []
        file_of_boxes = args.run / f"{name}.boxes.npz"
        if file_of_boxes.is_file():
            with np.load(file_of_boxes) as expected:
                hits = [matched(call(frames[0], scan), expected, i) for i, scan in enumerate(scans)]
            got, of, gap = sum(h[0] for h in hits), sum(h[1] for h in hits), max(h[2] for h in hits)
            print(f"{name}: {got} of {of} boxes of the processor in fp32 (score over 0.3), {gap:.3f} m apart at most")
            failed += [f"{name}: boxes"] if got < of else []
        used = scans
        if name == "centerpoint":
            from socsched.models.centerpoint.network import AUTOWARE
            from tools.bench.host_stages import FULL_PILLARS, FULL_POINTS, synthetic_scan

            used = [synthetic_scan(FULL_POINTS, FULL_PILLARS, seed, AUTOWARE) for seed in (1, 2, 3)]
            wrong = sorted({problem for scan in used for problem in check(frames[0], scan, name)})
            failed += [f"{name}: full turns"] if wrong else []
            print(f"{name}, full turns: {wrong or 'as numpy'}")
        detect = partial(call, frames[0])
        rounds = [(latency(detect, used, args.frames), rate(frames, used, args.frames)) for _ in range(3)]
        times[name] = [statistics.median(r[0][0] for r in rounds), max(r[0][1] for r in rounds)]
        times[name].append(statistics.median(r[1] for r in rounds))
        lines.append(f"{name:28} {times[name][0]:8.3f} {times[name][1]:8.3f} {times[name][2]:10.0f}")
        print(lines[-1], flush=True)
        if args.layers:
            for stage, microseconds in stage_times(frames[0]):
                print(f"  {microseconds:9.2f} us  {stage}", flush=True)
        del frames
    if "pointpillars" in times and not args.no_torch:
        weights = {k: a.astype(np.float32) for k, a in np.load(args.run / "weights.npz").items()}
        settings = get_model("pointpillars.decode").function.keywords["settings"]  # type: ignore[union-attr]
        loop = TorchLoop(weights, settings)
        peers = [TorchDevice(weights, settings) for _ in range(args.depth)]
        with np.load(args.run / "pointpillars.boxes.npz") as expected:
            for title, detect in (
                ("PyTorch loop", loop.frame),
                ("PyTorch, all on the GPU", lambda s: call(peers[0], s)),
            ):
                hits = [matched(detect(scan), expected, i) for i, scan in enumerate(scans)]
                print(f"{title}: {sum(h[0] for h in hits)} of {sum(h[1] for h in hits)} boxes")
        chain = load_chain(args.run, "pointpillars")
        frames = [Frame(chain) for _ in range(args.depth)]
        spinning = Frame(chain, spins=True)
        kinds = {"socsched": [], "spinning": [], "loop": [], "device": []}  # type: dict[str, list[tuple[float, float]]]
        for _ in range(args.rounds):  # in turns, so that clocks and other load affect all alike
            ours = latency(lambda s: call(frames[0], s), scans, args.frames)[0]
            kinds["socsched"].append((ours, rate(frames, scans, args.frames)))
            alone = latency(lambda s: call(spinning, s), scans, args.frames)[0]
            kinds["spinning"].append((alone, rate([spinning], scans, args.frames)))
            kinds["loop"].append((latency(loop.frame, scans, args.frames)[0], loop.rate(scans, args.frames)))
            theirs = latency(lambda s: call(peers[0], s), scans, args.frames)[0]
            kinds["device"].append((theirs, rate(peers, scans, args.frames)))
        medians = {
            k: tuple(statistics.median(column) for column in zip(*rows, strict=True)) for k, rows in kinds.items()
        }
        for kind, (ms, per_second) in medians.items():
            print(f"pointpillars, {kind:10} latency {ms:7.3f} ms   {per_second:8.0f} frames/s")
        own = medians["socsched"]
        ratios = [medians[k][0] / own[0] for k in ("loop", "device")] + [
            own[1] / medians[k][1] for k in ("loop", "device")
        ]
        awake = medians["loop"][0] / medians["spinning"][0]
        print(f"latency: loop / ours {ratios[0]:.2f}, spinning {awake:.2f}; device / ours {ratios[1]:.2f}")
        print(
            f"rate: ours / loop {ratios[2]:.2f} (bar {LOOP_RATIO}), ours / device {ratios[3]:.2f} (bar {DEVICE_RATIO})"
        )
        bars = [(own[0] <= LATENCY_MS, "latency"), (own[1] >= RATE, "frames/s")]
        bars += [(ratios[2] >= LOOP_RATIO, "ratio to the loop"), (ratios[3] >= DEVICE_RATIO, "ratio to the device")]
        failed += [title for held, title in bars if not held]
    print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; median ms, 99th percentile, frames/s")
    print("\n".join(lines))
    print("failed: " + ", ".join(failed) if failed else "all bars met")
    return 1 if failed else 0


def call(frame: Any, scan: Any) -> Any:
    """Return the boxes of a scan, one frame alone."""
    frame.submit(scan)
    return frame.results()


def main() -> int:
    """Build or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--scans", type=Path, nargs="*", default=[])
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--layers", action="store_true", help="print kernel times by stage")
    parser.add_argument("--only", nargs="+", choices=tuple(NETWORKS))
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("TVM_USE_RUNTIME_LIB", "0" if args.build else "1")
    if args.build:
        args.build.mkdir(parents=True, exist_ok=True)
        build(args)
    return run(args) if args.run else 0


if __name__ == "__main__":
    sys.exit(main())
