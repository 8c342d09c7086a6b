"""Measure networks on a share of a GPU's multiprocessors (SMs), and the interference between two of them.

    python -m tools.literature.gpu_shares -o shares.json [--runs 50] [--only lenet,bert] [--shares 8,16,...]
                                          [--no-pairs]
    ncu --profile-from-start off --metrics $(python -m tools.literature.gpu_shares --metrics) --clock-control none \
        --cache-control none --csv --page raw \
        python -m tools.literature.gpu_shares --only ssd --batches 1,8 --kernels > ssd.csv
    python -m tools.literature.gpu_shares --only ssd --batches 1,8 --counters ssd.csv -o shares.json

Needs an NVIDIA GPU with green contexts (a driver of CUDA 12.4 or later, no MIG), nvcc, PyTorch and torchvision.  The
networks are those of `served_networks.py`.  Each is captured as a CUDA graph on a stream with some of the SMs
(`sm_share`); a kernel that records %smid shows which SMs actually ran.  Runs are queued behind a
kernel that waits, so that launching costs nothing, and timed by events; the file has medians and the 10th and 90th
percentile in ms, and of how many networks the results on a share are those on all SMs bit for bit.  The whole GPU is
measured first and last.  Pairs: two streams launch without end, and runs count while both are busy.  With counters, the
file also has by network and batch what its kernels fill and load, by time, as gpulet's profiles do; ncu takes about
0.1 s a kernel, so count a few networks and batches at a time.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import Any

SHARES = (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 120)
SPLITS = ((56, 56), (32, 88))
PAIRED = (("pointpillars", 1), ("lenet", 32), ("resnet50", 16), ("vgg16", 16), ("bert", 16), ("mobilenet_v2", 16),
          ("densenet161", 8))  # fmt: skip
WARM_UP = 5
GATE = 20_000_000
"""Cycles that a stream waits while runs are queued behind: about 10 ms."""
METRICS = {
    "duration": "gpu__time_duration.sum",
    "achieved": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "achieved_of_all": "sm__warps_active.avg.pct_of_peak_sustained_elapsed",
    "theoretical": "sm__maximum_warps_per_active_cycle_pct",
    "sm": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
}
"""`achieved` counts SMs while they have something to run, as nvprof's occupancy does; `achieved_of_all` all SMs."""
MARK = "spin_kernel"
"""The name of the kernel that separates two networks when kernels are counted."""
WHERE = """
__global__ void where(unsigned *seen, long long cycles) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long start = clock64();
    if (threadIdx.x == 0) atomicAdd(seen + sm, 1u);
    while (clock64() - start < cycles) {}
}
extern "C" int occupy(unsigned *seen, void *stream, int blocks) {
    where<<<blocks, 1024, 0, (cudaStream_t)stream>>>(seen, 200000);
    return cudaGetLastError();
}
"""


