"""A finding of the linter: the rule that a stage breaks, its position and the document that states the rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from socsched.descriptor.operator_rules import OPERATORS
from socsched.descriptor.validation import suggest
from socsched.errors import UsageError

Level = Literal["error", "warning", "note"]
NO_ENGINE, UNKNOWN_OPERATOR, UNAVAILABLE, RESIDENT_JOBS = (
    "no-engine",
    "unknown-operator",
    "unavailable",
    "resident-jobs",
)
INVALID_FILE, BAD_REQUEST, OPEN_SHAPE, DROPPED_INPUT = "invalid-file", "request", "open-shape", "dropped-input"
OTHER_RULES = (
    NO_ENGINE,
    UNKNOWN_OPERATOR,
    UNAVAILABLE,
    RESIDENT_JOBS,
    INVALID_FILE,
    BAD_REQUEST,
    OPEN_SHAPE,
    DROPPED_INPUT,
)
"""Names of rules that concern no operator."""
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Place:
    """A 1-based position in a file."""

    file: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One broken rule of one stage.

    `rule` is RULES/OPERATOR, such as nvdla-v2/softmax.  `level`: error (no engine runs the stage, or the planned one
    does not), warning (operators fall back from the accelerator to another engine), note (a condition that shapes
    do not decide).  `engines` and `precisions` have the same rules; `operators` are the names of the operators
    concerned; `sources` are the documents that state the rule; `hint` is a remedy.
    """

    rule: str
    level: Level
    message: str
    place: Place
    stage: str = ""
    engines: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    hint: str = ""


def kept(found: Iterable[Diagnostic], ignored: Sequence[str]) -> list[Diagnostic]:
    """Return the diagnostics whose rule matches none of the patterns (`nvdla-v2/*`), in file order, errors first.

    Raises UsageError for a pattern that matches no rule.
    """
    for pattern in ignored:
        name = pattern.rpartition("/")[2]
        if not any(fnmatchcase(rule, name) for rule in (*OPERATORS, *OTHER_RULES)):
            raise UsageError(f"--ignore: no rule matches {pattern!r}", suggest(name, (*OPERATORS, *OTHER_RULES)))
    left = [entry for entry in found if not any(fnmatchcase(entry.rule, pattern) for pattern in ignored)]
    return sorted(left, key=lambda e: (e.place.file, e.place.line, e.place.column, LEVELS.index(e.level)))
