"""Plan files: plan.json holds a summary for people and tools, and all data to simulate or run a plan, losslessly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.errors import unwritable
from socsched.files import write_file
from socsched.models.parts import part_of
from socsched.planning import ranges, references
from socsched.planning.plan import SCHEMA_VERSION, Plan, Task, Transition
from socsched.planning.summaries import Head, Summaries

_HINT = "write it anew with `socsched plan PIPELINE -p PLATFORM -o plan.json`"


def to_document(plan: Plan) -> dict[str, Any]:
    """Return a plan in the form of plan.json: the fields of `Plan`, plus `stages` as a summary of `tasks`."""
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for field in fields(Plan):
        document[field.name] = _plain(getattr(plan, field.name))
    document["stages"] = [_stage(task) for task in plan.tasks if task.kind == "stage"]
    for entry, transition in zip(document["transitions"], plan.transitions, strict=True):
        entry.update(_ends(transition))
    return document


def _stage(task: Task) -> dict[str, Any]:
    part = part_of(task.params)
    return {
        "name": task.name,
        **({"of": part.stage} if part else {}),
        "engine": task.engine,
        "precision": task.precision,
        "share": len(task.lanes),
        "cut": part.cut if part else None,
        "cost_ns": task.cost_ns,
        "provenance": task.provenance,
    }


def _ends(transition: Transition) -> dict[str, str]:
    return {"from": transition.source, "to": transition.sink}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


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


def _checked(raw: bytes, file: str) -> Plan:
    source = JsonFile(raw, file, _HINT)
    source.load(Head)
    plan: Plan = source.load(Plan)
    source.load(Summaries)
    source.check(references.faults(plan))
    source.check(ranges.faults(plan))
    return plan


save_plan, load_plan = save, load
