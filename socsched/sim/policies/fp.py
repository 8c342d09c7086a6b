"""Fixed priority per task, as planned (0 is highest); equal priorities are served in order of activation."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("fp", (Term.PRIORITY, Term.ACTIVATION))
