"""From recordings of other tools to measured costs (`profile.json`).

The power mode that recorded costs belong to: what the user says, what the sources state, else the default.

Sources state a mode by name (jtop), or the clocks and cores of one (tegrastats, RKNN's list of frequencies).  A mode
fits if no clock seen is above its limit and no more cores are online than it has; it is the one stated where the
highest clocks of CPUs and GPU are its limits and those of no other mode.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.distribution import nearest_rank
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import InputError, UsageError
from socsched.graph.network import Network
from socsched.interchange import trtexec
from socsched.interchange.profile_model import HINT, Board, Recording, Section, Spread
from socsched.interchange.recording_file import read_recording
from socsched.interchange.trtexec import parts_of
from socsched.runtime.profile import LEAST_ERROR, quantiles

_CLOCKED = ("cpu", "gpu")
"""Kinds of engine whose clocks tell modes apart."""
_APART = 0.005
"""Relative difference of clocks from which on one mode is nearer to a log than another."""
TOLERANCE = 0.02
"""Relative tolerance of clocks: those that boards report lie on a finer grid than the vendors' tables."""


def _recorded_mode(
    platform: Platform, wanted: str, recordings: Sequence[Recording]
) -> tuple[PowerMode, str, tuple[str, ...]]:
    """Return the mode of the costs in `recordings`, how it is known, and notes on what speaks against it.

    `wanted`: the user's word, empty: none; the mode is then as the user said.  Raises UsageError if sources and user
    state different modes, or if none states one and the default cannot be it.
    """
    chosen = _called(platform, wanted) if wanted else None
    if wanted and chosen is None:
        raise UsageError(f"{platform.name} has no mode {wanted!r}", _listed(platform))
    stated, named = _stated_mode(platform, chosen, recordings)
    notes = list(named)
    if stated is not None:
        mode, ground = stated
    else:
        mode, ground, assumed = _by_clocks(platform, recordings)
        notes = [*assumed, *named]
    against = _against(platform, mode, recordings)
    fitting = [mode.name for mode in platform.modes if not _against(platform, mode, recordings)]
    if chosen is not None and against and fitting:
        raise UsageError(
            f"--mode {chosen.name}, but {against[0]}",
            f"the log fits {', '.join(fitting)}: give one of these, or leave the log out",
        )
    return mode, ground, (*notes, *against, *_below(platform, mode, recordings), *_devices(platform, recordings))


def _stated_mode(
    platform: Platform, chosen: PowerMode | None, recordings: Sequence[Recording]
) -> tuple[tuple[PowerMode, str] | None, Sequence[str]]:
    """Return the chosen mode, or the one that sources state by name, and how it is known; and notes.

    UsageError if sources contradict each other or the user.
    """
    stated = [(name, Path(one.file).name) for one in recordings for name in one.board.modes]
    modes = {name: _called(platform, name) for name, _ in stated}
    unknown = [f"{file} states mode {n}, which {platform.name} does not have" for n, file in stated if modes[n] is None]
    if chosen is not None:
        for name, file in stated:
            if modes[name] not in (None, chosen):
                hint = "omit --mode, or leave the log out"
                raise UsageError(f"--mode {chosen.name}, but {file} states {name}", hint)
        return (chosen, ""), list(dict.fromkeys(unknown))
    if not stated:
        return None, ()
    if len({mode.name if mode else name for name, mode in modes.items()}) > 1:
        raise UsageError(
            f"the logs state several modes: {', '.join(modes)}", "cut them to one mode; costs belong to one"
        )
    mode = modes[stated[0][0]]
    if mode is None:
        raise UsageError(unknown[0], "add --mode; " + _listed(platform))
    return (mode, f"stated by {stated[0][1]}"), ()


def _by_clocks(platform: Platform, recordings: Sequence[Recording]) -> tuple[PowerMode, str, tuple[str, ...]]:
    """Return the mode that clocks and cores show, else the default one if it fits or none does."""
    default = platform.mode(None)
    note = f"no file states the power mode: {default.name}, the default, is assumed (--mode)"
    files = [Path(one.file).name for one in recordings if one.board.clocks_hz]
    fitting = [mode for mode in platform.modes if files and not _against(platform, mode, recordings)]
    off = sorted((_deviation(platform, mode, recordings), mode.name, mode) for mode in fitting)
    nearest = [mode for deviation, _, mode in off if deviation <= min(off[0][0] + _APART, TOLERANCE)]
    for alone in (nearest, fitting):
        if len(alone) == 1:
            return alone[0], f"by the clocks in {files[0]}", ()
    if default in fitting or not fitting:
        return default, "assumed", (note,)
    # the fastest: costs in slower modes are then predicted longer, and those in faster ones are not predicted shorter
    fastest = max(fitting, key=lambda mode: [_limit(platform, mode, kind) for kind in reversed(_CLOCKED)])
    names = ", ".join(mode.name for mode in fitting)
    return fastest, "assumed", (f"{files[0]} fits {names}: {fastest.name}, the fastest, is assumed (--mode)",)


