"""Write schemas/*.json from the models of descriptor files, plans and results; editors check and complete against them.

Usage: python -m tools.generate.schemas [--check]   (--check writes nothing and fails when a schema is stale)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from socsched.descriptor.operator_rules import RuleFile
from socsched.descriptor.pipeline_file import Pipeline
from socsched.descriptor.platform_file import Platform
from socsched.descriptor.small_files import BarFile, DriveFile
from socsched.descriptor.study import Study
from socsched.descriptor.taskset import TaskSet
from socsched.modebook.book import BookDocument
from socsched.planning.plan import Plan
from socsched.trace.io import ResultDocument
from socsched.validation.document import PowerDocument, ValidationDocument
from tools import ROOT

FOLDER = ROOT / "schemas"
MODELS: dict[str, type] = {
    "platform.schema.json": Platform,
    "pipeline.schema.json": Pipeline,
    "rules.schema.json": RuleFile,
    "study.schema.json": Study,
    "taskset.schema.json": TaskSet,
    "plan.schema.json": Plan,
    "result.schema.json": ResultDocument,
    "validation.schema.json": ValidationDocument,
    "power-validation.schema.json": PowerDocument,
    "bar.schema.json": BarFile,
    "drive.schema.json": DriveFile,
    "book.schema.json": BookDocument,
}
EXTENDED = ("platform.schema.json", "rules.schema.json")
"""Schemas of files that may `extends` another, and then state what differs: `platforms check` says what is missing."""


def of_model(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a complete file."""
    made: dict[str, Any] = _tidy(TypeAdapter(MODELS[name]).json_schema())
    return made


def render(name: str) -> str:
    """Return a JSON Schema as text."""
    made = of_model(name)
    if name in EXTENDED:
        whole = [{"required": ["extends"]}, {"required": made["required"]}]
        made = _partial(made) | {"required": ["schema_version", "name"], "anyOf": whole}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **made}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _tidy(node: Any) -> Any:
    """Return a schema without generated titles, and without defaults in base units where text with a unit is wanted."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if kept.get("type") == "string" and not isinstance(kept.get("default", ""), str):
        del kept["default"]
    return {key: _tidy(value) for key, value in kept.items()}


def _partial(node: Any) -> Any:
    """Return a schema in which every field of a mapping may be absent or null."""
    if isinstance(node, list):
        return [_partial(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _partial(value) for key, value in node.items() if key != "required"}
    for key in ("properties", "patternProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = {field: _nullable(value) for field, value in kept[key].items()}
    if isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = _nullable(kept["additionalProperties"])
    return kept


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field whose inherited value null takes away."""
    null = {"type": "null"}
    if "anyOf" in field:
        return field if null in field["anyOf"] else {**field, "anyOf": [*field["anyOf"], null]}
    if "type" in field:
        enum = {"enum": [*field["enum"], None]} if "enum" in field else {}
        return {**field, "type": [field["type"], "null"], **enum}
    if "$ref" not in field:
        return field
    return {**{k: v for k, v in field.items() if k != "$ref"}, "anyOf": [{"$ref": field["$ref"]}, null]}


def stale(folder: Path = FOLDER) -> list[str]:
    """Return the names of schemas that are missing or differ from the models."""
    return [
        name
        for name in MODELS
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != render(name)
    ]


def main() -> int:
    """Write the schemas, or check them; return the exit status."""
    if "--check" in sys.argv[1:]:
        for name in stale():
            print(f"schemas/{name} is stale: run python -m tools.generate.schemas", file=sys.stderr)
        return 1 if stale() else 0
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        (FOLDER / name).write_text(render(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
