"""Tests of utilisation: nothing but sums of C / T, or of C / min(D, T), against a limit."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import prod

from socsched.schedulability.published.model import PLAIN, Answer, Problem, Scope, deadlines_met, percent, published
from socsched.schedulability.published.parallel_graphs import length
from socsched.schedulability.tasks import Terms

_CLOSE = 1e-6
"""Distance of utilisations from a bound within which numbers are compared exactly."""


@published(
    "utilisation",
    "necessary for any scheduler: sum of C/T at most the number of processors, C at most D",
    Scope(("edf", "fp", "rm", "dm", "fifo"), preemption=("full", "limited", "none"), processors="any", takes=PLAIN),
    rank=0,
)
def utilisation(problem: Problem) -> Answer:
    """Return False if the processors are overutilised or a job cannot meet its deadline even alone."""
    spin = problem.taskset.accelerator is not None and problem.taskset.accelerator.wait == "busy"
    for task in problem.tasks:
        requests = sum(r.time_ns + r.handling_ns for r in task.requests)
        alone = task.jitter_ns + length(task) + task.suspension_ns + requests
        if alone > task.deadline_ns:
            terms: Terms = (("release jitter", task.jitter_ns), ("alone, undisturbed", alone - task.jitter_ns))
            note = f"{task.name} needs {alone} ns alone, its deadline is {task.deadline_ns}"
            return Answer(False, terms=terms, note=note)
    shares = [
        t.utilisation + (Fraction(sum(r.time_ns for r in t.requests), t.period_ns) if spin else 0)
        for t in problem.tasks
    ]
    total = sum(shares, Fraction(0))
    terms = tuple((f"{task.name}, ppm", percent(share)) for task, share in zip(problem.tasks, shares, strict=True))
    count = sum(number for _, number in problem.taskset.types) or problem.processors
    if total > count:
        return Answer(False, terms=terms, note=f"utilisation {float(total):.4f} over {count} processors")
    device = sum((Fraction(r.time_ns, t.period_ns) for t in problem.tasks for r in t.requests), Fraction(0))
    if device > 1:
        return Answer(False, terms=terms, note=f"the accelerator is requested for {float(device):.4f} of its time")
    note = f"utilisation {float(total):.4f} on {count} processors: necessary conditions met"
    return Answer(None, terms=terms, note=note)


def _rate_monotonic(problem: Problem) -> str:
    periods = [task.period_ns for task, _, _ in problem.by_rank()]
    return "priorities do not follow the periods" if any(a > b for a, b in itertools.pairwise(periods)) else ""


@published(
    "Liu-Layland bound",
    "Liu & Layland, JACM 20(1) 1973, theorem 5",
    Scope(deadlines="implicit"),
    also=_rate_monotonic,
    rank=1,
)
def liu_layland(problem: Problem) -> Answer:
    """Rate-monotonic utilisation bound n (2^(1/n) - 1).

    Liu & Layland, "Scheduling algorithms for multiprogramming in a hard-real-time environment", JACM 20(1) 1973.
    """
    count, total = len(problem.tasks), problem.utilisation
    limit = count * (2 ** (1 / count) - 1)
    terms = (("utilisation, ppm", percent(total)), ("bound, ppm", int(limit * 1_000_000)))
    # U <= n (2^(1/n) - 1), compared exactly where it is close
    near = abs(float(total) - limit) < _CLOSE
    if (1 + total / count) ** count <= 2 if near else total < limit:
        return deadlines_met(problem, terms, f"utilisation {float(total):.4f} is at most {limit:.4f}")
    return Answer(None, terms=terms, note=f"utilisation {float(total):.4f} is over {limit:.4f}")


@published(
    "hyperbolic bound",
    "Bini, Buttazzo, Buttazzo, ECRTS 2001, theorem 1; IEEE TC 52(7) 2003",
    Scope(deadlines="implicit"),
    also=_rate_monotonic,
    rank=2,
)
def hyperbolic(problem: Problem) -> Answer:
    """Rate-monotonic hyperbolic bound: the product of U_i + 1 is at most 2.

    Bini, Buttazzo, Buttazzo, "A hyperbolic bound for the rate monotonic algorithm", ECRTS 2001; "Rate monotonic
    analysis: the hyperbolic bound", IEEE TC 52(7) 2003.
    """
    product = prod((1 + task.utilisation for task in problem.tasks), start=Fraction(1))
    terms = tuple((f"{task.name}: U + 1, ppm", percent(1 + task.utilisation)) for task in problem.tasks)
    if product <= 2:
        return deadlines_met(problem, terms, f"product {float(product):.4f} is at most 2")
    return Answer(None, terms=terms, note=f"product {float(product):.4f} is over 2")


@published(
    "EDF utilisation",
    "Liu & Layland, JACM 20(1) 1973, theorem 7",
    Scope(("edf",), deadlines="implicit"),
    exact=True,
    rank=8,
)
def edf_utilisation(problem: Problem) -> Answer:
    """EDF on one processor: utilisation at most 1, which is necessary as well."""
    terms = tuple((f"{task.name}, ppm", percent(task.utilisation)) for task in problem.tasks)
    note = f"utilisation {float(problem.utilisation):.4f}"
    return deadlines_met(problem, terms, note) if problem.utilisation <= 1 else Answer(False, terms=terms, note=note)


_RT_BANDWIDTH = Fraction(950_000, 1_000_000)
"""sched_rt_runtime_us / sched_rt_period_us by kernel default."""


@published(
    "SCHED_DEADLINE admission",
    "Linux sched-deadline.rst, section 4; Abeni & Buttazzo, RTSS 1998",
    Scope(("edf",), processors="any"),
    rank=14,
)
def sched_deadline(problem: Problem) -> Answer:
    """Admission test of Linux SCHED_DEADLINE, a reservation of the WCET per deadline: sum of C/T at most 0.95 m.

    Linux kernel documentation, Documentation/scheduler/sched-deadline.rst, section 4 (bandwidth management); Abeni &
    Buttazzo, "Integrating multimedia applications in hard real-time systems", RTSS 1998 (constant bandwidth server).
    """
    total, limit = problem.utilisation, _RT_BANDWIDTH * problem.processors
    terms = tuple((f"{task.name}, ppm", percent(task.utilisation)) for task in problem.tasks)
    note = f"bandwidth {float(total):.4f} {'is at most' if total <= limit else 'is over'} {float(limit):.4f}"
    if total > limit:
        return Answer(None, terms=terms, note=f"not admitted: {note}")
    # On several processors, admission bounds tardiness alone.
    if problem.processors == 1 and all(task.deadline_ns >= task.period_ns for task in problem.tasks):
        return deadlines_met(problem, terms, f"admitted: {note}")
    return Answer(None, terms=terms, note=f"admitted, which does not guarantee the deadlines here: {note}")


@published(
    "global EDF density (GFB)",
    "Goossens, Funk, Baruah, RTS 25 2003; Bertogna, Cirinei, Lipari, ECRTS 2005, theorem 4",
    Scope(("edf",), processors="many"),
    rank=15,
)
def gfb(problem: Problem) -> Answer:
    """Global EDF: the sum of C / min(D, T) is at most m (1 - largest) + largest.

    Goossens, Funk, Baruah, "Priority-driven scheduling of periodic task systems on multiprocessors", RTS 25 2003; with
    densities for constrained deadlines, Bertogna, Cirinei, Lipari, ECRTS 2005.
    """
    shares = [Fraction(task.wcet_ns, min(task.deadline_ns, task.period_ns)) for task in problem.tasks]
    total, largest = sum(shares, Fraction(0)), max(shares)
    limit = problem.processors * (1 - largest) + largest
    terms = tuple((f"{t.name}, ppm", percent(share)) for t, share in zip(problem.tasks, shares, strict=True))
    if largest <= 1 and total <= limit:
        return deadlines_met(problem, terms, f"density {float(total):.4f} is at most {float(limit):.4f}")
    return Answer(None, terms=terms, note=f"density {float(total):.4f} is over {float(limit):.4f}")
