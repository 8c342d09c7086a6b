"""Comparison of two results, and of a plan, its simulation and its run; views of comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.bounded import read_bytes
from socsched.cost.cost import is_within
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.errors import InputError
from socsched.planning.plan import Plan
from socsched.reporting.plan_diff import Move, PlanDiff, blame, moves
from socsched.reporting.summary import plain
from socsched.reporting.summary import table as markdown_table
from socsched.reporting.terminal import table
from socsched.reporting.view_model import planned_quantile
from socsched.trace.io import require_one
from socsched.units import format_duration

_FIGURES = (("stages", "exec_ns", "p50"), ("chains", "response_time_ns", "p99"))
_COUNTS = ("released", "missed", "dropped", "stale")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure (ns) in both results; `regressed` if B exceeds A by more than allowed; `because` gives the cause."""

    name: str
    figure: str
    a: float
    b: float
    regressed: bool
    because: str = ""

    @property
    def ratio(self) -> float:
        """Return B over A."""
        return self.b / self.a if self.a else (1.0 if not self.b else float("inf"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All common figures, remarks on figures that only one result has, and chains with more frames late or dropped."""

    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    lost: tuple[str, ...]
    moves: tuple[Move, ...] = ()

    @property
    def regressions(self) -> tuple[str, ...]:
        """Return the names of all figures that got worse by more than allowed."""
        regressed = (f"{row.name} {row.figure}" + (f": {row.because}" if row.because else "") for row in self._worse())
        return (*regressed, *self.lost)

    def _worse(self) -> Iterator[Row]:
        return (row for row in self.rows if row.regressed)

    @property
    def slower_chains(self) -> tuple[str, ...]:
        """Return the names of the chains that got worse."""
        return tuple(row.name for row in self._worse() if row.figure == "p99")

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain data; a ratio without a finite value is null."""
        rows = [{**asdict(row), "ratio": row.ratio if row.a or not row.b else None} for row in self.rows]
        moved = [{**asdict(move), "moved": move.moved} for move in self.moves]
        texts = {"remarks": list(self.remarks), "regressions": list(self.regressions)}
        return {"rows": rows, "moves": moved, **texts}


def load_result(folder: Path) -> dict[str, Any]:
    """Return the result.json of a result folder (or of the file itself); InputError if it is not a result."""
    file = folder / "result.json" if folder.is_dir() else folder
    if folder.is_dir():
        require_one(folder, ("plan.json", "result.json"))
    hint = "expected a folder written by `socsched simulate -o` or `socsched run -o`"
    source = JsonFile(read_bytes(file, "result", hint, MAX_BYTES), str(file), hint)
    document = source.data
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("stages"), dict)
        or not isinstance(document.get("chains"), dict)
    ):
        raise InputError(f"{file}: no result: `stages` and `chains` are missing", hint)
    source.check(_faults(document))
    return document


