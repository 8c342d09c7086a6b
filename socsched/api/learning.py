"""What a run on this machine has shown of its stages, kept for later plans (`run --learn`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.api.results import Result
    from socsched.descriptor.pipeline import Pipeline

FEWEST = 5
"""Jobs of a stage, with no other job beside them, that are enough to learn its time."""


def learn(run: Result, pipeline: Pipeline) -> list[str]:
    """Keep the times of the stages of a run on this machine; return the names of those learned.

    Jobs that ran while another one did are left out: contention is no part of a stage's own time.  Raises UsageError
    for a run elsewhere.
    """
    from socsched.cost.learned import learn as keep
    from socsched.cost.learned import place
    from socsched.descriptor.catalog import HOST

    if run.plan.platform != HOST or run.trace is None or run.trace.kind != "measured":
        raise UsageError("only a run of a plan for this machine teaches its times", "plan with -p host")
    done = sorted((job for job in run.trace.jobs if job.status == "done"), key=lambda job: job.start_ns)
    latest = 0
    times: dict[str, list[int]] = {}
    for at, job in enumerate(done):
        following = done[at + 1].start_ns if at + 1 < len(done) else job.finish_ns
        if latest <= job.start_ns and job.finish_ns <= following:
            times.setdefault(job.task, []).append(job.exec_ns)
        latest = max(latest, job.finish_ns)
    stages = {stage.name: stage for stage in pipeline.stages if stage.model}
    found = {
        task.name: (place(stages[task.name], task.engine, task.precision, len(task.lanes), task.runtime), values)
        for task in run.plan.tasks
        if task.name in stages and len(values := times.get(task.name, [])) >= FEWEST
    }
    keep(found.values())
    return list(found)
