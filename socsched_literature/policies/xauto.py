"""XAuto's run-time policy: fixed priorities from an offline schedule, preemptive on every engine (arXiv 2508.09503).

The offline program, which assigns engines and priorities in the order of ends, is not part of this package: priorities
are the plan's.  Preemption takes `gpu` (channel groups, 275 us on an AGX Orin) and `dla` (queue of cuDLA, 132 us).
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, PreemptionMechanism, Term


def make(*, gpu_ns: int = 275_000, dla_ns: int = 132_000) -> Policy:
    """Return the policy with the preemption cost of each kind of engine."""
    mechanism = (
        PreemptionMechanism("full", ("gpu",), save_ns=gpu_ns),
        PreemptionMechanism("segment", ("dla", "npu"), in_flight=1, save_ns=dla_ns),
    )
    return Policy("xauto", (Term.PRIORITY, Term.ACTIVATION), preemption=mechanism)


POLICY = make()
