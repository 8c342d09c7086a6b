"""Any mutation of a descriptor gives a descriptor or a list of findings with positions."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from descriptor_samples import LOADERS, SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.descriptor.platform_file import platform_from_mapping
from socsched.descriptor.source import parse
from socsched.errors import DescriptorError

BUILDERS = {"pipeline": pipeline_from_mapping, "platform": platform_from_mapping}
JUNK: list[Any] = [
    None, True, False, 0, -1, 2**70, 1.5, -0.0, "", " ", "on", "1e999999999 ms", "9" * 400 + " ms", "1e-999999999 ms",
    "²5 ms", "nan s", "lidar", "cpu", "100 ms", "5 W", "\u202e", [], {}, [None], [[]], {"": ""},
    {"value": 1, "kind": "derived"}, {"value": "5 ms", "kind": "assumed"}, ["detect", "track"], [{}],
    {"kind": {}}, "x" * 5000,
]  # fmt: skip

PATCHES = [patch.encode("latin-1") for patch in ("", "\n", "  ", "\t", ":", "- ", *"{]'\"!%#\x00\xff", "&a ", "*a")]


def load(kind: str, text: str | bytes) -> None:
    """Load text as a file; anything but success or a DescriptorError with positions fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        try:
            LOADERS[kind](path)
        except DescriptorError as error:
            lines = (text if isinstance(text, bytes) else text.encode()).count(b"\n") + 2
            assert error.findings
            assert all(1 <= f.line <= lines and f.column >= 1 and f.expected for f in error.findings)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def mutate(data: Any, path: tuple[Any, ...], value: Any, how: str) -> Any:
    """Return `data` with the value at `path` replaced, deleted, or its key renamed."""
    if not path:
        return value
    data = copy.deepcopy(data)
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    if how == "replace":
        parent[path[-1]] = value
    else:
        old = parent.pop(path[-1])
        if how == "rename" and isinstance(parent, dict):
            parent[str(value)[:40]] = old
    return data


@pytest.mark.parametrize("kind", ["pipeline", "platform"])
@pytest.mark.sampled(2)
def test_junk_at_every_place(kind: str) -> None:
    """Every value of the sample replaced by every odd value in turn: no traceback, thousands of files."""
    tree = parse(SAMPLES[kind].encode(), "f").data
    for path in places(tree)[1:]:
        for junk in JUNK[:: 1 if kind == "pipeline" else 4]:
            mutated = mutate(tree, path, junk, "replace")
            try:
                BUILDERS[kind](mutated, "built")
            except DescriptorError as error:
                assert error.findings, (path, junk)


@pytest.mark.parametrize("kind", ["pipeline", "platform"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_mutated_text(kind: str, data: st.DataObject) -> None:
    text = SAMPLES[kind].encode()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.sampled_from([0, 1, 2, 7, 40]))
        patch = data.draw(st.sampled_from(PATCHES) | st.binary(max_size=4))
        text = text[:start] + patch + text[start + length :]
    load(kind, text)


def test_thousands_of_faults_end_in_a_short_list() -> None:
    stages = "".join(f"  s{n}: {{bad{n}: 1, after: [zz{n}], source: q}}\n" for n in range(1500))
    with pytest.raises(DescriptorError) as caught:
        BUILDERS["pipeline"](parse(f"stages:\n{stages}".encode(), "f").data, "built")
    assert 0 < len(caught.value.findings) <= 200 and "there may be more" in caught.value.hint


def test_a_long_cycle_is_found_without_recursion() -> None:
    stages = {f"s{n}": {"title": "t", "model": "m", "after": [f"s{(n + 1) % 3000}"]} for n in range(3000)}
    data = {"schema_version": "1", "name": "n", "title": "t", "stages": stages}
    with pytest.raises(DescriptorError, match="cycle: s0 waits for s1"):
        pipeline_from_mapping(data, "built")
