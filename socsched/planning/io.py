"""Plan files: plan.json holds a summary for people and tools, and all data to simulate or run a plan, losslessly.

Planning time is not among them, so that the same input gives the same bytes on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.errors import unwritable
from socsched.files import write_file
from socsched.models.parts import part_of
from socsched.planning.checks import inconsistencies, out_of_range
from socsched.planning.plan import SCHEMA_VERSION, Plan, SearchReport, Task
from socsched.planning.task import FILE_ORDER

_PARTS = ("power", "bandwidth", "solver", "contention", "provenance", "uncertainty", "memory")
"""Parts of which nothing is written when nothing is known."""
_SELDOM = frozenset(("shared", "look_ns", "busy_ppm"))
"""Fields of tasks and engines that are written only where set: most plans know neither shares nor governors."""
_HINT = "write it again with `socsched plan PIPELINE -p PLATFORM -o plan.json`"


@dataclass(frozen=True, slots=True)
class Head:
    """The version, checked before anything else."""

    schema_version: Literal["1"]


def to_document(plan: Plan) -> dict[str, Any]:
    """Return a plan in the form of plan.json: the fields of `Plan`, plus `stages` as a summary of `tasks`."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for field in fields(Plan):
        value = getattr(plan, field.name)
        document[field.name] = {} if field.name in _PARTS and value == type(value)() else _plain(value)
    document["stages"] = [_stage(task) for task in plan.tasks if task.kind == "stage"]
    for entry, transition in zip(document["transitions"], plan.transitions, strict=True):
        entry.update({"from": transition.source, "to": transition.sink})
    return document


def _stage(task: Task) -> dict[str, Any]:
    part = part_of(task.params)
    return {
        "name": task.name,
        **({"of": part.stage} if part else {}),
        "engine": task.engine,
        "precision": task.precision,
        "runtime": task.runtime,
        "share": len(task.lanes),
        "cut": part.cut if part else None,
        "cost_ns": task.cost_ns,
        "provenance": task.provenance,
    }


def _report(report: SearchReport) -> dict[str, Any]:
    """Return the report of a search without the entries after `gap` that do not apply to it."""
    found = {field.name: _plain(getattr(report, field.name)) for field in fields(report)}
    found["objective"] = ",".join(report.objective) or None
    always = ("name", "status", "objective", "value", "bound", "gap")
    return {name: value for name, value in found.items() if name in always or value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Task):
        return {name: _plain(getattr(value, name)) for name in FILE_ORDER if _written(value, name)}
    if isinstance(value, SearchReport):
        return _report(value)
    if is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name)) for field in fields(value) if _written(value, field.name)
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _written(value: Any, name: str) -> bool:
    return name not in _SELDOM or bool(getattr(value, name))


def save(plan: Plan, file: str | Path) -> None:
    """Write plan.json; InputError or MachineError if the file cannot be written."""
    try:
        write_file(file, _text(to_document(plan)))
    except OSError as error:
        raise unwritable(file, error) from None


def _text(document: Any) -> str:
    return json.dumps(document, indent=1) + "\n"


def load(file: str | Path) -> Plan:
    """Read plan.json; InputError if it cannot be read, DescriptorError with every fault and its field otherwise."""
    return _checked(read_bytes(file, "plan", _HINT, MAX_BYTES), str(file))


def from_document(document: Any, file: str = "plan.json") -> Plan:
    """Return the plan of a parsed plan.json; DescriptorError as in `load`, with positions as `save` writes them."""
    return _checked(_text(document).encode(), file)


def _unproved(document: Any) -> bool:
    """Return whether a plan is called infeasible without necessary conditions, as before proofs listed them."""
    if not isinstance(document, dict) or document.get("verdict") != "infeasible":
        return False
    proof = (document.get("solver") or {}).get("proof") if isinstance(document.get("solver"), dict) else None
    return not isinstance(proof, dict) or "necessities" not in proof


def _checked(raw: bytes, file: str) -> Plan:
    source = JsonFile(raw, file, _HINT)
    source.load(Head)
    if _unproved(source.data):
        document = source.data
        document["verdict"] = "undecided"
        if isinstance(document.get("solver"), dict):
            document["solver"].pop("proof", None)
        source = JsonFile(_text(document).encode(), file, _HINT)
    plan: Plan = source.load(Plan)
    source.check(inconsistencies(plan))
    source.check(out_of_range(plan))
    return plan


save_plan, load_plan = save, load
