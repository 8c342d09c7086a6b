"""Field types of descriptor files, and frozen dataclasses that are read from them.

A class of the model says once what a file may hold and what the rest of socsched works with.  It is a dataclass that
inherits from `Entry`; its fields with a description are those of the file, under their alias.  Pydantic validates a
mapping against a form made of these fields, so that all faults of a file are found at once; the checked values make
the dataclass, which itself checks nothing: the planner makes figures by the thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from socsched import units
from socsched.limits import LARGEST
from socsched.text import LINE_PATTERN

_EXACT = ("energy per byte", "temperature")
"""Dimensions whose base unit is too coarse for rounding to integers."""
NEAR = 1e-6
"""Largest relative change of a stated period made so that all rates share a hyperperiod."""
LONG = 1000
"""Number of longest periods in a hyperperiod above which a warning is given."""
VENDOR_MODEL = "vendor model"
PROVENANCE = ("measured", "published", "fitted", VENDOR_MODEL, "derived", "assumed")
"""Kinds of figure, from most to least trusted."""
Item = TypeVar("Item")


class FileModel(BaseModel):
    """A mapping of a descriptor file: no unknown fields, no conversion between kinds of value."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Entry:
    """A frozen dataclass that is read from a mapping of a file.

    A class whose file differs from it overrides `of_file`, which may raise ValueError, and lists fields that only the
    file has in a class `File`.
    """

    __slots__ = ()

    @classmethod
    def of_file(cls, values: dict[str, Any]) -> Any:
        """Return the entry of checked values; those that the file leaves out, and the class has a default for, lack."""
        return cls(**values)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kind: Any = cls
        form = _form(kind)
        return core_schema.no_info_after_validator_function(
            lambda checked: cls.of_file(form.values(checked)), handler.generate_schema(form.model)
        )


def doc(description: str, key: str | None = None, **limits: Any) -> Any:
    """Return the annotation that makes a field one of the file, where `key` is its name if that differs."""
    return Field(alias=key, description=description, **limits)


OR_NULL = object()
"""Annotation of a field that the file may give as null, which stands for the class's default."""
REQUIRED = object()
"""Annotation of a field that the file has to give, although the class has a default."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Annotation of a tuple (or mapping) of entries that are a mapping in the file: `name` holds an entry's key."""

    name: str = "name"


@dataclass(frozen=True, slots=True)
class _Form:
    """How a class is read: the model of its mapping, values that are converted, and names without a default."""

    model: type[FileModel]
    convert: Mapping[str, Callable[[Any], Any]]
    nullable: frozenset[str]
    needed: frozenset[str]

    def values(self, checked: BaseModel) -> dict[str, Any]:
        """Return the arguments of the class; names that its holder sets later are empty."""
        values: dict[str, Any] = dict.fromkeys(self.needed, "")
        for name in self.model.model_fields:
            value = getattr(checked, name)
            absent = value is None and name in self.nullable
            if not absent and (name in checked.model_fields_set or name in self.needed):
                values[name] = self.convert[name](value) if name in self.convert else value
        return values


def form_of(cls: Any) -> type[FileModel]:
    """Return the model of the mapping that a class is read from."""
    return _form(cls).model


@cache
def _form(cls: Any) -> _Form:
    own: dict[str, Any] = {field.name: field for field in fields(cls)}
    hints = get_type_hints(cls, include_extras=True)
    extra = getattr(cls, "File", None)
    in_file = get_type_hints(extra, include_extras=True) if extra else {}
    hints |= in_file
    model: dict[str, Any] = {}
    convert: dict[str, Callable[[Any], Any]] = {}
    nullable = set()
    for name, hint in hints.items():
        base, *notes = get_args(hint) if get_origin(hint) is Annotated else [hint]
        if not any(isinstance(note, FieldInfo) and note.description for note in notes):
            continue
        default = getattr(extra, name, MISSING) if name in in_file else own[name].default
        if name not in in_file and own[name].default_factory is not MISSING:
            default = ()
        for place, note in enumerate(notes):
            if isinstance(note, _ListType):
                base, convert[name] = list[get_args(base)[0]], tuple  # type: ignore[misc]
            elif isinstance(note, Keyed):
                base, convert[name] = _keyed(base, note.name)
            elif note is OR_NULL:
                base, notes = annotated(base, notes[:place]) | None, [None] * (place + 1) + notes[place + 1 :]
                nullable.add(name)
                default = None
            elif note is REQUIRED:
                default = MISSING
        kept = [note for note in notes if note not in (None, REQUIRED) and not isinstance(note, Keyed | _ListType)]
        model[name] = _defaulted(annotated(base, kept), default, kept)
    needed = frozenset(n for n, f in own.items() if f.default is MISSING and f.default_factory is MISSING)
    summary = (cls.__doc__ or "").split("\n\n")[0]
    made = create_model(cls.__name__, __base__=FileModel, __doc__=summary, **model)
    return _Form(made, convert, frozenset(nullable), needed)


