"""Precedence and interference: relatives never compete.

Relatives (trigger ancestors and descendants) process the same frame one after the other; as long as a frame is finished
before the next is released, they cannot interfere with or block each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from socsched.schedulability.tasks import RtTask


def relatives(tasks: Mapping[str, RtTask]) -> dict[str, frozenset[str]]:
    """Return, for every task, its trigger ancestors and descendants."""
    ancestors: dict[str, set[str]] = {}

    def climb(name: str) -> set[str]:
        if name not in ancestors:
            direct = {n for n in tasks[name].after if n in tasks}
            ancestors[name] = direct.union(*(climb(n) for n in direct))
        return ancestors[name]

    for name in tasks:
        climb(name)
    return {name: frozenset(ancestors[name] | {other for other in tasks if name in ancestors[other]}) for name in tasks}


def families(tasks: Mapping[str, RtTask]) -> list[frozenset[str]]:
    """Group tasks that trigger each other, directly or not."""
    groups: list[set[str]] = []
    for name, task in tasks.items():
        joined = {name, *(n for n in task.after if n in tasks)}
        for group in [g for g in groups if g & joined]:
            joined |= group
            groups.remove(group)
        groups.append(joined)
    return [frozenset(group) for group in groups]
