"""docs/sweeps.md: its columns are those of the table, its study is valid, its options exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from socsched.cli.root import run
from socsched.descriptor.source import parse
from socsched.descriptor.study import study_from
from socsched.study.columns import FIXED, RESULTS


@pytest.fixture(scope="module")
def text(checkout: Path) -> str:
    return (checkout / "docs" / "sweeps.md").read_text(encoding="utf-8")


def test_columns_are_those_of_the_table(text: str) -> None:
    shown = re.findall(
        r"^\| `(\w+)` \| (.*) \|$", text.split("<!-- columns -->")[1].split("<!-- /columns -->")[0], re.M
    )
    assert shown == [(column.name, column.meaning) for column in (*FIXED, *RESULTS)]


def test_the_study_shown_is_one(text: str, tmp_path: Path) -> None:
    study, fleet = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (tmp_path / "harm.yaml").write_text("{}")
    found = study_from(parse((study + fleet).encode(), str(tmp_path / "rates.yaml")))
    assert found.fleet is not None and found.fleet.vehicles == 10_000
    assert len(found.parameters) == 10


def test_commands_name_options_that_exist(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in re.findall(r"```sh[^\n]*\n(.*?)```", text, re.S) for line in block.splitlines()]
    commands = [line.split("#")[0].split() for line in lines if line.startswith("socsched ")]
    assert len(commands) >= 6
    for _, verb, *rest in commands:
        capsys.readouterr()
        assert run([verb, "--help"]) == 0
        known = capsys.readouterr().out
        for option in (word for word in rest if word.startswith("-")):
            assert re.search(rf"(^|\s){re.escape(option)}\b", known), (verb, option)
