"""One claim of a paper and the corresponding result here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the results section of socsched_literature/README.md.

    `system` and `paper` ("PREMA", "Choi & Rhu, HPCA 2020"); `statement`: what the paper says holds; `workload`: how it
    was built here after the paper, in one sentence; `theirs` and `ours`: the figures, with units.  `holds`: whether the
    ordering does here; otherwise `why` gives the reason (required then, optional where it does).
    """

    system: str
    paper: str
    statement: str
    workload: str
    theirs: str
    ours: str
    holds: bool
    why: str = ""

    def __post_init__(self) -> None:
        """Refuse a failure without reason, and what would break a row of a table."""
        if not self.holds and not self.why:
            raise ValueError(f"{self.system}: {self.statement!r} does not hold, and no reason is given")
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, str) and ("\n" in value or "|" in value):
                raise ValueError(f"{self.system}: {name} must be one line without '|': {value!r}")
