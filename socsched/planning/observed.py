"""What a simulation saw of a deployment: how much longer than alone its jobs took, and its chains than their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Observed:
    """Mean times (ns) beyond what is expected without interference.

    `extra_ns` by (task, engine): waiting and what others' traffic adds, from activation to completion; where a task
    runs elsewhere nothing is known of it.  `offset_ns` by chain: what the phases of sampling make of half a period.
    """

    extra_ns: Mapping[tuple[str, str], int] = field(default_factory=dict)
    offset_ns: Mapping[str, int] = field(default_factory=dict)


NOTHING = Observed()
