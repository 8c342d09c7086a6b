"""Two results against each other: stage execution medians, chain p99, frames lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from socsched.errors import InputError


@dataclass(frozen=True, slots=True)
class Row:
    """One figure (ns) in both results; `regressed` when B exceeds A by more than allowed."""

    name: str
    figure: str
    a: float
    b: float
    regressed: bool

    @property
    def ratio(self) -> float:
        """B over A."""
        return self.b / self.a if self.a else (1.0 if not self.b else float("inf"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All common figures, and remarks on what only one of the results has or on frames lost."""

    rows: tuple[Row, ...]
    remarks: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def regressions(self) -> tuple[str, ...]:
        """Names of everything that got worse by more than allowed."""
        return tuple(f"{row.name} {row.figure}" for row in self.rows if row.regressed) + self.lost

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain data; a ratio that has no finite value is null."""
        rows = [{**asdict(row), "ratio": row.ratio if row.a or not row.b else None} for row in self.rows]
        return {"rows": rows, "remarks": list(self.remarks), "regressions": list(self.regressions)}


def load_result(folder: Path) -> dict[str, Any]:
    """Return result.json of a result folder (or the file itself); InputError when it is none."""
    file = folder / "result.json" if folder.is_dir() else folder
    hint = "expected a folder written by `socsched simulate -o` or `socsched run -o`"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}", hint) from None
    except ValueError as error:
        raise InputError(f"{file}: not JSON: {error}", hint) from None
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("stages"), dict)
        or not isinstance(document.get("chains"), dict)
    ):
        raise InputError(f"{file}: no result: `stages` and `chains` are missing", hint)
    return document


def compare(a: Mapping[str, Any], b: Mapping[str, Any], allowed: float) -> Comparison:
    """Compare result documents; a figure of `b` regresses when it exceeds that of `a` by more than the ratio `allowed`.

    A chain also regresses when a larger share of its frames is late or dropped.
    """
    rows = tuple(
        Row(name, figure, first, second, second > first * (1 + allowed)) for name, figure, first, second in _pairs(a, b)
    )
    return Comparison(rows, tuple(_remarks(a, b)), tuple(_lost(a, b)))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str, float, float]]:
    for group, key, figure in (("stages", "exec_ns", "p50"), ("chains", "response_time_ns", "p99")):
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


def _lost(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(a["chains"].keys() & b["chains"].keys()):
        if _loss(b["chains"][name]) > _loss(a["chains"][name]):
            yield f"{name} lost frames ({_loss(a['chains'][name]):.2%} -> {_loss(b['chains'][name]):.2%})"


def _loss(chain: Mapping[str, Any]) -> float:
    released = chain.get("released") or 0
    return (chain.get("missed", 0) + chain.get("dropped", 0)) / released if released else 0.0
