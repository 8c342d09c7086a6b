"""The policies that come with socsched; `plugins.BUILT_IN` names them."""

from __future__ import annotations

from socsched.sim.policies.terms import Policy, Term

EDF = Policy(
    "edf",
    (Term.DEADLINE, Term.ACTIVATION),
    about="Earliest deadline first (Liu & Layland, JACM 20(1) 1973, theorem 7).",
)
"""Equal deadlines are ordered by activation, so that a tie never preempts."""

FP = Policy(
    "fp",
    (Term.PRIORITY, Term.ACTIVATION),
    about="Fixed priority per task, as planned (0 is highest); equal priorities are served in order of activation.",
)

FIFO = Policy(
    "fifo",
    (Term.ACTIVATION, Term.NOTHING),
    about="First in, first out: the behaviour of an engine's hardware queue without scheduling.",
)

RM = Policy(
    "rm",
    (Term.PERIOD, Term.NOTHING),
    about="Rate monotonic: the shorter the period, the more urgent (Liu & Layland, JACM 20(1) 1973, theorem 2).",
)
"""Tasks of equal period keep their order, as in a fixed priority assignment."""

DM = Policy(
    "dm",
    (Term.RELATIVE_DEADLINE, Term.NOTHING),
    about="Deadline monotonic: the shorter the relative deadline, the more urgent.",
)
"""Leung & Whitehead, Performance Evaluation 2(4) 1982."""

RR = Policy(
    "rr",
    (Term.TURN, Term.NOTHING),
    sliced=True,
    about="Round-robin: every job runs for the engine's quantum, then goes to the end of the queue.",
)
"""On an engine that switches jobs only between segments, the quantum is checked there: with a quantum of 1 ns two
processes alternate segment by segment, as on a time-shared accelerator without priorities."""

LLF = Policy(
    "llf",
    (Term.LAXITY, Term.ACTIVATION),
    dynamic=True,
    tick_ns=1_000_000,
    about="Least laxity first (Mok, PhD thesis, MIT 1983): the job that can least afford to wait.",
)
"""Laxities of waiting jobs shrink, so the order is re-evaluated every millisecond while jobs wait.  At a finer
interval, jobs of equal laxity would alternate at every evaluation, as the definition requires but no system wants."""

EDF_CRITICALITY = Policy(
    "edf-criticality",
    (Term.CRITICALITY, Term.DEADLINE),
    about="Criticality first, earliest deadline within it: hard tasks never wait for firm ones, nor firm for soft.",
)

CBS = Policy(
    "cbs",
    (Term.SERVER, Term.ACTIVATION),
    serves=True,
    about="Constant bandwidth server with hard reservations, as Linux's SCHED_DEADLINE (Abeni & Buttazzo, RTSS 1998; "
    "GRUB off).",
)
"""A task may run `budget_ns` in every `server_ns`; EDF orders by the reservation's deadline.  A job whose reservation
has expired, or has more budget than fits before the deadline at that rate, gets a new one; a task that has used up its
budget waits until the reservation's deadline.  Tasks without a reservation run in order of their own deadlines."""

SRTF = Policy(
    "srtf",
    (Term.REMAINING, Term.ACTIVATION),
    dynamic=True,
    about="Shortest remaining time first (Schrage, Oper. Res. 16(3) 1968): least mean response, no regard for "
    "deadlines.",
)

SJF = Policy(
    "sjf",
    (Term.COST, Term.ACTIVATION),
    about="Shortest job first, by planned cost of the whole job: a baseline of PREMA (Choi & Rhu, HPCA 2020), as "
    "`np-sjf`.",
)
