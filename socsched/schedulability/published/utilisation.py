"""Quick rejection of task sets infeasible under any scheduler."""

from __future__ import annotations

from fractions import Fraction

from socsched.schedulability.published.model import (
    PLAIN,
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    Terms,
    percent,
)
from socsched.schedulability.published.parallel import length


def run(problem: Problem) -> Answer:
    """Return False if the processors are overutilised or a job cannot meet its deadline even alone."""
    spin = problem.taskset.accelerator is not None and problem.taskset.accelerator.wait == "busy"
    for task in problem.tasks:
        alone = (
            task.jitter_ns + length(task) + task.suspension_ns + sum(r.time_ns + r.handling_ns for r in task.requests)
        )
        if alone > task.deadline_ns:
            terms: Terms = (("release jitter", task.jitter_ns), ("alone, undisturbed", alone - task.jitter_ns))
            return Answer(
                False, terms=terms, note=f"{task.name} needs {alone} ns alone, its deadline is {task.deadline_ns}"
            )
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
    return Answer(
        None, terms=terms, note=f"utilisation {float(total):.4f} on {count} processors: necessary conditions met"
    )


TEST = SchedulabilityTest(
    "utilisation",
    "necessary for any scheduler: sum of C/T at most the number of processors, C at most D",
    Scope(
        rules=("edf", "fp", "rm", "dm", "fifo"),
        preemption=("full", "limited", "none"),
        processors="any",
        takes=PLAIN,
    ),
    run,
    rank=0,
)
