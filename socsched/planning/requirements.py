"""What a plan was asked for: the requirements of the pipeline, the platform and the command line, as stated.

They are kept apart from what the plan achieves, so that two plans can be compared by what was asked of them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from socsched.descriptor.limits import Amount, Line, PlanName
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage

AUTO = "auto"
"""The mode that a plan was asked for where every mode may be chosen."""
PLATFORM, PIPELINE = "platform", "pipeline"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: `kind` of a `subject` ("deadline" of "chain detection"), as a number or as names.

    `value` is in ns, bytes, mW, bytes/s, or 1/`PER_POINT` points, None where `names` state it.  A requirement that is
    not stated is not listed.
    """

    subject: Line
    kind: Line
    value: Amount | None = None
    names: tuple[PlanName, ...] = ()


def requirements_of(pipeline: Pipeline) -> tuple[Requirement, ...]:
    """Return the requirements that a pipeline states."""
    found = [one for chain in pipeline.chains for one in of_chain(chain)]
    found += [one for sensor in pipeline.sensors for one in _of_sensor(sensor)]
    found += [one for stage in pipeline.stages for one in _of_stage(stage)]
    if pipeline.accuracy_budget is not None:
        found.append(Requirement(PIPELINE, "accuracy budget", pipeline.accuracy_budget))
    return tuple(found)


def of_chain(chain: Chain) -> Iterator[Requirement]:
    """Yield what a chain requires."""
    subject = f"chain {chain.name}"
    yield Requirement(subject, "path", names=chain.path)
    yield Requirement(subject, "deadline", chain.deadline_ns)
    if chain.max_age_ns is not None:
        yield Requirement(subject, "max age", chain.max_age_ns)
    yield Requirement(subject, "criticality", names=(chain.criticality,))


def _of_sensor(sensor: Sensor) -> Iterator[Requirement]:
    subject = f"sensor {sensor.name}"
    yield Requirement(subject, "period", sensor.period_ns)
    for kind, value in (
        ("offset", sensor.offset_ns),
        ("jitter", sensor.jitter_ns),
        ("sporadic", sensor.gap_ns),
        ("frame size", sensor.bytes_per_frame),
    ):
        if value:
            yield Requirement(subject, kind, value)


def _of_stage(stage: Stage) -> Iterator[Requirement]:
    subject = f"stage {stage.name}"
    yield Requirement(subject, "precisions", names=stage.precisions)
    yield Requirement(subject, "criticality", names=(stage.criticality,))
    if stage.on_late != "continue":
        yield Requirement(subject, "on late", names=(stage.on_late,))
    if not stage.open_queue:
        yield Requirement(subject, "queue", stage.queue)
    if stage.overflow != "newest":
        yield Requirement(subject, "overflow", names=(stage.overflow,))
    if stage.engines:
        yield Requirement(subject, "engines", names=stage.engines)
    for kind, value in (("period", stage.period_ns), ("offset", stage.offset_ns), ("jitter", stage.jitter_ns)):
        if value:
            yield Requirement(subject, kind, value)
    for precision, loss in stage.losses.items():
        yield Requirement(subject, f"accuracy loss in {precision}", loss)