def _faults(document: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the position of every malformed figure needed for the comparison, and the value expected there."""
    for group, key, figure in _FIGURES:
        for name, entry in document[group].items():
            if not isinstance(entry, dict):
                yield (group, name), "expected the figures of one of the " + group
                continue
            counts: dict[tuple[str, ...], Any] = {(count,): entry.get(count) for count in _COUNTS}
            times = entry.get(key)
            if times is not None and not isinstance(times, dict):
                yield (group, name, key), "expected times by percentile"
            elif times:
                counts[key, figure] = times.get(figure)
            for path, value in counts.items():
                if value is not None and (type(value) not in (int, float) or not 0 <= value < 2**63):
                    yield (group, name, *path), f"expected a number not below 0, got {value!r:.40}"


def compare(
    a: Mapping[str, Any], b: Mapping[str, Any], allowed: float, plans: tuple[Plan, Plan] | None = None
) -> Comparison:
    """Compare result documents; a figure of `b` regresses when it exceeds that of `a` by more than the ratio `allowed`.

    A chain also regresses when a larger share of its frames is late, or is dropped.  With the `plans` of both, moves
    are reported, and each regression names the stage responsible.
    """
    moved = moves(*plans) if plans else ()
    rows = []
    for name, figure, first, second in _pairs(a, b):
        worse = second > first * (1 + allowed)
        because = _because(name, figure, a, b, moved, plans[1]) if worse and plans else ""
        rows.append(Row(name, figure, first, second, worse, because))
    lost = []
    for name, text in _lost(a, b):
        because = _because(name, "p99", a, b, moved, plans[1]) if plans else ""
        lost.append(f"{text}: {because}" if because else text)
    return Comparison(tuple(rows), tuple(_remarks(a, b)), tuple(lost), moved)


def _because(
    name: str, figure: str, a: Mapping[str, Any], b: Mapping[str, Any], moved: tuple[Move, ...], plan: Plan
) -> str:
    """Return the stage, and its move, that made a figure grow; "" if none of its stages takes longer."""
    if figure == "median":
        return next((move.told() for move in moved if move.stage == name and move.moved), "")
    path = next((chain.path for chain in plan.chains if chain.name == name), ())
    grown: dict[str, int] = {}
    for stage in a["stages"].keys() | b["stages"].keys():
        if not set(stage.split(">")) <= set(path):
            continue
        before, after = ((result["stages"].get(stage, {}).get("exec_ns") or {}).get("p50") or 0 for result in (a, b))
        blamed = blame(stage, moved)
        grown[blamed] = grown.get(blamed, 0) + round(after - before)
    stage = max(sorted(grown), key=lambda name: grown[name], default="")
    if not stage or grown[stage] <= 0:
        return ""
    cause = next((move.told() for move in moved if move.stage == stage and move.moved), f"{stage} takes longer")
    return f"{cause} (its median +{format_duration(grown[stage])})"


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str, float, float]]:
    for group, key, figure in _FIGURES:
        for name, entry in a[group].items():
            first = (entry.get(key) or {}).get(figure)
            second = (b[group].get(name, {}).get(key) or {}).get(figure)
            if first is not None and second is not None:
                yield name, "median" if figure == "p50" else figure, first, second


def _remarks(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    if a.get("kind") != b.get("kind"):
        yield f"A is {a.get('kind')}, B is {b.get('kind')}"
    for group in ("stages", "chains"):
        for name in sorted(a[group].keys() ^ b[group].keys()):
            yield f"{group[:-1]} {name} is only in {'A' if name in a[group] else 'B'}"


def _lost(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in sorted(a["chains"].keys() & b["chains"].keys()):
        for key, word in (("missed", "late"), ("dropped", "dropped")):
            before, after = _share(a["chains"][name], key), _share(b["chains"][name], key)
            if after > before:
                count, released = b["chains"][name][key], b["chains"][name]["released"]
                yield name, f"{name}: {count} of {released} frames {word} ({before:.2%} -> {after:.2%})"
        if _share(b["chains"][name], "stale") > _share(a["chains"][name], "stale"):
            old, new = (document["chains"][name].get("stale", 0) for document in (a, b))
            yield name, f"{name}: outputs with data that are too old: {old} -> {new}"


def _share(chain: Mapping[str, Any], *keys: str) -> float:
    released = chain.get("released") or 0
    return sum(chain.get(key) or 0 for key in keys) / released if released else 0.0


FIGURES = ("p50", "p99", "p99_9")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest mean errors (0.05 is 5 %), and the largest share of frames lost in excess of the prediction."""

    p50: float = 0.05
    p99: float = 0.15
    stages: float = 0.10
    lost: float = 0.001


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a stage, a chain or the whole, as planned, simulated and measured (ns, or mJ for energy).

    `interval`: relative error that the plan states of its figure, 0 for none.
    """

    what: str
    name: str
    figure: str
    planned: float | None
    simulated: float | None
    measured: float | None
    interval: float = 0.0

    @property
    def outside(self) -> bool:
        """Return whether the measurement is outside the interval of the plan's figure."""
        if not (self.interval and self.planned and self.measured):
            return False
        return not is_within(self.measured / self.planned, self.interval)

    @property
    def predicted(self) -> float | None:
        """Return the value that the measurement is compared with."""
        return self.simulated if self.simulated is not None else self.planned

    @property
    def error(self) -> float | None:
        """Return the signed error of the prediction relative to the measurement."""
        if self.predicted is None or not self.measured:
            return None
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Prediction:
    """All lines, the mean errors by subject, and the errors beyond their tolerance."""

    lines: tuple[Line, ...]
    errors: Mapping[str, float | None]
    beyond: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        lines = [{**asdict(line), "error": line.error, "outside": line.outside} for line in self.lines]
        return {"lines": lines, "mean_absolute_errors": dict(self.errors), "beyond": list(self.beyond)}


def predict(
    plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any], tolerance: Tolerance | None = None
) -> Prediction:
    """Line up a plan, the result of its simulation (or None) and that of its run."""
    allowed = tolerance or Tolerance()
    lines = (*_stages(plan, simulated, measured), *_chains(plan, simulated, measured), _energy(simulated, measured))
    errors = {
        "chain p50": _mean(lines, "chain", "p50"),
        "chain p99": _mean(lines, "chain", "p99"),
        "stage p50": _mean(lines, "stage", "p50"),
    }
    limits = {"chain p50": allowed.p50, "chain p99": allowed.p99, "stage p50": allowed.stages}
    beyond = [
        f"{name}: mean error {error:.1%}, {limits[name]:.1%} allowed"
        for name, error in errors.items()
        if error is not None and error > limits[name]
    ]
    return Prediction(lines, errors, (*beyond, *_more_lost(plan, simulated, measured, allowed.lost)))


