"""Compare blocks of transformers in fp16 with PyTorch on a GPU: right first, then how fast.

    python -m tools.bench.gpu_transformer prepare FOLDER [--arch sm_90a]     with nvcc; no GPU needed
    python3 tools/bench/gpu_transformer.py run FOLDER [--layers]             with a GPU and PyTorch; no socsched needed

A block is layer norm, attention, layer norm and two dense layers with GELU, pre-norm, both with a residual, batch 1.
`run` loads the launch list through the driver as the native executor does, and compares it with PyTorch in fp32
(relative to the largest output).  Times are medians of CUDA graph replays, twenty in a row, in turns: PyTorch as
written (`scaled_dot_product_attention`), and torch.compile's max-autotune.  Exit code 1 when a result is wrong, 3
without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BLOCKS = {
    "vit-b/16 at 224": (197, 768, 12),
    "bert-base at 384": (384, 768, 12),
    "decoder of 900 queries": (900, 256, 8),
}
"""Rows, width, heads; the dense layers are four times as wide."""
TOLERANCE = 1e-2
PARAMS = "params.json"


def network(rows: int, width: int, heads: int) -> Any:
    """Return a block as a network."""
    from socsched.graph.network import Layer, Network
    from socsched.graph.operators import TensorType

    layers: list[Any] = []
    params: dict[str, tuple[int, ...]] = {"root": (), "two": (), "one": (), "half": ()}

    def layer(name: str, op: str, *inputs: str, weights: dict[str, str] | None = None, **attrs: Any) -> str:
        layers.append(Layer(name, op, inputs, weights or {}, attrs))
        return name

    def norm(name: str, x: str) -> str:
        params.update({f"{name}.scale": (width,), f"{name}.shift": (width,)})
        own = {"scale": f"{name}.scale", "shift": f"{name}.shift"}
        return layer(name, "layer_norm", x, weights=own, axis=2, epsilon=1e-6)

    def dense(name: str, x: str, inputs: int, outputs: int) -> str:
        params.update({f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)})
        return layer(name, "dense", x, weights={"weight": f"{name}.weight", "bias": f"{name}.bias"})

    def number(name: str, op: str, x: str, value: str) -> str:
        return layer(name, op, x, weights={"constant": value})

    n = norm("n1", "x")
    parts = []
    for name, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        y = layer(f"{name}4", "reshape", dense(name, n, width, width), shape=(1, rows, heads, width // heads))
        parts.append(layer(f"{name}h", "transpose", y, order=order))
    scores = number("scaled", "divide", layer("qk", "matmul", *parts[:2]), "root")
    mixed = layer("pv", "matmul", layer("p", "softmax", scores, axis=3), parts[2])
    joined = layer("joined", "reshape", layer("back", "transpose", mixed, order=(0, 2, 1, 3)), shape=(1, rows, width))
    x = layer("r1", "add", dense("o", joined, width, width), "x")
    h = dense("up", norm("n2", x), width, 4 * width)
    gate = number("moved", "add", layer("erf", "erf", number("inner", "divide", h, "two")), "one")
    h = number("gelu", "multiply", layer("gated", "multiply", h, gate), "half")
    y = layer("r2", "add", dense("down", h, 4 * width, width), x)
    return Network("block", {"x": TensorType((1, rows, width), "fp32")}, tuple(layers), (y,), params)


def draw(params: Mapping[str, Any], heads: int, width: int) -> dict[str, Any]:
    """Return weights of variance 1 / fan-in, norms near one, and the block's numbers."""
    generator = np.random.default_rng(7)
    found = {"root": np.float32((width // heads) ** 0.5), "two": np.float32(2**0.5), "one": np.float32(1)}
    found["half"] = np.float32(0.5)
    for name, shape in params.items():
        if len(shape) == 2:
            found[name] = generator.normal(0, shape[1] ** -0.5, shape).astype(np.float16).astype(np.float32)
        elif shape:
            found[name] = generator.normal(float(name.endswith("scale")), 0.1, shape).astype(np.float32)
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def prepare(folder: Path, arch: str) -> int:
    """Compile the blocks into the folder."""
    import tempfile

    from socsched.compiler.artifact import Artifact
    from socsched.compiler.pipeline import compile_network
    from socsched.compiler.target import Build, resolve
    from socsched.compiler.targets.cuda.target import TARGET
    from socsched.compiler.targets.cuda.toolkits import toolkits
    from socsched.executor.gpu_programs import build_program, copy_programs, store

    target = {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}
    folder.mkdir(parents=True, exist_ok=True)
    for number, (title, (rows, width, heads)) in enumerate(BLOCKS.items()):
        made = network(rows, width, heads)
        weights = draw(made.params, heads, width)
        with tempfile.TemporaryDirectory() as scratch:
            built = compile_network(Build(Path(scratch), made, weights, resolve(target), "fp16"), TARGET)
            ports = (tuple(made.inputs), built.inputs, made.outputs, built.outputs)
            artifact = Artifact(
                *(title, title, "gpu", "gpu", "cuda", "", "fp16", 0, "", Path(scratch), built.files), *ports, "", False
            )
            program = store(build_program([artifact], arch))
            copy_programs(program, folder, str(number), toolkits()[:1])
        (folder / str(number) / PARAMS).write_text(json.dumps(made.params))  # weights are drawn again
        print(f"{title}: {'; '.join(built.notes)}")
    return 0


class Program:
    """A launch list loaded through the driver, in PyTorch's context."""

    def __init__(self, folder: Path, torch: Any) -> None:
        self.torch, self.driver = torch, ctypes.CDLL("libcuda.so.1")
        file = next(folder.glob("cuda-*.json"))
        self.document = json.loads(file.read_text())
        self.space = {
            name: torch.zeros(max(self.document[name], 1), dtype=torch.uint8, device="cuda")
            for name in ("memory", "constants", "results")
        }
        data = np.fromfile(folder / self.document["weights"], np.uint8)
        self.space["constants"][: data.size].copy_(torch.from_numpy(data))
        modules = []
        for code in self.document["code"]:
            module = ctypes.c_void_p()
            self.check(self.driver.cuModuleLoadData(ctypes.byref(module), (folder / code).read_bytes()))
            modules.append(module)
        self.launches = []
        for launch in self.document["launches"]:
            function = ctypes.c_void_p()
            name = launch["kernel"].encode()
            self.check(self.driver.cuModuleGetFunction(ctypes.byref(function), modules[launch["code"]], name))
            self.check(self.driver.cuFuncSetAttribute(function, 8, launch["shared"]))
            words = [ctypes.c_ulonglong(self.word(argument)) for argument in launch["arguments"]]
            pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
            self.launches.append((launch, function, words, pointers))

    def check(self, status: int) -> None:
        if status:
            raise SystemExit(f"the driver says {status}")

    def word(self, argument: dict[str, Any]) -> int:
        """Return the bits of an argument."""
        if "value" in argument:
            return int(argument["value"]) & (2**64 - 1)
        return int(self.space[argument["in"]].data_ptr()) + int(argument["offset"])

    def queue(self, only: int | None = None) -> None:
        """Queue the kernels, or one of them, on PyTorch's stream."""
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        for launch, function, _, pointers in self.launches if only is None else [self.launches[only]]:
            sizes = (*launch["grid"], *launch["block"], launch["shared"])
            self.check(self.driver.cuLaunchKernel(function, *map(ctypes.c_uint, sizes), stream, pointers, None))

    def at(self, entry: dict[str, Any], space: str, shape: tuple[int, ...]) -> Any:
        """Return a tensor of the program."""
        part = self.space[space][entry["offset"] : entry["offset"] + entry["bytes"]]
        return part.view(self.torch.float16).view(shape)


def forward(weights: dict[str, Any], heads: int, torch: Any) -> Callable[[Any], Any]:
    """Return the block in PyTorch."""
    f = torch.nn.functional

    def block(x: Any) -> Any:
        rows, width = x.shape[1:]

        def dense(name: str, y: Any) -> Any:
            return f.linear(y, weights[f"{name}.weight"], weights[f"{name}.bias"])

        def norm(name: str, y: Any) -> Any:
            return f.layer_norm(y, (width,), weights[f"{name}.scale"], weights[f"{name}.shift"], 1e-6)

        n = norm("n1", x)
        q, k, v = (dense(name, n).view(1, rows, heads, width // heads).transpose(1, 2) for name in "qkv")
        mixed = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, rows, width)
        x = x + dense("o", mixed)
        return x + dense("down", f.gelu(dense("up", norm("n2", x))))

    return block


def run(folder: Path, layers: bool, repeats: int = 30) -> int:
    """Check and time the blocks."""
    import torch

    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    torch.backends.cuda.matmul.allow_tf32 = False
    failed = False

    def recorded(call: Callable[[], Any], times: int = 1) -> Any:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                call()
        return graph

    def microseconds(graph: Any, inner: int = 20) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(inner):
            graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / inner * 1e3

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, fp16, batch 1, us a block")
    print(f"{'block':24}{'ours':>8}{'torch':>8}{'compiled':>10}  ours/compiled  error")
    for number, (title, (rows, width, heads)) in enumerate(BLOCKS.items()):
        place = folder / str(number)
        drawn = draw(json.loads((place / PARAMS).read_text()), heads, width)
        known = {name: torch.from_numpy(array).half().cuda() for name, array in drawn.items()}
        x = torch.randn(1, rows, width, generator=torch.Generator().manual_seed(number)).half().cuda()
        program = Program(place, torch)
        program.at(program.document["inputs"][0], "memory", (1, rows, width)).copy_(x)
        with torch.no_grad():
            ours = recorded(program.queue)
            ours.replay()
            torch.cuda.synchronize()
            found = program.at(program.document["outputs"][0], "results", (1, rows, width)).float()
            wanted = forward({name: array.float() for name, array in known.items()}, heads, torch)(x.float())
            worst = float((found - wanted).abs().max() / wanted.abs().max())
            block = forward(known, heads, torch)
            compiled = torch.compile(block, mode="max-autotune-no-cudagraphs")
            graphs = {"ours": ours, "torch": recorded(partial(block, x)), "compiled": recorded(partial(compiled, x))}
            times: dict[str, list[float]] = {name: [] for name in graphs}
            for _ in range(repeats):
                for name, graph in graphs.items():
                    times[name].append(microseconds(graph))
        middle = {name: statistics.median(values) for name, values in times.items()}
        failed = failed or not worst <= TOLERANCE
        line = f"{title:24}{middle['ours']:8.1f}{middle['torch']:8.1f}{middle['compiled']:10.1f}"
        print(f"{line}{middle['ours'] / middle['compiled']:11.2f}      {worst:.1e}", flush=True)
        for index, (launch, *_) in enumerate(program.launches if layers else ()):
            alone = recorded(partial(program.queue, index), 20)
            took = statistics.median(microseconds(alone, 5) / 20 for _ in range(5))
            print(f"    {took:7.2f} us  {launch['kernel']} {launch['grid']} {launch['block']}")
    return int(failed)


def main() -> int:
    """Prepare or run, as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--layers", action="store_true", help="print a line per kernel")
    args = parser.parse_args()
    return prepare(args.folder, args.arch) if args.step == "prepare" else run(args.folder, args.layers)


if __name__ == "__main__":
    sys.exit(main())
