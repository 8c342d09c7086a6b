"""Plans as files: plan.json holds a summary for people and tools, and all it takes to simulate or run, losslessly."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from socsched.errors import DescriptorError, Finding, InputError, unwritable
from socsched.files import write_file
from socsched.models.parts import part_of
from socsched.plan.plan import SCHEMA_VERSION, Plan, Task, Transition

_HINT = "write it anew with `socsched plan PIPELINE -p PLATFORM -o plan.json`"


def to_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plan.json holds it: the fields of `Plan`, with `stages` for readers beside the full `tasks`."""
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
    """Write plan.json; InputError or MachineError when the file cannot be written."""
    text = json.dumps(to_document(plan), indent=1) + "\n"
    try:
        write_file(file, text)
    except OSError as error:
        raise unwritable(file, error) from None


def load(file: str | Path) -> Plan:
    """Read plan.json; InputError when it cannot be read, DescriptorError with every fault and its field otherwise."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot read the plan: {error}", _HINT) from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DescriptorError(
            [Finding(str(file), error.lineno, error.colno, "plan", f"JSON: {error.msg}")], _HINT
        ) from None
    return from_document(document, str(file))


def from_document(document: Any, file: str = "plan.json") -> Plan:
    """Return the plan a parsed plan.json holds; DescriptorError lists every field missing or of a wrong type."""
    faults: list[tuple[str, str]] = []
    if not isinstance(document, Mapping):
        faults.append(("plan", "an object"))
    elif document.get("schema_version") != SCHEMA_VERSION:
        faults.append(("schema_version", f'"{SCHEMA_VERSION}", got {document.get("schema_version")!r}'))
    else:
        plan = _object(Plan, document, "", faults)
        if not faults:
            faults += _references(plan)
        if not faults:
            return plan  # type: ignore[no-any-return]
    raise DescriptorError([Finding(file, 1, 1, field, expected) for field, expected in faults], _HINT)


save_plan, load_plan = save, load


def _object(kind: type, value: Any, where: str, faults: list[tuple[str, str]]) -> Any:
    if not isinstance(value, Mapping):
        faults.append((where, f"an object, got {_short(value)}"))
        return None
    hints, known = get_type_hints(kind), {}
    for field in fields(kind):
        path = f"{where}.{field.name}" if where else field.name
        if field.name in value:
            known[field.name] = _decode(hints[field.name], value[field.name], path, faults)
        elif field.default is MISSING and field.default_factory is MISSING:
            faults.append((path, "this field, which is missing"))
    return None if faults else kind(**known)


def _decode(hint: Any, value: Any, where: str, faults: list[tuple[str, str]]) -> Any:
    origin = get_origin(hint)
    if is_dataclass(hint):
        return _object(hint, value, where, faults)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return None if value is None else _decode(inner, value, where, faults)
    if origin is tuple:
        return _tuple(get_args(hint), value, where, faults)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(get_args(hint)[1], value, where, faults)
    return _scalar(hint, value, where, faults)


def _tuple(args: Sequence[Any], value: Any, where: str, faults: list[tuple[str, str]]) -> Any:
    if not isinstance(value, list):
        faults.append((where, f"a list, got {_short(value)}"))
        return ()
    if args[-1] is not Ellipsis and len(value) != len(args):
        faults.append((where, f"a list of {len(args)}, got {_short(value)}"))
        return ()
    kinds = [args[0]] * len(value) if args[-1] is Ellipsis else args
    return tuple(
        _decode(kind, item, f"{where}[{i}]", faults) for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _mapping(inner: Any, value: Any, where: str, faults: list[tuple[str, str]]) -> Any:
    if not isinstance(value, Mapping):
        faults.append((where, f"an object, got {_short(value)}"))
        return {}
    return {
        key: item if inner is Any else _decode(inner, item, f"{where}.{key}", faults) for key, item in value.items()
    }


def _scalar(hint: Any, value: Any, where: str, faults: list[tuple[str, str]]) -> Any:
    accepted = (int, float) if hint is float else (hint,)
    if (hint is not bool and isinstance(value, bool)) or not isinstance(value, accepted):
        names = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        faults.append((where, f"{names.get(hint, hint)}, got {_short(value)}"))
        return value
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _references(plan: Plan) -> list[tuple[str, str]]:
    """Return dangling names: engines, lanes and triggers that the plan does not have."""
    engines = {engine.id: engine.lanes for engine in plan.engines}
    names = {*(task.name for task in plan.tasks), *(sensor.name for sensor in plan.sensors)}
    faults = []
    for index, task in enumerate(plan.tasks):
        if task.engine not in engines:
            faults.append((f"tasks[{index}].engine", f"one of {', '.join(engines)}, got {task.engine!r}"))
        elif not all(0 <= lane < engines[task.engine] for lane in task.lanes) or not task.lanes:
            faults.append((f"tasks[{index}].lanes", f"lanes 0..{engines[task.engine] - 1} of {task.engine}"))
        for name in (*task.after, *task.reads):
            if name not in names:
                faults.append(
                    (f"tasks[{index}]", f"triggers and reads among the plan's tasks and sensors, got {name!r}")
                )
    return faults
