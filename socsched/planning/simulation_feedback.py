"""Delays seen in a simulated deployment: of jobs beyond their time alone, and of chains beyond their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Observed:
    """Mean times (ns) in excess of those expected without interference.

    `extra_ns` by (task, engine): waiting and the effect of other traffic, from activation to completion; nothing is
    known of a task on other engines.  `offset_ns` by chain: deviation of sampling delays from half a period, due to
    their phases.
    """

    extra_ns: Mapping[tuple[str, str], int] = field(default_factory=dict)
    offset_ns: Mapping[str, int] = field(default_factory=dict)


NOTHING = Observed()
