"""What the probe of this machine has measured, kept in the cache: kernels, host functions, memory, contention.

`executor.probe` measures; `host` builds the platform from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from socsched.cache import keep, recall
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import Figure, FunctionCost

FORMAT = 3
KIND = "host-probe"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measurement holds for, and what the machine did meanwhile.

    `versions`: of the kernels and of ONNX Runtime; `chain_ns`: time of a fixed chain of additions, which follows the
    clock; `load`: load average; `share`: of the time that the measuring threads had a processor; `taken_s`: when it was
    done (Unix time); `seconds`: how long it took, compiled; `steady`: its turns agree.
    """

    model: str
    cores: int
    governor: str
    versions: Mapping[str, str]
    chain_ns: float
    load: float
    share: float
    taken_s: float
    seconds: float
    steady: bool = True

    @property
    def date(self) -> str:
        """Return the day of the measurement."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.taken_s))


@dataclass(frozen=True, slots=True)
class HostProbe:
    """Measured kernels by runtime, host functions by name, and rates of copying (bytes read plus written a second).

    `contention`: parameters of the model "linear" (`cost.contention`), as pairs on two cores show them.
    """

    conditions: Conditions
    kernels: tuple[KernelTimes, ...]
    functions: Mapping[str, FunctionCost]
    copy_one: float
    copy_all: float
    contention: Mapping[str, float] = field(default_factory=dict)


def recalled(key: str) -> HostProbe | None:
    """Return the probe that the cache has for a machine (`host.key`), None if there is none that can be read."""
    stored = recall(KIND, key)
    try:
        return _probe(stored) if stored.pop("format") == FORMAT else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def kept(key: str, probe: HostProbe) -> None:
    """Keep a probe in the cache."""
    keep(KIND, key, {"format": FORMAT, **asdict(probe)})


def _probe(stored: dict[str, Any]) -> HostProbe:
    kernels = tuple(
        KernelTimes(**{**times, "kernels": tuple(KernelTime(**one) for one in times["kernels"]), "elsewhere": ()})
        for times in stored.pop("kernels")
    )
    functions = {name: _function(cost) for name, cost in stored.pop("functions").items()}
    return HostProbe(Conditions(**stored.pop("conditions")), kernels, functions, **stored)


def _function(stored: dict[str, Any]) -> FunctionCost:
    per_million = {name: Figure(**figure) for name, figure in stored["per_million"].items()}
    return FunctionCost(Figure(**stored["time_ns"]), stored["work"], per_million, units=stored["units"])
