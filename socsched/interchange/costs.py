"""From recordings of other tools to measured costs (`profile.json`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import InputError, UsageError
from socsched.graph.network import Network
from socsched.interchange import trtexec
from socsched.interchange.layers import parts_of
from socsched.interchange.power_mode import recorded_mode
from socsched.interchange.recording import HINT, Recording, Section, Spread
from socsched.interchange.recording_file import read_recording
from socsched.runtime.profile import LEAST_ERROR, quantiles

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
    found = [read_recording(path) for path in files]
    on_dla = frozenset(name for one in found for name in one.accelerated)
    order = tuple(layer.name for network in networks for layer in network.layers)
    found = [trtexec.sectioned(one, on_dla, order) if one.rows else one for one in found]
    found = [_chosen(one, choices.stages) for one in found]
    timed = [one for one in found if one.sections]
    whole = [spread for one in found if (spread := _whole(one))]
    if not timed and whole:
        kind = next((one.kind for one in found if one.kind), "gpu")
        timed = [replace(one, sections=(_inference(one, kind),)) for one in found if one.whole_ns]
        whole = []
    if not timed:
        raise InputError("the files hold no execution times", "add a profile; " + HINT)
    mode = recorded_mode(platform, choices.mode, found)
    notes = [*mode.notes, *(note for one in found for note in one.notes)]
    label = f"mode {mode.mode.name}" + (f" ({mode.ground})" if mode.ground else "")
    state = "; ".join(filter(None, [label, *(one.state for one in found)]))
    shared = next((one.precisions for one in found if one.precisions and not one.sections), ())
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
                section = _clocked(section, mode.mode, engine)
            where = name, engine, mode.mode.name, precision
            costs.append(_cost(one, section, where, state, choices.skip, spread))
            layers[name] = section.layers
    if unused:
        raise UsageError(f"--stage: the files have no {', '.join(sorted(unused))}", f"they have: {', '.join(layers)}")
    tools = ", ".join(dict.fromkeys(one.tool for one in found))
    cuts = _cuts(timed, networks, choices.stages)
    profile = Profile(platform.name, tuple(costs), f"imported: {tools}")
    return Imported(profile, tuple(found), layers, cuts, tuple(dict.fromkeys(notes)))


def _whole(one: Recording) -> Spread | tuple[int, ...] | None:
    """Return the times of whole inferences, or their figures, of a recording that states no sections."""
    return one.whole_ns or (one.whole if not one.sections else None)


def _inference(one: Recording, kind: str) -> Section:
    return Section("", 0, kind, (), sum(one.whole_ns) / len(one.whole_ns), one.whole_ns)


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
    found, number = name, 2
    while found in taken:
        found, number = f"{name[:55]}-{number}", number + 1
    return found


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
        median, planned = (ordered[-(-len(ordered) * share // 100) - 1] for share in (50, 99))
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
