"""Least laxity first (Mok, PhD thesis, MIT 1983): the job that can least afford to wait.

Laxities of waiting jobs shrink, so the order is re-evaluated every millisecond while jobs wait.  At a finer interval,
jobs of equal laxity would alternate at every evaluation, as the definition requires but no system wants.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("llf", (Term.LAXITY, Term.ACTIVATION), dynamic=True, tick_ns=1_000_000)
