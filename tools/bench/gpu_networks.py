"""Exported networks on a GPU, ours against `torch.compile`: compiled here, timed where a GPU is.

    python -m tools.bench.networks --gpu prepare FOLDER [--arch sm_90] [--only vit_s swin_t]    with nvcc and PyTorch
    python3 -m tools.bench.networks --gpu run FOLDER [--seconds 540] [--layers] [--autotune [NAME ...]] [--jobs 8]
        [--rows FILE.jsonl]

`prepare` exports the networks of `network_zoo`, compiles them in fp16 and writes programs (`executor.programs`);
`run` needs a GPU, PyTorch, torchvision and libcuda, not socsched.  Both sides are one CUDA graph each, batch 1, batch
norms folded, weights and inputs the same; peers are channels last and, for the first of them, `torch.compile`'s
default; with --autotune then, in further processes, both that and max-autotune (minutes a network; without names:
all).  So many processes as --jobs says compile peers at a time, on all GPUs; each network is timed alone, once all are
compiled or --seconds have passed.  Times are medians of replays in alternating rounds; --rows keeps them.
The error is the largest difference from PyTorch in fp32, relative to the largest value; `peer` is
that of PyTorch in fp16.
--layers prints our kernels' times.  Exit code 1 for a result that is wrong, 3 without a GPU.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import ctypes
import json
import lzma
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 0.03
SPARE = 30.0
"""Seconds kept for timing what is compiled."""
ROUNDS, REPLAYS = 5, 20


def prepare(folder: Path, arch: str, names: list[str]) -> int:
    """Write the programs of networks into `folder`, a line each; those that do not compile are named."""
    from socsched.errors import SocschedError
    from socsched.executor.programs import build_program
    from socsched.models import onnx_import

    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / f"{name}.onnx"
            export(name, file)
            exported = time.perf_counter()
            try:
                network, weights = onnx_import.load(file)
                artifact = artifact_of(network, weights, arch, Path(scratch))
                program = build_program([artifact], arch)
            except SocschedError as error:
                print(f"{name:16} {error}", flush=True)
                failed += 1
                continue
            document = {key: value for key, value in program.document.items() if key not in ("code", "sources")}
            document |= {
                "name": name,
                "input_layouts": [t.layout for t in artifact.inputs],
                "output_types": [[list(t.shape), t.dtype, t.layout] for t in artifact.outputs],
                "output_names": list(artifact.output_names),
            }
            place = folder / name
            place.mkdir(exist_ok=True)
            (place / "program.json").write_text(json.dumps(document))
            (place / "code.cubin.xz").write_bytes(lzma.compress(artifact.path.read_bytes()))
            (place / "constants.xz").write_bytes(lzma.compress(program.constants, preset=1))
        size = sum(f.stat().st_size for f in place.iterdir()) / 2**20
        took = f"exported in {exported - start:.0f} s, compiled in {time.perf_counter() - exported:.1f} s"
        notes = [note for note in artifact.notes if "slow" in note]
        print(
            f"{name:16} {len(document['launches']):4} launches, {size:.1f} MiB, {took} {'; '.join(notes)}", flush=True
        )
    return int(failed > 0)


def exported(name: str) -> Path:
    """Return where the export of a network is kept."""
    key = zlib.crc32((Path(__file__).parent / "network_zoo.py").read_bytes())
    return Path(tempfile.gettempdir()) / f"socsched-zoo-{key:08x}" / f"{name.replace('/', '-')}.onnx"


def export(name: str, file: Path) -> None:
    """Write a network of `network_zoo`, or copy an earlier export of it."""
    kept = exported(name)
    kept.parent.mkdir(exist_ok=True)
    if not kept.exists():
        from tools.bench import network_zoo

        network_zoo.export(name, file)
        shutil.copyfile(file, kept)
    shutil.copyfile(kept, file)


def target(arch: str) -> dict[str, Any]:
    """Return an engine's target entry for an architecture."""
    return {"kind": "cuda", "arch": arch, "max_threads_per_block": 1024, "thread_warp_size": 32}


