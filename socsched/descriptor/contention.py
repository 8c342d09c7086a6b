"""The contention model that a platform chooses for its DRAM, as a plan records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from socsched.descriptor.limits import Json, Line
from socsched.descriptor.platform import Platform


@dataclass(frozen=True, slots=True)
class ContentionChoice:
    """A DRAM contention model by name, empty for max-min fair sharing, and its parameters (`cost.contention`).

    `parameters`: numbers (bandwidths in bytes/s), text, or mappings of these, checked by the model.  `engines`: the
    kind of every engine of the platform by id, because parameters may name one that the planned mode switches off.
    """

    model: Line = ""
    parameters: Mapping[Line, Json] = field(default_factory=dict)
    engines: Mapping[Line, Line] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether a model is chosen."""
        return bool(self.model)


def contention_of(platform: Platform) -> ContentionChoice:
    """Return the contention model that a platform chooses, empty for the default."""
    chosen = platform.dram.contention
    if not chosen.model:
        return ContentionChoice()
    engines = {engine.id: engine.kind for engine in platform.engines}
    return ContentionChoice(chosen.model, dict(chosen.parameters), engines)
