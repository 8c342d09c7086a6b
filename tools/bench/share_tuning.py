"""Tune a network's convolutions for the cores they get, and compare at k cores: tuned for k, for all, by the rules.

    python -m tools.bench.share_tuning [--stage detect] [--shares 1,2,4] [--size 192x320] [--write FOLDER]
    python -m tools.bench.share_tuning --tables FOLDER

Every layer is compiled on its own in each way worth trying (`cpu.share_tuning.candidates`) and measured with k threads,
caches swept before each call; the fastest goes into the table of that share.  Then the whole network is compiled with
the table of every share and run in turn with k threads, so that all variants see the same noise; printed are first
quartiles, their ratio, and the median of the ratio within a round.  --gpu prints what the model of GPU tiles chooses
by SMs instead.

Spatial-Tune (Dhakal et al., arXiv 2008.03602): a kernel tuned for the whole processor is not the best for a share.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.builder import compile_stage
from socsched.compiler.environment import online_cores, relax, tvm
from socsched.compiler.loading.aligned import empty
from socsched.compiler.loading.stages import load as load_artifact
from socsched.compiler.target import resolve
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import vector_unit
from socsched.compiler.targets.llvm.shapes import Window
from socsched.compiler.targets.llvm.share_tuning import Choice, Layer, Tuning, candidates, load, save
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Stage
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer as NetworkLayer
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights

CORES = online_cores()
SWEEP = np.zeros(16 << 20, np.float32)  # 64 MB


def main() -> None:
    """Tune, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default="camera-detection")
    parser.add_argument("--stage", default="detect")
    parser.add_argument("--size", default="192x320", help="input of a camera network, HEIGHTxWIDTH")
    parser.add_argument("--shares", default=f"1,2,{CORES}")
    parser.add_argument("--repeat", type=int, default=7, help="timed calls of a candidate")
    parser.add_argument("--rounds", type=int, default=21, help="timed rounds of the whole network")
    parser.add_argument("--write", type=Path, help="folder for the tables")
    parser.add_argument("--tables", type=Path, help="folder with tables written before: compare only")
    parser.add_argument("--tune-only", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="what the model of GPU tiles chooses by SMs")
    options = parser.parse_args()
    stage = _stage(options.pipeline, options.stage, options.size)
    shares = sorted({int(text) for text in options.shares.split(",")})
    if options.gpu:
        gpu_tiles(stage)
        return
    if options.tables:
        tables = {k: load(options.tables / f"{options.stage}-{k}.json") for k in shares}
    else:
        tables = tuned(stage, shares, options.repeat)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        for k, table in tables.items():
            save(table, options.write / f"{options.stage}-{k}.json")
    if not options.tune_only:
        compared(stage, tables, options.rounds)


def _stage(pipeline: str, name: str, size: str) -> Stage:
    from dataclasses import replace

    stage = get_pipeline(pipeline).stage(name)
    if "input_height" in stage.params or stage.model == "camera.detector":
        height, width = map(int, size.split("x"))
        stage = replace(stage, params={**stage.params, "input_height": height, "input_width": width})
    return replace(stage, precisions=("fp32",), costs=())


def layers_of(stage: Stage) -> dict[str, tuple[Layer, int]]:
    """Return the different convolutions of a network with how often each occurs."""
    network = get_model(stage.model or "", stage.params).network
    assert network is not None
    graph = fuse_network(network())
    found: dict[str, tuple[Layer, int]] = {}
    for group in graph.groups:
        if group.kind != "conv2d" or int(group.attrs["groups"]) > 1 or len(graph.values[group.inputs[0]].shape) != 4:
            continue
        a = {key: int(value) for key, value in group.attrs.items()}
        window = Window((a["kernel_h"], a["kernel_w"]), (a["stride_h"], a["stride_w"]), (a["pad"], a["pad"]))
        _, channels, *_ = graph.values[group.inputs[0]].shape
        _, outputs, rows, columns = graph.values[group.output].shape
        layer = Layer(channels, outputs, rows, columns, window)
        found[layer.key] = (layer, found.get(layer.key, (layer, 0))[1] + 1)
    return found


