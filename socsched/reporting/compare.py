"""Comparison of two results: stage medians, chain p99, frames late and dropped, and the move responsible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.errors import InputError
from socsched.planning.plan import Plan
from socsched.reporting.diff import Move, blame, moves
from socsched.trace.generation import require_one
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


def _share(chain: Mapping[str, Any], key: str) -> float:
    released = chain.get("released") or 0
    return (chain.get(key) or 0) / released if released else 0.0
