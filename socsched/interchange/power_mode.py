"""The power mode that recorded costs belong to: what the user says, what the sources state, else the default.

Sources state a mode by name (jtop), or the clocks and cores of one (tegrastats, RKNN's list of frequencies).  A mode
fits if no clock seen is above its limit and no more cores are online than it has; it is the one stated where the
highest clocks of CPUs and GPU are its limits and those of no other mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.interchange.recording import Board, Recording

_CLOCKED = ("cpu", "gpu")
"""Kinds of engine whose clocks tell modes apart."""
_APART = 0.005
"""Relative difference of clocks from which on one mode is nearer to a log than another."""
TOLERANCE = 0.02
"""Relative tolerance of clocks: those that boards report lie on a finer grid than the vendors' tables."""


@dataclass(frozen=True, slots=True)
class RecordedMode:
    """A mode, how it is known (`ground`: empty where the user said so), and what speaks against it."""

    mode: PowerMode
    ground: str
    notes: tuple[str, ...] = ()


def recorded_mode(platform: Platform, wanted: str, recordings: Sequence[Recording]) -> RecordedMode:
    """Return the mode of the costs in `recordings`; `wanted` is the user's word, empty: none.

    Raises UsageError if sources and user state different modes, or if nobody states one and the default cannot be it.
    """
    chosen = _called(platform, wanted) if wanted else None
    if wanted and chosen is None:
        raise UsageError(f"{platform.name} has no mode {wanted!r}", _listed(platform))
    named = _named(platform, chosen, recordings)
    if chosen is not None:
        found = RecordedMode(chosen, "")
    elif named.mode is not None:
        found = RecordedMode(named.mode, f"stated by {named.file}")
    else:
        found = _by_clocks(platform, recordings)
    against = _against(platform, found.mode, recordings)
    fitting = [mode.name for mode in platform.modes if not _against(platform, mode, recordings)]
    if chosen is not None and against and fitting:
        raise UsageError(
            f"--mode {chosen.name}, but {against[0]}",
            f"the log fits {', '.join(fitting)}: give one of these, or leave the log out",
        )
    below = _below(platform, found.mode, recordings)
    return RecordedMode(
        found.mode, found.ground, (*found.notes, *named.notes, *against, *below, *_devices(platform, recordings))
    )


@dataclass(frozen=True, slots=True)
class _Named:
    mode: PowerMode | None
    file: str = ""
    notes: tuple[str, ...] = ()


def _named(platform: Platform, chosen: PowerMode | None, recordings: Sequence[Recording]) -> _Named:
    """Return the mode that sources state by name; UsageError if they contradict each other or the user."""
    stated = [(name, Path(one.file).name) for one in recordings for name in one.board.modes]
    if not stated:
        return _Named(None)
    names = list(dict.fromkeys(name for name, _ in stated))
    modes = {name: _called(platform, name) for name in names}
    if chosen is not None:
        other = next(((name, file) for name, file in stated if modes[name] is not None and modes[name] != chosen), None)
        if other:
            raise UsageError(
                f"--mode {chosen.name}, but {other[1]} states {other[0]}", "omit --mode, or leave the log out"
            )
        unknown = [
            f"{file} states mode {name}, which {platform.name} does not have"
            for name, file in stated
            if modes[name] is None
        ]
        return _Named(chosen, notes=tuple(dict.fromkeys(unknown)))
    name, file = stated[0]
    if len({mode.name if mode else name for name, mode in modes.items()}) > 1:
        raise UsageError(
            f"the logs state several modes: {', '.join(names)}", "cut them to one mode; costs belong to one"
        )
    mode = modes[name]
    if mode is None:
        raise UsageError(
            f"{file} states mode {name}, which {platform.name} does not have", "add --mode; " + _listed(platform)
        )
    return _Named(mode, file)


