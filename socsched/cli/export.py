"""Export of plans to other tools: System Task Manager, Linux, Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.errors import UsageError, unwritable
from socsched.files import write_file

if TYPE_CHECKING:
    from socsched.planning.plan import Plan

FORMATS = ("stm", "linux", "perfetto")


def export(plan: Plan, form: str, file: Path) -> None:
    """Write a plan as ``stm`` (YAML), ``linux`` (a shell script) or ``perfetto`` (a trace of one hyperperiod)."""
    if not plan.tasks:
        raise UsageError("nothing to export: a stage has no engine", "run `socsched plan` to see which stage and why")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if form == "perfetto":
            _perfetto(plan, file)
        else:
            write_file(file, _text(plan, form), 0o755 if form == "linux" else None)
    except OSError as error:
        raise unwritable(file, error) from None


def _text(plan: Plan, form: str) -> str:
    if form == "stm":
        from socsched.planning.export.stm import stm

        return stm(plan)
    from socsched.descriptor.catalog import get_platform
    from socsched.planning.export.linux import linux

    platform = get_platform(plan.platform)
    first, processors = 0, dict[str, Sequence[int]]()
    for engine in platform.engines:
        if engine.shares == "unit":
            processors[engine.id] = range(first, first + engine.units)
            first += engine.units
    mode = platform.mode(plan.mode)
    jetson = any("nvpmodel" in key for key in platform.sources)
    return linux(plan, mode.id if jetson else None, processors)


def _perfetto(plan: Plan, file: Path) -> None:
    from socsched.api.preview import preview
    from socsched.trace.perfetto import write_perfetto

    write_perfetto(preview(plan), plan, file, "planned")
