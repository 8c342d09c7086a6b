"""Field types of descriptor files: quantities with a unit, and figures with their provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from socsched import units
from socsched.descriptor.platform import Figure, Source
from socsched.limits import LARGEST
from socsched.text import LINE_PATTERN

_EXACT = ("energy per byte", "temperature")
"""Dimensions whose base unit is too coarse for rounding to integers."""


class FileModel(BaseModel):
    """A mapping of a descriptor file: no unknown fields, no conversion between kinds of value."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotation of a non-negative number written as text with a unit of `dimension`; in base units once read."""

    dimension: str
    positive: bool = False

    def read(self, text: object) -> float:
        """Return the quantity in base units; raise ValueError with the expected form."""
        value = units.parse_exact(text, self.dimension)
        if value < 0 or (self.positive and value == 0):
            wanted = "a positive" if self.positive else "a non-negative"
            raise ValueError(f"expected {wanted} {self.dimension}, got {str(text)!r}")
        if value > LARGEST.get(self.dimension, value):
            most = f"{LARGEST[self.dimension]} {units.BASE_UNIT[self.dimension]}"
            raise ValueError(f"expected a {self.dimension} of at most {most}, got {str(text)!r}")
        whole = value if self.dimension in _EXACT else round(value)
        if self.positive and whole == 0:
            raise ValueError(f"expected at least 1 {units.BASE_UNIT[self.dimension]}, got {str(text)!r}")
        return int(whole) if whole == int(whole) else float(whole)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = "|".join(units.UNITS[self.dimension])
        return {
            "type": "string",
            "pattern": rf"^\s*\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*(?:{names})\s*$",
            "examples": [units.EXAMPLES[self.dimension]],
        }


Duration = Annotated[int, Quantity("duration")]
Period = Annotated[int, Quantity("duration", positive=True)]
Size = Annotated[int, Quantity("size")]
Frequency = Annotated[int, Quantity("frequency", positive=True)]
Bandwidth = Annotated[int, Quantity("bandwidth", positive=True)]
Power = Annotated[int, Quantity("power")]
Temperature = Annotated[float, Quantity("temperature")]
EnergyPerByte = Annotated[float, Quantity("energy per byte")]
Voltage = Annotated[int, Quantity("voltage", positive=True)]
Rate = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(gt=0, le=1)]
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
VERSION_PATTERN = r"^[0-9]+(\.[0-9]+)*$"
LAYOUT_PATTERN = r"^N(CHW|HWC)([1-9][0-9]{0,2}[hwc])*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=64)]
Title = Annotated[str, Field(min_length=1, max_length=300, pattern=LINE_PATTERN)]
"""One line of text, safe in scripts and tables."""
PrecisionName = Literal["fp32", "fp16", "int8"]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SourceFile(FileModel):
    """Where figures come from."""

    title: Title = Field(description="title of the publication, file or measurement")
    where: str = Field("", description="address, file in a repository, or date of a measurement")

    def lower(self) -> Source:
        """Return the internal `Source`."""
        return Source(self.title, self.where)


class Grounded(FileModel):
    """A mapping of plain numbers that says once where they are from."""

    source: str = Field("", description="key of sources: the origin of the plain numbers here")
    assumed: str = Field("", description="reasoning behind plain numbers without a published source, instead of source")


class FigureFile(FileModel):
    """A number, or a range, and why it may be believed; subclasses give `value` and `range` their dimension."""

    kind: Literal["measured", "published", "fitted", "vendor model", "derived", "assumed"] = Field(
        description="measured, published, fitted and vendor model name their source; derived and assumed give their "
        "reasoning in note"
    )
    source: str = Field("", description="key of sources")
    note: str = Field("", description="formula of a derived, reasoning of an assumed figure, remarks on others")
    error: float = Field(0.0, ge=0.0, le=100.0, description="relative uncertainty, 0.2 = within 20 %; 0 = none stated")

    @model_validator(mode="after")
    def _stated(self) -> FigureFile:
        value, interval = self._number(), self._interval()
        if value is None and interval is None:
            raise ValueError("expected value, or range where only limits are known")
        if interval and not interval[0] <= interval[1]:
            raise ValueError("expected range as [lowest, highest]")
        if interval and value is not None and not interval[0] <= value <= interval[1]:
            raise ValueError("expected value within range")
        return self

    def _number(self) -> float | None:
        number: float | None = getattr(self, "value")  # noqa: B009  (declared by every subclass, with its own type)
        return number

    def _interval(self) -> tuple[float, float] | None:
        ends: list[float] | None = getattr(self, "range")  # noqa: B009
        return (ends[0], ends[1]) if ends else None

    def lower(self) -> Figure:
        """Return the internal `Figure`; a range alone becomes its middle with half its width as error."""
        value, interval, error = self._number(), self._interval(), self.error
        if interval is not None:
            middle = sum(interval) / 2 if value is None else value
            value = middle
            error = error or max(interval[1] - middle, middle - interval[0]) / (abs(middle) or 1.0)
        assert value is not None
        return Figure(value, self.kind, self.source, self.note, error, interval)


def _range(description: str) -> Any:
    return Field(None, min_length=2, max_length=2, description=f"[lowest, highest] {description}")


class DurationFigure(FigureFile):
    """A time."""

    value: Duration | None = Field(None, description="time with unit")
    range: list[Duration] | None = _range("time with unit")


class BandwidthFigure(FigureFile):
    """A rate of bytes."""

    value: Bandwidth | None = Field(None, description="bytes per second with unit")
    range: list[Bandwidth] | None = _range("bytes per second with unit")


class FrequencyFigure(FigureFile):
    """A clock."""

    value: Frequency | None = Field(None, description="frequency with unit")
    range: list[Frequency] | None = _range("frequency with unit")


class SizeFigure(FigureFile):
    """An amount of memory."""

    value: Size | None = Field(None, description="size with unit")
    range: list[Size] | None = _range("size with unit")


class PowerFigure(FigureFile):
    """A power."""

    value: Power | None = Field(None, description="power with unit")
    range: list[Power] | None = _range("power with unit")


class TemperatureFigure(FigureFile):
    """A temperature."""

    value: Temperature | None = Field(None, description="temperature with unit")
    range: list[Temperature] | None = _range("temperature with unit")


class EnergyPerByteFigure(FigureFile):
    """Energy spent per byte moved."""

    value: EnergyPerByte | None = Field(None, description="energy per byte with unit")
    range: list[EnergyPerByte] | None = _range("energy per byte with unit")


class RateFigure(FigureFile):
    """A plain positive number, such as operations per cycle."""

    value: Rate | None = Field(None, description="number without unit")
    range: list[Rate] | None = _range("number without unit")


class ShareFigure(FigureFile):
    """A part of a whole."""

    value: Share | None = Field(None, description="share between 0 and 1")
    range: list[Share] | None = _range("share between 0 and 1")
