"""The fields of summary.json, typed, as `validate --json` prints them.

`schemas/validation.schema.json` is generated from them.
Errors are relative: |predicted / measured - 1|.
"""

from __future__ import annotations

from typing_extensions import TypedDict

ADDED = ("predicted_ms", "lo_ms", "hi_ms", "inside", "provenance", "refused")
"""Columns that rows.csv adds to those of the input."""
Figure = float | None
"""A statistic; null without cells, and the rank correlation below three."""


class ScoresDocument(TypedDict):
    """Scores of cells: `cells` scored and `refused` ones, which no prediction exists for.

    `median_ratio`: of predicted to measured; `mape`: mean error; `p90`: error that 90 % of the cells keep within;
    `spearman`: rank correlation of predicted and measured; `inside`: share of the cells measured inside the interval.
    """

    cells: int
    refused: int
    median_ratio: Figure
    mape: Figure
    p90: Figure
    spearman: Figure
    inside: Figure


class GroupDocument(ScoresDocument):
    """Scores of the comparable cells of one engine in one precision, all modes and shares; `apart`: other cells."""

    platform: str
    engine: str
    precision: str
    apart: int


class PowerGroupDocument(ScoresDocument):
    """Scores of the cells of some engines at one meter (wall, module or rail NAME), all precisions and modes."""

    platform: str
    meter: str
    engine: str


class RefusalDocument(TypedDict):
    """A reason for refusing rows, and the number of unflagged rows refused for it."""

    reason: str
    rows: int


class ApartDocument(TypedDict):
    """A reason for which cells are predicted but not scored, and their number."""

    reason: str
    cells: int


class UnitsDocument(TypedDict):
    """Predictions of what falls back, against the units on which a profiler saw layers; flagged `rows` count.

    `unit`: F1 of the unit with most layers, units weighted by their rows; `unit_right`: share of rows where it is
    right.  `some`: F1 of "some layers fall back", of `fallen` rows; `hits`, `false`: rows said to, that do and do not.
    """

    rows: int
    unit: Figure
    unit_right: Figure
    fallen: int
    hits: int
    false: int
    some: Figure


class LeftOutDocument(TypedDict):
    """Errors of what fits to the table's rows have not seen, by engine family.

    `left_out`: "network", "design" (all networks of one), "board", "board, N measured" (all but N of its networks) or
    "board and design"; `mape` as elsewhere; `inside`: share within intervals from the errors of others; `interval`:
    median half width of these, relative to the time; null where there are no others.
    """

    family: str
    left_out: str
    boards: int
    cells: int
    mape: float
    inside: Figure
    interval: Figure


class BarDocument(TypedDict):
    """The bar that scores were held against, and what fails it."""

    file: str
    held: bool
    failures: list[str]


class ValidationDocument(TypedDict):
    """Predictions against measurements; of `rows`, `flagged` ones are predicted but not scored.

    A cell is a platform, engine, precision, mode, share and network; its measurement is the fastest unflagged row.
    `overall` and `groups` are of cells whose prediction stands for the program that was measured; `everything` counts
    the others, listed in `apart`, too.  `units`: null where no row names units; `left_out`: empty unless asked for;
    `bar`: null without one.
    """

    schema_version: str
    measurements: str
    sha256: str
    socsched: str
    rows: int
    flagged: int
    refused_rows: int
    overall: ScoresDocument
    everything: ScoresDocument
    groups: list[GroupDocument]
    refusals: list[RefusalDocument]
    apart: list[ApartDocument]
    units: UnitsDocument | None
    left_out: list[LeftOutDocument]
    bar: BarDocument | None


class PowerDocument(TypedDict):
    """Predicted against measured power (W); fields as those of times.

    A cell is a platform, engines, precision, mode, clocks, share, network and meter; the power of its fastest unflagged
    run counts, or the median power where times are not stated.
    """

    schema_version: str
    measurements: str
    sha256: str
    socsched: str
    rows: int
    flagged: int
    refused_rows: int
    overall: ScoresDocument
    groups: list[PowerGroupDocument]
    refusals: list[RefusalDocument]
    bar: BarDocument | None
