"""Accuracy loss of the chosen data types, against the budget of the pipeline file."""

from __future__ import annotations

from collections.abc import Iterable

from socsched.cost.cost import Cost
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.models.parts import uncut


def losses(pipeline: Pipeline, chosen: Iterable[tuple[Stage, str]]) -> tuple[tuple[str, int], ...]:
    """Return (stage, loss in thousandths of a point) of every stage that loses accuracy in `chosen` (stage, precision).

    A stage in several parts loses as much as its worst precision costs the whole: parts in a better one can only help.
    """
    found: dict[str, int] = {}
    for stage, precision in chosen:
        name = uncut(stage.name, stage.params)
        found[name] = max(found.get(name, 0), stage.losses.get(precision, 0))
    return tuple((name, loss) for name, loss in found.items() if loss)


def better_precisions(stage: Stage, chosen: Cost, options: Iterable[Cost]) -> list[Cost]:
    """Return the costs of a stage in precisions that lose less accuracy than the chosen one, fastest first."""
    mine = stage.losses.get(chosen.precision, 0)
    found = (cost for cost in options if stage.losses.get(cost.precision, 0) < mine)
    return sorted(found, key=lambda cost: cost.time_ns)