def annotated(base: Any, notes: Sequence[Any]) -> Any:
    """Return a type with annotations, of which there may be none."""
    parts = (base, *notes)
    return Annotated[parts] if notes else base


def _defaulted(annotation: Any, default: Any, notes: Sequence[Any]) -> Any:
    if default in ((), [], {}):  # not shown in schemas
        return annotation, Field(default_factory=tuple)
    if default is not MISSING:
        return annotation, default
    stated = any(isinstance(note, FieldInfo) and not note.is_required() for note in notes)
    return annotation if stated else (annotation, ...)


def _keyed(kind: Any, name: str) -> tuple[Any, Callable[[Any], Any]]:
    """Return the type in the file of entries that hold their key, and the conversion to the type of the class."""
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        entries = dict[Name, item]  # type: ignore[valid-type]
        return entries, lambda read: tuple(replace(one, **{name: key}) for key, one in dict(read).items())
    return kind, lambda read: {key: replace(one, **{name: key}) for key, one in dict(read).items()}


class OneOf:
    """Annotation of text that is one of the names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


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
PRECISIONS = ("fp32", "fp16", "int8", "w8a16", "fp8", "fp4")
"""Data types that engines compute in; w8a16: weights of 8 bits, activations of 16."""
PrecisionName = Annotated[str, OneOf(*PRECISIONS)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class _ListType:
    """Annotation of a list in a file, a tuple once read."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        item = get_args(source)[0]
        listed = handler.generate_schema(list[item])  # type: ignore[valid-type]
        return core_schema.no_info_after_validator_function(tuple, listed)


Listed = Annotated[tuple[Item, ...], _ListType()]


class _PairType:
    """Annotation of a list of two in a file, a tuple once read."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        item = get_args(source)[0]
        pair = handler.generate_schema(
            Annotated[list[item], Field(min_length=2, max_length=2)]  # type: ignore[valid-type]
        )
        return core_schema.no_info_after_validator_function(tuple, pair)


@dataclass(frozen=True, slots=True)
class Source(Entry):
    """Where figures come from."""

    title: Annotated[Title, doc("title of the publication, file or measurement")]
    where: Annotated[str, doc("address, file in a repository, or date of a measurement")] = ""


Limit = Annotated[tuple[float, float], _PairType()]
"""The smallest and the largest value."""
SourceKey = Annotated[str, doc("key of sources: the origin of the plain numbers here")]
Assumed = Annotated[str, doc("reasoning behind plain numbers without a published source, instead of source")]


@dataclass(frozen=True, slots=True)
class Cycle(Quantity):
    """Annotation of a period written as a duration or as a rate: 100 ms, 10 Hz."""

    def read(self, text: object) -> Any:
        """Return the period (ns), a fraction if the rate has no whole one; raise ValueError with the expected form."""
        try:
            rate = units.parse_exact(text, "frequency")
        except ValueError:
            return Quantity.read(self, text)
        if rate <= 0 or rate > 10**9:
            raise ValueError(f"expected a rate above zero, of 1 GHz at most, got {str(text)!r}")
        period = 10**9 / rate
        return int(period) if period.denominator == 1 else period

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = "|".join([*units.UNITS["duration"], *units.UNITS["frequency"]])
        number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
        examples = [units.EXAMPLES["duration"], "30 Hz"]
        return {"type": "string", "pattern": rf"^\s*\+?{number}\s*(?:{names})\s*$", "examples": examples}


Timer = Annotated[int, Cycle("duration", positive=True)]


def whole_periods(stated: Sequence[Fraction | int]) -> list[int]:
    """Return periods in whole nanoseconds that repeat together as the stated ones do.

    Whole periods stay unchanged unless another period is fractional: then all become divisors of one hyperperiod,
    provided that changes each by at most a millionth.
    """
    exact = [Fraction(period) for period in stated]
    if all(period.denominator == 1 for period in exact):
        return [int(period) for period in exact]
    hyper = Fraction(math.lcm(*(p.numerator for p in exact)), math.gcd(*(p.denominator for p in exact)))
    counts = [int(hyper / period) for period in exact]
    step = math.lcm(*counts)
    length = round(hyper / step) * step
    found = [length // count for count in counts]
    if all(abs(new - old) <= NEAR * old for new, old in zip(found, exact, strict=True)):
        return found
    return [max(round(period), 1) for period in exact]


def seldom_repeats(periods: Sequence[int]) -> str:
    """Return a warning if the hyperperiod of all periods is very long, "" otherwise."""
    length = math.lcm(*periods) if periods else 0
    if length <= LONG * max(periods, default=0):
        return ""
    return (
        f"the schedule repeats after {units.format_duration(length)} only, longer than a simulation or timeline "
        "shows: write rates in Hz (30 Hz), or periods that divide each other"
    )
