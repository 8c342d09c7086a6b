"""Loading of platforms, pipelines, task sets and plans, by name, by path or from loaded objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import InputError, UsageError
from socsched.models.precision import settled
from socsched.text import one_line

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform
    from socsched.descriptor.taskset import TaskSet
    from socsched.planning.plan import Plan

Note = Callable[[str], None]


def load_platform(platform: str | Path | Platform, integers: bool = False) -> Platform:
    """Return a platform by name, by path, or unchanged if loaded already; ``host`` is this machine, measured first.

    `integers`: its kernels in int8 are to be measured too.

    Raises UsageError for an unknown name, DescriptorError for a file with faults.
    """
    from socsched.descriptor.catalog import HOST, get_platform

    if str(platform) == HOST:
        from socsched.executor.probe import ensure

        ensure(integers)
    return get_platform(str(platform)) if isinstance(platform, str | Path) else platform


def load_pipeline(pipeline: str | Path | Pipeline) -> Pipeline:
    """Return a pipeline by name, by path (YAML, or the ONNX file of a network), or unchanged if loaded already.

    Networks have the data types that the pipeline or their files ask for (`models.precision`).
    Raises UsageError for an unknown name, DescriptorError for a file with faults.
    """
    from socsched.descriptor.catalog import get_pipeline

    return settled(get_pipeline(str(pipeline))) if isinstance(pipeline, str | Path) else pipeline


def load_taskset(taskset: str | Path | Mapping[str, Any]) -> TaskSet:
    """Return a task set from a JSON or YAML file, or from data in that form; DescriptorError listing every fault.

    Files of SimSo, PARTSim and rt-app are taken as well (`import_taskset` returns notes on them too).
    """
    from socsched.descriptor import taskset as files

    if isinstance(taskset, str | Path):
        if ".taskset." not in Path(taskset).name and taskset_form(taskset) in ("simso", "partsim", "rt-app"):
            return import_taskset(taskset)[0]
        return files.load_taskset(Path(taskset))
    return files.taskset_from_mapping(taskset, "task set")


def taskset_form(file: str | Path) -> str:
    """Return the form of another tool's task set or job set: simso, partsim, rt-app or nptest; else nothing."""
    from socsched.interchange.taskset_import import form_of

    return form_of(Path(file)) or ""


def import_taskset(file: str | Path, processors: int = 0) -> tuple[TaskSet, tuple[str, ...]]:
    """Return the task set in a file of SimSo (XML), PARTSim (YAML) or rt-app (JSON), and notes on what it leaves open.

    `processors`: where the file does not state them.  Raises InputError or DescriptorError for faulty files.
    """
    path = Path(file)
    form = taskset_form(path)
    if form == "simso":
        from socsched.interchange.simso import read_simso as read
    elif form == "partsim":
        from socsched.interchange.partsim import read_partsim as read
    elif form == "rt-app":
        from socsched.interchange.rtapp import read_rtapp as read
    else:
        raise InputError(f"{path}: no task set of another tool", "expected one of SimSo, PARTSim or rt-app")
    imported = read(path, processors)
    return imported.taskset(path), tuple(map(one_line, imported.notes))


def load_plan(plan: str | Path | Plan) -> Plan:
    """Return the plan in a plan.json, or `plan` if loaded already; DescriptorError with all faults and fields."""
    from socsched.planning import io

    return io.load(plan) if isinstance(plan, str | Path) else plan


def save_plan(plan: Plan, file: Path) -> None:
    """Write plan.json, creating its folder if needed."""
    from socsched.planning import io

    file.parent.mkdir(parents=True, exist_ok=True)
    io.save(plan, file)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as the document of plan.json."""
    from socsched.planning import io

    return dict(io.to_document(plan))


def pipeline_of(plan: Plan, given: str | Path | Pipeline | None, warn: Note) -> Pipeline:
    """Return the pipeline of a plan, `given` or found by its name, with its networks split as in the plan.

    A file that the plan was made from is found by its name in the working directory.  Warns if it has changed since.
    """
    from socsched.descriptor.catalog import pipeline_hashes
    from socsched.planning.cutting.pipelines import as_planned

    try:
        pipeline = load_pipeline(given or _file_of(plan) or plan.pipeline)
    except UsageError as error:
        if given:
            raise
        raise UsageError(str(error), f"name the file of the plan's pipeline: --pipeline FILE ({error.hint})") from None
    for name, digest in pipeline_hashes(pipeline).items():
        if plan.inputs.get(name, digest) != digest:
            warn(f"{name} has changed since the plan was made")
    return as_planned(pipeline, plan)


def _file_of(plan: Plan) -> str:
    """Return the ONNX file that a plan was made from, empty unless it lies in the working directory."""
    names = (name.removeprefix("pipelines/") for name in plan.inputs)
    found = (name for name in names if name.startswith(f"{plan.pipeline}.onnx") and Path(name).name == name)
    return next((name for name in found if Path(name).is_file()), "")
