"""The faults, and which of them a simulation and a run can inject."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from random import Random
from typing import Any, ClassVar

from socsched.errors import UsageError
from socsched.limits import HORIZON_NS, LONGEST_NS, MOST_RATE
from socsched.units import format_duration

SIMULATION, RUN = "simulation", "run"


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a faults file: its field of `Faults`, and whether a simulation and a run can inject its faults.

    `drawn`: its faults can be drawn from a seed.
    """

    field: str
    by: tuple[str, ...] = (SIMULATION,)
    drawn: bool = True


SECTIONS = {
    "dropouts": Section("dropouts", (SIMULATION, RUN)),
    "delays": Section("delays"),
    "bursts": Section("bursts"),
    "slowdowns": Section("slowdowns", (SIMULATION, RUN)),
    "throttles": Section("slowdowns"),
    "stalls": Section("stalls"),
    "deaths": Section("stalls"),
    "overruns": Section("overruns", (SIMULATION, RUN), drawn=False),
    "hogs": Section("hogs"),
    "failures": Section("failures", (RUN,), drawn=False),
}
"""Name -> section, in the order of the format's description."""
FAILURES = ("hang", "fail")


@dataclass(frozen=True, slots=True)
class Dropout:
    """Frames of `sensor` released in [from_ns, until_ns) never arrive."""

    section: ClassVar[str] = "dropouts"
    sensor: str
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Jobs on `engine` take `factor` times as long in [from_ns, until_ns)."""

    engine: str
    from_ns: int
    until_ns: int
    factor: Fraction
    throttle: bool = False

    @property
    def section(self) -> str:
        """Return the section of a faults file that describes this fault."""
        return "throttles" if self.throttle else "slowdowns"


@dataclass(frozen=True, slots=True)
class Delay:
    """Frames of `sensor` released in [from_ns, until_ns) arrive `by_ns` later than they were released."""

    section: ClassVar[str] = "delays"
    sensor: str
    from_ns: int
    until_ns: int
    by_ns: int


@dataclass(frozen=True, slots=True)
class Burst:
    """`frames` extra frames arrive at once with the first frame of `sensor` from `at_ns` on."""

    section: ClassVar[str] = "bursts"
    sensor: str
    at_ns: int
    frames: int


@dataclass(frozen=True, slots=True)
class Stall:
    """`engine` stalls in [from_ns, until_ns); with `lost`, jobs running there are aborted."""

    engine: str
    from_ns: int
    until_ns: int
    lost: bool = False

    @property
    def section(self) -> str:
        """Return the section of a faults file that describes this fault."""
        return "deaths" if self.lost else "stalls"


@dataclass(frozen=True, slots=True)
class Hog:
    """Foreign traffic draws `bandwidth` bytes/s of DRAM in [from_ns, until_ns), as `engine` would."""

    section: ClassVar[str] = "hogs"
    engine: str
    from_ns: int
    until_ns: int
    bandwidth: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """A job of `stage` takes `factor` times its planned work, with this probability."""

    section: ClassVar[str] = "overruns"
    stage: str
    probability: Fraction
    factor: Fraction

    def stream(self, seed: int) -> str:
        """Return the seed of the random numbers that decide, job after job, which ones overrun."""
        return f"{seed}:overrun:{self.stage}"

    @property
    def chance(self) -> int:
        """Return the probability in units of 2**-53."""
        return int(self.probability * 2**53)

    def jobs(self, seed: int) -> Iterator[bool]:
        """Yield for every job of the stage, in the order they are begun, whether it overruns.

        The simulation kernel takes the same numbers (`sim.kernel.kernel`).
        """
        rng, chance = Random(self.stream(seed)), self.chance
        while True:
            yield rng.getrandbits(62) >> 9 < chance


@dataclass(frozen=True, slots=True)
class Failure:
    """The first job on `lanes` (empty: any) of `engine` from `at_ns` on hangs, or fails."""

    section: ClassVar[str] = "failures"
    engine: str
    at_ns: int
    kind: str
    lanes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Faults:
    """All faults of a simulation or a run; empty by default."""

    dropouts: tuple[Dropout, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    overruns: tuple[Overrun, ...] = ()
    stalls: tuple[Stall, ...] = ()
    delays: tuple[Delay, ...] = ()
    bursts: tuple[Burst, ...] = ()
    hogs: tuple[Hog, ...] = ()
    failures: tuple[Failure, ...] = ()

    def all(self) -> Iterator[Any]:
        """Yield every fault."""
        for field in fields(self):
            yield from getattr(self, field.name)


def by_field(found: Iterable[tuple[str, Iterable[Any]]]) -> Faults:
    """Return the faults of pairs of a section's name and its faults, which may repeat a section."""
    lists: dict[str, list[Any]] = {}
    for name, faults in found:
        lists.setdefault(SECTIONS[name].field, []).extend(faults)
    return Faults(**{field: tuple(faults) for field, faults in lists.items()})


def sections_of(by: str) -> tuple[str, ...]:
    """Return the sections of a faults file whose faults a simulation or a run (`by`) can inject."""
    return tuple(name for name, section in SECTIONS.items() if by in section.by)


def cannot(by: str, name: str) -> str:
    """Return the message that a simulation or a run (`by`) cannot inject the faults of a section."""
    return f"a {by} cannot inject {name}, only a {' or a '.join(SECTIONS[name].by)} can"


_MOST_FACTOR = 1000
_MOST_FRAMES = 10**6


def check_faults(faults: Faults, by: str) -> None:
    """Raise UsageError for a fault that a simulation or a run (`by`) cannot inject, or with a number out of range."""
    for fault in faults.all():
        if by not in SECTIONS[fault.section].by:
            raise UsageError(cannot(by, fault.section), f"it can inject {', '.join(sections_of(by))}")
    windows: tuple[Any, ...] = (*faults.dropouts, *faults.slowdowns, *faults.stalls, *faults.delays, *faults.hogs)
    times = [time for fault in windows for time in (fault.from_ns, fault.until_ns)]
    times += [burst.at_ns for burst in faults.bursts] + [failure.at_ns for failure in faults.failures]
    factors = [*(slow.factor for slow in faults.slowdowns), *(overrun.factor for overrun in faults.overruns)]
    wrong = (
        any(not 0 <= time <= HORIZON_NS for time in times)
        or any(not 0 <= delay.by_ns <= LONGEST_NS for delay in faults.delays)
        or any(not 0 <= burst.frames <= _MOST_FRAMES for burst in faults.bursts)
        or any(not 0 <= hog.bandwidth <= MOST_RATE for hog in faults.hogs)
        or any(not 1 <= factor <= _MOST_FACTOR for factor in factors)
        or any(not 0 <= overrun.probability <= 1 for overrun in faults.overruns)
    )
    if wrong:
        raise UsageError(
            f"faults: times from 0 to {format_duration(HORIZON_NS)}, factors from 1 to {_MOST_FACTOR}, "
            f"probabilities from 0 to 1 and at most {_MOST_FRAMES} frames in a burst are expected"
        )
