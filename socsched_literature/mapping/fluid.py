"""Time advance for states of networks on lanes, vectorised: each state moves to its next event.

Memory is shared max-min fairly among the computing lanes, as in `evaluate`; times are floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched_literature.mapping.tables import Floats, Ints, Table

State = dict[str, Any]
"""Arrays with one row per state.

`t`: the clock.  Per lane: `run`, the network there (-1: none), `lag` until it computes, `rem` fraction of its work, and
its `time`, `fixed` part and `bytes`.  Per network: groups done (`pos`), the `last` lane used, whether it is `busy`, and
the end of its last group (`done`).  `latest`: the network that ended last (-1: none).
"""
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Fluid:
    """Time advance for the networks of a table."""

    table: Table

    def first(self) -> State:
        """Return the initial state, in which nothing has run."""
        shape, nets = (1, len(self.table.lanes)), len(self.table.groups)
        return {
            "t": np.zeros(1),
            "run": np.full(shape, -1, np.int64),
            "lag": np.zeros(shape),
            "rem": np.zeros(shape),
            "time": np.ones(shape),
            "fixed": np.zeros(shape),
            "bytes": np.zeros(shape),
            "pos": np.zeros((1, nets), np.int64),
            "last": np.full((1, nets), len(self.table.lanes), np.int64),
            "busy": np.zeros((1, nets), bool),
            "done": np.zeros((1, nets)),
            "latest": np.full(1, -1, np.int64),
        }

    def _stretch(self, state: State) -> tuple[npt.NDArray[np.bool_], Floats]:
        """Return the computing lanes and the factor by which traffic stretches each (max-min fair shares)."""
        active = (state["run"] >= 0) & (state["lag"] <= _TINY)
        if not self.table.bandwidth:
            return active, np.ones(active.shape)
        demand = np.where(active, state["bytes"] / np.maximum(state["time"] - state["fixed"], 1), 0.0)
        left = np.full(len(demand), self.table.bandwidth)
        level = np.full(len(demand), np.inf)
        for place, column in enumerate(np.sort(demand, 1).T):
            fair, open_ = left / (len(self.table.lanes) - place), np.isinf(level)
            served = column <= fair
            left = np.where(served & open_, left - column, left)
            level = np.where(~served & open_, fair, level)
        share = np.minimum(demand, level[:, None])
        slow = state["fixed"] + state["bytes"] / np.maximum(share, 1e-12)
        return active, np.where(demand > share * (1 + 1e-12), np.maximum(slow / state["time"], 1.0), 1.0)

    def advance(self, state: State, must: npt.NDArray[np.bool_]) -> State:
        """Advance the states selected by `must` to their next event."""
        active, stretch = self._stretch(state)
        running = state["run"] >= 0
        pace = state["time"] * stretch
        left = np.where(running, np.where(active, state["rem"] * pace, state["lag"]), np.inf)
        passed = left.min(1)
        passed = np.where(must & np.isfinite(passed), passed, 0.0)
        state["t"] = state["t"] + passed
        state["lag"] = np.where(running & ~active, state["lag"] - passed[:, None], state["lag"])
        state["rem"] = np.where(active, state["rem"] - passed[:, None] / pace, state["rem"])
        row, lane = np.nonzero(active & (state["rem"] * state["time"] <= _TINY))
        net = state["run"][row, lane]
        state["busy"][row, net], state["last"][row, net] = False, lane
        state["done"][row, net] = state["t"][row]
        state["latest"][row] = net
        state["pos"][row, net] += 1
        state["run"][row, lane], state["rem"][row, lane] = -1, 0.0
        return state

    def past(self, state: State) -> State:
        """Advance time to the next job completion."""
        ended = state["pos"].sum(1)
        while (must := state["pos"].sum(1) == ended).any():
            state = self.advance(state, must)
        return state

    def settle(self, state: State) -> State:
        """Advance time until a lane and a network are free, or nothing runs."""
        while True:
            open_ = (~state["busy"] & (state["pos"] < self.table.length)).any(1) & (state["run"] < 0).any(1)
            must = ~open_ & (state["run"] >= 0).any(1)
            if not must.any():
                return state
            state = self.advance(state, must)


def take(state: State, rows: Ints) -> State:
    """Return the states of the given rows."""
    return {name: values[rows] for name, values in state.items()}
