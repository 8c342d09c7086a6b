"""The fields of result.json, typed, as all figures of a simulation or run are passed on.

`schemas/result.schema.json` is generated from them.
"""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from socsched.descriptor.limits import Json

Kind = Literal["simulated", "measured"]
Figure = int | None
"""A statistic in integer nanoseconds; null without any value."""


class ResponseTimes(TypedDict):
    """Response times of completed frames (ns)."""

    mean: Figure
    p50: Figure
    p99: Figure
    p99_9: Figure
    max: Figure


class Ages(TypedDict):
    """Data ages at completions of a chain's last stage (ns)."""

    p50: Figure
    p99: Figure
    max: Figure


class ExecutionTimes(TypedDict):
    """Times of completed jobs on their engine (ns)."""

    mean: Figure
    p50: Figure
    p99: Figure
    max: Figure


class ChainDocument(TypedDict):
    """Frames of a chain by outcome, and their times."""

    released: int
    completed: int
    missed: int
    dropped: int
    stale: int
    response_time_ns: ResponseTimes
    data_age_ns: Ages


class StageDocument(TypedDict):
    """Completed jobs of a task, conversions included."""

    jobs: int
    exec_ns: ExecutionTimes
    blocking_ns: int
    preemptions: int


class EngineDocument(TypedDict):
    """Use of an engine: busy time summed over lanes, utilisation of all lanes, energy without DRAM."""

    utilization: float
    energy_mj: float
    busy_ns: int


class Level(TypedDict):
    """Mean and peak of a counter; null without the counter."""

    mean: float | None
    peak: float | None


class Overhead(TypedDict):
    """Times the executor takes (ns), and how many there were."""

    p50: int
    p99: int
    max: int
    count: int


class Overheads(TypedDict):
    """Dispatch latency of ready jobs, in all and by stage, and lateness of releases by source; null without any."""

    dispatch_ns: Overhead | None
    dispatch_ns_by_stage: dict[str, Overhead | None]
    release_jitter_ns: dict[str, Overhead | None]


class RunDocument(Overheads):
    """The run behind the figures: frames by outcome for each source, overheads, options, and facts about the board.

    `reasons`: why jobs were aborted, and which faults there were, most frequent first, with their counts.
    """

    accounts: dict[str, dict[str, int]]
    reasons: dict[str, int]
    executor: str
    in_flight: int
    realtime: str
    board: dict[str, Json]


class ScenarioDocument(TypedDict):
    """A chain under a scenario of MLPerf: p99.9 of response times (ns), its bound with 99 % confidence, its validity.

    `frames_needed`: least number of frames, with as many over the deadline.  A percentile on a lost frame is null.
    """

    scenario: str
    valid: bool
    frames: int
    frames_needed: int
    lost: int
    over_deadline: int
    p99_9_ns: Figure
    p99_9_estimate_ns: Figure
    early_stopping_met: bool


class ResultDocument(TypedDict):
    """result.json: the figures of a simulation or a run.

    `scenario`: by chain, of a run under a scenario.  `given_up`: stage -> reason -> number of its jobs that were
    skipped, aborted or lost.  `resolution`: maximum relative error of percentiles that come from histograms.
    """

    schema_version: Literal["1"]
    kind: Kind
    duration_ns: int
    chains: dict[str, ChainDocument]
    stages: dict[str, StageDocument]
    engines: dict[str, EngineDocument]
    power_mw: Level
    energy_mj: float | None
    bandwidth_gbps: Level
    seed: int
    given_up: NotRequired[dict[str, dict[str, int]]]
    resolution: NotRequired[str]
    run: NotRequired[RunDocument]
    scenario: NotRequired[dict[str, ScenarioDocument]]
