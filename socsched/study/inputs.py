"""The input files of a study as one transferable object: platforms, rules, pipelines, faults."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched import __version__, bounded, resources
from socsched.descriptor.catalog import HOST
from socsched.descriptor.operator_rules import rule_files
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform import Platform
from socsched.descriptor.platform_file import base_files, platform_from_mapping, read_platform
from socsched.descriptor.source import Document, read, read_bytes
from socsched.descriptor.study import NO_FAULTS, Study, resolve_path
from socsched.errors import UsageError
from socsched.study.design import Point
from socsched.study.store import replace_file

_PART = re.compile(r"([^.\[\]]+)|\[([^\[\]]+)\]|\.")


def replace_fields(data: Any, changes: Sequence[tuple[str, Any]]) -> Any:
    """Return a copy of plain data with the fields at some paths replaced; ValueError names a path that does not exist.

    List items are addressed by index or by their ``name``.  The last part may be a new field.
    """
    data = deepcopy(data)
    for path, value in changes:
        holder, key = resolve(data, path)
        holder[key] = value
    return data


def resolve(data: Any, path: str) -> tuple[Any, Any]:
    """Return the mapping or list that contains the field at a path, and its key; ValueError if it does not exist."""
    rest, holder = path, data
    while True:
        key, rest = _next(holder, rest, path)
        if not rest:
            return holder, key
        if isinstance(holder, dict) and key not in holder:
            raise ValueError(f"{path}: unknown field {key!r}; expected one of {', '.join(map(str, holder)) or 'none'}")
        holder = holder[key]


def _next(holder: Any, rest: str, path: str) -> tuple[Any, str]:
    """Return the next key and the rest of the path; names may contain dots, so the longest match is used."""
    if isinstance(holder, dict):
        fits = [key for key in holder if rest == key or rest.startswith((f"{key}.", f"{key}["))]
        if fits:
            key = max(fits, key=len)
            return key, rest[len(key) :].removeprefix(".")
        match = _PART.match(rest)
        if match is None or not match.group(1):
            raise ValueError(f"{path}: expected a field, got {rest!r}")
        return match.group(1), rest[match.end() :].removeprefix(".")
    if isinstance(holder, list):
        match = re.match(r"\[([^\[\]]+)\]\.?", rest)
        if match is None:
            raise ValueError(f"{path}: expected [index] or [name] before {rest!r}")
        return _index(holder, match.group(1), path), rest[match.end() :]
    raise ValueError(f"{path}: no fields below {holder!r}")


def _index(items: Sequence[Any], text: str, path: str) -> int:
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < len(items):
        return int(text)
    listed = ", ".join(str(name) for name in names if name) or f"0 to {len(items) - 1}"
    raise ValueError(f"{path}: no item [{text}]; expected {listed}")


PIPELINES, PLATFORMS, FAULTS = "pipelines", "platforms", "faults"


@dataclass(frozen=True, slots=True)
class Inputs:
    """A study with all files it references: `files` by relative path, `names`: name in the study -> path in `files`.

    `host`: the platform detected on the machine that started the study, None if unused.
    """

    study: Study
    files: Mapping[str, bytes]
    names: Mapping[str, str]
    host: Platform | None = None
    version: str = __version__

    def digest(self) -> str:
        """Return the SHA-256 (hex) of everything that results depend on."""
        seen = hashlib.sha256(f"{self.version} {replace(self.study, file='')!r} {self.host!r}".encode())
        for name in sorted(self.files):
            seen.update(f"\n{name} {len(self.files[name])}\n".encode() + self.files[name])
        seen.update(repr(sorted(self.names.items())).encode())
        return seen.hexdigest()

    def write(self, folder: Path) -> None:
        """Write the files below `folder`; existing files stay."""
        for name, content in self.files.items():
            target = folder / name
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                replace_file(target, content)


def gather(study: Study) -> Inputs:
    """Return a study with all files it references; errors name the missing file or field."""
    folder = Path(study.file).parent
    files: dict[str, bytes] = {}
    names: dict[str, str] = {}
    host = None
    for kind, name in ((PLATFORMS, "platform"), (PIPELINES, "pipeline"), (FAULTS, "faults")):
        parameter = study.parameter(name)
        for value in parameter.values if parameter else ():
            if (kind, value) == (PLATFORMS, HOST):
                from socsched.descriptor.host import detect

                host = detect()
            elif value != NO_FAULTS or kind != FAULTS:
                own = resolve_path(folder, value) if kind == FAULTS or resources.is_path(value) else None
                path = own or resources.find(kind, value)
                target = f"{kind}/{path.name}"
                content = read_bytes(path)
                if files.get(target, content) != content:
                    raise UsageError(
                        f"{study.file}: two different {kind} have the name {path.name}", "rename one of them"
                    )
                files[target] = content
                names[f"{kind}:{value}"] = target
                files |= dict(_named_by(path, kind))
    inputs = Inputs(study, files, names, host)
    _check_paths(inputs)
    return inputs


def _named_by(path: Path, kind: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a platform or pipeline references in turn: operator rules, networks."""
    data = _document(path, kind).data
    if kind == PLATFORMS:
        for base in base_files(path):
            yield f"{PLATFORMS}/{base.name}", read_bytes(base)
        for engine in _mappings(data.get("engines")):
            rules = engine.get("operators")
            if isinstance(rules, dict) and isinstance(rules.get("rules"), str):
                for file in rule_files(rules["rules"], path.parent):
                    yield f"{PLATFORMS}/rules/{file.name}", read_bytes(file)
    elif kind == PIPELINES:
        for stage in _mappings(data.get("stages")):
            network = stage.get("onnx")
            if isinstance(network, str):
                if Path(network).is_absolute() or ".." in Path(network).parts:
                    raise UsageError(f"{path}: {network} is not below the pipeline's folder", "studies ship it along")
                yield f"{PIPELINES}/{network}", _network(path.parent / network)


