"""Scores held against limits (`descriptor.bar_file`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from socsched.descriptor.bar_file import LIMITS, BarFile, GroupLimitsFile, LimitsFile
from socsched.validation.document import ScoresDocument

_AT_MOST = ("mape", "p90")
_PERCENT = ("mape", "p90", "inside")
_KEYS = ("platform", "engine", "precision", "meter")


def failures(bar: BarFile, overall: ScoresDocument, groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for every limit that is not kept; limits for groups without cells are not kept either.

    `groups`: scores with the fields that name a group (platform, engine, and precision or meter).
    """
    found = list(_broken("overall", bar.overall, overall)) if bar.overall else []
    for number, limits in enumerate(bar.groups, 1):
        matching = [group for group in groups if _matches(limits, group)]
        if not matching:
            found.append(f"groups[{number - 1}]: no cell of {_name(limits)} is measured")
        for group in matching:
            name = " ".join(str(group[key]) for key in _KEYS if key in group)
            found += _broken(name, limits, group)
    return found


def _matches(limits: GroupLimitsFile, group: Mapping[str, Any]) -> bool:
    return all(getattr(limits, key) in (None, group.get(key)) for key in _KEYS)


def _name(limits: GroupLimitsFile) -> str:
    return " ".join(filter(None, (getattr(limits, key) for key in _KEYS))) or "any engine"


def _broken(name: str, limits: LimitsFile, scores: Mapping[str, Any]) -> Iterator[str]:
    values = dict(scores)
    for key in LIMITS:
        limit, value = getattr(limits, key), values[key]
        if limit is None:
            continue
        bound = f"{'at most' if key in _AT_MOST else 'at least'} {_shown(key, limit)}"
        if not isinstance(value, (int, float)):
            yield f"{name}: {key} is unknown with {scores['cells']} cells, expected {bound}"
        elif value > limit if key in _AT_MOST else value < limit:
            yield f"{name}: {key} is {_shown(key, value)}, expected {bound}"


def _shown(key: str, value: float) -> str:
    return f"{value:.1%}" if key in _PERCENT else f"{value:g}"
