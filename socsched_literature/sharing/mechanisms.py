"""Ways to share an accelerator as data: the kind of partition, the isolation of parts, and the cost of changing them.

Table II of Yu et al., "A survey of multi-tenant deep learning inference on GPU", arXiv 2203.09040, distinguishes
streams, MPS and MIG by exactly these properties; time slicing and green contexts are described by the same ones.
Planners and the serving simulation depend on the properties only, not on names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from socsched.errors import UsageError

MS = 1_000_000

Partition = Literal["none", "time", "logical", "physical"]
When = Literal["any", "start", "idle"]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A way to share an accelerator.

    `partition`: nothing is partitioned, or time, or units by convention, or the hardware.  `most`: parts at a time, 0
    for any number.  `grain`: percent of which a share is a multiple.  `compute_isolated`: the compute speed of a part
    is independent of the others; `bandwidth_isolated`: so are caches and memory.  `switch_ns`: time lost when the
    engine switches between parts of a time-shared one, every `slice_ns`.  A share changes `when`: at any instant, by
    starting a new process, or once the whole accelerator is idle; it takes `reconfigure_ns`, of which `downtime_ns`
    unavailable with a standby process.  `qos`: the guarantees for a part according to the survey.
    """

    name: str
    partition: Partition
    most: int
    grain: int
    compute_isolated: bool
    bandwidth_isolated: bool
    qos: Literal["no", "partly", "yes"]
    when: When
    reconfigure_ns: int
    downtime_ns: int = 0
    slice_ns: int = 0
    switch_ns: int = 0
    source: str = ""

    @property
    def concurrent(self) -> bool:
        """Return whether several parts compute at the same instant."""
        return self.partition != "time"

    def admits(self, shares: tuple[int, ...]) -> bool:
        """Return whether parts of these percentages may exist on one accelerator at a time."""
        if self.most and len(shares) > self.most:
            return False
        if not self.compute_isolated:
            return all(share == 100 for share in shares)
        return sum(shares) <= 100 and all(share > 0 and share % self.grain == 0 for share in shares)


_SURVEY = "Yu et al., arXiv 2203.09040, Table II"
MECHANISMS: dict[str, Mechanism] = {
    one.name: one
    for one in (
        Mechanism("streams", "none", 0, 100, False, False, "no", "any", 0, source=_SURVEY),
        Mechanism(
            "time-slicing", "time", 0, 100, False, False, "no", "any", 0, slice_ns=2 * MS, switch_ns=100_000,
            source="assumed: default time slice of the driver about 2 ms, a context switch some 0.1 ms",
        ),
        Mechanism(
            "mps", "logical", 48, 1, True, False, "partly", "start", 10_000 * MS, downtime_ns=100_000,
            source=f"{_SURVEY}; start of a serving process some 10 s, downtime with a standby below 100 us (GSLICE)",
        ),
        Mechanism(
            "green-contexts", "logical", 0, 1, True, False, "partly", "any", 1 * MS,
            source="assumed: CUDA 12.4 contexts of SMs, created in about 1 ms in a running process; allocation in "
            "groups of SMs (8 on Hopper, 4 on Orin) is not modelled",
        ),
        Mechanism(
            "mig", "physical", 7, 1, True, True, "yes", "idle", 1_000 * MS,
            source=f"{_SURVEY}: only when idle, tens of ms to seconds; 1 s taken",
        ),
    )
}  # fmt: skip


def mechanism(name: str) -> Mechanism:
    """Return the mechanism of this name; UsageError naming the known ones if there is none."""
    if name not in MECHANISMS:
        raise UsageError(f"unknown way to share {name!r}", hint=f"known: {', '.join(MECHANISMS)}")
    return MECHANISMS[name]
