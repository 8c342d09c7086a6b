"""Execution times of a stage in pipeline files: samples, quantiles or a distribution, and a late job's fallback.

An amount is a number (a factor on the planned cost, valid on any engine) or a time with its unit (the same wherever the
stage runs); one stage uses one kind throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from socsched.descriptor import quantiles
from socsched.descriptor.fields import FileModel, Grounded, PrecisionName, Quantity
from socsched.descriptor.pipeline import PER_COST, Degraded, Execution, High

_TIME = Quantity("duration", positive=True)


class AmountType:
    """Annotation of a factor on the planned cost (Fraction once read) or a time with unit (int, in ns)."""

    @staticmethod
    def read(value: object) -> int | Fraction:
        """Return the amount; raise ValueError with the expected form."""
        if isinstance(value, str):
            return int(_TIME.read(value))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-6 <= value <= 1e6:
            raise ValueError(f"expected a factor on the planned cost (0.000001 to 1000000) or a time, got {value!r}")
        return Fraction(str(value))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        factor = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e6}
        return {"anyOf": [factor, _TIME.__get_pydantic_json_schema__(schema, handler)]}


Amount = Annotated[int | Fraction, AmountType()]
_Amounts = list[Amount]


def _inner(amount: int | Fraction) -> Decimal:
    """Return an amount in ns, or in 1/`PER_COST` of the planned cost."""
    exact = amount * PER_COST if isinstance(amount, Fraction) else Fraction(amount)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


class SpreadFile(FileModel):
    """A distribution, cut off at its ends."""

    mean: Amount = Field(description="mean of the whole distribution")
    sd: Amount = Field(description="standard deviation of the whole distribution")
    max: Amount = Field(description="longest time: the worst case of the analysis")
    min: Amount | None = Field(None, description="shortest time; absent: almost 0")

    def amounts(self) -> _Amounts:
        """Return all amounts."""
        return [self.mean, self.sd, self.max, *([self.min] if self.min is not None else [])]

    def ends(self) -> tuple[Decimal, Decimal]:
        """Return the shortest and the longest time."""
        return (_inner(self.min) if self.min is not None else Decimal(1)), _inner(self.max)

    def fault(self, logarithmic: bool) -> str:
        """Return a description of the fault, empty when there is none."""
        least, most = self.ends()
        mean = _inner(self.mean)
        if not least < mean < most:
            return "expected min below mean below max"
        if quantiles.deviations(mean, _inner(self.sd), most, logarithmic) > quantiles.FARTHEST:
            return f"expected max at most {quantiles.FARTHEST} standard deviations out; rarer times are overrun faults"
        return ""

    def table(self, make: Callable[..., tuple[int, ...]]) -> tuple[int, ...]:
        """Return the quantiles computed by `make`."""
        return make(_inner(self.mean), _inner(self.sd), *self.ends())


class ExecutionFile(Grounded):
    """Execution times of jobs, in exactly one of the forms below."""

    samples: _Amounts | None = Field(None, min_length=1, max_length=10_000, description="drawn with equal probability")
    quantiles: _Amounts | None = Field(
        None, min_length=2, max_length=10_000, description="at equal steps of probability, ascending; linear in between"
    )
    uniform: _Amounts | None = Field(None, min_length=2, max_length=2, description="[shortest, longest]")
    normal: SpreadFile | None = Field(None, description="normal distribution")
    lognormal: SpreadFile | None = Field(None, description="lognormal distribution")

    @model_validator(mode="after")
    def _one(self) -> ExecutionFile:
        lists = (self.samples, self.quantiles, self.uniform)
        spreads = (self.normal, self.lognormal)
        amounts = [x for x in lists if x is not None] + [x.amounts() for x in spreads if x is not None]
        if len(amounts) != 1:
            got = "none" if not amounts else "several"
            raise ValueError(f"expected one of samples, quantiles, uniform, normal, lognormal; got {got}")
        if len({isinstance(amount, Fraction) for amount in amounts[0]}) > 1:
            raise ValueError("expected factors on the planned cost or times, not both")
        for ordered in (self.quantiles, self.uniform):
            if ordered is not None and list(ordered) != sorted(ordered):
                raise ValueError("expected amounts in ascending order")
        for spread, logarithmic in ((self.normal, False), (self.lognormal, True)):
            if spread is not None and (fault := spread.fault(logarithmic)):
                raise ValueError(fault)
        return self

    def lower(self) -> Execution:
        """Return the internal `Execution`."""
        listed = self.samples or self.quantiles or self.uniform
        if listed is not None:
            values = tuple(max(round(_inner(amount)), 1) for amount in sorted(listed))
            return Execution(values, isinstance(listed[0], Fraction), self.samples is None)
        spread, make = (self.normal, quantiles.normal) if self.normal else (self.lognormal, quantiles.lognormal)
        assert spread is not None
        return Execution(spread.table(make), isinstance(spread.mean, Fraction), True)


class DegradedFile(Grounded):
    """What a job runs instead when it cannot meet its deadline any more; exactly one of precision and cost."""

    precision: PrecisionName | None = Field(
        None, description="the same stage in a cheaper data type on the same engine"
    )
    cost: Amount | None = Field(None, description="factor on the planned cost, or a time")

    @model_validator(mode="after")
    def _one(self) -> DegradedFile:
        if (self.precision is None) == (self.cost is None):
            raise ValueError("expected one of precision and cost")
        if isinstance(self.cost, Fraction) and self.cost >= 1:
            raise ValueError("expected a cost below 1: less than the planned cost")
        return self

    def lower(self) -> Degraded:
        """Return the internal `Degraded`."""
        if self.cost is None:
            return Degraded(self.precision or "")
        return Degraded("", round(_inner(self.cost)), isinstance(self.cost, Fraction))


def lower_high(amount: int | Fraction) -> High:
    """Return the internal `High` of an amount."""
    return High(round(_inner(amount)), isinstance(amount, Fraction))