def tuned(stage: Stage, shares: list[int], repeat: int) -> dict[int, Tuning]:
    """Return the fastest choices of every share; each candidate is compiled once and measured at all of them."""
    spec = resolve({"kind": "llvm", "host": True})
    vector = vector_unit(spec)
    best: dict[int, dict[str, Choice]] = {k: {} for k in shares}
    for key, (layer, count) in layers_of(stage).items():
        in_block = vector.block if layer.inputs % vector.block == 0 else layer.inputs
        ways: list[Choice | None] = [None, *candidates(layer, vector, in_block)]
        runs = [single(layer, way, dict(spec.tvm), vector) for way in ways]
        shown = []
        for k in shares:
            times = measured(runs, k, repeat)
            order = sorted(range(len(ways)), key=times.__getitem__)
            chosen = ways[order[0]]
            # Within the noise of one another the rules' own choice stays.
            if chosen is not None and times[order[0]] < 0.98 * times[0]:
                best[k][key] = chosen
            shown.append(f"{k}: {times[0] * 1e6:.0f} -> {min(times) * 1e6:.0f} us {_describe(best[k].get(key))}")
        print(f"{key:32} x{count}  {len(ways)} ways  " + "   ".join(shown), flush=True)
    return {k: Tuning(k, choices) for k, choices in best.items()}


def _describe(choice: Choice | None) -> str:
    if choice is None:
        return "(rules)"
    if choice.winograd:
        return f"(F{choice.winograd}, x{choice.together or 1})"
    parts = f", {choice.parts} parts" if choice.parts else ""
    return f"({choice.pixels}x{choice.blocks}{parts}{', rows first' if choice.rows_first else ''})"


def single(layer: Layer, choice: Choice | None, llvm: dict[str, Any], vector: Any) -> Any:
    """Return a call that runs one convolution with ReLU on its own."""
    window = layer.window
    (kh, kw), (sh, sw), (ph, pw) = window.kernel, window.stride, window.pad
    rows, columns = (layer.rows - 1) * sh + kh - 2 * ph, (layer.columns - 1) * sw + kw - 2 * pw
    attrs = {"stride": (sh, sw), "padding": (ph, pw, ph, pw)}
    layers = (
        NetworkLayer("conv", "conv2d", ("x",), {"weight": "w", "bias": "b"}, attrs),
        NetworkLayer("relu", "relu", ("conv",)),
    )
    params = {"w": (layer.outputs, layer.inputs, kh, kw), "b": (layer.outputs,)}
    source = TensorType((1, layer.inputs, rows, columns), "fp32", "NCHW")
    network = Network("single", {"x": source}, layers, ("relu",), params)
    tuning = Tuning(1, {layer.key: choice}) if choice is not None else None
    lowered = lower(fuse_network(network), draw_weights(network, 0), vector, tuning)
    machine = relax.VirtualMachine(relax.build(lowered.module, target=tvm.target.Target(llvm)), tvm.cpu())
    array = empty(_physical(lowered.inputs[0]), np.dtype(np.float32))
    array.fill(0.5)
    given = tvm.runtime.from_dlpack(array)
    run = machine["main"]
    return lambda: run(given)


def _physical(tensor: TensorType) -> tuple[int, ...]:
    from socsched.compiler.layouts import physical_shape

    return tuple(physical_shape(tensor))


def measured(runs: list[Any], threads: int, repeat: int) -> list[float]:
    """Return the median time (s) of each call, in turns, caches swept before every one."""
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for number, run in enumerate(runs):
            SWEEP.sum()
            start = time.perf_counter()
            run()
            times[number].append(time.perf_counter() - start)
    return [_typical(each[1:]) for each in times]


