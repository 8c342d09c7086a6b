"""Data kept from one plan of a pipeline on a platform to the next: costs by mode, networks in units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from socsched.cost.cost import Cost
from socsched.cost.model import CostModel, WorkOf
from socsched.cost.waves import Neighbour
from socsched.descriptor.platform import Platform, PowerMode
from socsched.planning.cutting.divisible import Apart, Sliced
from socsched.planning.cutting.search import Divided
from socsched.planning.workload import Results

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


@dataclass(slots=True)
class CostCache:
    """Costs, and networks in units, of one pipeline on one platform; computed once for each mode.

    `undivided`: the costs of the platform whose engines this one divides, `others`: what runs beside a stage there
    (`planning.shares`).  `apart`: stages as networks in units, without costs; `adjust`: changes every cost
    (`CostModel`); `results`: analyses of mappings.
    """

    platform: Platform
    work: WorkOf
    profile: Profile | None = None
    _models: dict[str, CostModel] = field(default_factory=dict)
    _divided: dict[str, Divided] = field(default_factory=dict)
    apart: dict[str, Apart | None] = field(default_factory=dict)
    adjust: Callable[[Cost], Cost] | None = None
    results: Results = field(default_factory=Results)
    undivided: CostCache | None = None
    others: Mapping[str, Sequence[Neighbour]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let parts of a network share the analysis of the whole."""
        self.work = Sliced(self.work)

    def model(self, mode: PowerMode) -> CostModel:
        """Return the cost model of a mode."""
        if mode.name not in self._models:
            other = next(iter(self._models.values()), None)
            other = other or CostModel(self.platform, mode, self.work, self.profile, adjust=self.adjust)
            self._models[mode.name] = other.in_mode(mode)
            if self.undivided is not None:
                whole, model = self.undivided, self._models[mode.name]
                model.undivided, model.others = whole.model(whole.platform.mode(mode.name)), self.others
        return self._models[mode.name]

    def divided(self, mode: PowerMode) -> Divided:
        """Return the stages of a mode in units, as far as they have been divided."""
        return self._divided.setdefault(mode.name, {})