def _network(file: Path) -> bytes:
    return bounded.read_bytes(file, "ONNX file", "studies ship it along", 2**31)


def _mappings(value: Any) -> list[dict[str, Any]]:
    return [item for item in value.values() if isinstance(item, dict)] if isinstance(value, dict) else []


def _check_paths(inputs: Inputs) -> None:
    """Raise DescriptorError for fields and sources that no platform or pipeline of the study has."""
    document = read(inputs.study.file)
    for parameter in inputs.study.parameters:
        kind, _, path = parameter.name.partition(".")
        if not path:
            continue
        holders = inputs.study.parameter("platform" if kind == "platform" else "pipeline")
        reasons = []
        for value in holders.values if holders else ():
            name = inputs.names.get(f"{PLATFORMS if kind == 'platform' else PIPELINES}:{value}")
            if name is None:
                reasons.append(f"{value} is detected on this machine and has no file to vary")
                continue
            data = _document(name_of(inputs, value, kind), PLATFORMS if kind == "platform" else PIPELINES).data
            try:
                if kind == "rate":
                    _timed(data, path)
                else:
                    holder, key = resolve(data, path)
                    if isinstance(holder, dict) and key not in holder and not holder:
                        raise ValueError(f"{path}: does not exist")
            except ValueError as error:
                reasons.append(f"{value}: {error}")
        if len(reasons) == len(holders.values if holders else ()):
            document.report(("parameters", parameter.name), "; ".join(dict.fromkeys(reasons)), key=True)
    document.check()


def name_of(inputs: Inputs, value: str, kind: str) -> Path:
    """Return the local file of a study's platform or pipeline."""
    plural = PLATFORMS if kind == "platform" else PIPELINES
    if resources.is_path(value):
        return resolve_path(Path(inputs.study.file).parent, value)
    return resources.find(plural, value)


def _timed(data: Any, name: str) -> tuple[str, str]:
    """Return (section, name) of a periodic element: a sensor, or a stage on a timer."""
    for section in ("sensors", "stages"):
        entry = (data.get(section) or {}).get(name)
        if isinstance(entry, dict) and (section == "sensors" or "period" in entry):
            return section, name
    timers = [n for n, s in (data.get("stages") or {}).items() if isinstance(s, dict) and "period" in s]
    raise ValueError(
        f"unknown sensor or timer {name!r}; expected one of {', '.join([*data.get('sensors', {}), *timers])}"
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """Inputs on disk, below `folder`, from which a worker reads configurations."""

    inputs: Inputs
    folder: Path

    def platform(self, point: Point) -> Platform:
        """Return the platform of a configuration, with the configuration's changes to its fields."""
        if point.platform == HOST and self.inputs.host is not None:
            return self.inputs.host
        return _platform(self.folder / self.inputs.names[f"{PLATFORMS}:{point.platform}"], point.changes("platform"))

    def pipeline(self, point: Point) -> Pipeline:
        """Return the pipeline of a configuration, with the configuration's changes to fields and rates."""
        file = self.folder / self.inputs.names[f"{PIPELINES}:{point.pipeline}"]
        return _pipeline(file, point.changes("pipeline"), point.rates())

    def faults(self, point: Point) -> Path | None:
        """Return the faults file of a configuration, None if it has none."""
        return None if point.faults == NO_FAULTS else self.folder / self.inputs.names[f"{FAULTS}:{point.faults}"]


def _document(file: Path, kind: str) -> Document:
    return read_platform(file) if kind == PLATFORMS else read(file)


@lru_cache(maxsize=64)
def _data(file: Path, kind: str) -> Any:
    document = _document(file, kind)
    document.check()
    return document.data


@lru_cache(maxsize=16)
def _platform(file: Path, changes: tuple[tuple[str, Any], ...]) -> Platform:
    return platform_from_mapping(_changed(file, changes, PLATFORMS), str(file))


@lru_cache(maxsize=16)
def _pipeline(file: Path, changes: tuple[tuple[str, Any], ...], rates: tuple[tuple[str, float], ...]) -> Pipeline:
    data = _changed(file, changes, PIPELINES)
    for name, rate in rates:
        section, key = _timed(data, name)
        data[section][key] = {**data[section][key], "period": f"{round(1e9 / rate)} ns"}
    return pipeline_from_mapping(data, str(file))


def _changed(file: Path, changes: tuple[tuple[str, Any], ...], kind: str) -> Any:
    try:
        return replace_fields(_data(file, kind), changes)
    except ValueError as error:
        raise UsageError(f"{file.name}: {error}") from None
