"""REEF: best-effort kernels are killed for real-time ones, and padded into units they leave (Han et al., OSDI 2022).

Section 4, reset-based preemption: the GPU is reset, host and device queues are dropped, and after `reset` (35 us) the
real-time job runs; kernels being idempotent, a best-effort job resumes at the first kernel that may not have finished,
`cap` before the last one it launched (scheduler.cpp: max(launched - cleared - cap, offset)).  Section 5, dynamic kernel
padding: next to a real-time kernel the first best-effort kernel runs on the compute units left over, if (1) it is no
longer at some occupancy, and (2) merging both does not reduce the occupancy of the real-time kernel below its need;
`overhead` (0.8 % in the paper) is the cost of the proxy kernel to the real-time one.

Soft tasks are best effort, all others real-time, served in order of arrival.  `mode` reef | reset (no padding) | wait
(the `cap` kernels in the device queue finish) | none.  `cap` is 4 in the paper, 2 in the published code.  Only GPUs are
preempted in this way.  Padding needs `profiles`, a folder of kernel profiles as REEF publishes them; segments are then
called MODEL.INDEX.  Reconstructed: registers are not in the profiles, so two merged kernels have the lower of their
maximum occupancies.  Best-effort jobs are served in order of arrival, not round robin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from socsched.cost.cost import Segment
from socsched.planning.plan import Task
from socsched.sim.policies import check_choice
from socsched.sim.policies.terms import CoRunning, Policy, PreemptionMechanism, Term

MODES = ("reef", "reset", "wait", "none")
UNITS = 60
"""Compute units of the paper's MI50."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A GPU kernel as REEF profiles it: its time, its workgroups, and the time of a round of them by occupancy (ns).

    `by_occupancy[i]`: with i + 1 workgroups per compute unit; the length is the maximum occupancy.
    """

    time_ns: int
    blocks: int
    by_occupancy: tuple[int, ...]


def load_kernels(folder: Path) -> dict[str, Kernel]:
    """Return the kernels of all networks profiled in a folder (``*.json`` as REEF's traces), as MODEL.INDEX."""
    found = {}
    for file in sorted(folder.glob("*.json")):
        data = json.loads(file.read_text(encoding="utf-8"))
        for index, entry in enumerate(data["kernels"]):
            x, y, z = entry["launch"][:3]
            times = tuple(round(us * 1000) for us in entry["us_by_occupancy"])
            found[f"{data['model']}.{index}"] = Kernel(round(entry["us"] * 1000), x * y * z, times)
    return found


def padding_workgroups(real_time: Kernel, other: Kernel, units: int = UNITS) -> int:
    """Return the number of workgroups of a best-effort kernel co-run with a real-time one, 0 if the rules forbid it.

    scheduler.cpp, dynamic_kernel_padding: layers = ceil(blocks / units), of which the real-time kernel takes
    ceil(blocks / layers) units.
    """
    layers = -(-real_time.blocks // units)
    merged = min(len(real_time.by_occupancy), len(other.by_occupancy))
    if merged < min(layers, len(real_time.by_occupancy)):
        return 0
    fits = [n for n in range(merged, 0, -1) if other.by_occupancy[n - 1] <= real_time.time_ns]
    if not fits:
        return 0
    rounds = real_time.time_ns // max(other.by_occupancy[fits[0] - 1], 1)
    return min((units - -(-real_time.blocks // layers)) * rounds * fits[0], other.blocks)


def padding(kernels: Mapping[str, Kernel], overhead: int, units: int = UNITS) -> CoRunning:
    """Return dynamic kernel padding for segments named as in `kernels`; `overhead` in thousandths."""

    def pace(task: Task, segment: Segment, guest: Task, its: Segment) -> tuple[int, int] | None:
        host, other = kernels.get(segment.name), kernels.get(its.name)
        if host is None or other is None or task.criticality == "soft" or guest.criticality != "soft":
            return None
        blocks = padding_workgroups(host, other, units)
        if not blocks:
            return None
        return -(-segment.time_ns * (1000 + overhead) // 1000), -(-segment.time_ns * other.blocks // blocks)

    return CoRunning(pace, once_per_segment=True)


def make(*, mode: str = "reef", cap: int = 4, reset_ns: int = 35_000, overhead: int = 8, profiles: str = "") -> Policy:
    """Return REEF in a mode, with a capacity of device queues, and padding if there are profiles."""
    mechanism = {
        "wait": PreemptionMechanism("segment", ("gpu",), in_flight=cap),
        "none": PreemptionMechanism("none", ("gpu",)),
    }.get(check_choice("mode", mode, MODES), PreemptionMechanism("restart", ("gpu",), in_flight=cap, reset_ns=reset_ns))
    corun = None
    if mode == "reef" and profiles:
        kernels = load_kernels(Path(profiles))
        if not kernels:
            raise ValueError(f"no kernel profiles (*.json) in {profiles}")
        corun = padding(kernels, overhead)
    return Policy("reef", (Term.BEST_EFFORT, Term.ACTIVATION), preemption=(mechanism,), corun=corun)


POLICY = make()
