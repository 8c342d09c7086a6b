"""int8 on the GPU for the tools: networks to check, stages built in parallel, and times against fp16 and PyTorch."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.stages import load
from socsched.compiler.pipeline import compile_network
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.network import quantise
from socsched.compiler.quantize.scales import FILE, Scales, read_scales
from socsched.compiler.target import Build, Compilation, resolve
from socsched.compiler.targets.cuda import target as cuda
from socsched.compiler.targets.cuda.runtime import GpuStage
from socsched.compiler.targets.llvm import target as llvm
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.network import CHANNELS, NX, NY, scatter_network
from tests.compiler import gpu_networks, int8_networks
from tests.compiler import int8_reference as reference
from tools.bench import gpu_common as bench

Array = np.ndarray[Any, Any]
HOST = {"kind": "llvm", "host": True}


@dataclass(frozen=True)
class Case:
    """A network with weights; `signed`: inputs that may be negative; with scales None the network is calibrated.

    `calibrated` is the network whose scales are taken, if not its own.
    """

    name: str
    network: Network
    weights: Mapping[str, Array]
    signed: Mapping[str, bool] | None = None
    calibrated: Network | None = None

    @property
    def chosen(self) -> Scales | None:
        """Scales that use all of the range, where the case is a small one."""
        if self.signed is None:
            return None
        return Scales(int8_networks.scales_of(fuse_network(self.network), self.signed))


def small_cases() -> list[Case]:
    """Return networks that take every int8 rule, over shapes that fill tiles and that do not."""
    conv, transposed = int8_networks.conv, int8_networks.transposed
    networks: dict[str, tuple[Network, Mapping[str, bool]]] = {
        "3x3, unsigned": (conv(64, 64, 33, 41, 3, 1, 1, True), {"x": False}),
        "3x3, signed": (conv(64, 64, 33, 41, 3, 1, 1, True), {"x": True}),
        "3x3 stride 2": (conv(64, 128, 40, 36, 3, 2, 1, False), {"x": False}),
        "1x1, odd channels": (conv(40, 18, 23, 29, 1, 1, 0, True), {"x": True}),
        "3 channels, 7x7": (conv(3, 64, 61, 53, 7, 2, 3, True), {"x": True}),
        "5x5": (conv(24, 80, 17, 19, 5, 1, 2, True), {"x": False}),
        "split sums": (conv(512, 64, 7, 7, 3, 1, 1, True), {"x": False}),
        "transposed 2x2": (transposed(64, 32, 13, 21, (2, 2, 0)), {"x": False}),
        "transposed 4x4 by 2": (transposed(48, 24, 13, 21, (4, 2, 1)), {"x": True}),
        "residual block": (int8_networks.residual_block(), {}),
        "pyramid": (gpu_networks.pyramid(48, 56), {"x": False}),
    }
    return [Case(name, net, int8_networks.weights_of(net), signed) for name, (net, signed) in networks.items()]


def large_cases() -> list[Case]:
    """Return PointPillars, from the canvas and from the pillars, and ResNet-50 at full size."""
    networks = (bench.pointpillars(), bench.resnet50())
    cases = [Case(network.name, network, bench.random_weights(network)) for network in networks]
    return [cases[0], from_pillars(), cases[1]]


def from_pillars() -> Case:
    """Return PointPillars from the pillars' features on: the scatter in front of the network."""
    network, scatter = bench.pointpillars(), scatter_network()
    whole = replace(network, name="from pillars", inputs=scatter.inputs, layers=(*scatter.layers, *network.layers))
    return Case(whole.name, whole, bench.random_weights(network), None, network)


