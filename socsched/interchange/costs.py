"""From recordings of other tools to measured costs (`profile.json`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.platform import Platform
from socsched.errors import InputError, UsageError
from socsched.graph.network import Network
from socsched.interchange import board_log, ftrace, jtop, nsys, onnxruntime, qnn, rknn, torch_profiler, trtexec
from socsched.interchange.layers import parts_of
from socsched.interchange.recording import HINT, Recording, Section, read_json
from socsched.runtime.profile import LEAST_ERROR, quantiles

ASSUMED_ERROR = 0.1
"""Relative uncertainty of a mean whose spread the source does not state."""
_JSON = (trtexec, onnxruntime, torch_profiler)
_TEXT = (qnn, jtop, rknn, ftrace)
_HEAD_BYTES = 2**20
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
    """

    profile: Profile
    recordings: tuple[Recording, ...]
    layers: Mapping[str, tuple[str, ...]]
    cuts: Mapping[str, str] = field(default_factory=dict)


def read_recording(path: Path) -> tuple[Recording, Any]:
    """Return the recording of a file in any known format, and its JSON; InputError if the format is unknown."""
    head = _head(path)
    if head.startswith(nsys.MAGIC):
        return nsys.recording(path), None
    if head.lstrip()[:1] not in (b"{", b"["):
        text = head.decode("utf-8", "replace")
        return next((one for one in _TEXT if one.accepts(text)), board_log).recording(path), None
    data = read_json(path)
    for reader in _JSON:
        if reader.accepts(data):
            return reader.recording(path, data), data
    raise InputError(f"{path}: JSON of an unknown form", HINT)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: the profile cannot be read: {getattr(error, 'strerror', None) or error}", HINT
        ) from None


def import_profile(
    files: Sequence[Path], platform: Platform, choices: Choices, networks: Sequence[Network] = ()
) -> Imported:
    """Return the measured costs in `files`; layer lists, inference times and board logs apply to all profiles given.

    `networks`: their layers expand ranges and give the cuts.  Raises InputError for files that cannot be used,
    UsageError if a choice is missing or unknown.
    """
    read = [(path, *read_recording(path)) for path in files]
    on_dla = frozenset(name for _, found, _ in read for name in found.accelerated)
    order = tuple(layer.name for network in networks for layer in network.layers)
    found = list[Recording]()
    for path, one, data in read:
        again = one.tool == "trtexec --exportProfile" and (on_dla or order)
        found.append(trtexec.profile(path, data, on_dla, order) if again else one)
    found = [_chosen(one, choices.stages) for one in found]
    timed = [one for one in found if one.sections]
    whole = [one.whole_ns for one in found if one.whole_ns]
    if not timed and whole:
        timed = [
            replace(one, sections=(Section("", 0, "gpu", (), sum(t) / len(t), t),))
            for one in found
            if (t := one.whole_ns)
        ]
        whole = []
    if not timed:
        raise InputError("the files hold no execution times", "add a profile: " + HINT)
    mode = _mode(platform, choices.mode)
    state = "; ".join(
        filter(None, [f"mode {mode}" + ("" if choices.mode else " (assumed)"), *(o.state for o in found)])
    )
    precision = choices.precision or next((one.precision for one in found if one.precision), "")
    if not precision:
        raise UsageError("the files do not state the precision", "add --precision fp32, fp16 or int8")
    costs, layers, unused = list[MeasuredCost](), dict[str, tuple[str, ...]](), set(choices.stages)
    for one in timed:
        for section in one.sections:
            name, key = _stage(one, section, choices.stages)
            unused.discard(key)
            if any(cost.stage == name and cost.engine for cost in costs):
                raise UsageError(f"{name}: two recordings of one stage", "name them with --stage SOURCE=NAME")
            engine = _engine(platform, section.kind, choices.engines)
            spread = whole[0] if len(whole) == 1 and len(timed) == 1 else ()
            if section.cycles:
                section = _clocked(section, platform, mode, engine)
            costs.append(_cost(one, section, name, engine, mode, precision, state, choices.skip, spread))
            layers[name] = section.layers
    if unused:
        raise UsageError(f"--stage: the files have no {', '.join(sorted(unused))}", f"they have: {', '.join(layers)}")
    tools = ", ".join(dict.fromkeys(one.tool for one in found))
    cuts = _cuts(timed, networks, choices.stages)
    return Imported(Profile(platform.name, tuple(costs), f"imported: {tools}"), tuple(found), layers, cuts)


