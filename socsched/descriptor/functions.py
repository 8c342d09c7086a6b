"""The cost of host functions on engines that declare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.descriptor.platform import Figure


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """The time of a host function that an engine has code or hardware for.

    `time_ns`: a job of size `work` with all units at the highest clock, launches and submission included.
    `per_million`: time (ns) of a million items more of a quantity in `work`.  Both are inversely proportional to units
    times clock.  `kernels`: launches of a job.  `dtypes`: data types of tensors that the function reads and writes
    without a conversion.  `limits`: quantity -> inclusive (min, max); outside them the engine refuses the function.
    """

    time_ns: Figure
    work: Mapping[str, float]
    per_million: Mapping[str, Figure] = field(default_factory=dict)
    kernels: int = 1
    dtypes: tuple[str, ...] = ()
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
