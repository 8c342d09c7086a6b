"""Fields of study files with several forms: values of a parameter, and distributions."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from socsched import units
from socsched.descriptor import quantiles
from socsched.descriptor.distribution import Distribution

MOST_VALUES = 100_000
_RANGE = ("between", "steps", "scale")


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one parameter: `values`, or a range; the parameter's name is its key in the file."""

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    steps: int = 0
    log: bool = False
    dimension: str = ""


def dimension_of(value: object) -> str:
    """Return the dimension of a quantity with a unit; empty for anything else."""
    if not isinstance(value, str):
        return ""
    for dimension in units.UNITS:
        try:
            units.parse_exact(value, dimension)
        except ValueError:
            continue
        return dimension
    return ""


@dataclass(frozen=True, slots=True)
class ParameterType:
    """Annotation of a parameter: one value, a list of them, or ``{between: [low, high], steps: n, scale: log}``."""

    def read(self, value: Any) -> Values:
        """Return the values; raise ValueError with the expected form."""
        if isinstance(value, dict):
            return self._range(value)
        listed = value if isinstance(value, list) else [value]
        if not listed:
            raise ValueError("expected at least one value")
        if any(isinstance(item, (list, dict)) or item is None for item in listed):
            raise ValueError("expected a value, a list of values, or {between: [low, high], steps: n}")
        if len({(type(item), item) for item in listed}) < len(listed):
            raise ValueError("expected every value once")
        kinds = {dimension_of(item) or (type(item) if not isinstance(item, (int, float)) else float) for item in listed}
        if len(kinds) > 1:
            raise ValueError("expected values of one kind: numbers, text, or quantities of one dimension")
        return Values(tuple(listed), dimension=dimension_of(listed[0]))

    def _range(self, value: dict[str, Any]) -> Values:
        wrong = next((key for key in value if key not in _RANGE), None)
        ends, steps, scale = value.get("between"), value.get("steps", 0), value.get("scale", "linear")
        if wrong is not None or not isinstance(ends, list) or len(ends) != 2:
            raise ValueError("expected {between: [low, high], steps: n, scale: linear or log}")
        if scale not in ("linear", "log"):
            raise ValueError(f"expected scale linear or log, got {scale!r}")
        if isinstance(steps, bool) or not isinstance(steps, int) or not (steps == 0 or 2 <= steps <= MOST_VALUES):
            raise ValueError(f"expected 2 to {MOST_VALUES} steps")
        dimension = dimension_of(ends[0])
        if dimension:
            low, high = (float(units.parse_exact(end, dimension)) for end in ends)
        elif any(isinstance(end, bool) or not isinstance(end, (int, float)) for end in ends):
            raise ValueError("expected numbers, or quantities of one dimension, as ends")
        else:
            low, high = map(float, ends)
        if not low < high or (scale == "log" and low <= 0):
            raise ValueError("expected ends in order" + (", above zero" if scale == "log" else ""))
        return Values((), low, high, steps, scale == "log", dimension)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        scalar = {"type": ["string", "number", "boolean"]}
        ends = {"type": "array", "items": scalar, "minItems": 2, "maxItems": 2}
        steps = {"type": "integer", "minimum": 2}
        interval = {"between": ends, "steps": steps, "scale": {"enum": ["linear", "log"]}}
        return {
            "anyOf": [
                scalar,
                {"type": "array", "items": scalar, "minItems": 1},
                {"type": "object", "properties": interval, "required": ["between"], "additionalProperties": False},
            ]
        }


@dataclass(frozen=True, slots=True)
class SpreadType:
    """Annotation of a distribution, in integers of 1/`scale` of the unit; `dimension` empty: plain numbers."""

    scale: int
    dimension: str = ""
    least: float | None = None

    def read(self, value: Any) -> Distribution:
        """Return the distribution; raise ValueError with the expected form."""
        if not isinstance(value, dict):
            return Distribution.constant(self._number(value), str(value))
        if len(value) != 1:
            raise ValueError(f"expected {_FORMS}")
        ((form, numbers),) = value.items()
        if (form == "uniform" and isinstance(numbers, list) and len(numbers) == 2) or (
            form == "quantiles" and isinstance(numbers, list) and len(numbers) >= 2
        ):
            amounts = tuple(map(self._number, numbers))
        elif form == "normal" and isinstance(numbers, dict) and set(numbers) == {"mean", "sd", "least", "most"}:
            parts = {key: Decimal(self._number(item, free=True)) for key, item in numbers.items()}
            if not parts["least"] < parts["mean"] < parts["most"] or parts["sd"] <= 0:
                raise ValueError("expected least < mean < most and sd above zero")
            self._number(numbers["least"])
            amounts = quantiles.normal(parts["mean"], parts["sd"], parts["least"], parts["most"])
        else:
            raise ValueError(f"expected {_FORMS}")
        if list(amounts) != sorted(amounts):
            raise ValueError("expected values in ascending order")
        return Distribution(amounts, f"{form} {numbers}")

    def _number(self, value: object, free: bool = False) -> int:
        if self.dimension:
            exact = units.parse_exact(value, self.dimension)
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"expected a number, or {_FORMS}, got {value!r}")
        else:
            exact = Fraction(str(value))
        if not free and self.least is not None and exact < Fraction(self.least):
            raise ValueError(f"expected at least {self.least:g}, got {value!r}")
        return round(exact * self.scale)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "string" if self.dimension else "number"}
        pair = {"type": "array", "items": number, "minItems": 2}
        normal = {"type": "object", "properties": dict.fromkeys(("mean", "sd", "least", "most"), number)}
        forms = {"uniform": {**pair, "maxItems": 2}, "quantiles": pair, "normal": normal}
        return {"anyOf": [number, {"type": "object", "properties": forms, "additionalProperties": False}]}


_FORMS = (
    "a value, {uniform: [low, high]}, {quantiles: [lowest, ..., highest]} "
    "or {normal: {mean: m, sd: s, least: l, most: h}}"
)


def quantity_text(value: float, dimension: str) -> str:
    """Return a number in base units in file notation."""
    unit = units.BASE_UNIT[dimension]
    return f"{round(value)} {unit}" if dimension not in ("energy per byte", "temperature") else f"{value:.6f} {unit}"