def artifact_of(network: Any, weights: Any, arch: str, folder: Path) -> Any:
    """Return a network built in fp16 into `folder`."""
    from socsched.compiler.artifact import Artifact
    from socsched.compiler.pipeline import compile_network
    from socsched.compiler.target import Build, resolve
    from socsched.compiler.targets.cuda.target import TARGET

    made = compile_network(Build(folder, network, weights, resolve(target(arch)), "fp16"), TARGET)
    names = tuple(network.inputs), network.outputs
    return Artifact(
        *(network.name, network.name, "gpu", "gpu", "cuda", "", "fp16", 0, "", folder, made.files),
        *(names[0], made.inputs, names[1], made.outputs, "seeded", False, made.notes),
    )


class Driver:
    """libcuda's calls, in the context that PyTorch has made."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed ({status})")


class Ours:
    """A program loaded into PyTorch's context; `launch` queues its kernels on the current stream."""

    def __init__(self, place: Path, torch: Any, driver: Driver) -> None:
        self.document = json.loads((place / "program.json").read_text())
        code = lzma.decompress((place / "code.cubin.xz").read_bytes())
        constants = lzma.decompress((place / "constants.xz").read_bytes())
        self.torch, self.driver, module = torch, driver, ctypes.c_void_p()
        driver("cuModuleLoadData", ctypes.byref(module), code)
        sizes = {"memory": self.document["memory"], "results": self.document["results"]}
        self.memory = {
            key: torch.zeros(max(size, 256), dtype=torch.uint8, device="cuda") for key, size in sizes.items()
        }
        self.memory["constants"] = torch.frombuffer(bytearray(constants) or bytearray(1), dtype=torch.uint8).cuda()
        self.launches, functions = [], {}
        for launch in self.document["launches"]:
            name = launch["kernel"]
            if name not in functions:
                functions[name] = ctypes.c_void_p()
                driver("cuModuleGetFunction", ctypes.byref(functions[name]), module, name.encode())
                if launch["shared"] > 48 << 10:
                    driver("cuFuncSetAttribute", functions[name], 8, launch["shared"])
            values = [self._argument(argument) for argument in launch["arguments"]]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
            self.launches.append((name, functions[name], launch, values, pointers))

    def _argument(self, argument: dict[str, Any]) -> Any:
        if "value" in argument:
            return ctypes.c_int32(argument["value"])
        return ctypes.c_uint64(self.memory[argument["in"]].data_ptr() + argument["offset"])

    def enqueue(self, launches: Any) -> None:
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        for _, function, launch, _, pointers in launches:
            self.driver(
                "cuLaunchKernel", function, *launch["grid"], *launch["block"], launch["shared"], stream, pointers, None
            )

    def launch(self) -> None:
        self.enqueue(self.launches)

    def set(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        for array, entry, layout in zip(arrays, self.document["inputs"], self.document["input_layouts"], strict=True):
            array = array.transpose(0, 2, 3, 1) if layout == "NHWC" else array
            data = np.ascontiguousarray(array, np.float16).view(np.uint8).reshape(-1)
            start = entry["offset"]
            self.memory["memory"][start : start + data.size] = self.torch.tensor(data).cuda()

    def results(self) -> list[np.ndarray[Any, Any]]:
        found = []
        for entry, (shape, dtype, layout) in zip(self.document["outputs"], self.document["output_types"], strict=True):
            data = self.memory["results"][entry["offset"] : entry["offset"] + entry["bytes"]].cpu().numpy()
            array = data.view(np.float16 if dtype in ("fp16", "fp32") else dtype)
            if layout == "NHWC":
                n, c, h, w = shape
                found.append(array.reshape(n, h, w, c).transpose(0, 3, 1, 2).astype(np.float32))
            else:
                found.append(array.reshape(shape).astype(np.float32))
        return found


def run(args: argparse.Namespace) -> int:
    """Compare and time every program in a folder; print a row each as it is known, those without max-autotune first."""
    end = time.monotonic() + args.seconds  # a cold machine takes half a minute to load PyTorch
    import torch

    if not torch.cuda.is_available():
        print("no GPU", file=sys.stderr)
        return 3
    places = [p for p in args.folder.iterdir() if (p / "program.json").exists()]
    places = [place for place in places if not args.only or place.name in args.only]
    places.sort(key=lambda place: -(place / "program.json").stat().st_size)  # what takes longest to compile first
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, fp16, batch 1, one CUDA graph each, us")
    print(
        f"{'network':16}{'ours':>9}{'default':>9}{'autotune':>9}{'ratio':>7}{'error':>9}{'peer':>9}  kernels",
        flush=True,
    )
    tuned = [p for p in places if args.autotune is not None and (not args.autotune or p.name in args.autotune)]
    rows = _timed(places, False, args, end)
    best = _timed(tuned, True, args, end)
    for peer, known in (("default", rows), ("autotune", best), ("best", best)):
        if ratios := [row["ours"] / row[peer] for row in known if row]:
            mean = float(np.exp(np.mean(np.log(ratios))))
            print(f"ours / {peer}: geometric mean {mean:.3f}, most {max(ratios):.3f} of {len(ratios)}")
    pairs = zip([*places, *tuned], [*rows, *best], strict=True)
    failed = [place.name for place, row in pairs if not row or not row["error"] < TOLERANCE]
    print(f"failed: {', '.join(failed)}" if failed else "all right")
    return int(bool(failed))


def _timed(places: list[Path], autotune: bool, args: argparse.Namespace, end: float) -> list[Any]:
    """Return the networks' rows, None for one that failed or had no time."""
    import torch

    context, gpus = multiprocessing.get_context("spawn"), torch.cuda.device_count()
    compiling, waiting, rows = context.BoundedSemaphore(args.jobs), [], []
    for index, place in enumerate(places):
        os.environ["CUDA_VISIBLE_DEVICES"] = str(index % gpus)  # of the process that starts
        waiting.append(_Timed(context, place, autotune, args.layers and not autotune, compiling))
    for one in waiting:  # all have compiled before the first is timed: nothing else may run then
        one.wait(end - SPARE)
    for one in waiting:
        rows.append(one.result())
        if rows[-1] and args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for one in waiting:
        one.process.kill()
    return rows


class _Timed:
    """A process that compiles a network's peers, says so, and times them when it is its turn."""

    def __init__(self, context: Any, place: Path, autotune: bool, layers: bool, compiling: Any) -> None:
        self.name = place.name
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(place, autotune, layers, compiling, theirs), daemon=False)
        self.process.start()
        theirs.close()

    def wait(self, end: float) -> None:
        """Wait until its peers are compiled, or end it where that takes too long."""
        if not self.pipe.poll(max(end - time.monotonic(), 0)):
            self.process.kill()
            print(f"{self.name:16} no time left", flush=True)

    def result(self) -> dict[str, Any] | None:
        """Let it time, and return its row; None where it failed."""
        try:
            if self.pipe.recv() is not None:
                self.pipe.send(True)
                return self.pipe.recv()
        except (EOFError, OSError):
            pass  # it has ended
        return None