def _chosen(one: Recording, stages: Mapping[str, str]) -> Recording:
    """Return a recording of threads with those that have a stage, if any has one."""
    kept = tuple(section for section in one.sections if section.stage in stages)
    return replace(one, sections=kept) if one.trace and kept else one


def _clocked(section: Section, platform: Platform, mode: str, engine: str) -> Section:
    """Return a section stated in cycles with its time at the engine's clock in the mode."""
    clock = platform.mode(mode).engines[engine].clock_hz
    if not clock:
        raise UsageError(f"{engine} is off in mode {mode}, but the file states cycles for it", "add --mode MODE")
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


def _mode(platform: Platform, name: str) -> str:
    try:
        return platform.mode(name or None).name
    except KeyError:
        known = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"{platform.name} has no mode {name!r}", f"modes: {known}") from None


def _stage(one: Recording, section: Section, stages: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the stage of a section, and the source's name for it."""
    key = section.stage or Path(one.file).stem
    name = stages.get(key) or re.sub(r"[^A-Za-z0-9_.-]+", "-", key).strip("-.")[:60] or "stage"
    return (f"{name}.{section.number}" if section.number else name), key


def _engine(platform: Platform, kind: str, engines: Mapping[str, str]) -> str:
    ids = [engine.id for engine in platform.engines]
    chosen = engines.get(kind)
    if chosen:
        if chosen not in ids:
            raise UsageError(f"{platform.name} has no engine {chosen!r}", f"engines: {', '.join(ids)}")
        return chosen
    same = [engine.id for engine in platform.engines if engine.kind == kind]
    if not same:
        hint = f"add --engine {kind}=ENGINE; engines: {', '.join(ids)}"
        raise UsageError(f"{platform.name} has no engine of the kind {kind!r}", hint)
    return same[0]


def _cost(
    one: Recording,
    section: Section,
    name: str,
    engine: str,
    mode: str,
    precision: str,
    state: str,
    skip: int,
    whole: Sequence[int],
) -> MeasuredCost:
    times = section.times_ns[skip:]
    if section.times_ns and not times:
        raise UsageError(f"--skip {skip}: {name} has {len(section.times_ns)} jobs", "skip fewer")
    said = [f"{one.tool}, {Path(one.file).name}", section.note]
    if not times and len(whole) > skip:
        mean = sum(whole) / len(whole)
        times = tuple(round(section.mean_ns * time / mean) for time in whole[skip:])
        said.append("spread of whole inferences")
    if times:
        ordered = sorted(max(1, time) for time in times)
        median, p99 = (ordered[-(-len(ordered) * share // 100) - 1] for share in (50, 99))
        error = round(max((p99 - median) / p99, LEAST_ERROR), 3)
        said.append(f"median {median} ns, p99 of {len(ordered)} jobs")
        planned, count, kept = p99, len(ordered), quantiles(ordered)
    else:
        error = _VENDOR_ERROR if section.cycles else ASSUMED_ERROR
        planned, median = max(1, round(section.mean_ns)), section.median_ns
        count, kept = one.samples, ()
        said.append(f"mean of {count} jobs, spread not recorded: {error:.0%} assumed")
    source = "; ".join(filter(None, said)).replace("\n", " ")
    times_of = (planned, error, count, median, kept)
    runtime = "tensorrt" if one.tool.startswith("trtexec") else ""
    return MeasuredCost(name, engine, mode, precision, 0, *times_of, source=source, state=state, runtime=runtime)
