"""Compare the CUDA lowering with PyTorch on this machine's GPU, in fp16: right first, then how fast.

    python -m tools.bench.gpu [--arch sm_90] [--layers] [--repeats 40] [--autotune] [--int8] [--only NAME]

needs an NVIDIA GPU, its driver, nvcc, a C++ compiler and PyTorch.  Every stage of PointPillars and ResNet-50 is
compared with PyTorch in fp32 (relative to the largest output, fresh random inputs).  Times are medians of CUDA graph
replays after warm-up, each network one graph on either side; PyTorch runs channels last with cuDNN's benchmark mode.
The ratio is to PyTorch as written (convolution, then ReLU in place); "fused" is the same with cuDNN's fused convolution
and ReLU, "autotuned" (with --autotune; minutes) torch.compile's max-autotune,
"queued" ours with twenty replays in a row.  Host cost is the wall-clock time
of a launch call.  Exit code 1 when a result is wrong or a bar is missed.  With --int8 both networks are timed in int8,
in fp16 and in PyTorch instead, in turns; tools/verify/gpu_int8.py says whether int8 is right.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from socsched.compiler.environment import tvm
from socsched.compiler.targets.cuda.lower import lower
from socsched.compiler.targets.cuda.runtime import GpuStage
from socsched.graph.expand import fuse_network
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network, scatter_network
from tools.bench import gpu_common as bench

TOLERANCE = 1e-2
BARS = {"pointpillars": 0.70, "resnet50": 1.0}
HOST_US = 10.0


def error(found: np.ndarray[Any, Any], expected: Any) -> float:
    """Return the largest difference relative to the largest expected value; infinite when something is not finite."""
    wanted = expected.float().cpu().numpy()
    found = found.astype(np.float32).transpose(0, 3, 1, 2) if found.ndim == 4 else found.astype(np.float32)
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def check_images(network: Any, arch: str) -> tuple[float, str]:
    """Return the error of an image network against PyTorch in fp32, and how its build went."""
    weights = bench.random_weights(network)
    start = time.perf_counter()
    stage, notes = bench.stage_of(network, weights, arch)
    built = time.perf_counter() - start
    forward = bench.torch_forward(network, weights, torch, torch.float32)
    worst = 0.0
    for seed in (1, 2):
        shape = next(iter(network.inputs.values())).shape
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float16)
        expected = forward(torch.tensor(x, device="cuda").float().to(memory_format=torch.channels_last))
        found = stage(np.ascontiguousarray(x.transpose(0, 2, 3, 1)))
        worst = max(worst, *(error(f, e) for f, e in zip(found, expected, strict=True)))
    return worst, f"built in {built:.1f} s, {'; '.join(notes)}"


def check_pillars(arch: str, pillars: int = 6000) -> float:
    """Return the error of the Pillar Feature Net against PyTorch in fp32."""
    network, rng = pfn_network(), np.random.default_rng(3)
    weights = bench.random_weights(network)
    stage, _ = bench.stage_of(network, weights, arch)
    cells = rng.choice(432 * 496, pillars, replace=False)
    coords = np.stack([cells % 432, cells // 432], 1).astype(np.int32)
    counts = rng.integers(1, 33, pillars).astype(np.int32)
    voxels = rng.normal(size=(pillars, 32, 4)).astype(np.float16)
    voxels[np.arange(32)[None] >= counts[:, None]] = 0
    v, n, xy = (torch.tensor(a, device="cuda") for a in (voxels.astype(np.float32), counts, coords))
    layer = network.layers[0]
    filled = (torch.arange(32, device="cuda")[None] < n[:, None]).float()[:, :, None]
    mean = v[:, :, :3].sum(1, keepdim=True) / n[:, None, None]
    centre = (xy + 0.5) * layer.attrs["pillar"] + torch.tensor(layer.attrs["origin"], device="cuda")
    decorated = torch.cat([v, v[:, :, :3] - mean, v[:, :, :2] - centre[:, None]], 2) * filled
    w, b = (torch.tensor(weights[f"pfn.{part}"], device="cuda") for part in ("weight", "bias"))
    with torch.no_grad():
        expected = torch.relu(decorated.double() @ w.double().T + b.double()).amax(1)
    assert stage(voxels[:0], counts[:0], coords[:0])[0].shape == (0, 64)
    part = stage(voxels[:77], counts[:77], coords[:77])[0]  # another graph of the same stage
    return max(error(stage(voxels, counts, coords)[0], expected), error(part, expected[:77]))


def check_scatter(arch: str, pillars: int = 6000) -> float:
    """Return the error of the scatter, pillars outside the grid included, which must leave no trace."""
    network, rng = scatter_network(), np.random.default_rng(4)
    stage, _ = bench.stage_of(network, {}, arch)
    cells = rng.choice(432 * 496, pillars, replace=False)
    coords = np.stack([cells % 432, cells // 432], 1).astype(np.int32)
    coords[::7] = -1
    features = rng.normal(size=(pillars, 64)).astype(np.float16)
    expected = np.zeros((1, 64, 496, 432), np.float32)
    inside = coords[:, 0] >= 0
    expected[0, :, coords[inside, 1], coords[inside, 0]] = features[inside]
    assert not stage(features[:0], coords[:0])[0].any()
    return error(stage(features, coords)[0], torch.tensor(expected))


def check_together(arch: str) -> float:
    """Return the difference of results when stages run concurrently on separate streams: 0 unless they share memory."""
    stages, first = [], []
    for number, network in enumerate((backbone_network(), bench.resnet50(), head_network(), backbone_network(True))):
        stage, _ = bench.stage_of(network, bench.random_weights(network, number), arch)
        n, c, h, w = stage.inputs[0].shape
        x = np.random.default_rng(number).normal(size=(n, h, w, c)).astype(np.float16)
        first.append(stage(x))
        stages.append((stage, stage.captured(x.shape)))
    worst = 0.0
    for _ in range(20):
        for stage, ready in stages:
            stage.launch(ready)
        for (stage, ready), expected in zip(stages, first, strict=True):
            stage.synchronize()
            found = [tensor.numpy() for tensor in ready.outputs]
            worst = max(worst, *(float(np.abs(f - e).max()) for f, e in zip(found, expected, strict=True)))
    return worst


def host_cost(stage: Any, ready: Any, launches: int = 200) -> float:
    """Return the median wall-clock time of a launch call in microseconds, the queue never full."""
    found = []
    for _ in range(launches):
        start = time.perf_counter_ns()
        stage.launch(ready)
        found.append((time.perf_counter_ns() - start) / 1e3)
        stage.synchronize()
    return statistics.median(found)


def compare(network: Any, arch: str, repeats: int, layers: bool, autotune: bool = False) -> dict[str, float]:
    """Return times in ms of a network here and in PyTorch, and the host cost in µs."""
    weights = bench.random_weights(network)
    stages = {"ours": bench.stage_of(network, weights, arch)[0]}
    stage = stages["ours"]
    tensor = stage.inputs[0]
    n, c, h, w = tensor.shape
    x = np.random.default_rng(9).normal(size=(n, h, w, c)).astype(np.float16)
    captured = {name: (own, own.captured((n, h, w, c)), bench.Clock(own._stream)) for name, own in stages.items()}
    for _, graph, _ in captured.values():
        graph.inputs[0].copyfrom(x)
    image = torch.tensor(x, device="cuda").permute(0, 3, 1, 2)
    graphs = {}
    with torch.no_grad():
        for name, fused in (("torch", False), ("fused", True), *((("autotuned", False),) if autotune else ())):
            forward = bench.torch_forward(network, weights, torch, torch.float16, fused)
            if name == "autotuned":
                forward = torch.compile(forward, mode="max-autotune-no-cudagraphs")  # one CUDA graph like the others
            graphs[name] = (bench.graph_of(lambda forward=forward: forward(image), torch), forward)
    found: dict[str, list[float]] = {name: [] for name in (*captured, *graphs)}
    for _ in range(3):  # interleaved, so that clocks move for all alike
        for name, (own, graph, clock) in captured.items():
            found[name].append(clock.milliseconds(lambda own=own, graph=graph: own.launch(graph), repeats))
        for name, (graph, _) in graphs.items():
            found[name].append(bench.torch_milliseconds(graph, torch, repeats))
    times = {name: statistics.median(values) for name, values in found.items()}
    _, ready, clock = captured["ours"]
    times["queued"] = clock.milliseconds(lambda: stage.launch(ready), 20, inner=20)
    if layers:
        show_layers(network, stage, ((n, h, w, c),), arch)
    return {**times, "host": host_cost(stage, ready)}


def check_shares(network: Any, arch: str, repeats: int) -> tuple[float, list[str]]:
    """Return the difference of results by share of SMs (0 unless work is lost) and one line per share with its time.

    The last line is two stages at once, each on SMs of its own.
    """
    weights = bench.random_weights(network)
    whole, _ = bench.stage_of(network, weights, arch)
    n, c, h, w = whole.inputs[0].shape
    x = np.random.default_rng(9).normal(size=(n, h, w, c)).astype(np.float16)
    expected, worst, lines = whole(x), 0.0, []

    def ready_on(sms: int) -> tuple[Any, Any]:
        stage = GpuStage(replace(whole.artifact, share=sms))
        ready = stage.captured(x.shape)
        ready.inputs[0].copyfrom(x)
        return stage, ready

    def difference(ready: Any) -> float:
        found = zip(ready.outputs, expected, strict=True)
        return max(float(np.abs(t.numpy().astype(np.float32) - e.astype(np.float32)).max()) for t, e in found)

    for sms in (0, 56, 32, 16, 8):
        stage, ready = ready_on(sms)
        time_ms = queued([(stage, ready)], repeats)
        worst = max(worst, difference(ready))
        lines.append(f"{network.name} on {getattr(stage._stream, 'sms', 'all')} SMs: {time_ms:.4f} ms")
        del stage, ready
        gc.collect()
    pair = [ready_on(56), ready_on(56)]
    both = queued(pair, repeats)
    worst = max(worst, *(difference(ready) for _, ready in pair))
    lines.append(f"two at once on 56 SMs each: {both:.4f} ms a pair")
    return worst, lines


def queued(stages: list[tuple[Any, Any]], repeats: int, deep: int = 20) -> float:
    """Return the wall-clock time in ms of one launch of every stage, `deep` in a row, the median of `repeats`."""
    found = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        for _ in range(deep):
            for stage, ready in stages:
                stage.launch(ready)
        for stage, _ in stages:
            stage.synchronize()
        found.append((time.perf_counter() - start) / deep * 1e3)
    return statistics.median(found[2:])


def show_layers(network: Any, stage: Any, shapes: Any, arch: str) -> None:
    """Print every kernel of a stage with its time alone and its share of the products' work."""
    graph = fuse_network(network)
    zeros = {name: np.zeros(shape, np.float32) for name, shape in network.params.items()}
    products = {
        f"conv_{s.key.replace(' ', '_').replace('-', '_')}": (s, t) for s, t in lower(graph, zeros, arch).products
    }
    print(f"\n{network.name}: kernels alone, twenty launches a graph")
    total = 0.0
    for name, microseconds in bench.kernel_times(stage, shapes):
        total += microseconds
        known = products.get(name) or products.get(name.rstrip("0123456789"))
        rate = f"{2e-6 * known[0].m * known[0].n * known[0].k / microseconds:6.0f} TFLOP/s" if known else ""
        print(f"  {microseconds:8.2f} us {rate:15} {name} {known[1] if known else ''}")
    print(f"  {total:8.2f} us in all", flush=True)


