"""Round-robin: every job runs for the engine's quantum, then goes to the end of the queue.

On an engine that switches jobs only between segments, the quantum is checked there: with a quantum of 1 ns two
processes alternate segment by segment, as on a time-shared accelerator without priorities.
"""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

POLICY = Policy("rr", (Term.TURN, Term.NOTHING), sliced=True)
