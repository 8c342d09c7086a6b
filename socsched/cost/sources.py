"""Sources of stage costs, asked in the order of their ranks: a measured profile, anchors, the roofline, installed ones.

Third parties register a `CostSource` under the entry-point group ``socsched.costs``; docs/extending.md shows one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from socsched import plugins
from socsched.cost.fitted import estimate
from socsched.cost.host_functions import computable
from socsched.cost.roofline import Estimate
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine, Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.operators import StageWork

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


GROUP = "socsched.costs"
PROFILE, ANCHORS, ROOFLINE = 0, 10, 20
"""Ranks of the built-in sources."""
Reference = Callable[[str], Platform | None]
"""Returns the platform of this name, None if no file describes it."""


@dataclass(frozen=True, slots=True)
class Known:
    """A known time (ns) of a stage with its provenance (`platform.PROVENANCE`), its source and its relative error.

    `exact`: taken directly, not scaled.  `foreign`: scaled from other hardware.  `slice_ns`: longest time slice of a
    stage known by its time only, 0 if it runs in one piece; slices never scale.
    """

    lower: ClassVar[bool] = False
    time_ns: int
    provenance: str
    source: str
    error: float
    exact: bool = True
    foreign: bool = False
    slice_ns: int = 0

    def __post_init__(self) -> None:
        if self.provenance not in PROVENANCE:
            expected = f"expected one of {', '.join(PROVENANCE)}"
            raise UsageError(f"a known time has the provenance {self.provenance!r}", expected)


@dataclass(slots=True)
class CostRequest:
    """A stage, or a part of a network, in one configuration whose cost is asked for.

    `share`: units of the engine used.  `work`: the stage's operators in this precision, None for a stage without
    model.  `profile`: the measurements that planning was given.  `runtime`: the program that runs
    the stage, "" for the one that plans stand for.  `chosen`: the runtime of the engine that is asked for
    (`cost.model`), "" where the engine has no choice of them.
    """

    stage: Stage
    platform: Platform
    engine: Engine
    mode: PowerMode
    precision: str
    share: int
    work: StageWork | None
    profile: Profile | None
    reference: Reference
    runtime: str = ""
    chosen: str = ""
    _roofline: Estimate | None = None

    def roofline(self) -> Estimate | None:
        """Return the estimate of the stage by the engine's fit or the roofline, None without model."""
        if self._roofline is None and self.work is not None:
            where = self.platform, self.engine, self.mode, self.share
            self._roofline = estimate(self.work, *where, self.runtime, self.chosen)
        return self._roofline


@dataclass(frozen=True, slots=True)
class CostSource:
    """A source of stage costs: a function that answers a `CostRequest`, with None where it knows nothing.

    The source with the least `rank` that knows a cost decides; a time from other hardware yields to a later answer
    with a smaller error.  `parts`: it also answers for a part of a network; the others are asked for the whole network,
    of which the part gets its share.
    """

    name: str
    rank: float
    cost: Callable[[CostRequest], Known | Estimate | None]
    parts: bool = False


def cost_sources() -> tuple[CostSource, ...]:
    """Return every source, built in or installed, in the order in which they are asked.

    Raises UsageError for an installed source before the profile, which the user chose for this plan.
    """
    loaded: list[CostSource] = [plugins.load(GROUP, name, CostSource) for name in plugins.names(GROUP)]
    found = sorted(loaded, key=lambda source: (source.rank, source.name))
    early = [source.name for source in found if source.rank <= PROFILE and source.name != "profile"]
    if early:
        raise UsageError(f"cost source {early[0]!r} precedes the measured profile", f"expected a rank above {PROFILE}")
    return tuple(found)


# The roofline as a source of costs, for every stage with a model; of host code without a known time it is a lower
# bound.


def from_roofline(request: CostRequest) -> Estimate | None:
    """Return the roofline estimate of a stage or of a part of a network."""
    found = request.roofline()
    work = request.work
    if found is not None and work is not None and work.host_code and not computable(work, request.engine):
        return replace(found, lower=True)
    return found


ROOFLINE_SOURCE = CostSource("roofline", ROOFLINE, from_roofline, parts=True)
