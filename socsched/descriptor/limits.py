"""Limits on fields of generated files (plan, profile, scales, manifest): name patterns and number ranges.

The classes written to such files use these types, and `json_file` validates a file against them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field

from socsched.limits import MOST_BYTES, MOST_LANES, MOST_MW, MOST_RATE
from socsched.text import LINE_PATTERN

MOST_NS = 2**53
"""Longest time, 104 days: a float holds it exactly in whole nanoseconds, and sums of 1,024 such times fit 64 bits."""

PLAN_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.+:#>@-]*$"

PlanName = Annotated[str, Field(pattern=PLAN_NAME_PATTERN, max_length=200)]
"""A name in a plan: a stage name, or one composed of several (`pfn>scatter`, `backbone.2`, `front+rear`)."""
NoName = Annotated[str, Field(pattern=f"{PLAN_NAME_PATTERN}|^$", max_length=200)]
"""A name in a plan, or empty."""
Line = Annotated[str, Field(pattern=LINE_PATTERN, max_length=4000)]
"""Text of one line without control characters."""
Text = Annotated[str, Field(max_length=100_000)]
"""Any text, such as a library's error message."""
Ns = Annotated[int, Field(ge=0, le=MOST_NS)]
"""A time in nanoseconds."""
SomeNs = Annotated[int, Field(ge=1, le=MOST_NS)]
"""A time in nanoseconds that is not zero."""
SignedNs = Annotated[int, Field(ge=-MOST_NS, le=MOST_NS)]
Lane = Annotated[int, Field(ge=0, lt=MOST_LANES)]
Lanes = Annotated[int, Field(ge=1, le=MOST_LANES)]
Milliwatts = Annotated[int, Field(ge=0, le=MOST_MW)]
Bytes = Annotated[int, Field(ge=0, le=MOST_BYTES)]
PerSecond = Annotated[int, Field(ge=0, le=MOST_RATE)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Amount = Annotated[int, Field(ge=-(2**62), le=2**62)]
"""A figure of any unit, of either sign."""
Real = Annotated[float, Field(ge=-1e18, le=1e18)]
Positive = Annotated[float, Field(ge=0, le=1e18)]
Step = Annotated[float, Field(gt=0, le=1e30)]
"""Scale of an integer: the value of one unit."""
Preempts = Annotated[str, Field(pattern="^(full|segment|none|restart)$")]
Criticality = Annotated[str, Field(pattern="^(hard|firm|soft)$")]
Overflow = Annotated[str, Field(pattern="^(newest|oldest)$")]
OnLate = Annotated[str, Field(pattern="^(continue|skip|abort|degrade)$")]
Status = Annotated[str, Field(pattern="^(unfinished|done|dropped|aborted)$")]
Verdict = Literal["feasible", "infeasible", "undecided"]
Rows = FailFast()
"""Annotation of a long list: stop at its first wrong entry, as a hostile file may hold a million of them."""
