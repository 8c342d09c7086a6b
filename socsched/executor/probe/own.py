"""Times of our own kernels: the probe's networks compiled once into the cache, and timed call by call."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from socsched.cache import cache_dir
from socsched.compiler.artifact import Artifact, find, store
from socsched.compiler.builder import build, compile_stage
from socsched.compiler.launch_list import CPU
from socsched.compiler.passes.link import tools
from socsched.compiler.store import PINNED, digest, read_json, rule_sources
from socsched.compiler.target import Build, Target, TargetSpec, target_of
from socsched.compiler.targets.llvm.processor import vector_unit
from socsched.cost.kernel_times import DEQUANTISE, PACK, QUANTISE, QUANTISE_ROWS, UNPACK, family, form_of, work_of
from socsched.descriptor import host
from socsched.descriptor.kernel_times import KernelTime, alike
from socsched.descriptor.pipeline import Stage
from socsched.errors import CompileError, MachineError, UsageError
from socsched.executor.probe import calls
from socsched.executor.probe.calls import Calls, Times
from socsched.executor.probe.networks import READER, Probed, networks, weights_of
from socsched.executor.programs import cpu_program
from socsched.graph.counting import operators
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.models.weights import load_weights

_ENTRY = {"kind": "llvm", "host": True}
_SPACE = 1 << 25
LEAST_ROUNDS = 6
"""Rounds of a network's calls, the first of which finds cold pages: enough where one or two are disturbed."""
MOVES = {"pack": PACK, "unpack": UNPACK, "map_kernel": "move", "quantise": QUANTISE, "dequantise": DEQUANTISE}
"""Kernels between layouts, which belong to no operator -> their family."""


def version() -> str:
    """Return what identifies the kernels: the rules they are made by and the compiler's versions."""
    return digest(rule_sources(), PINNED)[:12]


def block() -> int:
    """Return the channels of a block of this machine's images."""
    return vector_unit(target_of(_ENTRY).resolve(_ENTRY, "cpu")).block


def compiled(network: Network, precision: str) -> Artifact:
    """Return a network compiled for this machine, from the cache if it is there; errors as of `compile_stage`."""
    folder, target, spec = _place(network, precision)
    about = {"stage": network.name, "model": network.name, "engine": "cpu", "engine_kind": "cpu", "weights": "seeded"}
    about["key"] = folder.name

    def built(entry: Path) -> Artifact:
        return build(Build(entry, network, weights_of(network), spec, precision), target, about)

    return find(folder) or store(folder, _SPACE, built)


def _place(network: Network, precision: str) -> tuple[Path, Target, TargetSpec]:
    """Return the folder in the cache for a compiled network, and what it is compiled for."""
    target = target_of(_ENTRY)
    spec = target.resolve(_ENTRY, "cpu")
    key = digest("probe", repr(network), precision, dict(spec.tvm), tools(spec), PINNED, rule_sources())
    return cache_dir() / "artifacts" / key, target, spec


def prepare(precision: str, stages: Sequence[Stage] = (), weights: Path | None = None) -> None:
    """Compile what the cache lacks, and load the compiler, so that neither happens while something is timed.

    `stages`: others to be compiled meanwhile, with the weights of a file.
    """
    block()
    count = min(len(os.sched_getaffinity(0)), 2)
    context = multiprocessing.get_context("spawn")
    lacking = [one.network for one in networks(precision) if find(_place(one.network, precision)[0]) is None]
    jobs = precision, stages, weights
    aside = [context.Process(target=_compile, args=(*jobs, n, count), daemon=True) for n in range(1, count)]
    for process in aside if len(lacking) > 1 else ():
        process.start()
    _compile(*jobs, 0, count)
    for process in aside if len(lacking) > 1 else ():
        process.join()
    _compile(precision, (), None, 0, 1)  # what another process has not compiled


def _compile(precision: str, stages: Sequence[Stage], weights: Path | None, first: int, step: int) -> None:
    jobs: list[Probed | Stage] = [*networks(precision), *stages]
    for one in jobs[first::step]:
        with suppress(CompileError, UsageError):
            if isinstance(one, Probed):
                compiled(one.network, precision)
            else:
                given = load_weights(weights) if weights else None
                compile_stage(one, host.detect().engines[0], precision, given)


class Program(NamedTuple):
    """A network of the probe with its launch list, and its launches."""

    probe: Probed
    plan: Mapping[str, Any]
    launches: Calls


