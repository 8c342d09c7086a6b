"""Limits on fields of generated files (plan, profile, scales, manifest): name patterns, number ranges, plain data.

The classes written to such files use these types, and `json_file` validates a file against them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    FailFast,
    Field,
    JsonValue,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

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
LongLine = Annotated[str, Field(pattern=LINE_PATTERN, max_length=100_000)]
"""A long text of one line, such as a proof that names every stage."""
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
Bits = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""Eight bytes as a signed number."""
Byte = Annotated[int, Field(ge=0, le=255)]
Real = Annotated[float, Field(ge=-1e18, le=1e18)]
Positive = Annotated[float, Field(ge=0, le=1e18)]


def _as_written(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Return a number as it is in the file after checking it as a float, so that whole numbers stay whole."""
    check(value)
    return value


Number = Annotated[float, Field(ge=-1e18, le=1e18), WrapValidator(_as_written)]
"""A figure of any unit and sign, whole or not, that is written again exactly as it was read."""
NonNegative = Annotated[float, Field(ge=0, le=1e18), WrapValidator(_as_written)]
"""A `Number` that is not negative."""
Step = Annotated[float, Field(gt=0, le=1e30)]
"""Scale of an integer: the value of one unit."""
Preempts = Annotated[str, Field(pattern="^(full|segment|none|restart)$")]
Criticality = Annotated[str, Field(pattern="^(hard|firm|soft)$")]
Overflow = Annotated[str, Field(pattern="^(newest|oldest)$")]
OnLate = Annotated[str, Field(pattern="^(continue|skip|abort|degrade)$")]
Status = Annotated[str, Field(pattern="^(unfinished|done|dropped|aborted)$")]
Verdict = Literal["feasible", "infeasible", "undecided"]
Objective = Literal["latency", "longest", "energy", "throughput", "slack"]
"""A value that planning minimises; see `planning.candidate.objective_value`."""


def _objectives(value: Any) -> tuple[Objective, ...]:
    """Return the objectives in a text such as "energy,latency", none for null or an empty text."""
    names = str(value).split(",") if value else []
    objectives = tuple(known for name in names for known in get_args(Objective) if known == name.strip())
    if not isinstance(value, str | None) or len(objectives) < len(names):
        raise ValueError(f"expected one or more of {', '.join(get_args(Objective))}, separated by commas")
    return objectives


_ONE = f" *({'|'.join(get_args(Objective))}) *"
Objectives = Annotated[
    tuple[Objective, ...],
    PlainValidator(_objectives),
    WithJsonSchema({"type": ["string", "null"], "pattern": f"^({_ONE}(,{_ONE})*)?$"}),
]
"""Objectives, the most important first; one text in a file."""
Scalar = bool | int | float | str
Json = JsonValue
"""Plain data of any structure: parameters that only a model, a planner or a contention model interprets."""


def _scalar(value: Any) -> Scalar:
    if not isinstance(value, Scalar):
        raise ValueError("expected text, a number, true or false")
    return value


Setting = Annotated[Scalar, PlainValidator(_scalar), WithJsonSchema({"type": ["boolean", "number", "string"]})]
"""The value of an option."""
Rows = FailFast()
"""Annotation of a long list: stop at its first wrong entry, as a hostile file may hold a million of them."""
