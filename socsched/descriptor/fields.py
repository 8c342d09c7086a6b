"""Field types of descriptor files: quantities with a unit, and figures that say why they may be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from socsched import units
from socsched.descriptor.platform import Figure, Source

_EXACT = ("energy per byte", "temperature")
"""Dimensions whose base unit is too coarse to round to."""


class FileModel(BaseModel):
    """A mapping of a descriptor file: no unknown fields, no conversion between kinds of value."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Annotation of a number written as text with a unit of `dimension`; not negative, in base units once read."""

    dimension: str
    positive: bool = False

    def read(self, text: object) -> float:
        """Return the quantity in base units; ValueError says what was expected."""
        value = units.parse_exact(text, self.dimension)
        if value < 0 or (self.positive and value == 0):
            wanted = "a positive" if self.positive else "a non-negative"
            raise ValueError(f"expected {wanted} {self.dimension}, got {str(text)!r}")
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
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
LAYOUT_PATTERN = r"^(NCHW|NHWC|NCHW[1-9][0-9]{0,2}c)$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=64)]
PrecisionName = Literal["fp32", "fp16", "int8"]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class SourceFile(FileModel):
    """Where figures come from."""

    title: str = Field(min_length=1, description="title of the publication, file or measurement")
    where: str = Field("", description="address, file in a repository, or date of a measurement")

    def lower(self) -> Source:
        """Return the source as the rest of socsched sees it."""
        return Source(self.title, self.where)


class FigureFile(FileModel):
    """A number and why it may be believed; subclasses give `value` its dimension."""

    kind: Literal["measured", "published", "derived", "assumed"] = Field(
        description="measured and published name their source; derived and assumed say why in note"
    )
    source: str = Field("", description="key of sources")
    note: str = Field("", description="formula of a derived, reasoning of an assumed figure, remarks on others")
    error: float = Field(0.0, ge=0.0, le=100.0, description="relative uncertainty, 0.2 = within 20 %; 0 = none stated")

    def lower(self) -> Figure:
        """Return the figure as the rest of socsched sees it."""
        value: float = getattr(self, "value")  # noqa: B009  (declared by every subclass, with its own type)
        return Figure(value, self.kind, self.source, self.note, self.error)


class DurationFigure(FigureFile):
    """A time."""

    value: Duration = Field(description="time with unit")


class BandwidthFigure(FigureFile):
    """A rate of bytes."""

    value: Annotated[int, Quantity("bandwidth", positive=True)] = Field(description="bytes per second with unit")


class FrequencyFigure(FigureFile):
    """A clock."""

    value: Frequency = Field(description="frequency with unit")


class PowerFigure(FigureFile):
    """A power."""

    value: Annotated[int, Quantity("power")] = Field(description="power with unit")


class TemperatureFigure(FigureFile):
    """A temperature."""

    value: Annotated[float, Quantity("temperature")] = Field(description="temperature with unit")


class EnergyPerByteFigure(FigureFile):
    """Energy spent per byte moved."""

    value: Annotated[float, Quantity("energy per byte")] = Field(description="energy per byte with unit")


class RateFigure(FigureFile):
    """Operations per cycle."""

    value: float = Field(gt=0, le=1e9, description="operations per unit and clock cycle, a multiply-add is two")


class ShareFigure(FigureFile):
    """A part of a whole."""

    value: float = Field(gt=0, le=1, description="share between 0 and 1")
