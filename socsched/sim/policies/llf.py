"""Least laxity first (Mok, PhD thesis, MIT 1983): who can least afford to wait.

Laxities of waiting jobs shrink, so the order is looked at again every millisecond while somebody waits; looking more
often makes jobs of equal laxity take turns at every look, which the definition asks for and no system wants.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("llf", (Term.LAXITY, Term.ACTIVATION), dynamic=True, tick_ns=1_000_000)