def _by_clocks(platform: Platform, recordings: Sequence[Recording]) -> RecordedMode:
    """Return the mode that clocks and cores show, else the default one if it fits or none does."""
    default = platform.mode(None)
    taken = f"no file states the power mode: {default.name}, the default, is assumed (--mode)"
    files = [Path(one.file).name for one in recordings if one.board.clocks_hz]
    if not files:
        return RecordedMode(default, "assumed", (taken,))
    fitting = [mode for mode in platform.modes if not _against(platform, mode, recordings)]
    off = sorted((_deviation(platform, mode, recordings), mode.name, mode) for mode in fitting)
    nearest = [mode for deviation, _, mode in off if deviation <= min(off[0][0] + _APART, TOLERANCE)]
    for alone in (nearest, fitting):
        if len(alone) == 1:
            return RecordedMode(alone[0], f"by the clocks in {files[0]}")
    if default in fitting or not fitting:
        return RecordedMode(default, "assumed", (taken,))
    # the fastest: costs in slower modes are then predicted longer, and those in faster ones are not predicted shorter
    fastest = max(fitting, key=lambda mode: [_limit(platform, mode, kind) for kind in reversed(_CLOCKED)])
    note = (
        f"{files[0]} fits {', '.join(mode.name for mode in fitting)}: {fastest.name}, the fastest, is assumed (--mode)"
    )
    return RecordedMode(fastest, "assumed", (note,))


def _called(platform: Platform, name: str) -> PowerMode | None:
    return next((mode for mode in platform.modes if mode.called(name)), None)


def _listed(platform: Platform) -> str:
    return "modes: " + ", ".join(mode.name for mode in platform.modes)


def _limit(platform: Platform, mode: PowerMode, kind: str) -> int:
    """Return the highest clock of the engines of a kind in a mode, 0 where the platform has none."""
    return max((mode.engines[engine.id].clock_hz for engine in platform.engines if engine.kind == kind), default=0)


def _against(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> list[str]:
    """Return the clocks and cores in sources that a mode does not allow, in words."""
    found = []
    for one in recordings:
        name = Path(one.file).name
        for kind, clock in one.board.clocks_hz.items():
            limit = _limit(platform, mode, kind)
            if limit and clock > limit * (1 + TOLERANCE):
                found.append(f"{name}: {kind} at {clock / 1e6:.0f} MHz, at most {limit / 1e6:.0f} MHz in {mode.name}")
        online, _ = one.board.cores
        allowed = sum(mode.engines[engine.id].units for engine in platform.engines if engine.kind == "cpu")
        if online > allowed:
            found.append(f"{name}: {online} CPU cores online, {allowed} in {mode.name}")
    return found


def _below(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> list[str]:
    """Return the engines that computed at a clock below the mode's, in words."""
    found = []
    for one in recordings:
        for kind, clock in one.board.busy_hz.items():
            limit = _limit(platform, mode, kind)
            if clock < limit * (1 - TOLERANCE):
                found.append(
                    f"{Path(one.file).name}: {kind} loaded at {clock / 1e6:.0f} MHz, {limit / 1e6:.0f} MHz in "
                    f"{mode.name}: the costs may be those of the lower clock"
                )
    return found


def _deviation(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> float:
    """Return the largest relative deviation of the clocks of CPUs and GPU from a mode's limits, inf if unknown."""
    seen = [(kind, clock) for one in recordings for kind, clock in one.board.clocks_hz.items() if kind in _CLOCKED]
    if {kind for kind, _ in seen} != set(_CLOCKED):
        return math.inf
    return max(abs(clock / limit - 1) if (limit := _limit(platform, mode, kind)) else math.inf for kind, clock in seen)


def _devices(platform: Platform, recordings: Sequence[Recording]) -> list[str]:
    """Return the devices that sources name and a platform does not, and other counts of cores or multiprocessors."""
    words = " ".join((platform.name, platform.title, *(engine.title for engine in platform.engines))).lower()
    cores = sum(engine.units for engine in platform.engines if engine.kind == "cpu")
    units = max((engine.units for engine in platform.engines if engine.kind == "gpu"), default=0)
    found = []
    for one in recordings:
        name, board = Path(one.file).name, one.board
        if board.device and not any(word in words for word in _words(board)):
            found.append(f"{name} was recorded on {board.device!r}, which {platform.name} does not name")
        if board.units and units and board.units != units:
            found.append(f"{name}: a GPU of {board.units} multiprocessors, {platform.name} has {units}")
        if board.cores[1] and cores and board.cores[1] != cores:
            found.append(f"{name}: {board.cores[1]} CPU cores, {platform.name} has {cores}")
    return found


_MAKERS = frozenset(
    ("nvidia", "tegra", "geforce", "jetson", "gpu", "graphics", "device", "gb", "soc", "laptop", "nvgpu")
)


def _words(board: Board) -> list[str]:
    """Return the words of a device's name that tell it from others of its maker."""
    words = "".join(c if c.isalnum() else " " for c in board.device.lower()).split()
    return [word for word in words if word not in _MAKERS and len(word) > 1] or words
