"""The README's commands work as written, and what it names exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from socsched.cli.root import run, verbs


@pytest.fixture(scope="module")
def blocks(checkout: Path) -> list[list[str]]:
    """Return the command lines of each shell block."""
    text = (checkout / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [[line.split("#")[0].strip() for line in block.splitlines() if line.strip()] for block in found]


def test_it_opens_with_the_two_commands(blocks: list[list[str]]) -> None:
    assert blocks[0] == ["make demo", "make test"]


def test_commands_that_need_no_machine_work_in_order(
    blocks: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks[1]) > 5
    for line in blocks[1]:
        assert run([*shlex.split(line)[1:], "-q"]) == 0, line


def test_every_command_names_a_verb_and_options_that_exist(
    blocks: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for line in [line for block in blocks[1:] for line in block]:
        program, verb, *rest = shlex.split(line)
        assert program == "socsched"
        assert verb in verbs()
        capsys.readouterr()
        group = [rest[0]] if verb in ("platforms", "pipelines", "weights", "study") else []
        run([verb, *group, "--help"])
        known = capsys.readouterr().out
        for option in [word for word in rest if word.startswith("-")]:
            assert option in known, line


def test_the_demo_output_is_pasted_in(checkout: Path) -> None:
    shown = (checkout / "README.md").read_text(encoding="utf-8").split("<!-- demo -->")[1].split("<!-- /demo -->")[0]
    for text in ("SIMULATED", "MEASURED", "measured/predicted", "lidar-detection", "of 60 W cap", "report.html"):
        assert text in shown


def test_files_it_links_to_exist(checkout: Path) -> None:
    text = (checkout / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (checkout / target).exists(), target