class Bench:
    """Networks with their input on the GPU, and what they answered on all SMs."""

    def __init__(self, names: list[str], wanted: set[int], runs: int) -> None:
        import torch

        from tools.literature.served_networks import NETWORKS

        torch.manual_seed(0)
        self.torch, self.runs = torch, runs
        self.forwards: dict[tuple[str, int], Callable[[], Any]] = {}
        for name in names or list(NETWORKS):
            batches, make = NETWORKS[name]
            forward, given = make()
            for batch in [batch for batch in batches if not wanted or batch in wanted]:
                x = given(batch)
                self.forwards[name, batch] = lambda forward=forward, x=x: forward(x)
        self.expected: dict[tuple[str, int], list[Any]] = {}

    def stream(self, shared: Any) -> Any:
        """Return PyTorch's view of a stream."""
        return self.torch.cuda.ExternalStream(shared.handle.value) if shared else self.torch.cuda.Stream()

    @cached_property
    def where(self) -> Any:
        """Return the compiled kernel that records the SMs it runs on."""
        folder = Path(tempfile.mkdtemp())
        (folder / "where.cu").write_text(WHERE)
        build = ["nvcc", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", "where.so", "where.cu"]
        subprocess.run(build, cwd=folder, check=True)
        return ctypes.CDLL(str(folder / "where.so"))

    def multiprocessors(self, stream: Any) -> list[int]:
        """Return the SMs that run what is launched on a stream."""
        seen = self.torch.zeros(1024, dtype=self.torch.int32, device="cuda")
        self.torch.cuda.synchronize()
        status = self.where.occupy(ctypes.c_void_p(seen.data_ptr()), ctypes.c_void_p(stream.cuda_stream), 528)
        if status:
            raise RuntimeError(f"CUDA error {status}")
        stream.synchronize()
        return [int(sm) for sm in seen.nonzero().flatten().tolist()]

    def captured(self, key: tuple[str, int], stream: Any) -> tuple[Any, list[Any]]:
        """Return a network as a graph that was captured on a stream, and its outputs."""
        torch, forward = self.torch, self.forwards[key]
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(2):
                forward()
            stream.synchronize()
            graph.capture_begin(capture_error_mode="thread_local")
            made = forward()
            graph.capture_end()
        return graph, list(made) if isinstance(made, (tuple, list)) else [made]

    def timed(self, graph: Any, stream: Any) -> list[float]:
        """Return the ms of each run, queued one behind the other."""
        torch = self.torch
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self.runs + 1)]
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                graph.replay()
            torch.cuda._sleep(GATE)
            marks[0].record(stream)
            for mark in marks[1:]:
                graph.replay()
                mark.record(stream)
        stream.synchronize()
        return [a.elapsed_time(b) for a, b in pairwise(marks)]

    def alone(self, stream: Any) -> Iterator[tuple[tuple[str, int], list[float], bool]]:
        """Yield for every network and batch its times on a stream, and whether it answers what it did on all SMs."""
        for key in self.forwards:
            graph, outputs = self.captured(key, stream)
            found = self.timed(graph, stream)
            answers = [one.detach().clone() for one in outputs]
            self.torch.cuda.synchronize()
            expected = self.expected.setdefault(key, answers)
            same = all(self.torch.equal(a, b) for a, b in zip(answers, expected, strict=True))
            yield key, found, same
            del graph, outputs
        self.torch.cuda.empty_cache()

    def together(self, graphs: list[Any], streams: list[Any], each_ms: list[float]) -> list[list[float]]:
        """Return the ms of the runs of two graphs while both are busy; `each_ms` is what they take alone."""
        torch, room = self.torch, self.runs * 1.3 * max(each_ms)
        marks: list[list[Any]] = [[], []]
        due = [0.0, 0.0]

        def mark(side: int) -> None:
            marks[side].append(torch.cuda.Event(enable_timing=True))
            marks[side][-1].record(streams[side])

        torch.cuda.synchronize()
        for side in (0, 1):
            with torch.cuda.stream(streams[side]):
                torch.cuda._sleep(GATE)
            mark(side)
        while min(due) < room:
            side = due.index(min(due))
            with torch.cuda.stream(streams[side]):
                graphs[side].replay()
            mark(side)
            due[side] += each_ms[side]
        torch.cuda.synchronize()
        zero = marks[0][0]
        times = [[zero.elapsed_time(one) for one in found] for found in marks]
        begin, end = max(found[0] for found in times), min(found[-1] for found in times)
        return [[b - a for a, b in pairwise(found[1:]) if a >= begin and b <= end] for found in times]


def summary(found: list[float]) -> list[float]:
    """Return median, 10th and 90th percentile in ms."""
    tenths = statistics.quantiles(found, n=10, method="inclusive")
    return [round(value, 5) for value in (statistics.median(found), tenths[0], tenths[-1])]


def measured(bench: Bench, shares: list[int]) -> dict[str, Any]:
    """Return times by network, batch and number of SMs, the whole GPU first and last."""
    from tools.literature.sm_share import SharedStream

    networks: dict[str, dict[str, dict[str, list[float]]]] = {}
    used: dict[str, dict[str, Any]] = {}
    count = bench.torch.cuda.get_device_properties(0).multi_processor_count
    for number, sms in enumerate([0, *sorted(shares, reverse=True), 0]):
        shared = SharedStream(sms) if sms else None
        stream = bench.stream(shared)
        name = f"{count} again" if number > len(shares) else str(shared.sms if shared else count)
        before = bench.multiprocessors(stream)
        same = 0
        for (network, batch), found, equal in bench.alone(stream):
            networks.setdefault(network, {}).setdefault(str(batch), {})[name] = summary(found)
            same += equal
        used[name] = {"multiprocessors": before, "same_bits": f"{same} of {len(bench.forwards)}"}
        total = sum(times[name][0] for one in networks.values() for times in one.values())
        print(
            f"{name:>10} SMs asked for, {len(before)} ran; sum of medians {total:.2f} ms, same bits {same}", flush=True
        )
        del shared, stream  # its SMs are free for the next share only then
    return {"shares": used, "ms": networks}


