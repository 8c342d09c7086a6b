"""Frame accounting: released = completed + dropped + aborted, kept during the run and checked at the end.

A frame is open while a job runs or waits to run on its data, or a join holds it for its partners.  Each of these holds
the frame's ticket; the frame is booked once, when the last hold is released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

COMPLETED, DROPPED, ABORTED = "completed", "dropped", "aborted"
_WORST = (COMPLETED, DROPPED, ABORTED)


@dataclass(slots=True)
class Account:
    """Frame counts of one sensor or timer: released, and by outcome."""

    released: int = 0
    completed: int = 0
    dropped: int = 0
    aborted: int = 0

    @property
    def balanced(self) -> bool:
        """Return whether every released frame is accounted for."""
        return self.released == self.completed + self.dropped + self.aborted


class Ticket:
    """One frame of one source; starts with one hold, owned by its creator."""

    __slots__ = ("_ledger", "_outcome", "_users", "frame", "source")

    def __init__(self, ledger: Ledger, source: str, frame: int) -> None:
        self.source, self.frame = source, frame
        self._ledger, self._outcome, self._users = ledger, 0, 1

    def hold(self) -> None:
        """Keep the frame open until `let_go`."""
        self._users += 1

    def let_go(self, outcome: str = COMPLETED) -> None:
        """Release one hold, with the outcome of this part of the frame; the worst outcome counts."""
        if outcome != COMPLETED:
            self._outcome = max(self._outcome, _WORST.index(outcome))
        self._users -= 1
        if self._users == 0:
            self._ledger.close(self, _WORST[self._outcome])


class Ledger:
    """The accounts of a run by sensor and timer, and the frames still open; `jobs` counts the jobs created."""

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
        """Book a frame; a frame already booked is unchanged."""
        if self.open.pop(ticket, ticket) is None:
            account = self.accounts[ticket.source]
            setattr(account, outcome, getattr(account, outcome) + 1)

    def settle(self) -> None:
        """Book every frame still open as aborted at the end of the run."""
        for ticket in list(self.open):
            self.close(ticket, ABORTED)

    def document(self) -> dict[str, dict[str, int]]:
        """Return the accounts as plain data."""
        return {source: asdict(account) for source, account in sorted(self.accounts.items())}


def let_go(tickets: Iterable[Ticket], outcome: str = COMPLETED) -> None:
    """Release one hold on each of `tickets`."""
    for ticket in tickets:
        ticket.let_go(outcome)
