"""Files that extend another: what is merged, what is replaced whole, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.descriptor.catalog import get_platform, platform_hashes
from socsched.descriptor.operator_rules import find_rules, load_rules
from socsched.descriptor.platform_file import load_platform, read_platform
from socsched.errors import DescriptorError

MINE = """
extends: jetson-orin-nano-8gb
engines: {vic: null, gpu: {title: Mine}}
modes:
  - name: only
    id: 0
    default: true
    assumed: a test
    base: {value: 1 W, kind: assumed, note: n}
    dram: {value: 10 GB/s, kind: assumed, note: n}
    engines: {cpu0: {units: 4, clock: 960 MHz}, cpu1: {units: 0}, gpu: {units: 8, clock: 408 MHz}}
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(f'schema_version: "1"\nname: {name}\n{text}', encoding="utf-8")
    return file


def test_sibling_differs_in_what_it_states(tmp_path: Path) -> None:
    file = written(tmp_path, "mine", MINE)
    mine, base = load_platform(file), get_platform("jetson-orin-nano-8gb")
    assert [engine.id for engine in mine.engines] == ["cpu0", "cpu1", "gpu"]
    assert mine.engine("gpu").title == "Mine" and mine.engine("gpu").clock_hz == base.engine("gpu").clock_hz
    assert [mode.name for mode in mine.modes] == ["only"], "a list is replaced"
    assert not any(p.fitted for engine in mine.engines for p in engine.precisions.values()), "measured on the base only"
    assert set(platform_hashes(mine)) >= {"platforms/mine.yaml", "platforms/jetson-orin-nano-8gb.yaml"}


def test_figure_is_replaced_with_its_provenance(tmp_path: Path) -> None:
    written(tmp_path, "a", "x: {clock: {value: 1 MHz, note: of a, error: 0.5}, deep: {kept: 0.25, gone: 1}}\n")
    written(tmp_path, "b", "extends: a\nx: {clock: {value: 2 MHz}, deep: {gone: null}}\n")
    file = written(tmp_path, "c", "extends: b\nx: {deep: {gone: 3}}\n")
    document = read_platform(file)
    assert document.data["x"] == {"clock": {"value": "2 MHz"}, "deep": {"kept": 0.25, "gone": 3}}
    assert document.decimals == {("x", "deep", "kept"): "0.25"}, "the texts of numbers follow the numbers"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("extends: nobody\n", "no file of this kind is called 'nobody'"),
        ("extends: ../../etc/passwd\n", "expected the name"),
        ("extends: [a]\n", "expected the name"),
        ("extends: mine\n", "none twice"),
        ("extends: a\n", "at most 4"),
    ],
)
def test_wrong_bases_are_findings_with_a_position(tmp_path: Path, text: str, reason: str) -> None:
    for name, base in ("ab", "bc", "cd", "de", "ef"):
        written(tmp_path, name, f"extends: {base}\n")
    with pytest.raises(DescriptorError, match=r"\.yaml:3:") as found:
        read_platform(written(tmp_path, "mine", text))
    assert reason in str(found.value)


def test_rules_extend_rules() -> None:
    newer, older = (load_rules(find_rules(f"hexagon-htp-v{n}")) for n in (75, 73))
    assert newer.operators == older.operators and newer.title != older.title
