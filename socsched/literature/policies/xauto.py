"""XAuto's way at run time: fixed priorities from an offline schedule, preemptive on every engine (arXiv 2508.09503).

Priorities are the order in which the offline program lets stages finish (`planning.xauto`); a plan that was made
otherwise has its own.  Preemption takes `gpu` (channel groups, 275 us on an AGX Orin) and `dla` (queue of cuDLA,
132 us).
"""

from __future__ import annotations

from socsched.sim.policies.mechanisms import Taking
from socsched.sim.policies.terms import Policy, Term


def make(*, gpu_ns: int = 275_000, dla_ns: int = 132_000) -> Policy:
    """Return the policy with what preempting each kind of engine takes."""
    how = (Taking("full", ("gpu",), save_ns=gpu_ns), Taking("segment", ("dla", "npu"), in_flight=1, save_ns=dla_ns))
    return Policy("xauto", (Term.PRIORITY, Term.ACTIVATION), taking=how)


POLICY = make()
