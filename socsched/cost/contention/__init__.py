"""DRAM contention: execution times of co-running segments on engines of one SoC.

Planner, analysis and simulator use the same model (`base.ContentionModel`).  The platform file selects it
(``dram.contention``), and the plan records the choice (`descriptor.contention`), empty for `max_min`, the default.
Third parties register ``build(Setting) -> ContentionModel`` under the entry-point group ``socsched.contention``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from socsched import plugins
from socsched.cost.contention.base import ContentionModel, Rival, Setting, demand, draw, slow_down
from socsched.cost.contention.max_min import fair_shares, stretch, worst_share
from socsched.descriptor.contention import ContentionChoice
from socsched.errors import UsageError

__all__ = [
    "GROUP",
    "ContentionModel",
    "Rival",
    "Setting",
    "contention_model",
    "demand",
    "draw",
    "fair_shares",
    "slow_down",
    "stretch",
    "worst_share",
]

Factory = Callable[[Setting], ContentionModel]
GROUP = "socsched.contention"
DEFAULT = "max-min"


def contention_model(choice: ContentionChoice, capacity: float, engines: Mapping[str, str]) -> ContentionModel:
    """Return the chosen model for a memory of `capacity` bytes/s and engines (id -> kind), added to those it names.

    Raises UsageError listing the known models for an unknown name, or for unusable parameters.
    """
    name = choice.model or DEFAULT
    if name not in plugins.names(GROUP):
        raise UsageError(f"unknown contention model {name!r}", hint=f"known models: {', '.join(plugins.names(GROUP))}")
    factory: Factory = plugins.load(GROUP, name)
    named = {**choice.engines, **engines}
    return factory(Setting(name, capacity, named, choice.parameters))
