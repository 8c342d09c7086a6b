"""A simulated book as a table for terminals: switches with their bounds, frames by fate, chains."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from socsched.modebook.accounts import FATES
from socsched.modebook.simulate import BookSimulation, SwitchRecord
from socsched.reporting.terminal import table
from socsched.units import format_duration

_MOST = 40
"""Switches listed; the rest are in result.json."""


def view(done: BookSimulation) -> RenderableType:
    """Return the switches, the accounts of frames and the chains of a simulated book."""
    made = [one for one in done.switches if not one.why]
    switches = table(
        "Switches: simulated / bound",
        ["at", "from", "to", "drain", "switch", "held", "unpaired", "within"],
        [_row(one) for one in done.switches[:_MOST]],
        (3, 4, 5, 6),
    )
    used = [fate for fate in FATES if any(count[fate] for count in done.frames.values())]
    frames = table(
        "Frames by fate",
        ["source", "released", *used],
        [[name, str(count.total()), *(str(count[fate]) for fate in used)] for name, count in done.frames.items()],
        tuple(range(1, len(used) + 2)),
    )
    chains = table(
        "Chains",
        ["chain", "answered", "late", "longest"],
        [
            [name, str(done.completed[name]), str(done.late[name]), format_duration(longest)]
            for name, longest in done.longest_ns.items()
        ],
        (1, 2, 3),
    )
    outside = sum(not one.within for one in made)
    line = (
        f"{len(made)} switches, {outside} outside their bounds; {done.unaccounted} frames unaccounted for; "
        f"{done.late.total()} late"
    )
    return Group(*((switches, Text("")) if done.switches else ()), frames, Text(""), chains, Text(""), Text(line))


def _row(one: SwitchRecord) -> list[str]:
    at = format_duration(one.requested_ns)
    if one.why:
        return [at, str(one.source), str(one.target), "", "", "", "", f"refused: {one.why}"]
    return [
        at,
        str(one.source),
        str(one.target),
        f"{format_duration(one.drain_ns)} / {format_duration(one.drain_bound_ns)}",
        f"{format_duration(one.switch_ns)} / {format_duration(one.switch_bound_ns)}",
        f"{one.held.total()} / {sum(one.held_bound.values())}",
        f"{one.unpaired.total()} / {sum(one.unpaired_bound.values())}",
        "yes" if one.within else "no",
    ]
