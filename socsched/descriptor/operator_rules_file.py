"""Operator rules at the file edge."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from socsched.descriptor.fields import Count, FileModel, Name, PrecisionName, Size
from socsched.descriptor.operator_rules import OperatorRule, OperatorRules

Limit = Annotated[list[float], Field(min_length=2, max_length=2)]


class OperatorRuleFile(FileModel):
    """Limits under which an engine takes an operator."""

    limits: dict[Name, Limit] = Field(default_factory=dict, description="attribute: [smallest, largest] value taken")
    dtypes: list[PrecisionName] = Field(default_factory=list, description="data types taken, empty = all of the engine")
    note: str = Field("", description="conditions the limits do not say, and where the rule is from")

    def lower(self, name: str) -> OperatorRule:
        """Return the rule as the rest of socsched sees it."""
        limits = {attribute: (limit[0], limit[1]) for attribute, limit in self.limits.items()}
        return OperatorRule(name, limits, tuple(self.dtypes), self.note)


class OperatorRulesFile(FileModel):
    """What an engine can compute."""

    host_code: bool = Field(False, description="arbitrary functions may run here")
    allowed: dict[Name, OperatorRuleFile] | None = Field(None, description="rule by operator; absent: everything")
    static_shapes: bool = Field(False, description="no dimension may vary from frame to frame")
    max_jobs: Count = Field(0, description="compiled jobs resident at a time, 0 = unlimited")
    max_dim: Count = Field(0, description="largest non-batch dimension, 0 = unlimited")
    weights: Size = Field(0, description="most bytes of weights of one job, 0 B = unlimited")
    activations: Size = Field(0, description="most bytes of inner tensors of one job, 0 B = unlimited")
    source: str = Field("", description="key of sources the rules are from")

    def lower(self) -> OperatorRules:
        """Return the rules as the rest of socsched sees them."""
        allowed = None
        if self.allowed is not None:
            allowed = {name: rule.lower(name) for name, rule in self.allowed.items()}
        return OperatorRules(
            allowed=allowed,
            max_jobs=self.max_jobs,
            static_shapes=self.static_shapes,
            max_dim=self.max_dim,
            weight_bytes=self.weights,
            activation_bytes=self.activations,
            host_code=self.host_code,
            source=self.source,
        )
