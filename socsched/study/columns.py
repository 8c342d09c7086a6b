"""Columns of a sweep's table: names with units, types and descriptions, which the Parquet file also contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from socsched import units
from socsched.descriptor.study import NAMED, Parameter, Study

SUFFIX = {
    "duration": "_ns",
    "size": "_bytes",
    "bandwidth": "_bytes_per_s",
    "frequency": "_hz",
    "power": "_mw",
    "energy": "_uj",
    "energy per byte": "_pj_per_byte",
    "temperature": "_c",
    "voltage": "_uv",
}
"""Suffix of column names, by dimension."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `kind` int | float | text | bool, all of which may be null."""

    name: str
    kind: str
    meaning: str


FIXED = (
    Column("config", "int", "number of the configuration in the study's design, from 0"),
    Column("platform", "text", "platform"),
    Column("mode", "text", "power mode of the plan"),
    Column("pipeline", "text", "pipeline"),
    Column("objective", "text", "what the plan optimises"),
    Column("policy", "text", "scheduling policy in simulation"),
    Column("faults", "text", "faults file, or none"),
    Column("load", "float", "factor on execution times in simulation"),
    Column("seed", "int", "seed of the first run; run r has this plus r"),
)
RESULTS = (
    Column("plan", "text", "key of the plan; rows with the same key share it (plans/KEY.json.gz)"),
    Column("error", "text", "reason for a missing result, else empty"),
    Column("verdict", "text", "of the plan: feasible, infeasible, undecided; error without a plan"),
    Column("tdp_mw", "int", "power cap of the mode; if the vendor states none, the largest of the platform"),
    Column("platform_tdp_mw", "int", "largest power cap of any mode of the platform"),
    Column("price", "float", "price of the platform, as given in the study"),
    Column("planned_power_mw", "int", "mean power the plan expects"),
    Column("latency_ns", "int", "expected latencies of all chains, summed"),
    Column("longest_chain", "text", "chain with the longest expected latency"),
    Column("longest_latency_ns", "int", "its expected latency"),
    Column("slack", "float", "share of its deadline that the bound of the tightest chain leaves; null without a bound"),
    Column("growth", "float", "factor by which all WCETs may grow with every deadline proved; null if not requested"),
    Column("holds", "bool", "feasible, and every requirement of the study met; null while misses are open"),
    Column("rung", "int", "round of successive halving this row is from, 0 elsewhere"),
    Column("runs", "int", "number of simulations"),
    Column("frames", "int", "frames released, summed over chains and runs"),
    Column("missed", "int", "frames late, or unfinished at their deadline"),
    Column("dropped", "int", "frames aborted or lost"),
    Column("misses_per_million", "float", "missed and dropped frames per million"),
    Column("misses_low_per_million", "float", "lower end of the Clopper-Pearson interval of it"),
    Column("misses_high_per_million", "float", "upper end"),
    Column("settled", "text", "misses against the limit of the study: holds, fails or open; empty without a limit"),
    Column("worst_chain", "text", "chain with the largest ratio of response time to deadline"),
    Column("worst_response_p99_ns", "int", "99th percentile of its response times over all runs"),
    Column("worst_response_max_ns", "int", "largest of them"),
    Column("worst_response_share", "float", "the largest over the deadline"),
    Column("data_age_max_ns", "int", "largest reduced data age at the end of any chain"),
    Column("power_mw", "float", "mean simulated power"),
    Column("power_peak_mw", "float", "largest simulated power"),
    Column("energy_mj_per_round", "float", "simulated energy per longest period of a chain"),
)


def columns(study: Study) -> tuple[Column, ...]:
    """Return the columns of a study's table: fixed ones, a column for each further parameter, results."""
    own = tuple(_column(parameter) for parameter in study.parameters if parameter.name not in NAMED)
    return (*FIXED, *own, *RESULTS)


def column_of(parameter: Parameter) -> str:
    """Return the column of a parameter."""
    return parameter.name if parameter.name in NAMED else _column(parameter).name


def _column(parameter: Parameter) -> Column:
    if parameter.name.startswith("rate."):
        return Column(f"{parameter.name}_hz", "float", "rate of this sensor or timer")
    suffix = SUFFIX.get(parameter.dimension, "")
    kind = "float" if suffix or not any(isinstance(v, (str, bool)) for v in parameter.values) else "text"
    return Column(parameter.name + suffix, kind, "field of the file, as this configuration changes it")


def values(study: Study, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further parameters of a configuration as values of their columns, in base units."""
    row: dict[str, Any] = {}
    for parameter in study.parameters:
        if parameter.name in NAMED:
            continue
        column, value = _column(parameter), chosen[parameter.name]
        if parameter.dimension:
            value = float(units.parse_exact(value, parameter.dimension))
        row[column.name] = str(value) if column.kind == "text" else float(value)
    return row


def varying(study: Study, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of parameters that have more than one value in `rows`, in the study's order."""
    names = [column_of(parameter) for parameter in study.parameters]
    return [name for name in names if len({row[name] for row in rows}) > 1]
