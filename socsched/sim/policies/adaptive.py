"""Chooses between two orders by observed load, with hysteresis, and never at the price of a deadline.

Our own design, in the spirit of adaptive policy switching.  Below `low` percent of the slots in use (mean over the last
`window` samples), jobs are served shortest first, which keeps responses short; above `high` percent, earliest deadline
first, which meets most deadlines; in between the last choice holds.  Shortest first is used only while `slack_stealing`
finds slack until the next sample, so every deadline EDF would meet is met: without slack, this is EDF.
"""

from __future__ import annotations

from socsched.sim.policies.controllers import View
from socsched.sim.policies.slack_stealing import SlackStealer
from socsched.sim.policies.terms import Policy, Term

SAFE = (Term.DEADLINE, Term.ACTIVATION)
CALM = (Term.REMAINING, Term.ACTIVATION)
REACH = 10
"""Periods ahead over which slack is computed, so that it need not be recomputed at every sample."""


class Adaptive:
    """The controller of a unit; `calm`: selected by load, `switches`: number of changes of it."""

    def __init__(self, low: float, high: float, period_ns: int, window: int) -> None:
        self.low, self.high, self.period_ns, self.smoothing = low, high, period_ns, 1 / window
        self.load, self.calm, self.switches = 0.0, False, 0
        self._stealer: SlackStealer | None = None

    def decide(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        """Return the order until the next sample."""
        if self._stealer is None:
            self._stealer = SlackStealer(view.plan, view.tasks, view.tasks)
        self.load += (view.busy - self.load) * self.smoothing
        calm = self.load < self.low or (self.calm and self.load <= self.high)
        self.switches += calm != self.calm
        self.calm = calm
        if not calm:
            return SAFE, None
        # strictly more than a period: jobs arriving at the instant of the next sample are dispatched after it
        known = self._stealer.get_slack_ns(view, now_ns, self.period_ns, REACH * self.period_ns)
        return (CALM if known > self.period_ns else SAFE), None


def make(*, low: int = 50, high: int = 70, period_ns: int = 1_000_000, window: int = 50) -> Policy:
    """Return the policy with thresholds in percent; raise ValueError unless they leave room for hysteresis."""
    if not 0 <= low < high or window < 1 or period_ns < 1:
        raise ValueError(f"low must be below high, window and period at least 1, got {low}, {high} and {window}")
    # keys of the calm order change as jobs run
    return Policy("adaptive", SAFE, dynamic=True, controller=lambda: Adaptive(low / 100, high / 100, period_ns, window))


POLICY = make()
