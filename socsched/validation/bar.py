"""Scores held against limits (`descriptor.bar_file`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from socsched.descriptor.bar_file import LIMITS, BarFile, GroupLimitsFile, LimitsFile
from socsched.validation.document import GroupDocument, ScoresDocument

_AT_MOST = ("mape", "p90")
_PERCENT = ("mape", "p90", "inside")


def failures(bar: BarFile, overall: ScoresDocument, groups: Sequence[GroupDocument]) -> list[str]:
    """Return a sentence for every limit that is not kept; limits for groups without cells are not kept either."""
    found = list(_broken("overall", bar.overall, overall)) if bar.overall else []
    for number, limits in enumerate(bar.groups, 1):
        matching = [group for group in groups if _matches(limits, group)]
        if not matching:
            found.append(f"groups[{number - 1}]: no cell of {_name(limits)} is measured")
        for group in matching:
            name = f"{group['platform']} {group['engine']} {group['precision']}"
            found += _broken(name, limits, group)
    return found


def _matches(limits: GroupLimitsFile, group: GroupDocument) -> bool:
    pairs = (
        (limits.platform, group["platform"]),
        (limits.engine, group["engine"]),
        (limits.precision, group["precision"]),
    )
    return all(wanted in (None, given) for wanted, given in pairs)


def _name(limits: GroupLimitsFile) -> str:
    return " ".join(filter(None, (limits.platform, limits.engine, limits.precision))) or "any engine"


def _broken(name: str, limits: LimitsFile, scores: ScoresDocument) -> Iterator[str]:
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