def paired(bench: Bench, wanted: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the times of two networks alone and together, for every two and every split."""
    from tools.literature.sm_share import SharedStream

    found = []
    for split in SPLITS:
        shared = [SharedStream(sms) for sms in split]
        streams = [bench.stream(one) for one in shared]
        apart = [set(bench.multiprocessors(stream)) for stream in streams]
        if apart[0] & apart[1]:
            raise RuntimeError(f"both ran on {sorted(apart[0] & apart[1])}")
        graphs = [{key: bench.captured(key, stream) for key in wanted} for stream in streams]
        alone = [
            {key: summary(bench.timed(made[0], stream)) for key, made in each.items()}
            for each, stream in zip(graphs, streams, strict=True)
        ]
        keys = list(combinations_with_replacement(wanted, 2))
        if split[0] != split[1]:
            keys = [(a, b) for a in wanted for b in wanted]
        for a, b in keys:
            both = bench.together(
                [graphs[0][a][0], graphs[1][b][0]], streams, [alone[0][a][0], alone[1][b][0]]
            )  # fmt: skip
            for side, me, you in ((0, a, b), (1, b, a)):
                if len(both[side]) < 2:
                    raise RuntimeError(f"{me} co-running with {you}: {len(both[side])} runs while both were busy")
                row = {"me": me, "share": split[side], "you": you, "beside": split[1 - side]}
                found.append({**row, "alone": alone[side][me], "together": summary(both[side]), "n": len(both[side])})
        slower = [one["together"][0] / one["alone"][0] for one in found if one["share"] + one["beside"] == sum(split)]
        print(
            f"{split}: slower by {statistics.median(slower):.3f} in the median, {max(slower):.3f} at most", flush=True
        )
        del graphs, streams, shared
        bench.torch.cuda.empty_cache()
    return found


def counted(file: Path, order: list[tuple[str, int]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return occupancy and load of the kernels of each network and batch (percent, means by time) from ncu's CSV."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    units = rows.pop(0)
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "nsecond": 1e-6, "usecond": 1e-3, "msecond": 1.0}[
        units[METRICS["duration"]]
    ]
    parts: list[list[dict[str, float]]] = []
    for row in rows:
        if MARK in row["Kernel Name"]:
            parts.append([])
        else:
            parts[-1].append({key: float(row[metric].replace(",", "")) for key, metric in METRICS.items()})
    if len(parts) != len(order):
        raise ValueError(f"{file}: {len(parts)} networks, expected {len(order)}")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (network, batch), kernels in zip(order, parts, strict=True):
        total = sum(one["duration"] for one in kernels)
        means = {
            key: round(sum(one[key] * one["duration"] for one in kernels) / total, 3)
            for key in METRICS
            if key != "duration"
        }
        found.setdefault(network, {})[str(batch)] = {
            "kernels": len(kernels), "kernel_ms": round(total * scale, 5), **means
        }  # fmt: skip
    return found


def kernels(bench: Bench) -> None:
    """Run every network and batch once, a marking kernel before each, for ncu to count."""
    torch = bench.torch
    with torch.no_grad():
        for forward in bench.forwards.values():
            for _ in range(2):
                forward()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            torch.cuda._sleep(1)
            forward()
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()


def source(torch: Any, runs: int) -> dict[str, Any]:
    """Return device, versions, command and date."""
    asked = "name,driver_version,mig.mode.current,clocks.max.sm,power.limit"
    query = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
    values = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return {
        "command": "python -m tools.literature.gpu_shares " + " ".join(sys.argv[1:]),
        "date": date.today().isoformat(),
        **dict(zip(asked.split(","), values, strict=True)),
        "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "runs": runs,
    }


def write(file: Path, document: dict[str, Any]) -> None:
    """Write the file, a line a list of numbers."""
    text = json.dumps(document, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    file.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    """Measure, or count, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--only", default="")
    parser.add_argument("--batches", default="")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)))
    parser.add_argument("--no-pairs", action="store_true")
    parser.add_argument("--metrics", action="store_true", help="print what ncu is to count")
    parser.add_argument("--kernels", action="store_true", help="run everything once, for ncu")
    parser.add_argument("--counters", type=Path, help="add what ncu counted to the file")
    args = parser.parse_args()
    if args.metrics:
        print(",".join(METRICS.values()))
        return 0
    names = [name for name in args.only.split(",") if name]
    batches = {int(text) for text in args.batches.split(",") if text}
    if args.counters:
        document = json.loads(args.output.read_text(encoding="utf-8"))
        every = [(name, int(batch)) for name in names or document["ms"] for batch in document["ms"][name]]
        found = counted(args.counters, [key for key in every if not batches or key[1] in batches])
        write(args.output, {**document, "counters": {**document.get("counters", {}), **found}})
        return 0
    bench = Bench(names, batches, args.runs)
    if args.kernels:
        kernels(bench)
        return 0
    document = {"source": source(bench.torch, args.runs)}
    document |= measured(bench, [int(text) for text in args.shares.split(",")])
    write(args.output, document)
    if not args.no_pairs:
        wanted = [key for key in PAIRED if key in bench.forwards]
        write(args.output, {**document, "pairs": paired(bench, wanted)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