def _called(platform: Platform, name: str) -> PowerMode | None:
    return next((mode for mode in platform.modes if mode.called(name)), None)


def _listed(platform: Platform) -> str:
    return "modes: " + ", ".join(mode.name for mode in platform.modes)


def _limit(platform: Platform, mode: PowerMode, kind: str) -> int:
    """Return the highest clock of the engines of a kind in a mode, 0 where the platform has none."""
    return max((mode.engines[engine.id].clock_hz for engine in platform.engines if engine.kind == kind), default=0)


def _against(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> list[str]:
    """Return the clocks and cores in sources that a mode does not allow, in words."""
    lines = []
    for one in recordings:
        name = Path(one.file).name
        for kind, clock in one.board.clocks_hz.items():
            limit = _limit(platform, mode, kind)
            if limit and clock > limit * (1 + TOLERANCE):
                lines.append(f"{name}: {kind} at {clock / 1e6:.0f} MHz, at most {limit / 1e6:.0f} MHz in {mode.name}")
        online, _ = one.board.cores
        allowed = sum(mode.engines[engine.id].units for engine in platform.engines if engine.kind == "cpu")
        if online > allowed:
            lines.append(f"{name}: {online} CPU cores online, {allowed} in {mode.name}")
    return lines


def _below(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> list[str]:
    """Return the engines that computed at a clock below the mode's, in words."""
    lines = []
    for one in recordings:
        for kind, clock in one.board.busy_hz.items():
            limit = _limit(platform, mode, kind)
            if clock < limit * (1 - TOLERANCE):
                lines.append(
                    f"{Path(one.file).name}: {kind} loaded at {clock / 1e6:.0f} MHz, {limit / 1e6:.0f} MHz in "
                    f"{mode.name}: the costs may be those of the lower clock"
                )
    return lines


def _deviation(platform: Platform, mode: PowerMode, recordings: Sequence[Recording]) -> float:
    """Return the largest relative deviation of the clocks of CPUs and GPU from a mode's limits, inf if unknown."""
    clocks = [(kind, clock) for one in recordings for kind, clock in one.board.clocks_hz.items() if kind in _CLOCKED]
    if {kind for kind, _ in clocks} != set(_CLOCKED):
        return math.inf
    return max(
        abs(clock / limit - 1) if (limit := _limit(platform, mode, kind)) else math.inf for kind, clock in clocks
    )


def _devices(platform: Platform, recordings: Sequence[Recording]) -> list[str]:
    """Return the devices that sources name and a platform does not, and other counts of cores or multiprocessors."""
    words = " ".join((platform.name, platform.title, *(engine.title for engine in platform.engines))).lower()
    cores = sum(engine.units for engine in platform.engines if engine.kind == "cpu")
    units = max((engine.units for engine in platform.engines if engine.kind == "gpu"), default=0)
    lines = []
    for one in recordings:
        name, board = Path(one.file).name, one.board
        if board.device and not any(word in words for word in _words(board)):
            lines.append(f"{name} was recorded on {board.device!r}, which {platform.name} does not name")
        if board.units and units and board.units != units:
            lines.append(f"{name}: a GPU of {board.units} multiprocessors, {platform.name} has {units}")
        if board.cores[1] and cores and board.cores[1] != cores:
            lines.append(f"{name}: {board.cores[1]} CPU cores, {platform.name} has {cores}")
    return lines


_MAKERS = frozenset(
    ("nvidia", "tegra", "geforce", "jetson", "gpu", "graphics", "device", "gb", "soc", "laptop", "nvgpu")
)


def _words(board: Board) -> list[str]:
    """Return the words of a device's name that tell it from others of its maker."""
    words = "".join(c if c.isalnum() else " " for c in board.device.lower()).split()
    return [word for word in words if word not in _MAKERS and len(word) > 1] or words


ASSUMED_ERROR = 0.1
"""Relative uncertainty of a mean whose spread the source does not state."""
_VENDOR_ERROR = 0.5
"""Relative uncertainty of a vendor compiler's estimate in cycles."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a source does not state: precision, mode, engine of a kind (`engines`), stage of a range (`stages`).

    `skip`: first jobs left out of each recording, as warm-up.
    """

    precision: str = ""
    mode: str = ""
    engines: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, str] = field(default_factory=dict)
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    """The profile, the recordings it rests on, the layers of every stage in the source's names, and the cuts.

    `cuts`: stage -> the part of the network it is, BEGIN:END as in plans, where a network with those layers was given.
    `notes`: defaults that were taken, and what in the sources speaks against them.
    """

    profile: Profile
    recordings: tuple[Recording, ...]
    layers: Mapping[str, tuple[str, ...]]
    cuts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def import_profile(
    files: Sequence[Path], platform: Platform, choices: Choices, networks: Sequence[Network] = ()
) -> Imported:
    """Return the measured costs in `files`; layer lists, inference times and board logs apply to all profiles given.

    `networks`: their layers expand ranges and give the cuts.  Raises InputError for files that cannot be used,
    UsageError if a choice is missing or unknown.
    """
    recordings = [read_recording(path) for path in files]
    on_dla = frozenset(name for one in recordings for name in one.accelerated)
    order = tuple(layer.name for network in networks for layer in network.layers)
    recordings = [trtexec.sectioned(one, on_dla, order) if one.rows else one for one in recordings]
    recordings = [_chosen(one, choices.stages) for one in recordings]
    timed = [one for one in recordings if one.sections]
    whole = [spread for one in recordings if (spread := one.whole_ns or (None if one.sections else one.whole))]
    if not timed and whole:
        kind = next((one.kind for one in recordings if one.kind), "gpu")
        timed = [
            replace(one, sections=(Section("", 0, kind, (), sum(one.whole_ns) / len(one.whole_ns), one.whole_ns),))
            for one in recordings
            if one.whole_ns
        ]
        whole = []
    if not timed:
        raise InputError("the files hold no execution times", "add a profile; " + HINT)
    mode, ground, doubts = _recorded_mode(platform, choices.mode, recordings)
    notes = [*doubts, *(note for one in recordings for note in one.notes)]
    label = f"mode {mode.name}" + (f" ({ground})" if ground else "")
    state = "; ".join(filter(None, [label, *(one.state for one in recordings)]))
    shared = next((one.precisions for one in recordings if one.precisions and not one.sections), ())
    costs, layers, unused = list[MeasuredCost](), dict[str, tuple[str, ...]](), set(choices.stages)
    for one in timed:
        precision, note = _precision(one, one.precisions or shared, choices.precision)
        notes += note
        spread = one.whole or (whole[0] if len(whole) == 1 and len(timed) == 1 else None)
        for section in one.sections:
            name, key = _stage(one, section, choices.stages)
            unused.discard(key)
            if one.trace is not None:  # threads, whose names may differ in signs or letters that stages cannot have
                name = _apart(name, {cost.stage for cost in costs})
            if any(cost.stage == name and cost.engine for cost in costs):
                raise UsageError(f"{name}: two recordings of one stage", "name them with --stage SOURCE=NAME")
            engine = _engine(platform, section, choices.engines)
            if section.cycles:
                section = _clocked(section, mode, engine)
            where = name, engine, mode.name, precision
            costs.append(_cost(one, section, where, state, choices.skip, spread))
            layers[name] = section.layers
    if unused:
        raise UsageError(f"--stage: the files have no {', '.join(sorted(unused))}", f"they have: {', '.join(layers)}")
    tools = ", ".join(dict.fromkeys(one.tool for one in recordings))
    cuts = _cuts(timed, networks, choices.stages)
    profile = Profile(platform.name, tuple(costs), f"imported: {tools}")
    return Imported(profile, tuple(recordings), layers, cuts, tuple(dict.fromkeys(notes)))


def _precision(one: Recording, stated: Sequence[str], wanted: str) -> tuple[str, list[str]]:
    """Return the data type of a recording's costs: the stated one, or the wanted one if a source allows several."""
    if not stated:
        if not wanted:
            raise UsageError(f"{one.file} does not state the precision", "add --precision fp32, fp16 or int8")
        return wanted, []
    if not wanted or wanted in stated:
        return wanted or stated[0], []
    return stated[0], [f"{Path(one.file).name} states {' and '.join(stated)}: --precision {wanted} is not used"]


def _chosen(one: Recording, stages: Mapping[str, str]) -> Recording:
    """Return a recording of threads with those that have a stage, if any has one."""
    kept = tuple(section for section in one.sections if section.stage in stages)
    return replace(one, sections=kept) if one.trace and kept else one


def _clocked(section: Section, mode: PowerMode, engine: str) -> Section:
    """Return a section stated in cycles with its time at the engine's clock in the mode."""
    clock = mode.engines[engine].clock_hz
    if not clock:
        raise UsageError(f"{engine} is off in mode {mode.name}, but the file states cycles for it", "add --mode MODE")
    note = f"{section.note}, at {clock / 1e6:g} MHz"
    return replace(section, mean_ns=section.cycles / clock * 1e9, note=note)


def _cuts(timed: Sequence[Recording], networks: Sequence[Network], stages: Mapping[str, str]) -> dict[str, str]:
    cuts: dict[str, str] = {}
    for one in timed:
        numbered = [section for section in one.sections if section.number]
        for network in networks if numbered else ():
            parts = parts_of(network, [section.layers for section in numbered])
            cuts |= {_stage(one, s, stages)[0]: str(part) for s, part in zip(numbered, parts, strict=False)}
    return cuts


def _stage(one: Recording, section: Section, stages: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the stage of a section, and the source's name for it."""
    key = section.stage or Path(one.file.removesuffix(".gz")).stem
    name = stages.get(key) or re.sub(r"[^A-Za-z0-9_.-]+", "-", key).strip("-.")[:60] or "stage"
    return (f"{name}.{section.number}" if section.number else name), key


def _apart(name: str, taken: Collection[str]) -> str:
    free, number = name, 2
    while free in taken:
        free, number = f"{name[:55]}-{number}", number + 1
    return free


def _engine(platform: Platform, section: Section, engines: Mapping[str, str]) -> str:
    kind, ids = section.kind, [engine.id for engine in platform.engines]
    chosen = engines.get(kind)
    if chosen:
        if chosen not in ids:
            raise UsageError(f"{platform.name} has no engine {chosen!r}", f"engines: {', '.join(ids)}")
        return chosen
    same = [engine.id for engine in platform.engines if engine.kind == kind]
    if (section.core or 0) >= len(same):
        number = "" if section.core is None or not same else f" number {section.core}"
        hint = f"add --engine {kind}=ENGINE; engines: {', '.join(ids)}"
        raise UsageError(f"{platform.name} has no engine of the kind {kind!r}{number}", hint)
    return same[section.core or 0]


def _cost(
    one: Recording,
    section: Section,
    where: tuple[str, str, str, str],
    state: str,
    skip: int,
    whole: Spread | tuple[int, ...] | None,
) -> MeasuredCost:
    """Return the cost of a section; `where`: stage, engine, mode and precision, `whole`: times of whole inferences."""
    times, spread = section.times_ns[skip:], section.spread
    if section.times_ns and not times:
        raise UsageError(f"--skip {skip}: {where[0]} has {len(section.times_ns)} jobs", "skip fewer")
    said = [f"{one.tool}, {Path(one.file).name}", section.note]
    if not times and spread is None and whole:
        if isinstance(whole, Spread):
            share = section.mean_ns / whole.mean_ns
            spread = replace(whole, median_ns=whole.median_ns * share, high_ns=whole.high_ns * share)
        else:
            mean = sum(whole) / len(whole)
            times = tuple(round(section.mean_ns * time / mean) for time in whole[skip:])
        said.append("spread of whole inferences" if times or spread else "")
    if times:
        ordered = sorted(max(1, time) for time in times)
        median, planned = (nearest_rank(ordered, share) for share in (50, 99))
        said.append(f"median {median} ns, p99 of {len(ordered)} jobs")
        count, kept = len(ordered), quantiles(ordered)
    elif spread:
        median, planned, count, kept = round(spread.median_ns), max(1, round(spread.high_ns)), spread.samples, ()
        high = f"p{spread.share}" if spread.share < 100 else "longest"
        jobs = f" of {count} jobs" if count else ""
        said.append(f"median {median} ns, {high}{jobs} as the source states them")
    else:
        planned, median, count, kept = max(1, round(section.mean_ns)), section.median_ns, one.samples, ()
    if times or spread:
        error = round(max((planned - median) / planned, LEAST_ERROR), 3)
    else:
        error = _VENDOR_ERROR if section.cycles else ASSUMED_ERROR
        said.append(f"mean of {count} jobs, spread not recorded: {error:.0%} assumed")
    source = "; ".join(filter(None, said)).replace("\n", " ")
    runtime = "tensorrt" if one.tool.startswith("trtexec") else ""
    return MeasuredCost(
        *where, 0, planned, error, count, median, kept, source=source[:4000], state=state[:4000], runtime=runtime
    )
