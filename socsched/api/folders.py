"""Writing and reading of result folders: plan.json, result.json, trace.bin and report.html."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from socsched import __version__, plugins
from socsched.descriptor.json_file import JsonFile
from socsched.errors import InputError, UsageError, writing
from socsched.files import digests, file_digest, put_in_place, scratch
from socsched.planning import io as plan_io
from socsched.planning.plan import Plan
from socsched.sim.simulate import simulate as traced
from socsched.trace import io as trace_io
from socsched.trace.io import FILES, MADE, ResultDocument, require_one
from socsched.trace.metrics import result
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.api.results import Result

_Entry = TypeVar("_Entry")
PLAN, RESULT, TRACE, PERFETTO, PAGE, PICTURE, NOTES = (
    "plan.json",
    "result.json",
    "trace.bin",
    "trace.pftrace",
    "report.html",
    "birdseye.png",
    "notes.json",
)
JOURNAL, FRAMES, OLD_TRACE = "journal.jsonl", "frames.jsonl", "trace.json.gz"
READ = (PLAN, RESULT, TRACE, OLD_TRACE, JOURNAL, FRAMES, MADE, NOTES)
"""Primary files of a simulation or run; all other files are derived from them."""


def save(
    folder: Path,
    plan: Plan,
    trace: Trace,
    result: ResultDocument,
    page: bool = True,
    kept: Sequence[str] = (),
) -> None:
    """Write all files of a simulation or run into `folder`; the HTML page only if requested.

    A Perfetto trace of an earlier one is removed: `render` writes one on request.  Files appear together or not at
    all; `kept`: files of this run that are in the folder already.
    """
    with writing(folder), scratch(folder) as staging:
        plan_io.save(plan, staging / PLAN)
        (staging / RESULT).write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        trace_io.save(trace, staging / TRACE)
        trace.columns.forget()
        if trace.details:
            from socsched.runtime.collect import write_frames

            write_frames(trace, staging)
        written = digests(staging)
        written |= {name: file_digest(folder / name) for name in kept if (folder / name).is_file()}
        stale = {PAGE, PICTURE, NOTES, FRAMES, JOURNAL, PERFETTO, OLD_TRACE} - set(written)
        (staging / MADE).write_text(_made(written), encoding="utf-8")
        put_in_place(staging, folder, MADE, stale)
    if page:
        render(folder, folder / PAGE)


def describe_files(folder: Path, also: str = "") -> str:
    """Return the line that lists the files written by `save`."""
    perfetto = f"`socsched report {folder} -o trace.pftrace` writes a trace for Perfetto"
    return f"wrote {folder}/ (report.html, {TRACE}{also}, plan.json, result.json); {perfetto}"


def load(folder: Path) -> tuple[Plan, Trace, ResultDocument]:
    """Read plan, trace and result of a folder as `load_trace` does."""
    plan, trace = load_trace(folder)
    return plan, trace, recorded(folder, plan) or result(trace, plan)


def recorded(folder: Path, plan: Plan) -> ResultDocument | None:
    """Return the figures that this version wrote beside a trace; None if they are to be computed from it.

    Plan and trace are those of the folder, unchanged (`load_trace`).
    """
    if folder.is_file() or not (folder / MADE).is_file() or (folder / JOURNAL).is_file():
        return None
    made = JsonFile.open(folder / MADE, "list of files", "").data
    if made.get("socsched") != __version__ or RESULT not in made.get(FILES, {}) or not (folder / RESULT).is_file():
        return None
    if file_digest(folder / RESULT) != made[FILES][RESULT]:
        return None
    figures: ResultDocument = JsonFile.open(folder / RESULT, "result", "").data
    return {
        **figures,
        "chains": _in_order(figures["chains"], [chain.name for chain in plan.chains]),
        "stages": _in_order(figures["stages"], [task.name for task in plan.tasks]),
        "engines": _in_order(figures["engines"], [engine.id for engine in plan.engines]),
    }


def _in_order(entries: dict[str, _Entry], names: Sequence[str]) -> dict[str, _Entry]:
    return {name: entries[name] for name in names if name in entries} | entries


def load_trace(folder: Path) -> tuple[Plan, Trace]:
    """Read plan and trace of a folder; the trace of a run that was killed is recovered from its journal.

    For a plan file, the trace is a simulation of its first hyperperiods.
    """
    if folder.is_file():
        plan = plan_io.load(folder)
        return plan, preview(plan)
    if (folder / JOURNAL).is_file():
        from socsched.executor.outcome import read_outcome
        from socsched.executor.settings import EXECUTED
        from socsched.runtime.journal import recover

        complete = (folder / EXECUTED).is_file()
        trace = read_outcome(folder)[0] if complete else recover(folder / JOURNAL)
    else:
        file = folder / (TRACE if (folder / TRACE).is_file() or not (folder / OLD_TRACE).is_file() else OLD_TRACE)
        require_one(folder, (PLAN, file.name))
        trace = trace_io.load(file)
    return plan_io.load(folder / PLAN), trace


PREVIEW_NS = 10 * 10**9
"""Longest part (ns) of a hyperperiod that is simulated."""


def preview(plan: Plan) -> Trace:
    """Return a simulation of a plan for one hyperperiod, or for two of its longest periods if that is longer."""
    if not plan.tasks:
        raise UsageError("nothing to show: a stage has no engine", "run `socsched plan` to see which stage and why")
    length = min(math.lcm(*(task.period_ns for task in plan.tasks)), PREVIEW_NS)
    return traced(plan, max(length, 2 * max(t.period_ns for t in plan.tasks)))


def report(results: str | Path | Result | Plan, file: str | Path) -> None:
    """Render results (or their folder), or a plan (or its plan.json), in the format given by the suffix of `file`.

    The suffix is one of `formats`.  The timeline shown for a plan is a simulation of its first hyperperiods.  Raises
    UsageError for another suffix, InputError for a folder without results.
    """
    target = Path(file)
    if target.suffix not in formats():
        raise UsageError(f"{target}: expected a name that ends in one of {', '.join(formats())}")
    if isinstance(results, str | Path):
        render(Path(results), target)
        return
    with TemporaryDirectory() as folder:
        if isinstance(results, Plan):
            from socsched.planning.io import save as save_plan

            save_plan(results, Path(folder) / PLAN)
            render(Path(folder) / PLAN, target)
        else:
            results.save(folder, page=False)
            render(Path(folder), target)


RENDERERS = "socsched.renderers"


def formats() -> list[str]:
    """Return the suffixes of the built-in and installed renderers; that of the HTML page is first."""
    names = plugins.names(RENDERERS)
    return [f".{name}" for name in sorted(names, key=lambda name: (name != "html", name))]


@dataclass(frozen=True, slots=True)
class Sources:
    """Locations of the descriptors that a report needs, where their names do not suffice (None: they do).

    `input`: the files that fed the run, with `topics` as in `runtime.options.Options`, for reports that show them.
    """

    pipeline: str | None = None
    platform: str | None = None
    input: Path | None = None
    topics: Mapping[str, str] = field(default_factory=dict)


Renderer = Callable[[Path, Path, Sources], None]
"""A function that renders a folder of results, a folder of several such folders, or a plan file into a file."""


def render(folder: Path, file: Path, sources: Sources | None = None) -> None:
    """Render the results in `folder` (or its subfolders, or a plan file) in the format of the suffix of `file`."""
    folders(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    renderer: Renderer = plugins.load(RENDERERS, file.suffix.removeprefix("."))
    renderer(folder, file, sources or Sources())


def folders(folder: Path) -> list[Path]:
    """Return the plan file, or the folders with results: `folder` or its subfolders, simulations first."""
    if folder.is_file() or (folder / PLAN).is_file():
        return [folder]
    subfolders = sorted(
        (path.parent for path in folder.glob(f"*/{PLAN}")), key=lambda path: (path.name != "simulated", path.name)
    )
    if not subfolders:
        raise InputError(
            f"{folder}: no results here: neither {PLAN} nor a subfolder with one",
            "give a folder written by `socsched simulate -o`, `run -o` or `demo`, or a plan.json",
        )
    return subfolders


def single(folder: Path, plan: str = PLAN) -> Path:
    """Return the folder of one result: `folder`, or the only subfolder with one; InputError otherwise."""
    if (folder / plan).is_file():
        return folder
    candidates = sorted(path.parent for path in folder.glob(f"*/{plan}"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(str(path) for path in candidates)
        raise InputError(f"{folder}: several results here", f"give one of them: {names}")
    raise InputError(
        f"{folder}: no results here: neither {plan} nor a subfolder with one",
        "give a folder written by `socsched simulate -o`, `run -o` or `demo`",
    )


def _made(written: Mapping[str, str]) -> str:
    """Return the command line, versions and machine that made a folder, and the digests of the files written.

    It contains no time stamp, so that equal results give equal text.
    """
    import platform

    machine = {"machine": f"{platform.machine()}, {platform.system()} {platform.release()}"}
    return json.dumps({**made_by(), **machine, FILES: dict(written)}, indent=1) + "\n"


def made_by() -> dict[str, str]:
    import platform
    import shlex

    command = shlex.join(["socsched", *sys.argv[1:]])
    versions = {name: found for name in ("numpy", "apache-tvm") if (found := _version(name))}
    return {"command": command, "socsched": __version__, "python": platform.python_version(), **versions}


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
