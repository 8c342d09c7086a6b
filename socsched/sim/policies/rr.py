"""Round-robin: every job runs for the engine's quantum, then goes to the end of the queue.

On an engine that changes jobs at ends of segments only, the quantum is looked at there: with a quantum of 1 ns two
processes alternate segment by segment, which is how an accelerator without priorities is time-shared.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("rr", (Term.TURN, Term.NOTHING), sliced=True)