def _stages(plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Iterator[Line]:
    for task in plan.tasks:
        for figure in ("p50", "p99"):
            expected, observed = (
                _figure(result, "stages", task.name, "exec_ns", figure) for result in (simulated, measured)
            )
            interval = task.error if figure == "p50" else 0.0
            planned = planned_quantile(task, int(figure[1:]))
            yield Line("stage", task.name, figure, planned, expected, observed, interval)


def _chains(plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Iterator[Line]:
    for chain in plan.chains:
        for figure in FIGURES:
            expected, observed = (
                _figure(result, "chains", chain.name, "response_time_ns", figure) for result in (simulated, measured)
            )
            # a bound does not predict a percentile: list it next to the largest one only if no other prediction exists
            yield Line("chain", chain.name, figure, chain.expected_ns if figure == "p50" else None, expected, observed)


def _energy(simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Line:
    """Return the energy per second, as runs and simulations differ in length: mJ per second is mW."""
    return Line("energy", "module", "mW", None, _power(simulated), _power(measured))


def _power(result: Mapping[str, Any] | None) -> float | None:
    energy, duration = (result or {}).get("energy_mj"), (result or {}).get("duration_ns")
    return energy / (duration / 1e9) if energy is not None and duration else None


def _figure(result: Mapping[str, Any] | None, group: str, name: str, key: str, figure: str) -> float | None:
    entry = (result or {}).get(group, {}).get(name, {})
    value = (entry.get(key) or {}).get(figure)
    return None if value is None else float(value)


def _mean(lines: Sequence[Line], what: str, figure: str) -> float | None:
    errors = [
        abs(line.error) for line in lines if (line.what, line.figure) == (what, figure) and line.error is not None
    ]
    return sum(errors) / len(errors) if errors else None


def _more_lost(
    plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any], allowed: float
) -> Iterator[str]:
    for chain in plan.chains:
        measured_share, predicted_share = (
            _share((result.get("chains") or {}).get(chain.name, {}), "missed", "dropped")
            for result in (measured, simulated or {})
        )
        if measured_share > predicted_share + allowed:
            text = f"{measured_share:.2%} of the frames late or dropped, {predicted_share:.2%} predicted"
            yield f"{chain.name}: {text}, {allowed:.2%} more allowed"


Table = tuple[str, tuple[str, ...], list[list[str]], tuple[int, ...]]
"""Title, heads, rows, and the columns that are aligned right."""


def _tables(comparison: Comparison | PlanDiff, last: str) -> Iterator[Table]:
    """Yield the tables that have rows: requirements, moves, figures with regressions marked in the `last` column."""
    requirements, figures = [], []
    if isinstance(comparison, PlanDiff):
        requirements = [
            [
                f"{change.kind} of {change.subject}" if change.kind else change.subject,
                change.before or "–",
                change.after or "–",
                f"✗ {change.sense}"
                if change in comparison.weaker
                else change.sense + " (allowed)" * (change.sense == "weaker"),
            ]
            for change in comparison.requirements
        ]
        figures = [[row.name, row.figure, *row.shown(), "✗" if row.regressed else ""] for row in comparison.figures]
    else:
        for row in comparison.rows:
            shown = (format_duration(row.a), format_duration(row.b), f"{row.ratio:.3f}")
            figures.append([row.name, row.figure, *shown, "✗" if row.regressed else ""])
    moved = [
        [
            move.stage,
            move.before or "–",
            move.after or "–",
            format_duration(move.cost_a_ns) if move.before else "–",
            format_duration(move.cost_b_ns) if move.after else "–",
        ]
        for move in comparison.moves
    ]
    tables: list[Table] = [
        ("Requirements", ("requirement", "A", "B", "became"), requirements, ()),
        ("What changed", ("stage", "A", "B", "alone A", "alone B"), moved, (3, 4)),
        ("Figures", ("what", "figure", "A", "B", "B/A", last), figures, (2, 3, 4)),
    ]
    return (shown for shown in tables if shown[2])


def _notes(comparison: Comparison | PlanDiff) -> tuple[str, ...]:
    return tuple(comparison.changes if isinstance(comparison, PlanDiff) else comparison.remarks)


def _verdict(comparison: Comparison | PlanDiff) -> str:
    count = len(comparison.regressions)
    return f"{count} regression{'s' if count > 1 else ''}" if count else "no regression"


def view(comparison: Comparison | PlanDiff, a: str, b: str, allowed: float) -> RenderableType:
    """Return everything that `socsched compare` prints for two results or two plans."""
    parts: list[RenderableType] = [Text(line) for line in (f"A: {a}", f"B: {b}", *_notes(comparison))]
    for title, heads, rows, right in _tables(comparison, f"> {1 + allowed:.3g}"):
        parts += [Text(""), table(title, heads, rows, right)]
    parts.append(Text(""))
    if isinstance(comparison, PlanDiff) and not (comparison.moves or comparison.changes or comparison.requirements):
        parts.append(Text("the plans are identical"))
    parts += [Text(f"✗ {line}", "bold red") for line in comparison.regressions]
    if isinstance(comparison, Comparison) and comparison.slower_chains:
        parts.append(Text(f"to explain its worst frame: socsched why {b} --chain {comparison.slower_chains[0]}"))
    return Group(*parts, Text(_verdict(comparison)))


def markdown(comparison: Comparison | PlanDiff, a: str, b: str, allowed: float) -> str:
    """Return the same as Markdown."""
    head = f"{'❌' if comparison.regressions else '✅'} {_verdict(comparison)}"
    lines = [f"## {head}", "", f"A: {plain(a)}, B: {plain(b)}; tolerance {allowed:.1%}.", ""]
    lines += [f"- {plain(line)}" for line in (*comparison.regressions, *_notes(comparison))] + [""]
    for _, heads, rows, _right in _tables(comparison, ""):
        lines += [*markdown_table(heads, rows), ""]
    return "\n".join(lines)
