"""Times of ONNX Runtime's kernels: the probe's networks as ONNX files, timed node by node by its own profiler.

Its threads cannot be asked what disturbed them, so that they run before other programs where that is permitted, and the
lower quartile of a node's times counts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.compiler.toolchains.onnx_runtime import installed_version
from socsched.cost.kernel_times import family, work_of
from socsched.descriptor.kernel_times import KernelTime
from socsched.errors import CompileError, MachineError
from socsched.executor.probe.calls import LONGEST
from socsched.executor.probe.networks import networks, weights_of
from socsched.graph.counting import operators
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.network import Network

_PROFILE_US = 1_000
_FEWEST, _LEAST = 3, 5
"""Runs of a network within several times its time, as many as are enough for a time, and runs otherwise."""


def version() -> str:
    """Return the installed version, empty where it cannot be timed."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        return ""
    return installed_version()


def time_networks(cpus: Sequence[Sequence[int]], seconds: float) -> list[KernelTime]:
    """Return the kernels' times on each set of processors, in about `seconds`; empty without its packages."""
    if not version():
        return []
    found: list[KernelTime] = []
    dense = [one.network for one in networks() if not one.inputs]
    for network in dense:
        with suppress(CompileError, MachineError):
            model = to_onnx(network, weights_of(network), layer_types(network)).SerializeToString()
            for some in cpus:
                found += _kernels(network, _timed(model, network, some, seconds / len(dense) / len(cpus)), len(some))
    return found


def _kernels(network: Network, times: dict[str, list[float]], threads: int) -> Iterator[KernelTime]:
    for layer, op in zip(network.layers, operators(fuse_network(network), "fp32"), strict=True):
        mine = [values for node, values in times.items() if node == layer.name or node.startswith(f"{layer.name}_")]
        if not mine:
            continue
        low = sum(float(np.percentile(values, 25)) for values in mine)
        high = sum(float(np.percentile(values, 75)) for values in mine)
        if low > 0:
            yield KernelTime(family(op), threads, *work_of(op), low, (high - low) / low, min(map(len, mine)))


def _timed(model: bytes, network: Network, cpus: Sequence[int], seconds: float) -> dict[str, list[float]]:
    """Return the times (ns) of every node on a thread a processor, in a thread whose class its own threads inherit."""
    found: dict[str, list[float]] = {}
    failed: list[BaseException] = []

    def run() -> None:
        os.sched_setaffinity(0, cpus)
        with suppress(PermissionError):
            # in turns: its threads spin while they wait, for one that another program's thread may hold up
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        try:
            found.update(_profile(model, network, len(cpus), seconds))
        except Exception as error:  # whatever it cannot compute stays unknown
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise MachineError(f"ONNX Runtime: {failed[0]}")
    return found


def _profile(model: bytes, network: Network, threads: int, seconds: float) -> dict[str, list[float]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level, options.enable_profiling = threads, 4, True
    arrays = {
        name: np.zeros(tensor.shape, np.float32) for name, tensor in network.inputs.items() if tensor.dtype == "fp32"
    }
    with TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        end, rounds = time.monotonic() + seconds, 0
        latest = end + LONGEST * seconds
        while time.monotonic() < (end if rounds >= _LEAST else latest) or rounds < _FEWEST:
            session.run(None, arrays)
            rounds += 1
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    times: dict[str, list[float]] = {}
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            times.setdefault(name.removesuffix("_kernel_time"), []).append(float(event["dur"]) * _PROFILE_US)
    return {name: values[1:] for name, values in times.items() if len(values) > 2}  # the first finds cold pages
