"""Heterogeneous highest priority first (XSched, OSDI 2025): one task across all engines under this policy.

While a job of some priority is ready or running on any engine, no engine runs a job of lower priority, so the urgent
task finds every engine, and the memory, free.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("hhpf", (Term.PRIORITY, Term.ACTIVATION), across=True)
