"""The common timing model: cost of a job on an engine, used by planner, analysis, simulator and run."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.descriptor.limits import Bytes, Lane, Line, NoName, Ns


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a job that runs on an engine without a preemption point.

    `time_ns` is the duration alone on the SoC, of which `fixed_ns` (launch) does not overlap with memory traffic;
    `bytes` are moved to or from DRAM. With co-runners, its duration follows the model of `cost.contention`, which
    planner, analysis and simulator share.

    `engine` and `lanes` are set if it runs elsewhere than its task; with `hold` the task busy-waits on its own lanes
    meanwhile, otherwise it releases them (self-suspension).
    """

    name: Line
    time_ns: Ns
    fixed_ns: Ns
    bytes: Bytes
    engine: NoName = ""
    lanes: tuple[Lane, ...] = ()
    hold: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one job of a stage (or conversion) on one engine in one mode, precision and share of its units.

    `provenance` is the weakest kind among the figures that carry the time; `source` names them; `error` is the relative
    uncertainty of `time_ns`.  `energy_uj` is the dynamic energy of the job (engine and DRAM), idle power excluded.
    `runtime`: the program that takes this time (`cost.runtimes`), empty where there is no choice of one.
    """

    stage: str
    engine: str
    mode: str
    precision: str
    share: int
    time_ns: int
    bytes: int
    energy_uj: int
    segments: tuple[Segment, ...]
    provenance: str
    source: str
    error: float
    runtime: str = ""
