"""Irina: queue, batch, stack or preempt, whichever minimises the sum of completion times (APNet 2020).

All rules are reconstructed from the abstract; the full paper was not available.  The objective is mean completion time,
and an arriving job may be merged with queued ones of its model, co-run with the running job, interrupt it, or wait.

- queue: the shortest remaining job first, which minimises the sum of completion times;
- preempt: a shorter job interrupts, unless the running job's remaining time is so short (at most the shorter job plus
  the cost of saving) that it should finish first;
- batch: a starting job takes up to `batch` waiting ones of its task along, each for `more` thousandths of a single one;
- stack: a waiting job co-runs with the running one if both, slowed to `slowdown` thousandths of their time, have a
  smaller sum of completion times than in sequence.
"""

from __future__ import annotations

from socsched.cost.cost import Segment
from socsched.planning.plan import Task
from socsched.sim.policies.mechanisms import Batch, CoRunning, PreemptionMechanism
from socsched.sim.policies.terms import Policy, Term

KINDS = ("gpu", "dla", "npu")


def make(*, batch: int = 8, more: int = 400, slowdown: int = 1400, save_ns: int = 20_000) -> Policy:
    """Return the policy; a batch of 1 never merges, a slowdown of 2000 or more never stacks."""
    if batch < 1 or more < 0 or slowdown < 1000:
        raise ValueError("batch must be at least 1, more at least 0, slowdown at least 1000")

    def pace(task: Task, segment: Segment, guest: Task, its: Segment) -> tuple[int, int]:
        return segment.time_ns * slowdown // 1000, its.time_ns * slowdown // 1000

    mechanism = PreemptionMechanism("full", KINDS, save_ns=save_ns, restore_ns=save_ns, drain="completion")
    together = Batch(lambda task: batch, more, KINDS)
    order = (Term.REMAINING, Term.ACTIVATION)
    return Policy(
        "irina", order, dynamic=True, preemption=(mechanism,), corun=CoRunning(pace, True, KINDS), batch=together
    )


POLICY = make()
