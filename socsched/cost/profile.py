"""Measured stage costs in a file (`profile.json`); a matching one takes precedence over every other figure.

Format: {"schema_version": "1", "platform": NAME, "tool": TEXT, "date": TEXT, "costs": [{"stage", "engine", "mode",
"precision", "share", "time_ns", "error", "samples", "median_ns", "times_ns", "kind"; imported ones also "source" and
"state"; those of another program than our code also "runtime"}], "contention": [{"victim", "aggressor", "factor",
"samples"}], "conversions": [{"tensor", "given", "wanted", "bytes", "time_ns", "samples"}]}; `time_ns` is the time to
plan with, `error` its relative uncertainty, `median_ns` the expected time, `times_ns` (ascending) the measured job
times; `kind` is measured where it is absent.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from socsched.bounded import read_bytes
from socsched.cache import keep, recall
from socsched.cost.roofline import Estimate
from socsched.cost.sources import ANCHORS, PROFILE, ROOFLINE, CostRequest, CostSource, Known
from socsched.descriptor import host
from socsched.descriptor.catalog import HOST
from socsched.descriptor.fields import VENDOR_MODEL
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.descriptor.limits import Bytes, Count, Line, Ns, Positive, Rows, SomeNs
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import NATIVE, OWN
from socsched.files import file_digest, write_file

# Times that runs of plans on this machine have measured, kept in the cache on request (`run --learn`).
#
# They are this machine's alone and no part of its description: a stage is known by its model, parameters and files,
# so that it keeps its time in any pipeline.  A profile given to a plan precedes them, and they precede everything
# else.

KIND, FORMAT = "host-learned", 1
LEAST_ERROR = 0.05
MOST = 2_000
"""Stages that are kept; the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Median time of a stage on an engine, its relative error (up to the 99th percentile), and where it is from."""

    time_ns: int
    error: float
    jobs: int
    date: str


def place(stage: Stage, engine: str, precision: str, share: int, runtime: str) -> str:
    """Return what a time belongs to: what the stage computes, where and by which runtime."""
    files = {name: _digest(value) for name, value in stage.params.items() if name in ("file", "weights")}
    what = [stage.model, {**stage.params, **files}, engine, precision, share]
    foreign = [runtime] if runtime not in ("", OWN, NATIVE) else []
    return hashlib.sha256(json.dumps([*what, *foreign], sort_keys=True, default=repr).encode()).hexdigest()[:24]


def learn(times: Iterable[tuple[str, list[int]]]) -> int:
    """Keep the times (ns) of jobs by place; return the number of places."""
    known, count = _known(), 0
    for where, values in times:
        ordered = sorted(values)
        median, high = ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)]
        error = max(high / max(median, 1) - 1, LEAST_ERROR)
        known.pop(where, None)
        known[where] = asdict(Learned(max(median, 1), round(error, 3), len(ordered), time.strftime("%Y-%m-%d")))
        count += 1
    keep(KIND, host.probe_key(), {"format": FORMAT, "times": dict(list(known.items())[-MOST:])})
    return count


def forget() -> None:
    """Forget what was learned."""
    keep(KIND, host.probe_key(), {"format": FORMAT, "times": {}})


def _known() -> dict[str, dict[str, Any]]:
    stored = recall(KIND, host.probe_key())
    valid = isinstance(stored, dict) and stored.get("format") == FORMAT and isinstance(stored.get("times"), dict)
    return dict(stored["times"]) if valid else {}


def known(
    platform: str, stage: Stage, engine: str, precision: str, share: int, runtime: str
) -> tuple[int, float, str] | None:
    """Return time (ns), relative error and source of a stage as a run here has shown it, None if none has."""
    if platform != HOST or stage.model is None or not host.probed():
        return None
    found = _known().get(place(stage, engine, precision, share, runtime))
    try:
        one = Learned(**found) if found else None
    except TypeError:
        return None
    return (one.time_ns, one.error, f"learned from {one.jobs} jobs of a run here, {one.date}") if one else None


def _digest(value: Any) -> str:
    path = Path(str(value))
    return _file(path, path.stat().st_mtime_ns) if path.is_file() else str(value)


@lru_cache(maxsize=64)
def _file(path: Path, stamp: int) -> str:
    return file_digest(path)


SCHEMA_VERSION = "1"
_UNWRITTEN = {"kind": "measured", "source": "", "state": "", "runtime": ""}
"""Values that files leave out."""
_ANEW = "write it anew with `socsched profile`"


@dataclass(frozen=True, slots=True)
class _Head:
    schema_version: Literal["1"]


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """One stage's cost: `share` engine units used (0 = all), time in ns, relative error, number of samples.

    `kind` is measured, or vendor model: the cycles that the vendor's compiler expects (`expected`).
    `times_ns`: quantiles of job times, at equal steps; empty where only summary figures are known.  `source`: where an
    imported cost is from, `state`: mode, clocks and power of the board meanwhile; both empty for costs measured here.
    `runtime`: the program that was measured (`cost.model`); empty: our code, or that of an imported cost unknown.
    """

    stage: Line
    engine: Line
    mode: Line
    precision: Line
    share: Count
    time_ns: SomeNs
    error: Positive = 0.05
    samples: Count = 0
    median_ns: Ns = 0
    times_ns: Annotated[tuple[SomeNs, ...], Rows] = ()
    kind: Literal["measured", "vendor model"] = "measured"
    source: Line = ""
    state: Line = ""
    runtime: Line = ""

    def stands_for(self, runtime: str) -> bool:
        """Return whether the cost is one of a runtime; a cost that states none counts for all if it was imported."""
        ours = self.runtime or (runtime if self.source else OWN)
        return not runtime or ours == runtime or (ours == OWN and runtime == NATIVE)  # host functions are our code too


@dataclass(frozen=True, slots=True)
class CoRun:
    """Median slowdown of the stage `victim` while `aggressor` co-runs without a pause."""

    victim: Line
    aggressor: Line
    factor: Positive
    samples: Count


@dataclass(frozen=True, slots=True)
class MeasuredConversion:
    """Median time to convert a stage's output tensor ("stage.port") from one data type and layout to another."""

    tensor: Line
    given: Line
    wanted: Line
    bytes: Bytes
    time_ns: Ns
    samples: Count


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured costs of one platform; `tool` and `date` state how and when they were taken."""

    platform: Line
    costs: Annotated[tuple[MeasuredCost, ...], Rows]
    tool: Line = ""
    date: Line = ""
    contention: Annotated[tuple[CoRun, ...], Rows] = ()
    conversions: Annotated[tuple[MeasuredConversion, ...], Rows] = ()

    def find(
        self,
        stage: str,
        engine: str,
        modes: tuple[str, ...],
        precision: str,
        share: int,
        kind: str = "measured",
        runtime: str = "",
    ) -> MeasuredCost | None:
        """Return the cost for exactly this configuration (`modes`: the mode's name and aliases), else None.

        `runtime`: the one it must stand for, "" for any.
        """
        names = {name.lower() for name in modes}
        for cost in self.costs:
            same = (cost.stage, cost.engine, cost.precision, cost.kind) == (stage, engine, precision, kind)
            if same and cost.mode.lower() in names and cost.share in (0, share) and cost.stands_for(runtime):
                return cost
        return None


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile as JSON."""
    costs = [
        {name: value for name in MeasuredCost.__slots__ if (value := getattr(cost, name)) != _UNWRITTEN.get(name)}
        for cost in profile.costs
    ]
    document = {
        "schema_version": SCHEMA_VERSION,
        "platform": profile.platform,
        "tool": profile.tool,
        "date": profile.date,
        "costs": costs,
        "contention": [asdict(entry) for entry in profile.contention],
        "conversions": [asdict(entry) for entry in profile.conversions],
    }
    write_file(path, json.dumps(document, indent=1) + "\n")


def load_profile(path: str | Path) -> Profile:
    """Read a profile; InputError when the file cannot be read, DescriptorError listing every fault in it."""
    source = JsonFile(read_bytes(path, "profile", _ANEW, MAX_BYTES), str(path), _ANEW)
    source.load(_Head)
    profile: Profile = source.load(Profile)
    source.check(
        (("costs", index, "times_ns"), "expected times in ascending order")
        for index, cost in enumerate(profile.costs)
        if list(cost.times_ns) != sorted(cost.times_ns)
    )
    return profile


def cost(request: CostRequest) -> Known | None:
    """Return the time measured for exactly this configuration: in the profile, or in a run on this machine."""
    profile, mode = request.profile, request.mode
    where = request.engine.id, request.precision, request.share
    if profile is not None and profile.platform == request.platform.name:
        names = (mode.name, *mode.aliases)
        engine, precision, share = where
        found = profile.find(request.stage.name, engine, names, precision, share, runtime=request.chosen)
        if found is not None:
            return Known(found.time_ns, "measured", found.source or profile.tool or "profile", found.error)
    learned = known(request.platform.name, request.stage, *where, request.chosen)
    return Known(learned[0], "measured", learned[2], learned[1]) if learned else None


SOURCE = CostSource("profile", PROFILE, cost)


# The cycles that a vendor's compiler expects of its own network, as a source of costs.
#
# `socsched profile --vendor-model` writes them into a profile, so that planning neither needs nor starts a compiler.
# They rank above a derived figure and below a published one, and yield to a fit, which rests on measurements.


def expected(request: CostRequest) -> Known | Estimate | None:
    """Return the time that the vendor's compiler expects in this configuration, scaled by clock to another mode."""
    profile, engine = request.profile, request.engine
    if profile is None or profile.platform != request.platform.name:
        return None
    if any(fit.networks for fit in engine.precisions[request.precision].fitted):
        return None
    for mode in request.platform.modes:
        names = (mode.name, *mode.aliases)
        found = profile.find(request.stage.name, engine.id, names, request.precision, request.share, VENDOR_MODEL)
        if found is not None:
            clocks = mode.engines[engine.id].clock_hz, request.mode.engines[engine.id].clock_hz
            ratio = clocks[0] / clocks[1] if all(clocks) else 1.0
            source = f"cycles expected by {profile.tool}"
            return Known(round(found.time_ns * ratio), VENDOR_MODEL, source, found.error, exact=ratio == 1.0)
    return None


VENDOR_MODEL_SOURCE = CostSource("vendor-model", (ANCHORS + ROOFLINE) / 2, expected)
