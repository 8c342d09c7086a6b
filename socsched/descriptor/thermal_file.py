"""Thermal states in a platform file: the share of a mode's clocks that engines keep in each."""

from __future__ import annotations

from pydantic import Field

from socsched.descriptor.fields import Grounded, Name, ShareFigure, Temperature, Title
from socsched.descriptor.thermal import ThermalState


class ThermalStateFile(Grounded):
    """A thermal state of the module."""

    title: Title = Field(description="one-line description")
    above: Temperature | None = Field(None, description="temperature from which the state is entered")
    clocks: ShareFigure = Field(description="share of a mode's clocks that engines keep")
    engines: dict[Name, ShareFigure] = Field(
        default_factory=dict, description="engines (id or kind) that keep another share"
    )

    def lower(self, name: str) -> ThermalState:
        """Return the internal `ThermalState`."""
        shares = {engine: figure.lower() for engine, figure in self.engines.items()}
        return ThermalState(name, self.title, self.clocks.lower(), shares, self.above)
