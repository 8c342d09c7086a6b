"""Export of plans to other tools: a table of formats, each with its own module.

Formats are no entry points, as renderers are: those take a folder of results and are chosen by a suffix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.errors import UsageError, writing
from socsched.files import write_file

if TYPE_CHECKING:
    from socsched.planning.export.linux import ExportRequest
    from socsched.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Format:
    """A format: `write` ("module:function") takes an `ExportRequest`, returns text or, for a `folder`, path -> content.

    `templates`: identifiers are taken from a file of the target; `named`: --map renames tasks; `board`: it holds Linux
    CPU numbers, which are those of the platform.
    """

    what: str
    write: str
    executable: bool = False
    folder: bool = False
    templates: bool = False
    named: bool = False
    board: bool = True


_OWN = "socsched.planning.export"
FORMATS: Mapping[str, Format] = {
    "linux": Format("a shell script for Linux", f"{_OWN}.linux:linux", executable=True),
    "perfetto": Format("a Perfetto trace of the plan", "", board=False),
    "autoware": Format(
        "YAML for Autoware's callback isolated executor", f"{_OWN}.autoware:write", templates=True, named=True
    ),
    "rclcpp": Format("thread attributes of ROS 2 executors (REP-2017)", f"{_OWN}.linux:rclcpp", named=True),
    "cyberrt": Format("the scheduler configuration of Apollo CyberRT", f"{_OWN}.cyberrt:write", named=True),
    "cyberrt-dag": Format("a DAG file of Apollo CyberRT", f"{_OWN}.cyberrt:write_dag", named=True, board=False),
    "amalthea": Format("an AMALTHEA model (.amxmi) of the plan", f"{_OWN}.amalthea:write", board=False),
    "systemd": Format("a folder of systemd drop-ins", f"{_OWN}.linux:systemd", folder=True, named=True),
    "btf": Format("a BTF trace of the plan", "socsched.api.export:_btf", board=False),
    "onnxruntime": Format(
        "a folder of annotated models and sessions of ONNX Runtime",
        f"{_OWN}.runtimes:onnxruntime",
        folder=True,
        board=False,
    ),
    "xsched": Format("a folder of hints for XSched", f"{_OWN}.xsched:write", folder=True, board=False),
}
"""Name of every format, in the order of the documentation."""


def export(
    plan: Plan, form: str, file: Path, template: Path | None = None, names: Mapping[str, str] | None = None
) -> None:
    """Write a plan in one of `FORMATS`, a folder for those that are one; UsageError for options it does not have."""
    chosen = FORMATS[form]
    if not plan.tasks:
        raise UsageError("nothing to export: a stage has no engine", "run `socsched plan` to see which stage and why")
    if template and not chosen.templates:
        raise UsageError(f"--export {form} takes no --template", f"formats with one: {_with('templates')}")
    if names and not chosen.named:
        raise UsageError(f"--export {form} takes no --map", f"formats with one: {_with('named')}")
    unknown = sorted(set(names or {}) - {task.name for task in plan.tasks})
    if unknown:
        known = ", ".join(task.name for task in plan.tasks)
        raise UsageError(f"--map: no task {unknown[0]!r} in the plan", f"tasks: {known}")
    with writing(file):
        if form == "perfetto":
            file.parent.mkdir(parents=True, exist_ok=True)
            _perfetto(plan, file)
            return
        module, _, function = chosen.write.partition(":")
        request = _request(plan, chosen, template, names or {})
        written = getattr(import_module(module), function)(request)
        for name, text in written.items() if chosen.folder else [("", written)]:
            place = file / name if chosen.folder else file
            place.parent.mkdir(parents=True, exist_ok=True)
            write_file(place, text, 0o755 if chosen.executable else None)


def _with(option: str) -> str:
    return ", ".join(name for name, form in FORMATS.items() if getattr(form, option))


def _request(plan: Plan, form: Format, template: Path | None, names: Mapping[str, str]) -> ExportRequest:
    from socsched.descriptor.catalog import get_platform
    from socsched.planning.export.linux import ExportRequest

    if not form.board:
        return ExportRequest(plan, template=template, names=names)
    platform = get_platform(plan.platform)
    first, processors = 0, dict[str, Sequence[int]]()
    for engine in platform.engines:
        if engine.shares == "unit":
            processors[engine.id] = range(first, first + engine.units)
            first += engine.units
    mode = platform.mode(plan.mode)
    jetson = any("nvpmodel" in key for key in platform.sources)
    return ExportRequest(plan, processors, mode.id if jetson else None, template, names)


def _perfetto(plan: Plan, file: Path) -> None:
    from socsched.api.folders import preview
    from socsched.trace.perfetto import write_perfetto

    write_perfetto(preview(plan), plan, file, "planned")


def _btf(request: ExportRequest) -> str:
    from socsched.api.folders import preview
    from socsched.trace.btf import text

    return text(preview(request.plan))
