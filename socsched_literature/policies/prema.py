"""PREMA: the shortest job among those with enough tokens, with a choice of how to preempt (Choi & Rhu, HPCA 2020).

Algorithm 2: a job starts with its priority (1, 3 or 9) in tokens, and while it waits earns its priority times its
slowdown; the threshold is the largest priority level reached by any job's tokens; of the candidates the one with the
shortest estimated remaining time runs.  Evaluated when a job arrives or ends and every quantum.  Algorithm 3 chooses
the mechanism: let the running job drain if preemption would slow it down more than draining slows the candidate down,
else checkpoint.

Here the criticality in the plan is the priority (hard 9, firm 3, soft 1) and times are planned costs; the paper's
estimator is also a table of layers.

Open in the paper, or disputed.  Candidates have more tokens than the threshold in the text, at least as many in one
published re-implementation (with more, there is no candidate at first): `strict`.  Another one has a constant
`threshold` of 3, orders by the time of the whole job (`estimate` total), and compares the remaining fractions of both
jobs (`drain` share).  Checkpoints cost the DMA time to move a layer's outputs out and in: `save` and `restore`, assumed
20 us each.
"""

from __future__ import annotations

from socsched.sim.policies import check_choice
from socsched.sim.policies.terms import Policy, PreemptionMechanism, Term, Tokens
from socsched_literature.policies.shares import by_criticality

LEVELS = (1, 3, 9)
WEIGHT = by_criticality(*LEVELS)
MECHANISMS = ("dynamic", "checkpoint", "kill", "drain")


def choose_mechanism(mechanism: str, drain: str, save_ns: int, restore_ns: int) -> tuple[PreemptionMechanism, ...]:
    """Return the preemption mechanism: checkpoint, kill (progress is lost, nothing saved), drain, or Algorithm 3."""
    check_choice("mechanism", mechanism, MECHANISMS)
    if mechanism == "kill":
        return (PreemptionMechanism("restart", lost_work="job"),)
    if mechanism == "drain":
        return (PreemptionMechanism("none"),)
    rule = check_choice("drain", drain, ("slowdown", "share")) if mechanism == "dynamic" else ""
    return (PreemptionMechanism("full", save_ns=save_ns, restore_ns=restore_ns, drain=rule),)


def make(
    *,
    mechanism: str = "dynamic",
    drain: str = "slowdown",
    estimate: str = "remaining",
    strict: str = "no",
    threshold: int = 0,
    quantum_ns: int = 250_000,
    save_ns: int = 20_000,
    restore_ns: int = 20_000,
) -> Policy:
    """Return PREMA with its open questions settled by the options."""
    shortest = {"remaining": Term.REMAINING, "total": Term.COST}[
        check_choice("estimate", estimate, ("remaining", "total"))
    ]
    tokens = Tokens(LEVELS, threshold, check_choice("strict", strict, ("yes", "no")) == "yes")
    chosen = choose_mechanism(mechanism, drain, save_ns, restore_ns)
    return Policy(
        "prema", (Term.CANDIDATE, shortest), mechanism != "drain", True, quantum_ns, preemption=chosen, weight=WEIGHT,
        tokens=tokens,
    )  # fmt: skip


POLICY = make()
