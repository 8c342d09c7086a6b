"""Conditions that every schedule of the stated model meets; only a violated one proves a pipeline infeasible.

A violated response-time test proves nothing: it is sufficient, and another mapping, another order of jobs or a better
analysis may do.  `Proof` is therefore built from `Necessity` alone, of which each names its theorem in the section
*Infeasible* of docs/proofs.md, and a plan is infeasible only with a `Proof`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from socsched.descriptor.limits import Amount, Line, LongLine

Theorem = Literal[
    "capacity", "joint capacity", "period", "path", "traffic", "power", "memory", "accuracy", "resident jobs",
    "no engine",
]  # fmt: skip
THEOREMS: tuple[Theorem, ...] = get_args(Theorem)
PAGE = "docs/proofs.md"
BOUND, SEARCH = "lower bound", "all mappings"
"""Methods of proofs: bounds that hold for every mapping, and a search that finds each mapping excluded by one."""


@dataclass(frozen=True, slots=True)
class Necessity:
    """A necessary condition that does not hold: every schedule needs `demand`, which exceeds `bound`.

    `terms` add up to the demand; `theorem`: why nothing can need less.  ValueError for a condition that holds.
    """

    theorem: Theorem
    requirement: Line
    demand: Amount
    bound: Amount
    unit: Line
    terms: tuple[tuple[Line, Amount], ...]

    def __post_init__(self) -> None:
        """Refuse what is no violated condition."""
        if self.demand <= self.bound:
            raise ValueError(f"{self.requirement}: a demand of {self.demand} is within {self.bound}")

    @property
    def section(self) -> str:
        """Return the place of the theorem in the documentation."""
        return f"{PAGE}#{anchor(self.theorem)}"


def anchor(theorem: Theorem) -> str:
    """Return the anchor of a theorem's heading in docs/proofs.md."""
    return f"infeasible-{theorem.replace(' ', '-')}"


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that no mapping meets every requirement: the `method`, the argument in words, and what it rests on.

    With `BOUND`, every mapping violates each necessity; with `SEARCH`, every mapping violates one of them, of which the
    least demands are listed.  ValueError without any necessity.
    """

    method: Line
    text: LongLine
    necessities: tuple[Necessity, ...]

    def __post_init__(self) -> None:
        """Refuse a proof of nothing."""
        if not self.necessities:
            raise ValueError("a proof rests on at least one necessity")
