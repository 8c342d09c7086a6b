"""A GPU's shares: networks on some of its SMs and beside aggressors, against `cost.shares`.

    python -m tools.bench.gpu_division prepare FOLDER    with nvcc and PyTorch; other networks: gpu_networks
    python3 -m tools.bench.gpu_division run FOLDER [--seconds 380] [--out FILE.json]    with a GPU: libcuda alone

Each network is one CUDA graph of our kernels (`executor.programs`), batch 1, fp16; shares are green contexts.
Predicted times are those of `cost.shares` from each kernel's grid and its time on all SMs, with its constants; a
kernel's latency is fitted to the networks TRAIN alone; PointPillars and the other networks are held out.  Beside an aggressor a job takes longer as `cost.shares.Units.beside` says, from what the aggressor draws alone
on its SMs, the latencies of cache and DRAM and the time of a launch: no figure comes from a co-run.  Times of jobs are between events on the
device.
"""

# mypy: ignore-errors
# ruff: noqa: B905, E501
from __future__ import annotations

import argparse
import ctypes
import json
import lzma
import math
import re
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

CRITICAL = "pointpillars"
TRAIN = ("resnext50", "mobilenet_v3", "vit_s", "centerpoint")
SIZES = (8, 16, 32, 48, 64, 96)
DEADLINE = 1.6
"""Of the critical network, times what it takes alone on the whole GPU."""
LATENCIES = (500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0, 4000.0)
SM_BLOCKS, SM_WARPS, SM_SHARED = 32, 64, 227 << 10
"""What an SM of compute capability 9.0 holds at once (CUDA programming guide, table of compute capabilities)."""
AGGRESSORS = """
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void compute(float* out, int rounds) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[4];
  wmma::fill_fragment(a, __float2half(0.001f * threadIdx.x)); wmma::fill_fragment(b, __float2half(0.5f));
  for (int k = 0; k < 4; k++) wmma::fill_fragment(c[k], 0.0f);
  for (int i = 0; i < rounds; i++)
    for (int k = 0; k < 4; k++) wmma::mma_sync(c[k], a, b, c[k]);
  for (int k = 1; k < 4; k++) for (int i = 0; i < c[0].num_elements; i++) c[0].x[i] += c[k].x[i];
  wmma::store_matrix_sync(out + 256 * (threadIdx.x / 32), c[0], 16, wmma::mem_row_major);
}
extern "C" __global__ void stream(float4* to, const float4* from, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float4 v = __ldcs(from + i); v.x += 1.0f; __stcs(to + i, v);
  }
}
extern "C" __global__ void small(float* out, int n) { if (threadIdx.x < n) out[blockIdx.x * 128 + threadIdx.x] += 1.0f; }
extern "C" __global__ void chase(unsigned* next, int steps) {
  unsigned at = 0;
  for (int i = 0; i < steps; i++) at = __ldcg(next + at);
  if (at == 1) next[1] = 0;
}
"""
STREAMED = 256 << 20
STEPS, LINE = 20000, 128


def prepare(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "aggressors.cu").write_text(AGGRESSORS)
    command = [
        "nvcc",
        "-cubin",
        "-arch=sm_90",
        "-O3",
        "-o",
        str(folder / "aggressors.cubin"),
        str(folder / "aggressors.cu"),
    ]
    subprocess.run(command, check=True)
    from tools.bench.gpu_networks import prepare as programs

    return programs(folder, "sm_90", [CRITICAL])


# -- the driver


class Resource(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint), ("padding", ctypes.c_ubyte * 92), ("sms", ctypes.c_uint),
                ("least", ctypes.c_uint), ("alignment", ctypes.c_uint), ("rest", ctypes.c_ubyte * 36))  # fmt: skip


