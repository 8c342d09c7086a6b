"""The passes of many networks as arrays: their times under parameters, and the derivatives that fits need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from socsched.cost.timing import RELATIVE, SHARPNESS, Load, Nominal, Terms, job_us, loads, rates, terms
from socsched.descriptor.fit import NAMES, PASS_KINDS, Parameters
from socsched.graph.operators import Pass

Array = NDArray[Any]
Prior = Mapping[str, tuple[float, float]]
"""Parameter -> (median, spread of the logarithm)."""


def from_logs(logs: Array) -> Parameters:
    """Return parameters from logarithms in the order of `NAMES`."""
    return Parameters(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class Table:
    """Loads of the passes of several networks on an engine as arrays; `network` numbers the network of each."""

    engine: Nominal
    load: Load
    network: Array
    count: int

    @property
    def kinds(self) -> set[int]:
        """Return the classes that occur."""
        return {int(kind) for kind in self.load.kind}


def table(networks: Sequence[Sequence[Pass]], engine: Nominal) -> Table:
    """Return the passes of networks on an engine."""
    rows = [(number, load) for number, passes in enumerate(networks) for load in loads(passes, engine)]
    columns = zip(*(load for _, load in rows), strict=True) if rows else ([],) * len(Load._fields)
    kind, *others = (np.array(column) for column in columns)
    load = Load(kind.astype(int), *(column.astype(float) for column in others))
    return Table(engine, load, np.array([number for number, _ in rows], int), len(networks))


def _terms(work: Table, p: Parameters) -> Terms:
    return terms(work.load, work.engine, p, np.array(rates(p))[work.load.kind])


def job_times(work: Table, p: Parameters) -> Array:
    """Return the time (us) of one job of each network."""
    part = _terms(work, p)
    return np.bincount(work.network, part.busy + part.fixed, work.count) + job_us(work.engine, p)


def slopes(work: Table, p: Parameters) -> tuple[Array, Array]:
    """Return the job times (us) and their derivatives by the logarithm of every parameter."""
    part = _terms(work, p)
    arithmetic, traffic, both = part.arithmetic, part.traffic, part.busy
    safe = np.maximum(both, 1e-12)
    by_work, by_traffic = (arithmetic / safe) ** (SHARPNESS - 1), (traffic / safe) ** (SHARPNESS - 1)
    dense, vector = part.matrix + part.fill, part.vector + part.exp + part.norm + part.ride
    change = {
        "conv": -dense * by_work,
        **{name: -dense * by_work * (work.load.kind == PASS_KINDS.index(name)) for name in RELATIVE},
        "vector": -vector * by_work,
        "exp": part.exp * by_work,
        "norm": part.norm * by_work,
        "ride": part.ride * by_work,
        "fill": part.fill * by_work,
        "onchip": -(part.onchip + part.moved) * by_traffic,
        "spill": -(part.spill + part.carried) * by_traffic,
        "move": -(part.moved + part.carried) * by_traffic,
        "border": -part.border * by_traffic,
        "weights": -part.weights * by_traffic,
        "layer": part.fixed,
    }
    job = job_us(work.engine, p)
    times = np.bincount(work.network, both + part.fixed, work.count) + job
    columns = [np.bincount(work.network, change[name], work.count) if name in change else np.full(work.count, job)
               for name in NAMES]  # fmt: skip
    return times, np.stack(columns, axis=1)