def programs(precision: str) -> list[Program]:
    """Return the networks with their programs; families of a network that cannot be compiled stay unknown."""
    some = []
    for one in networks(precision):
        with suppress(CompileError, UsageError):
            artifact = compiled(one.network, precision)
            launches = calls.program(cpu_program(artifact, one.rows), one.inputs, renewed=True)
            some.append(Program(one, read_json(artifact.folder / CPU.file), launches))
    return some


def time_networks(
    some: Sequence[Program], cpus: Sequence[Sequence[int]], seconds: float, precision: str
) -> tuple[list[KernelTime], float]:
    """Return the kernels' times on each set of processors, and the share of its time that the measuring had them.

    It takes about `seconds`, as long for each kernel, and more where that is too short for enough calls.
    """
    kernels: list[KernelTime] = []
    shares: list[float] = []
    slice_s = seconds / len(cpus) / max(sum(len(one.launches.names) for one in some), 1)
    for one in some:
        for processors in cpus:
            try:
                before = calls.hand_over_ns(processors)
                times = one.launches.times(processors, slice_s * len(one.launches.names), least=LEAST_ROUNDS)
                after = calls.hand_over_ns(processors)
            except MachineError:  # too busy for one call: what is known of the family comes from others
                shares.append(0.0)
                continue
            shares.append(times.share)
            if alike(before, after):  # otherwise the processors changed places meanwhile
                timed = kernels_of(one.probe, one.plan, times, len(processors), precision)
                kernels += [replace(kernel, handover=after) for kernel in timed]
    return kernels, min(sum(shares) / max(len(shares), 1), 1.0)


def kernels_of(
    probe: Probed, plan: Mapping[str, Any], times: Times, threads: int, precision: str = "fp32"
) -> list[KernelTime]:
    """Return the kernels of a network without edges from the times of its launches."""
    low, spread, fine, _ = times
    found = []
    subjects = operators(fuse_network(probe.network), precision, probe.rows)[: len(plan["outputs"])]
    for number, op in enumerate(subjects):
        mine = launches_of(plan, plan["outputs"][number])
        own = [at for at in mine if not _stem(plan, at)] or mine
        if precision == "int8" and op.kind != READER:
            own = [at for at in own if not plan["launches"][at]["kernel"].startswith(READER)]
        work = work_of(op, block())
        time = float(sum(low[at] for at in own))
        least = int(min(fine[at] for at in own))
        found.append(KernelTime(family(op), threads, *work, time, float(max(spread[at] for at in own)), least))
        for at in mine:
            if at not in own and (name := _stem(plan, at)):
                image = (op.outputs if name == UNPACK else op.inputs)[0].shape
                if name == QUANTISE and image[1] % block():
                    name = QUANTISE_ROWS
                name = form_of(name, image, block())
                times_of = float(low[at]), float(spread[at]), int(fine[at])
                found.append(KernelTime(name, threads, 0.0, _bytes(plan, at), 0.0, *times_of))
    return found


def _stem(plan: Mapping[str, Any], at: int) -> str:
    """Return the family of a launch between layouts, by its kernel."""
    name = str(plan["launches"][at]["kernel"]).rstrip("0123456789")
    return MOVES.get(name, "")


def _bytes(plan: Mapping[str, Any], at: int) -> float:
    """Return the bytes that a launch reads and writes."""
    buffers = (plan["buffers"][argument["buffer"]] for argument in plan["launches"][at]["arguments"])
    return float(sum(buffer["bytes"] for buffer in buffers if isinstance(buffer["bytes"], int)))


def launches_of(plan: Mapping[str, Any], output: int) -> list[int]:
    """Return the launches that an output of a launch list depends on, in order."""
    buffers = plan["buffers"]

    def whole(buffer: int) -> int:
        return int(buffers[buffer].get("within", buffer))

    made: dict[int, list[int]] = {}
    for at, launch in enumerate(plan["launches"]):
        made.setdefault(whole(launch["arguments"][-1]["buffer"]), []).append(at)
    found: set[int] = set()
    pending = [whole(output)]
    while pending:
        for at in made.get(pending.pop(), []):
            if at not in found:
                found.add(at)
                pending += [whole(argument["buffer"]) for argument in plan["launches"][at]["arguments"]]
    return sorted(found)