def check(networks: dict[str, Any], arch: str) -> list[tuple[str, float, str]]:
    """Return (stage, error, remark) of every stage against PyTorch in fp32, and of four stages run at once."""
    checks = [("pfn", check_pillars(arch), ""), ("scatter", check_scatter(arch), "")]
    with torch.no_grad():
        checks += [(name, *check_images(network, arch)) for name, network in networks.items()]
    return [*checks, ("together", check_together(arch), "four stages at once, bit for bit")]


def main() -> int:
    """Check, measure, and print the table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--layers", action="store_true", help="print a line per kernel")
    parser.add_argument("--shares", action="store_true", help="also run on some of the SMs")
    parser.add_argument("--int8", action="store_true", help="compare int8 with fp16 and PyTorch, nothing else")
    parser.add_argument("--autotune", action="store_true", help="also compare with torch.compile's max-autotune")
    parser.add_argument("--only", choices=tuple(BARS), help="compare one network and skip the checks")
    args = parser.parse_args()
    if args.int8:
        from tools.bench import gpu_int8

        gpu_int8.compare(gpu_int8.built(gpu_int8.large_cases(), args.arch), args.arch, args.repeats, args.layers)
        return 0
    if not tvm.cuda(0).exist:
        print("no CUDA device: TVM sees no GPU (driver, libcudart.so.13)", file=sys.stderr)
        return 3
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    failed: list[str] = []
    networks = {"backbone": backbone_network(), "head": head_network(), "pointpillars": bench.pointpillars()}
    networks["resnet50"] = bench.resnet50()
    for name, worst, note in () if args.only else check(networks, args.arch):
        failed += [f"{name}: error"] if not worst <= TOLERANCE else []
        print(f"{name:14} error {worst:.1e}  {'ok' if worst <= TOLERANCE else 'WRONG'}  {note}", flush=True)
    if args.shares:
        for name in BARS:
            worst, lines = check_shares(networks[name], args.arch, args.repeats)
            print("\n".join([*lines, f"largest difference between shares {worst:.1e}"]), flush=True)
            failed += [f"{name}: shares' results differ"] if worst else []
    rows = []
    for name, bar in BARS.items():
        if args.only not in (None, name):
            continue
        times = compare(networks[name], args.arch, args.repeats, args.layers, args.autotune)
        ratio = times["ours"] / times["torch"]
        failed += [f"{name}: ratio"] if ratio > bar else []
        failed += [f"{name}: host cost"] if times["host"] > HOST_US else []
        rows.append((name, times, ratio, bar))
    print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, fp16, batch 1, ms")
    peers = [name for name in ("mma.sync", "queued", "torch", "fused", "autotuned") if name in rows[0][1]]
    print(f"{'network':14}{'ours':>10}" + "".join(f"{name:>11}" for name in peers) + "   ratio   bar /fused  host us")
    for name, t, ratio, bar in rows:
        line = "".join(f"{t[peer]:11.4f}" for peer in peers)
        print(f"{name:14}{t['ours']:10.4f}{line}{ratio:8.3f}{bar:6.2f}{t['ours'] / t['fused']:7.3f}{t['host']:9.2f}")
    print("failed: " + ", ".join(failed) if failed else "all bars met")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
