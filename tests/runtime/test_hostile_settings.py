"""Profiles, scales, overload files and manifests from untrusted sources: each fault with its position, no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from socsched.compiler.quantize.scales import read_pipeline_scales
from socsched.cost.profile import load_profile
from socsched.errors import UsageError
from socsched.executor.check_bundle import check_bundle
from socsched.runtime.options import load_policies
from tests.sim.rich_plan import rich_plan
from tools.verify.fuzz import corpus


def changed(kind: str, path: tuple[Any, ...], value: Any) -> str:
    """Return the first seed of a format with one value replaced; ... removes it."""
    document = json.loads(corpus.read()[kind][0])
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(document, indent=1)


def _overload(file: Path) -> Any:
    return load_policies(file, rich_plan())


def _bundle(file: Path) -> Any:
    return check_bundle(file.parent)


CASES: list[tuple[str, Callable[[Path], Any], tuple[Any, ...], Any, str]] = [
    ("profile", load_profile, ("costs", 0, "time_ns"), 0, r"json:\d+:\d+: costs\[0\].time_ns: expected a number"),
    ("profile", load_profile, ("costs", 0, "times_ns"), [3, 2], r"costs\[0\].times_ns: expected times in ascending"),
    ("profile", load_profile, ("costs", 0, "error"), float("nan"), "expected valid JSON"),
    ("profile", load_profile, ("contention", 0), [], r"contention\[0\]: expected a mapping"),
    ("profile", load_profile, ("conversions",), {"a": 1}, "conversions: expected a list"),
    ("profile", load_profile, ("platform",), "a\x1b[2J", "platform: expected one line of text"),
    ("profile", load_profile, ("schema_version",), 1, "schema_version: expected one of '1'"),
    ("scales", read_pipeline_scales, ("net",), [], "net: expected a mapping"),
    ("scales", read_pipeline_scales, ("net",), {"a": 0}, "net.a: expected a number above 0"),
    ("scales", read_pipeline_scales, ("net",), {"a": "1"}, "net.a: expected a number, got '1'"),
    ("overload", _overload, ("stages",), [1], "stages: expected a mapping"),
    ("overload", _overload, ("stages", "net", "policy"), "explode", "stages.net.policy: expected one of"),
    ("overload", _overload, ("stages", "net", "params"), 3, "stages.net.params: expected a mapping"),
    ("overload", _overload, ("stages", "net"), {"policy": "degrade"}, "expected precision or params"),
    ("overload", _overload, ("stages", "missing"), {"policy": "skip"}, "unknown task 'missing'"),
    ("overload", _overload, ("shed", "for"), [1], "shed.for: expected a duration"),
    ("overload", _overload, ("shed", "below"), "soft", "shed.below: expected one of"),
    ("manifest", _bundle, ("pipeline",), ..., "pipeline: "),
    ("manifest", _bundle, ("files",), [7], "files: expected a mapping"),
    ("manifest", _bundle, ("application", "machines"), {}, "application.machines: expected a list"),
    ("manifest", _bundle, ("handovers", 0, "version"), 3, r"handovers\[0\].version: expected"),
    ("manifest", _bundle, ("application", "glibc"), "2\x1b[2J", "application.glibc: expected one line of text"),
]


@pytest.mark.parametrize(("kind", "read", "path", "value", "expected"), CASES)
def test_what_does_not_fit_is_refused_with_its_place(
    kind: str, read: Callable[[Path], Any], path: tuple[Any, ...], value: Any, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "manifest.json"
    file.write_text(changed(kind, path, value))
    with pytest.raises(UsageError, match=expected):
        read(file)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "net/../../x.so", "a\0b"])
def test_a_manifest_names_files_of_its_bundle_only(name: str, tmp_path: Path) -> None:
    document = json.loads(corpus.read()["manifest"][0])
    document["files"] = {name: "0" * 64}
    (tmp_path / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"is no file of the bundle|files.*: expected one line of text"):
        check_bundle(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 10**6, b'{"a": ' * 10**5, b"null", b"3"])
@pytest.mark.parametrize("read", [load_profile, read_pipeline_scales, _overload, _bundle])
def test_what_is_no_such_file_is_refused(read: Callable[[Path], Any], raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(raw)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        read(tmp_path / "manifest.json")