class Gpu:
    """The driver's calls in the primary context; `stream` on the groups of SMs [first, first + count), None for all."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self("cuDeviceGetName", name, 100, 0)
        self.name = name.value.decode()
        whole, rest = Resource(), Resource()
        self("cuDeviceGetDevResource", 0, ctypes.byref(whole), 1)
        self.sms, self.least = whole.sms, max(whole.least, whole.alignment, 1)
        count = ctypes.c_uint(self.sms // self.least)
        self.groups = (Resource * count.value)()
        self(
            "cuDevSmResourceSplitByCount",
            self.groups,
            ctypes.byref(count),
            ctypes.byref(whole),
            ctypes.byref(rest),
            0,
            self.least,
        )
        self.count = count.value
        self.contexts = {}

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed ({status})")

    def stream(self, share=None, priority=0):
        made = ctypes.c_void_p()
        if share is None:
            self("cuStreamCreateWithPriority", ctypes.byref(made), 1, priority)
            return made
        if share not in self.contexts:
            first, count = share
            own = (Resource * count)(*self.groups[first : first + count])
            description, context = ctypes.c_void_p(), ctypes.c_void_p()
            self("cuDevResourceGenerateDesc", ctypes.byref(description), own, count)
            self("cuGreenCtxCreate", ctypes.byref(context), description, 0, 1)
            self.contexts[share] = context
        self("cuGreenCtxStreamCreate", ctypes.byref(made), self.contexts[share], 1, priority)
        return made

    def alloc(self, size):
        made = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(made), ctypes.c_size_t(max(size, 256)))
        return made.value

    def event(self, timing=True):
        made = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(made), 0 if timing else 2)
        return made

    def record(self, event, stream):
        self("cuEventRecord", event, stream)

    def ended(self, event):
        status = self.library.cuEventQuery(event)
        if status not in (0, 600):
            raise RuntimeError(f"cuEventQuery failed ({status})")
        return status == 0

    def us(self, start, end):
        made = ctypes.c_float()
        self("cuEventElapsedTime", ctypes.byref(made), start, end)
        return made.value * 1e3

    def module(self, image):
        made = ctypes.c_void_p()
        self("cuModuleLoadData", ctypes.byref(made), image)
        return made

    def function(self, module, name, shared=0):
        made = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(made), module, name.encode())
        if shared > 48 << 10:
            self("cuFuncSetAttribute", made, 8, shared)
        return made

    def graph(self, stream, queue):
        self("cuStreamBeginCapture_v2", stream, 1)
        queue(stream)
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuStreamEndCapture", stream, ctypes.byref(graph))
        self("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_ulonglong(0))
        return made

    def sync(self, stream):
        self("cuStreamSynchronize", stream)


class Job:
    """Launches with their operands; `graph(stream)` makes one graph of them, or of a range."""

    def __init__(self, gpu, launches):
        self.gpu, self.launches, self.kept = gpu, launches, {}

    def enqueue(self, launches, stream):
        for function, grid, block, shared, _, pointers in launches:
            self.gpu("cuLaunchKernel", function, *grid, *block, shared, stream, pointers, None)

    def graph(self, stream, first=0, last=None):
        key = stream.value, first, last
        if key not in self.kept:
            self.kept[key] = self.gpu.graph(stream, lambda s: self.enqueue(self.launches[first:last], s))
        return self.kept[key]

    def pieces(self, stream, kernels):
        return [
            self.graph(stream, i, min(i + kernels, len(self.launches))) for i in range(0, len(self.launches), kernels)
        ]


def launch(function, grid, block, shared, values):
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    return function, grid, block, shared, values, pointers


class Network(Job):
    """A program of gpu_networks."""

    def __init__(self, gpu, place):
        document = json.loads((place / "program.json").read_text())
        constants = lzma.decompress((place / "constants.xz").read_bytes())
        self.facts = [facts(one) for one in document["launches"]]
        module = gpu.module(lzma.decompress((place / "code.cubin.xz").read_bytes()))
        self.memory = {key: gpu.alloc(document[key]) for key in ("memory", "results", "constants")}
        size = ctypes.c_size_t(document["constants"])
        gpu("cuMemcpyHtoD_v2", ctypes.c_uint64(self.memory["constants"]), constants, size)
        gpu("cuMemsetD8_v2", ctypes.c_uint64(self.memory["memory"]), 0, ctypes.c_size_t(max(document["memory"], 256)))
        functions, launches = {}, []
        for one in document["launches"]:
            key = one["kernel"]
            if key not in functions:
                functions[key] = gpu.function(module, key, one["shared"])
            values = [ctypes.c_int32(a["value"]) if "value" in a else ctypes.c_uint64(self.memory[a["in"]] + a["offset"])
                      for a in one["arguments"]]  # fmt: skip
            launches.append(launch(functions[key], one["grid"], one["block"], one["shared"], values))
        super().__init__(gpu, launches)


def aggressors(gpu, folder):
    module = gpu.module((folder / "aggressors.cubin").read_bytes())
    out, from_, to = gpu.alloc(1 << 22), gpu.alloc(STREAMED), gpu.alloc(STREAMED)
    f32 = ctypes.c_uint64
    compute = launch(gpu.function(module, "compute"), (528, 1, 1), (256, 1, 1), 0, [f32(out), ctypes.c_int32(6000)])
    stream = launch(
        gpu.function(module, "stream"),
        (1056, 1, 1),
        (512, 1, 1),
        0,
        [f32(to), f32(from_), ctypes.c_int32(STREAMED // 16)],
    )
    small = launch(gpu.function(module, "small"), (64, 1, 1), (128, 1, 1), 0, [f32(out), ctypes.c_int32(128)])
    return {"compute": Job(gpu, [compute] * 4), "bandwidth": Job(gpu, [stream] * 4), "small": Job(gpu, [small] * 200)}


def facts(one):
    """Return a launch's blocks, the warps of each, how many an SM holds, whether they load tiles, and its bytes."""
    warps = max(math.prod(one["block"]) // 32, 1)
    resident = max(min(SM_BLOCKS, SM_WARPS // warps, SM_SHARED // (one["shared"] + 1024)), 1)
    return math.prod(one["grid"]), warps, resident, one["shared"] > 0, shape(one["kernel"])


def shape(name):
    """Return the bytes that a product of a program reads and writes at least once, from its kernel's name; 0 for others."""
    found = re.match(r"conv_(\d+)x(\d+)x(\d+)_(\d+)_(\d+)x(\d+)s(\d+)p(\d+)u(\d)\d*(?:g(\d+))?", name)
    if not found:
        return 0
    high, wide, inputs, outputs, kh, kw, stride, pad, up, groups = (int(one or 1) for one in found.groups())
    rows = ((high + 2 * pad - kh) // stride + 1) * ((wide + 2 * pad - kw) // stride + 1)
    return 2 * (high * wide * inputs + (rows + inputs * kh * kw // groups) * outputs * up * up)


# -- measurements


def spread(values):
    ordered = sorted(values)
    return {
        "p50": statistics.median(ordered),
        "p99": ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)],
        "n": len(ordered),
    }


def alone(gpu, job, stream, runs=80):
    """Return us of replays, each begun when the one before has ended."""
    graph, start, end, found = job.graph(stream), gpu.event(), gpu.event(), []
    for number in range(runs + 10):
        gpu.record(start, stream)
        gpu("cuGraphLaunch", graph, stream)
        gpu.record(end, stream)
        gpu.sync(stream)
        if number >= 10:
            found.append(gpu.us(start, end))
    return found


def kernels(gpu, net, stream, inner=10):
    """Return us of each launch, as a graph of `inner`; equal launches are timed once."""
    known, found = {}, []
    for one in net.launches:
        key = one[0].value, tuple(one[1]), tuple(one[2]), one[3]
        if key not in known:
            graph = gpu.graph(stream, lambda s, one=one: net.enqueue([one] * inner, s))
            times, start, end = [], gpu.event(), gpu.event()
            for _ in range(6):
                gpu.record(start, stream)
                gpu("cuGraphLaunch", graph, stream)
                gpu.record(end, stream)
                gpu.sync(stream)
                times.append(gpu.us(start, end) / inner)
            known[key] = statistics.median(times)
        found.append(known[key])
    return found


def latencies(gpu, folder, stream):
    """Return ns of a load that depends on the one before, from the cache and from DRAM, and the job of the latter."""
    function, found = gpu.function(gpu.module((folder / "aggressors.cubin").read_bytes()), "chase"), []
    memory, start, end = gpu.alloc(STREAMED), gpu.event(), gpu.event()
    for size in (4 << 20, STREAMED):
        image, lines, at = bytearray(size), size // LINE, 0
        for _ in range(STEPS):
            follower = (at + 9973 * 7) % lines
            struct.pack_into("I", image, at * LINE, follower * LINE // 4)
            at = follower
        gpu("cuMemcpyHtoD_v2", ctypes.c_uint64(memory), bytes(image), ctypes.c_size_t(size))
        job = Job(gpu, [launch(function, (1, 1, 1), (1, 1, 1), 0, [ctypes.c_uint64(memory), ctypes.c_int32(STEPS)])])
        graph, times, other = job.graph(stream), [], gpu.alloc(STREAMED)
        for _ in range(5):
            if size == STREAMED:  # whose lines would fit in the cache
                gpu("cuMemsetD8Async", ctypes.c_uint64(other), 1, ctypes.c_size_t(STREAMED), stream)
            gpu.record(start, stream)
            gpu("cuGraphLaunch", graph, stream)
            gpu.record(end, stream)
            gpu.sync(stream)
            times.append(gpu.us(start, end) * 1e3 / STEPS)
        found.append(min(times) if size < STREAMED else statistics.median(times))
    return *found, job


class Loop:
    """Work that never ends: graphs queued `depth` ahead on a stream, by one thread that also serves others."""

    def __init__(self, gpu, graphs, stream, depth):
        self.gpu, self.graphs, self.stream, self.next, self.jobs = gpu, graphs, stream, 0, 0
        self.free, self.queued = [gpu.event(False) for _ in range(depth)], []

    def serve(self, may=True):
        while self.queued and self.gpu.ended(self.queued[0][0]):
            event, last = self.queued.pop(0)
            self.free.append(event)
            self.jobs += last
        while may and self.free:
            event = self.free.pop()
            self.gpu("cuGraphLaunch", self.graphs[self.next], self.stream)
            self.gpu.record(event, self.stream)
            self.next = (self.next + 1) % len(self.graphs)
            self.queued.append((event, self.next == 0))


def beside(gpu, graph, stream, period_us, loops, seconds, bounded=False):
    """Return us of periodic jobs while loops run, and the jobs/s of all loops; bounded ones pause while a job runs."""
    start, end, found = gpu.event(), gpu.event(), []
    for loop in loops:
        loop.jobs = 0
    begin = time.perf_counter()
    due, running = begin, False
    while (now := time.perf_counter()) - begin < seconds or running:
        if not running and now >= due:
            gpu.record(start, stream)
            gpu("cuGraphLaunch", graph, stream)
            gpu.record(end, stream)
            running, due = True, max(due + period_us * 1e-6, now)
        elif running and gpu.ended(end):
            found.append(gpu.us(start, end))
            running = False
        for loop in loops:
            loop.serve(not (bounded and running))
    rate = sum(loop.jobs for loop in loops) / (time.perf_counter() - begin)
    for loop in loops:
        gpu.sync(loop.stream)
        loop.serve(False)
    return found[3:], rate


# -- predictions, by the cost model itself


def described(found, latency):
    """Return the kernels of (us, facts) of launches, of which that takes `latency` ns whatever the SMs."""
    from socsched.cost.shares import LOADING, WARPS, Kernel, busy_blocks

    return [
        Kernel(us * 1e3, min(latency, 0.9 * us * 1e3), blocks, 0, busy_blocks(warps, most, WARPS if tiles else LOADING),
               moved, most if tiles else 0)
        for us, blocks, warps, most, tiles, moved in found
    ]  # fmt: skip


def predicted(found, latency, units, whole):
    from socsched.cost.shares import Units

    on = Units(whole, 1e15, 1e15)
    made = described(found, latency)
    return sum(on.time_ns(one, units) for one in made) / sum(one.time_ns for one in made)


def slower(found, latency, own, rival, units, whole, alone_us):
    """Return how many times as long a job takes beside a rival: bytes/s that it wants, its SMs, ns that launches wait for it."""
    from socsched.cost.shares import Neighbour, Units

    made, (port, memory, cache, far) = described(found, latency), own
    wanted, sms, launch = rival
    cost = Units(whole, port, memory).beside(made, units, Neighbour(wanted, sms, cache, far, launch), alone_us * 1e3)
    return 1.0 + (cost.memory + cost.cache + cost.launches) / (alone_us * 1e3)


def fit(table, layers, whole):
    """Return the latency (ns) of least mean error on the shares of the networks TRAIN."""

    def off(choice):
        return statistics.fmean(
            abs(predicted(layers[n], choice, u, whole) * table[n][str(whole)]["p50"] / table[n][str(u)]["p50"] - 1)
            for n in TRAIN if n in table for u in SIZES
        )  # fmt: skip

    return min(LATENCIES, key=off)


def run(folder, seconds, out):
    begin = time.monotonic()
    gpu = Gpu()
    print(f"{gpu.name}, {gpu.sms} SMs, {gpu.count} groups of {gpu.least}", flush=True)
    names = sorted(p.name for p in folder.iterdir() if (p / "program.json").exists())
    nets = {name: Network(gpu, folder / name) for name in names}
    result = {"gpu": gpu.name, "sms": gpu.sms, "groups": gpu.count, "least": gpu.least}
    steps = (("alone", _alone), ("aggressors", _aggressors))
    for name, step in steps:
        if time.monotonic() - begin > seconds:
            print(f"{name}: no time left")
            continue
        try:
            step(gpu, folder, nets, result)
        except Exception as error:  # the other parts are worth having
            print(f"{name} failed: {type(error).__name__}: {error}", flush=True)
        if out:
            out.write_text(json.dumps(result, indent=1))
        print(f"# {name}: {time.monotonic() - begin:.0f} s so far", flush=True)
    return 0


def _share(gpu, units):
    return (0, units // gpu.least)


def _alone(gpu, folder, nets, result):
    whole = gpu.stream()
    table, layers, parts = {}, {}, {}
    for name, net in nets.items():
        table[name] = {str(gpu.sms): spread(alone(gpu, net, whole))}
        layers[name] = [(us, *one) for us, one in zip(kernels(gpu, net, whole), net.facts)]
        parts[name] = {str(n): kernels(gpu, net, gpu.stream(_share(gpu, n))) for n in (8, 32)}
        for units in SIZES:
            table[name][str(units)] = spread(alone(gpu, net, gpu.stream(_share(gpu, units))))
    _compared(table, layers, gpu.sms, result)
    result["parts"] = parts


def _compared(table, layers, whole, result):
    """Print networks alone on shares beside what is predicted, which `result` takes."""
    chosen = fit(table, layers, whole)
    result |= {"alone": table, "layers": layers, "fit": chosen}
    print(f"a kernel's latency {chosen:.0f} ns, from {', '.join(TRAIN)}")
    print(f"{'network':16}{'whole us':>9}  " + "".join(f"{u:>22}" for u in SIZES) + "   (measured p50, p99, predicted)")
    errors = []
    for name, times in table.items():
        row = f"{name:16}{times[str(whole)]['p50']:9.1f}  "
        for units in SIZES:
            guess = predicted(layers[name], chosen, units, whole) * times[str(whole)]["p50"]
            times[str(units)]["predicted"] = guess
            row += f"{times[str(units)]['p50']:8.0f}{times[str(units)]['p99']:7.0f}{guess:7.0f}"
            if name not in TRAIN:
                errors.append(
                    (abs(guess / times[str(units)]["p50"] - 1), abs(guess / times[str(units)]["p99"] - 1), name)
                )
        print(row + ("" if name in TRAIN else "  held out"), flush=True)
    for who in (CRITICAL, ""):
        own = [e for e in errors if not who or e[2] == who]
        print(f"{who or 'all held out'}: error of p50 {statistics.fmean(e[0] for e in own):.1%} (most {max(e[0] for e in own):.1%}), "
              f"of p99 {statistics.fmean(e[1] for e in own):.1%} (most {max(e[1] for e in own):.1%})")  # fmt: skip


def _aggressors(gpu, folder, nets, result, seconds=2.0):
    least, most = ctypes.c_int(), ctypes.c_int()
    gpu("cuCtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(most))
    jobs, table, whole = aggressors(gpu, folder), {}, gpu.stream()
    base = result["alone"][CRITICAL]
    moved, eight = {"compute": 0, "bandwidth": 8 * STREAMED, "small": 0}, gpu.stream(_share(gpu, 8))
    memory = moved["bandwidth"] * 1e6 / statistics.median(alone(gpu, jobs["bandwidth"], whole, 10))
    wanted = {k: moved[k] * 1e6 / statistics.median(alone(gpu, jobs[k], eight, 10)) / 8 for k in jobs}  # by an SM
    port = wanted["bandwidth"]
    apart = {k: statistics.median(alone(gpu, jobs[k], whole, 10)) * 1e3 / len(jobs[k].launches) for k in jobs}
    waits = {k: min(apart.values()) ** 2 / apart[k] for k in jobs}  # a launch's time, when one is under way
    near, far, chase = latencies(gpu, folder, whole)
    cache = ctypes.c_int()
    gpu("cuDeviceGetAttribute", ctypes.byref(cache), 38, 0)
    own = port, memory, float(cache.value), far / near
    result |= {
        "memory": memory,
        "port": port,
        "cache": cache.value,
        "latencies": [near, far],
        "wanted": wanted,
        "waits": waits,
    }
    print(
        f"an SM draws {port / 1e9:.0f} GB/s, all {memory / 1e9:.0f}; a load takes {near:.0f} ns from the cache, {far:.0f} from DRAM; a launch {waits['small']:.0f} ns"
    )
    for units in (8, 48, 96):
        stream, rest = gpu.stream(_share(gpu, units)), (units // gpu.least, gpu.count - units // gpu.least)
        other = gpu.stream(rest)
        loop = Loop(gpu, [jobs["bandwidth"].graph(other)], other, 3)
        times, _ = beside(gpu, chase.graph(stream), stream, 2.5 * far * STEPS / 1e3, [loop], 0.5)
        guess = far * max(port * rest[1] * gpu.least / memory, 1.0)
        print(
            f"  beside the bandwidth aggressor on {rest[1] * gpu.least} SMs {statistics.median(times) * 1e3 / STEPS:.0f} ns, predicted {guess:.0f}"
        )
    print(
        f"critical {CRITICAL} beside aggressors: us p50, p99 (p99 over that alone there); jobs/s over those alone on all SMs"
    )
    for kind, job in jobs.items():
        rates = statistics.median(alone(gpu, job, whole, 10))
        full = 1e6 / rates
        rows = {}
        for units in SIZES:
            share, rest = _share(gpu, units), (units // gpu.least, gpu.count - units // gpu.least)
            stream, other = gpu.stream(share), gpu.stream(rest)
            times, rate = beside(
                gpu,
                nets[CRITICAL].graph(stream),
                stream,
                2.5 * base[str(units)]["p50"],
                [Loop(gpu, [job.graph(other)], other, 3)],
                seconds,
            )
            rival = wanted[kind] * rest[1] * gpu.least, rest[1] * gpu.least, waits[kind]
            factor = slower(
                result["layers"][CRITICAL], result["fit"], own, rival, units, gpu.sms, base[str(units)]["predicted"]
            )
            guess = base[str(units)]["predicted"] * factor
            rows[units] = {**spread(times), "rate": rate / full, "predicted": guess, "slower": factor}
            one, calm = rows[units], base[str(units)]["p99"]
            print(f"  {kind:10}{units:4} SMs {one['p50']:8.0f}{one['p99']:8.0f} ({one['p99'] / calm:.2f}) predicted {guess:8.0f} "
                  f"({guess / one['p50'] - 1:+.1%} of p50, {guess / one['p99'] - 1:+.1%} of p99)  soft {rate / full:.2f}", flush=True)  # fmt: skip
        high, low, plain = gpu.stream(None, most.value), gpu.stream(None, least.value), gpu.stream()
        for name, stream, other, graphs, depth, bounded in (
            ("streams", plain, gpu.stream(), [job.graph(gpu_stream := gpu.stream())], 3, False),
            ("priority", high, low, [job.graph(low)], 3, False),
            ("bounded", high, low, job.pieces(low, max(len(job.launches) // 20, 1)), 2, True),
        ):
            other = gpu_stream if name == "streams" else other
            times, rate = beside(
                gpu,
                nets[CRITICAL].graph(stream),
                stream,
                2.5 * base[str(gpu.sms)]["p50"],
                [Loop(gpu, graphs, other, depth)],
                seconds,
                bounded,
            )
            rows[name] = {**spread(times), "rate": rate / full}
            calm = base[str(gpu.sms)]["p99"]
            print(f"  {kind:10}{name:>8} {rows[name]['p50']:8.0f}{rows[name]['p99']:8.0f} ({rows[name]['p99'] / calm:.2f})"
                  f"{'':42}  soft {rate / full:.2f}", flush=True)  # fmt: skip
        deadline = DEADLINE * base[str(gpu.sms)]["p50"]
        fits = [u for u in SIZES if rows[u]["predicted"] <= deadline]
        kept = [u for u in SIZES if rows[u]["p99"] <= deadline]
        if not fits:
            print(f"  {kind}: no share is predicted to keep {deadline:.0f} us")
        else:
            plan, best = min(fits), max(kept or fits, key=lambda u: rows[u]["rate"])
            late = "" if plan in kept else f", {rows[plan]['p99'] / deadline - 1:.1%} late"
            print(f"  {kind}: deadline {deadline:.0f} us, the plan's share {plan} SMs: p99 {rows[plan]['p99']:.0f}{late}, "
                  f"{rows[plan]['p99'] / base[str(plan)]['p99']:.2f} of alone there; soft {rows[plan]['rate'] / rows[best]['rate']:.2f} "
                  f"of the best share that {'keeps it' if kept else 'is predicted to'} ({best})")  # fmt: skip
        table[kind] = rows
    result["aggressors"] = table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=380.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    return prepare(args.folder) if args.step == "prepare" else run(args.folder, args.seconds, args.out)


if __name__ == "__main__":
    sys.exit(main())
