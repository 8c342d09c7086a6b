"""Irina: queue, batch, stack or preempt, whichever lets jobs end soonest in sum (APNet 2020).

All rules are reconstructed from the abstract, no more of the paper was at hand: mean completion time is the objective,
and an arriving job may be merged with queued ones of its model, run beside the one that runs, interrupt it, or wait.

- queue: the shortest remaining job first, which minimises the sum of completion times;
- preempt: a shorter job interrupts unless what is left of the other, at most the shorter job and what saving takes, had
  better finish first;
- batch: a job that starts takes up to `batch` waiting ones of its task along, each for `more` thousandths of one alone;
- stack: a waiting job runs beside the one that runs where both, `slowdown` thousandths as slow, end sooner in sum than
  one after the other.
"""

from __future__ import annotations

from socsched.cost.cost import Segment
from socsched.planning.plan import Task
from socsched.sim.policies.mechanisms import Batch, Beside, Taking
from socsched.sim.policies.terms import Policy, Term

KINDS = ("gpu", "dla", "npu")


def make(*, batch: int = 8, more: int = 400, slowdown: int = 1400, save_ns: int = 20_000) -> Policy:
    """Return the policy; a batch of 1 never merges, a slowdown of 2000 or more never stacks."""
    if batch < 1 or more < 0 or slowdown < 1000:
        raise ValueError("batch must be at least 1, more at least 0, slowdown at least 1000")

    def pace(task: Task, segment: Segment, guest: Task, its: Segment) -> tuple[int, int]:
        return segment.time_ns * slowdown // 1000, its.time_ns * slowdown // 1000

    how = Taking("full", KINDS, save_ns=save_ns, restore_ns=save_ns, drain="completion")
    together = Batch(lambda task: batch, more, KINDS)
    order = (Term.REMAINING, Term.ACTIVATION)
    return Policy("irina", order, dynamic=True, taking=(how,), beside=Beside(pace, True, KINDS), batch=together)


POLICY = make()