def _typical(times: list[float]) -> float:
    """Return the first quartile: what others do on the machine only ever adds."""
    return float(np.percentile(times, 25))


def compared(stage: Stage, tables: dict[int, Tuning], rounds: int) -> None:
    """Print what the whole network takes at k cores, tuned for each share and by the rules."""
    engine = get_platform("host").engines[0]
    shares = sorted(tables)
    whole = max(shares)
    variants: dict[str, Any] = {"rules": load_artifact(compile_stage(stage, engine, "fp32", threads=1))}
    for k in shares:
        made = compile_stage(stage, engine, "fp32", threads=1, share=min(k, engine.units), tuning=tables[k])
        variants[f"tuned for {k}"] = load_artifact(made)
    shape = variants["rules"].inputs[0]
    image = np.random.default_rng(0).normal(size=_physical(shape)).astype(np.float32)
    print(f"\n{stage.name}, {CORES} cores here, {rounds} rounds, first quartiles (ms); gain over tuned for {whole}:")
    for k in shares:
        for run in variants.values():
            run(image)
        tvm.get_global_func("runtime.config_threadpool")(1, k)
        seen: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(rounds):
            names = list(variants)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                start = time.perf_counter()
                variants[name](image)
                seen[name].append(time.perf_counter() - start)
        base = seen[f"tuned for {whole}"]
        shown = [
            f"{name} {_typical(times) * 1e3:.2f} (x{_typical(base) / _typical(times):.3f}, in a round "
            f"x{float(np.median(np.array(base) / np.array(times))):.3f})"
            for name, times in seen.items()
        ]
        print(f"  at {k} cores: " + ", ".join(shown), flush=True)
    first = np.asarray(variants["rules"](image)[0])
    for name, run in variants.items():
        error = float(np.abs(np.asarray(run(image)[0]) - first).max() / np.abs(first).max())
        print(f"  {name}: results differ by {error:.1e} of the largest")


def gpu_tiles(stage: Stage, arch: str = "sm_87") -> None:
    """Print which tiles the model of an SM chooses for all SMs and for shares, and the modelled gain at the share."""
    from dataclasses import replace

    from socsched.compiler.targets.cuda import tiles
    from socsched.compiler.targets.cuda.shapes import Convolution

    network = get_model(stage.model or "", stage.params).network
    assert network is not None
    whole = tiles.GPUS[tiles.capability(arch)]
    for key, (layer, _) in layers_of(stage).items():
        (kh, _), (sh, _), (ph, _) = layer.window.kernel, layer.window.stride, layer.window.pad
        rows, columns = (layer.rows - 1) * sh + kh - 2 * ph, (layer.columns - 1) * sh + kh - 2 * ph
        shape = _convolution(Convolution, layer, rows, columns, kh, sh, ph)
        shown = []
        base = None
        for sms in (whole.sms, whole.sms // 2, whole.sms // 4):
            tiles.GPUS[tiles.capability(arch)] = replace(whole, sms=sms)
            tiles.fastest_tile.cache_clear()
            chosen = tiles.fastest_tile(shape, arch)
            base = base or chosen
            gain = tiles.estimate(shape, base, arch) / tiles.estimate(shape, chosen, arch)
            shown.append(f"{sms} SMs {chosen.rows}x{chosen.columns}x{chosen.depth}/{chosen.splits} (x{gain:.3f})")
        tiles.GPUS[tiles.capability(arch)] = whole
        tiles.fastest_tile.cache_clear()
        print(f"{key:32} " + ", ".join(shown), flush=True)


def _convolution(kind: Any, layer: Layer, rows: int, columns: int, kernel: int, stride: int, pad: int) -> Any:
    channels = -(-layer.inputs // 8) * 8
    return kind(rows, columns, channels, -(-layer.outputs // 16) * 16, kernel, kernel, stride, pad)


if __name__ == "__main__":
    main()
