"""Files to check: plans, pipelines and ONNX networks, with the positions of their stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from socsched import resources
from socsched.bounded import read_bytes
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.json_file import MAX_BYTES, positions
from socsched.descriptor.pipeline_file import SUFFIX, pipeline_from_document
from socsched.descriptor.source import Document, parse, read
from socsched.errors import DescriptorError, Finding, UsageError
from socsched.lint.accelerators import accelerators
from socsched.lint.check import check_pipeline, check_plan
from socsched.lint.diagnostic import INVALID_FILE, Diagnostic, Place

PRECISIONS = ("fp16", "int8", "fp32")


def lint_file(
    file: str,
    platform: str | None,
    *,
    engines: Sequence[str] = (),
    version: str | None = None,
    notes: bool = False,
    text: bytes | None = None,
) -> list[Diagnostic]:
    """Return the diagnostics of a plan.json, a pipeline (by name or file) or an ONNX file.

    `platform` is needed for pipelines and networks and may be omitted for a plan, which names its own; `engines`
    selects accelerators (all that have operator rules), `version` that of their runtime.  `text` is the content of a
    pipeline file that an editor has not saved yet.  Faults of the file itself are diagnostics with their positions.
    Raises UsageError for a wrong request and MachineError if something is missing.
    """
    try:
        if file.endswith(".json"):
            return _plan(file, platform, engines, version)
        if platform is None:
            raise UsageError(f"{file}: a pipeline needs a platform", "name it: -p PLATFORM")
        document = None if file.endswith(SUFFIX) else _document(file, text)
        pipeline = get_pipeline(file) if document is None else pipeline_from_document(document)
    except DescriptorError as error:
        return [_fault(fault, error.hint) for fault in error.findings]
    if document is None:  # an ONNX file: one stage, in any precision
        stages = tuple(replace(stage, precisions=PRECISIONS) for stage in pipeline.stages)
        pipeline = replace(pipeline, stages=stages)
    board = get_platform(platform)
    chosen = accelerators(board, engines, version)

    def at(stage: str) -> Place:
        if document is None:
            return Place(file)
        mark = document.mark(("stages", stage) if stage else (), key=True)
        return Place(document.file, mark.line, mark.column)

    return list(check_pipeline(pipeline, board, chosen, at, notes))


def _document(file: str, text: bytes | None) -> Document:
    return read(resources.find("pipelines", file)) if text is None else parse(text, file)


def _fault(fault: Finding, hint: str) -> Diagnostic:
    place = Place(fault.file, fault.line, fault.column)
    return Diagnostic(INVALID_FILE, "error", f"{fault.field}: {fault.expected}", place, hint=hint)


def _plan(file: str, platform: str | None, engines: Sequence[str], version: str | None) -> list[Diagnostic]:
    from socsched.api.loading import load_plan, pipeline_of

    plan = load_plan(file)
    if platform is not None and platform != plan.platform and get_platform(platform).name != plan.platform:
        raise UsageError(f"{file} is a plan for {plan.platform}, not for {platform}", "omit --platform")
    board = get_platform(platform or plan.platform)
    text = read_bytes(file, "plan", "", MAX_BYTES).decode()
    marks = positions(text, [("tasks", number, "engine") for number in range(len(plan.tasks))])
    numbers = {task.name: number for number, task in enumerate(plan.tasks)}

    def at(task: str) -> Place:
        mark = marks.get(("tasks", numbers[task], "engine")) if task in numbers else None
        return Place(file, mark.line, mark.column) if mark else Place(file)

    pipeline = pipeline_of(plan, None, lambda _: None)
    return list(check_plan(plan, pipeline, accelerators(board, engines, version), at))
