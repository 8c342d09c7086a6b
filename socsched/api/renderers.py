"""Built-in renderers: results of a folder, or of a plan file, as a page, a trace, JUnit, Markdown or JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.api.folders import FRAMES, NOTES, PICTURE, Sources, folders, load, load_trace, made_by, single
from socsched.bounded import read_bytes
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.json_file import JsonFile
from socsched.errors import InputError, UsageError
from socsched.files import replacing, write_file
from socsched.models.registry import bindings
from socsched.planning.plan import Plan
from socsched.text import one_line
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.reporting.report import Part
    from socsched.runtime.frames import FrameSource

_MOST_PICTURE, _MOST_PIXELS = 64 * 2**20, 64 * 2**20
MAX_PICTURE = 450_000
"""Largest picture (bytes) that fits in a report of at most one megabyte."""


def html(folder: Path, file: Path, sources: Sources) -> None:
    """Write a self-contained HTML page that needs no network access."""
    from socsched.reporting.report import render as page

    parts = _paired([_part(path, sources) for path in folders(folder)])
    names = dict.fromkeys(part.plan.pipeline for part in parts)
    text = page(parts, f"{', '.join(names)}: where it runs, and whether it meets its deadlines", made_by())
    write_file(file, text)


def _part(folder: Path, sources: Sources) -> Part:
    from socsched.reporting.report import Part, gather

    plan, trace, result = load(folder)
    verb = "Simulated" if trace.kind == "simulated" else "Measured"
    where = "this machine" if plan.platform == "host" else f"{plan.platform} ({plan.mode})"
    picture = _picture(folder)
    notes = _notes(folder)
    if folder.is_file():
        notes.append("This is a plan: all times shown are from a simulation of its first hyperperiods.")
    caption = "One scan from above. " + " ".join(note for note in notes if "weights" in note)
    background = gather(plan, folder if folder.is_dir() else folder.parent, sources.pipeline, sources.platform)
    title = f"{verb}: {plan.pipeline} on {where}"
    return Part(title, plan, trace, result, picture, caption, tuple(notes), background)


def _paired(parts: list[Part]) -> list[Part]:
    """Return the parts, each run paired with the simulation of the same tasks if available."""
    simulated = [part for part in parts if part.trace.kind == "simulated"]
    pairs = []
    for part in parts:
        same = [other for other in simulated if other.plan.tasks == part.plan.tasks]
        pairs.append(replace(part, simulated=same[0].result) if same and part.trace.kind == "measured" else part)
    return pairs


def _notes(folder: Path) -> list[str]:
    if not (folder / NOTES).exists():
        return []
    return list(JsonFile.open(folder / NOTES, "list of notes", "delete it: it is not needed").load(tuple[str, ...]))


def _picture(folder: Path) -> bytes | None:
    file = folder / PICTURE
    if not file.exists():
        return None
    from PIL.Image import DecompressionBombError

    hint = "delete it: it is not needed"
    data = read_bytes(file, "picture", hint, _MOST_PICTURE)
    try:
        return _fitting(data)
    except (OSError, ValueError, SyntaxError, DecompressionBombError) as error:
        raise InputError(f"{file}: not a readable picture: {one_line(str(error))}", hint) from None


def _fitting(data: bytes) -> bytes:
    """Return a PNG that fits in a page: unchanged, else reduced to 128 colours, else also scaled down."""
    import io

    if len(data) <= MAX_PICTURE:
        return data
    from PIL import Image

    picture = Image.open(io.BytesIO(data), formats=["PNG"])
    if picture.width * picture.height > _MOST_PIXELS:
        raise ValueError(f"{picture.width} x {picture.height} pixels, expected at most {_MOST_PIXELS}")
    image = picture.convert("RGB")
    while True:
        target = io.BytesIO()
        image.quantize(128).save(target, "PNG", optimize=True)
        if target.tell() <= MAX_PICTURE or image.width < 300:
            return target.getvalue()
        image = image.resize((image.width * 3 // 4, image.height * 3 // 4))


def perfetto(folder: Path, file: Path, sources: Sources) -> None:
    """Write a trace for the Perfetto UI."""
    from socsched.trace.perfetto import write_perfetto

    plan, trace = load_trace(folders(folder)[0])
    write_perfetto(trace, plan, file, "planned" if folder.is_file() else "")


def btf(folder: Path, file: Path, sources: Sources) -> None:
    """Write a trace in the Best Trace Format."""
    from socsched.trace.btf import parts

    with replacing(file) as target:
        target.writelines(part.encode() for part in parts(load_trace(folders(folder)[0])[1]))


def junit(folder: Path, file: Path, sources: Sources) -> None:
    """Write the requirements as test cases."""
    from socsched.reporting.junit import render as xml

    plan, _, result = load(folders(folder)[0])
    write_file(file, xml(plan, result))


def mcap(folder: Path, file: Path, sources: Sources) -> None:
    """Write an MCAP file for Foxglove."""
    from socsched.reporting.foxglove import write_mcap
    from socsched.runtime.collect import read_frames

    place = folders(folder)[0]
    plan, trace, figures = load(place)
    if place.is_dir() and (place / FRAMES).is_file():
        trace.details = {int(found["frame"]): found for found in read_frames(place / FRAMES)}
    feeds, ends = _shown(plan, trace, sources)
    write_mcap(plan, trace, figures, file, feeds, ends)


def _shown(plan: Plan, trace: Trace, sources: Sources) -> tuple[dict[str, FrameSource], dict[str, str]]:
    """Return the sources of a run's frames by sensor, and the stage behind each kind of detections.

    Frames are those of the files given, or the shipped scans, from the run's seed on; none for a simulation.
    """
    from socsched.runtime.collect import detecting_stages
    from socsched.runtime.input_files import InputFiles, list_frames
    from socsched.runtime.inputs import Scenes
    from socsched.runtime.inputs import sources as frame_sources

    try:
        pipeline = get_pipeline(sources.pipeline or plan.pipeline)
    except UsageError:
        if sources.pipeline or sources.input:
            raise
        return {}, {}
    ends = {f"{prefix}detections": stage for stage, prefix in detecting_stages(pipeline).items()}
    if trace.kind != "measured":
        return {}, ends
    files = list_frames(sources.input) if sources.input else None
    found = frame_sources(pipeline, bindings(pipeline), files, trace.seed, sources.topics)
    kind = InputFiles if files else Scenes
    return {name: feed for name, feed in found.items() if isinstance(feed, kind)}, ends


def markdown(folder: Path, file: Path, sources: Sources) -> None:
    """Write a summary for a pull request."""
    from socsched.reporting.summary import render as summary

    write_file(file, summary(*load(single(folder))))


def result(folder: Path, file: Path, sources: Sources) -> None:
    """Write the figures."""
    _, _, figures = load(folders(folder)[0])
    write_file(file, json.dumps(figures, indent=2, sort_keys=True) + "\n")
