"""What became of every frame: released = completed + dropped + aborted, kept while frames flow, checked at the end.

A frame is open as long as a job works on its data, waits to, or a join holds it for its partners.  Each of these holds
the frame's ticket; the frame is booked, once, when the last of them lets go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

COMPLETED, DROPPED, ABORTED = "completed", "dropped", "aborted"
_WORST = (COMPLETED, DROPPED, ABORTED)


@dataclass(slots=True)
class Account:
    """Frames of one sensor or timer: all that were released, and how they ended."""

    released: int = 0
    completed: int = 0
    dropped: int = 0
    aborted: int = 0

    @property
    def balanced(self) -> bool:
        """Whether every released frame is accounted for."""
        return self.released == self.completed + self.dropped + self.aborted


class Ticket:
    """One frame of one source; it starts held once, by whoever opened it."""

    __slots__ = ("_ledger", "_outcome", "_users", "frame", "source")

    def __init__(self, ledger: Ledger, source: str, frame: int) -> None:
        self.source, self.frame = source, frame
        self._ledger, self._outcome, self._users = ledger, 0, 1

    def hold(self) -> None:
        """Keep the frame open until `let_go`."""
        self._users += 1

    def let_go(self, outcome: str = COMPLETED) -> None:
        """Give one hold up, with what happened to this part of the frame; the worst part decides."""
        if outcome != COMPLETED:
            self._outcome = max(self._outcome, _WORST.index(outcome))
        self._users -= 1
        if self._users == 0:
            self._ledger.close(self, _WORST[self._outcome])


class Ledger:
    """The accounts of a run by sensor and timer, and the frames still open; `jobs` counts those made of them."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.open: dict[Ticket, None] = {}
        self.jobs = 0

    def release(self, source: str, frame: int) -> Ticket:
        """Open a frame, held once."""
        self.accounts.setdefault(source, Account()).released += 1
        ticket = Ticket(self, source, frame)
        self.open[ticket] = None
        return ticket

    def close(self, ticket: Ticket, outcome: str) -> None:
        """Book a frame; what is booked already stays as it was."""
        if self.open.pop(ticket, ticket) is None:
            account = self.accounts[ticket.source]
            setattr(account, outcome, getattr(account, outcome) + 1)

    def settle(self) -> None:
        """Book every frame still open as aborted: the run is over."""
        for ticket in list(self.open):
            self.close(ticket, ABORTED)

    def document(self) -> dict[str, dict[str, int]]:
        """Return the accounts as plain data."""
        return {source: asdict(account) for source, account in sorted(self.accounts.items())}


def let_go(tickets: Iterable[Ticket], outcome: str = COMPLETED) -> None:
    """Give up one hold on each of `tickets`."""
    for ticket in tickets:
        ticket.let_go(outcome)
