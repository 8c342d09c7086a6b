"""DRAM as the running segments share it: how long each takes under its max-min fair share of the bandwidth."""

from __future__ import annotations

from socsched.cost.contention import fair_shares, stretched_ns
from socsched.sim.model import Piece, TaskState


class Memory:
    """The segments that draw bandwidth now, and the pace each keeps (`cost.contention`).

    `capacity` in bytes/s, 0 for a memory that is never short.  Combinations of segments recur, so paces are remembered.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.active: list[TaskState] = []
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def paces(self) -> tuple[int, ...]:
        """Sort the active segments by task; return how long (ns) each takes as a whole while the present ones run."""
        self.active.sort(key=_index)
        pieces = [state.piece for state in self.active]
        key = tuple(piece.uid for piece in pieces)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._stretched(pieces)
        return known

    def bytes_per_ns(self) -> float:
        """Return the traffic of all active segments, averaged over each segment's present duration."""
        return sum(state.piece.segment.bytes / state.pace_ns for state in self.active)

    def _stretched(self, pieces: list[Piece]) -> tuple[int, ...]:
        if not self.capacity:
            return tuple(piece.time_ns for piece in pieces)
        shares = fair_shares([piece.demand for piece in pieces], self.capacity)
        return tuple(stretched_ns(piece.segment, share) for piece, share in zip(pieces, shares, strict=True))


def _index(state: TaskState) -> int:
    return state.index
