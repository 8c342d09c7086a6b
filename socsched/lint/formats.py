"""Diagnostics as text, as SARIF 2.1.0 for code scanning, and as annotations of GitHub Actions."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from socsched import __version__
from socsched.lint.check import LEVELS, Diagnostic

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def text(found: Sequence[Diagnostic]) -> str:
    """Return one line per diagnostic, FILE:LINE:COLUMN: LEVEL: MESSAGE [RULE], its sources, and the counts."""
    lines = []
    for entry in found:
        at = f"{entry.place.file}:{entry.place.line}:{entry.place.column}"
        lines.append(f"{at}: {entry.level}: {entry.message} [{entry.rule}]")
        lines += [f"  source: {source}" for source in entry.sources]
        lines += [f"  hint: {entry.hint}"] if entry.hint else []
    counts = Counter(entry.level for entry in found)
    named = [f"{counts[level]} {level}{'s' * (counts[level] > 1)}" for level in LEVELS if counts[level]]
    return "\n".join([*lines, ", ".join(named) or "no objections"])


def github(found: Sequence[Diagnostic]) -> str:
    """Return workflow commands of GitHub Actions, which annotate the lines of a change."""
    return "\n".join(
        f"::{'notice' if entry.level == 'note' else entry.level} "
        f"file={_property(entry.place.file)},line={entry.place.line},col={entry.place.column},"
        f"title={_property(entry.rule)}::{_data('; '.join([entry.message, *entry.sources]))}"
        for entry in found
    )


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(found: Sequence[Diagnostic]) -> str:
    """Return a SARIF 2.1.0 log with one run; its rules cite their documents."""
    rules: dict[str, dict[str, Any]] = {}
    for entry in found:
        cited = f"Source: {'; '.join(entry.sources)}" if entry.sources else "Rule of socsched"
        rules.setdefault(
            entry.rule,
            {"id": entry.rule, "shortDescription": {"text": _described(entry.rule)}, "help": {"text": cited}},
        )
    numbers = {rule: number for number, rule in enumerate(rules)}
    driver = {"name": "socsched lint", "version": __version__, "rules": list(rules.values())}
    run = {"tool": {"driver": driver}, "results": [_result(entry, numbers[entry.rule]) for entry in found]}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _described(rule: str) -> str:
    rules, _, operator = rule.partition("/")
    return f"Operator {operator} on an engine with the rules {rules}" if operator else rule


def _result(entry: Diagnostic, number: int) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(entry.place.file)},
            "region": {"startLine": entry.place.line, "startColumn": entry.place.column},
        }
    }
    if entry.stage:
        location["logicalLocations"] = [
            {"name": name, "fullyQualifiedName": f"{entry.stage}/{name}", "kind": "member"} for name in entry.operators
        ] or [{"name": entry.stage, "fullyQualifiedName": entry.stage, "kind": "module"}]
    identity = "\0".join((entry.rule, entry.stage, *entry.engines, *entry.precisions, *entry.operators[:1]))
    return {
        "ruleId": entry.rule,
        "ruleIndex": number,
        "level": entry.level,
        "message": {"text": entry.message + (f" (to do: {entry.hint})" if entry.hint else "")},
        "locations": [location],
        "partialFingerprints": {"socsched/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }


def _uri(file: str) -> str:
    path = Path(file)
    if path.is_absolute():
        try:
            return quote(path.relative_to(Path.cwd()).as_posix())
        except ValueError:
            return path.as_uri()
    return quote(path.as_posix())