def _serve(place: Path, autotune: bool, layers: bool, compiling: Any, pipe: Any) -> None:
    import torch

    from tools.bench import network_zoo

    try:
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        with compiling:
            torch.zeros(1).cuda()
            driver = Driver()
            time_them = _compared(place, torch, driver, network_zoo, autotune, layers)
        pipe.send(True)
        pipe.recv()
        pipe.send(time_them())
    except Exception as error:
        print(f"{place.name:16} failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
        pipe.send(None)


def _compared(place: Path, torch: Any, driver: Driver, zoo: Any, autotune: bool, layers: bool) -> Any:
    """Compile a network's peers and return what times them and ours."""
    name, arrays = place.name, zoo.inputs(place.name)
    ours = Ours(place, torch, driver)
    ours.set(arrays)
    graphs = {"ours": _graph(ours.launch, torch)}
    graphs["ours"].replay()
    torch.cuda.synchronize()
    found = ours.results()
    with torch.no_grad():
        exact = _tuple(zoo.module(name).cuda()(*(torch.tensor(a).cuda() for a in arrays)))
        half = zoo.module(name).cuda().half().to(memory_format=torch.channels_last)
        given = [torch.tensor(a).cuda().half() for a in arrays]
        given = [g.contiguous(memory_format=torch.channels_last) if g.dim() == 4 else g for g in given]
        peers = {"default": torch.compile(half, dynamic=False)}
        if autotune:
            peers["autotune"] = torch.compile(half, dynamic=False, mode="max-autotune-no-cudagraphs")
        for peer, compiled in peers.items():
            start = time.monotonic()
            graphs[peer] = _graph(lambda compiled=compiled: compiled(*given), torch)
            print(f"# {name} {peer}: {time.monotonic() - start:.0f} s to compile", file=sys.stderr, flush=True)
        peer_error = _error([t.float().cpu().numpy() for t in _tuple(half(*given))], exact)

    def timed() -> dict[str, Any]:
        times = {key: [] for key in graphs}
        for _ in range(ROUNDS):
            for key, graph in graphs.items():
                times[key].append(_microseconds(graph, torch))
        row = {key: statistics.median(values) for key, values in times.items()}
        row["best"] = min(row["default"], row.get("autotune", row["default"]))
        row |= {"name": name, "error": _error(found, exact), "peer_error": peer_error, "kernels": len(ours.launches)}
        other = f"{row['autotune']:9.1f}" if autotune else f"{'':9}"
        print(
            f"{name:16}{row['ours']:9.1f}{row['default']:9.1f}{other}{row['ours'] / row['default']:7.2f}"
            f"{row['error']:9.1e}{peer_error:9.1e}  {len(ours.launches)}",
            flush=True,
        )
        if layers:
            _layers(ours, torch)
        return row

    return timed


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _error(found: list[Any], expected: tuple[Any, ...]) -> float:
    worst = 0.0
    for array, tensor in zip(found, expected, strict=True):
        wanted = tensor.float().cpu().numpy()
        if array.shape != wanted.shape or not np.isfinite(array).all():
            return float("inf")
        worst = max(worst, float(np.abs(array - wanted).max() / max(np.abs(wanted).max(), 1e-9)))
    return worst


def _graph(function: Any, torch: Any) -> Any:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        graph.kept = function()
    return graph


def _microseconds(graph: Any, torch: Any) -> float:
    """Return the median time of a replay; the queue is never empty, as when frames follow each other."""
    for _ in range(5):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(events)) * 1e3


def _layers(ours: Ours, torch: Any, inner: int = 20) -> None:
    """Print each kernel's time, as a graph of `inner` launches; equal launches are added up."""
    found: dict[Any, list[Any]] = {}
    for launch in ours.launches:
        key = (launch[0], tuple(launch[2]["grid"]), tuple(launch[2]["block"]), launch[2]["shared"])
        found.setdefault(key, []).append(launch)
    rows = []
    for key, launches in found.items():
        graph = _graph(lambda launches=launches: ours.enqueue(launches[:1] * inner), torch)
        rows.append((_microseconds(graph, torch) / inner * len(launches), len(launches), key))
    for total, count, (name, grid, block, shared) in sorted(rows, reverse=True, key=lambda row: row[0]):
        print(f"    {total:8.1f} us {count:4} x {total / count:6.2f}  {name} {grid} {block[:2]} {shared}", flush=True)


def main(words: list[str]) -> int:
    """Prepare or run, as the words of the command line say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--autotune", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rows", type=Path, metavar="FILE.jsonl")
    args = parser.parse_args(words)
    if args.step == "run":
        return run(args)
    from tools.bench import network_zoo

    return prepare(args.folder, args.arch, args.only or list(network_zoo.NETWORKS))