def drawn(network: Network, seed: int, pillars: int = 6000) -> dict[str, Array]:
    """Return inputs of a network: normal values, and different cells of the grid."""
    generator = np.random.default_rng(seed)
    cells = generator.permutation(NX * NY)[:pillars]
    found = {}
    for name, kind in network.inputs.items():
        shape = tuple(pillars if size < 0 else size for size in kind.shape)
        values = generator.standard_normal(shape).astype(np.float32)
        found[name] = values if kind.dtype == "fp32" else np.stack([cells % NX, cells // NX], 1).astype(np.int32)
    return found


def built(cases: list[Case], arch: str) -> list[tuple[Case, Artifact, float]]:
    """Build cases in parallel, each in a process of its own; return them with their artefacts and seconds."""
    jobs = [(case, arch, Path(tempfile.mkdtemp())) for case in cases]
    with multiprocessing.get_context("fork").Pool(min(len(jobs), os.cpu_count() or 1)) as pool:
        return list(zip(cases, *zip(*pool.map(_build, jobs, chunksize=1), strict=True), strict=True))


def _build(job: tuple[Case, str, Path]) -> tuple[Artifact, float]:
    import time

    case, arch, folder = job
    network = case.calibrated or case.network
    scales = case.chosen or calibrate(network, case.weights, seeded_samples(network))
    start = time.perf_counter()
    asked = Build(folder, case.network, case.weights, resolve(bench.target(arch)), "int8", scales)
    return _artifact(compile_network(asked, cuda.TARGET), "cuda"), time.perf_counter() - start


def _artifact(found: Compilation, target: str) -> Artifact:
    network, folder, precision = found.asked.network, found.asked.folder, found.asked.precision
    return Artifact(
        *(network.name, network.name, "engine", "gpu" if target == "cuda" else "cpu", target, "", precision, 0, ""),
        *(folder, found.files, tuple(network.inputs), found.inputs, network.outputs, found.outputs),
        *("seeded", target != "cuda"),
        notes=found.notes,
    )


def plain(tensor: TensorType) -> TensorType:
    """Return a tensor in the layout of the network's definition."""
    return TensorType(tensor.shape, tensor.dtype, "NCHW" if len(tensor.shape) == 4 else "")


def on(stage: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """Return a loaded stage's outputs in plain layout."""
    named = zip(stage.artifact.input_names, stage.inputs, strict=True)
    given = [convert(inputs[name], plain(t), t) for name, t in named]
    found = stage(*(np.ascontiguousarray(array) for array in given))
    return [convert(array, t, plain(t)) for array, t in zip(found, stage.outputs, strict=True)]


def expected(case: Case, artifact: Artifact) -> tuple[dict[str, Array], list[Array], str]:
    """Return inputs, what they must give, and whose word it is: the numpy definition's or this host's int8 code's."""
    scales = read_scales(artifact.folder / FILE)
    if case.signed is not None:
        q = quantise(fuse_network(case.network), case.weights, scales)
        inputs = int8_networks.full_range(case.network, q)
        return inputs, list(reference.outputs(q, inputs)), "numpy"
    inputs, network, given = drawn(case.network, 7), case.network, {}
    if case.calibrated:  # the host's code starts at the canvas
        network = case.calibrated
        canvas = np.zeros((NY * NX, CHANNELS), np.float32)
        canvas[inputs["coords"][:, 1] * NX + inputs["coords"][:, 0]] = inputs["features"]
        given = {next(iter(network.inputs)): canvas.T.reshape(1, CHANNELS, NY, NX)}
    return inputs, on_processor(network, case.weights, given or inputs, scales), "host"


def on_processor(
    network: Network, weights: Mapping[str, Array], inputs: Mapping[str, Array], scales: Scales | None = None
) -> list[Array]:
    """Return a network's outputs on this machine's processor: in int8 with `scales`, else in fp32."""
    asked = Build(Path(tempfile.mkdtemp()), network, weights, resolve(HOST), "int8" if scales else "fp32", scales)
    return on(load(_artifact(compile_network(asked, llvm.TARGET), "llvm")), inputs)


@dataclass(frozen=True)
class Difference:
    """How many of all results differ, and by how much of the largest at most."""

    count: int
    size: int
    largest: float


def difference(found: list[Array], wanted: list[Array]) -> Difference:
    """Compare outputs bit by bit."""
    count = sum(int(np.count_nonzero(a != b)) for a, b in zip(found, wanted, strict=True))
    largest = max(
        float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-30))
        for a, b in zip(found, wanted, strict=True)
    )
    return Difference(count, sum(b.size for b in wanted), largest)


def times(case: Case, artifact: Artifact, arch: str, repeats: int, torch: Any) -> dict[str, float]:
    """Return ms of a network in int8 and in fp16 here, and in PyTorch, in turns."""
    stages = {"int8": GpuStage(artifact), "fp16": bench.stage_of(case.network, case.weights, arch)[0]}
    ready, given = {}, drawn(case.network, 9)
    for name, stage in stages.items():
        placed = [convert(given[n], plain(t), t) for n, t in zip(case.network.inputs, stage.inputs, strict=True)]
        ready[name] = stage.captured(*(array.shape for array in placed))
        for tensor, array, kind in zip(ready[name].inputs, placed, stage.inputs, strict=True):
            tensor.copyfrom(np.ascontiguousarray(array.astype(NUMPY_DTYPES[kind.dtype])))
    forward = bench.torch_forward(case.network, case.weights, torch, torch.float16)
    tensors = [torch.tensor(a, device="cuda") for a in given.values()]
    tensors = [t.half() if t.is_floating_point() else t for t in tensors]
    tensors = [t.to(memory_format=torch.channels_last) if t.dim() == 4 else t for t in tensors]
    with torch.no_grad():
        graph = bench.graph_of(lambda: forward(*tensors), torch)

    def clocked(name: str) -> Callable[[], float]:
        clock = bench.Clock(stages[name]._stream)
        return lambda: clock.milliseconds(lambda: stages[name].launch(ready[name]), repeats)

    clocks = {name: clocked(name) for name in stages}
    clocks["torch"] = lambda: bench.torch_milliseconds(graph, torch, repeats)
    found: dict[str, list[float]] = {name: [] for name in clocks}
    for _ in range(3):  # interleaved, so that clocks move for all alike
        for name, measure in clocks.items():
            found[name].append(measure())
    return {name: statistics.median(values) for name, values in found.items()}


def compare(cases: list[tuple[Case, Artifact, float]], arch: str, repeats: int, layers: bool) -> None:
    """Measure networks in turns, and print the table last."""
    import torch

    torch.backends.cudnn.benchmark = True
    rows = []
    for case, artifact, _ in cases:
        rows.append((case.name, times(case, artifact, arch, repeats, torch)))
        if layers:
            print(f"\n{case.name} in int8: kernels alone, twenty launches a graph")
            kernels_alone(case, artifact, arch)
    print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, batch 1, CUDA graphs, ms")
    print(f"{'network':14}{'int8':>9}{'fp16':>9}{'PyTorch':>9}{'/fp16':>8}{'/PyTorch':>10}")
    for name, t in rows:
        ratios = (t["int8"] / t[other] for other in ("fp16", "torch"))
        print(
            f"{name:14}{t['int8']:9.4f}{t['fp16']:9.4f}{t['torch']:9.4f}"
            + "".join(f"{ratio:{width}.3f}" for ratio, width in zip(ratios, (8, 10), strict=True))
        )


def kernels_alone(case: Case, artifact: Artifact, arch: str) -> None:
    """Print every kernel of an int8 stage with its time alone and its share of the products' work."""
    from socsched.compiler.targets.cuda.int8_lower import lower_int8

    network, weights, scales = case.network, case.weights, read_scales(artifact.folder / FILE)
    q = quantise(fuse_network(network), weights, scales)
    named = {
        f"conv_{shape.key.replace(' ', '_').replace('-', '_')}": (shape, tile)
        for shape, tile in lower_int8(q, weights, arch, bound=False).products
    }
    shapes = tuple(
        convert(array, plain(t), t).shape for array, t in zip(drawn(network, 9).values(), artifact.inputs, strict=True)
    )
    total = 0.0
    for name, microseconds in bench.kernel_times(GpuStage(artifact), shapes):
        total += microseconds
        known = named.get(name) or named.get(name.rstrip("0123456789"))
        rate = f"{4e-6 * known[0].m * known[0].n * known[0].k / microseconds:6.0f} TOP/s" if known else ""
        print(f"  {microseconds:8.2f} us {rate:13} {name} {known[1] if known else ''}")
    print(f"  {total:8.2f} us in all", flush=True)
