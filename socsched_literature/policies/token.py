"""TOKEN, a baseline of PREMA (Choi & Rhu, HPCA 2020): first come first served among those with enough tokens.

Same options as `prema`; the paper's figures are of the non-preemptive variant (``np-token``) unless stated otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.sim.policies.terms import Policy, Term
from socsched_literature.policies import prema


def make(
    *, mechanism: str = "dynamic", drain: str = "slowdown", strict: str = "no", threshold: int = 0,
    quantum_ns: int = 250_000, save_ns: int = 20_000, restore_ns: int = 20_000,
) -> Policy:  # fmt: skip
    """Return the policy with the open questions of PREMA settled by the options."""
    rule = prema.make(
        mechanism=mechanism, drain=drain, strict=strict, threshold=threshold, quantum_ns=quantum_ns, save_ns=save_ns,
        restore_ns=restore_ns,
    )  # fmt: skip
    return replace(rule, name="token", order=(Term.CANDIDATE, Term.ACTIVATION))


POLICY = make()
