"""The one timing model: what a job costs on an engine, used by planner, analysis, simulator and run alike."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.descriptor.limits import Bytes, Lane, Line, NoName, Ns


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a job that runs to its end on an engine without a preemption point.

    `time_ns` is the duration alone on the SoC, of which `fixed_ns` (launch) does not overlap with memory traffic;
    `bytes` are moved to or from DRAM.  Beside others it lasts what the model of `cost.contention` says: planner,
    analysis and simulator all ask that.

    `engine` and `lanes` say where it runs when that is not where its task does; with `hold` the task waits busily on
    its own lanes meanwhile, else it gives them up (self-suspension).
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
    """What one job of a stage (or conversion) costs on one engine in one mode, precision and share of its units.

    `provenance` is the weakest kind among the figures that carry the time; `source` names them; `error` is the relative
    uncertainty of `time_ns`.  `energy_uj` is the dynamic energy of the job (engine and DRAM), idle power excluded.
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
