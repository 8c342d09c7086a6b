"""README and the pages it was split into: commands work as written, what is shown is what is printed, links lead on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_docs import assert_printed

from socsched.cli.root import run, verbs

WIDTH = 118
"""Columns of the output that README and docs/demo.md show."""


def read(checkout: Path, page: str) -> str:
    return (checkout / page).read_text(encoding="utf-8")


def marked(text: str, mark: str) -> list[str]:
    """The lines of the block of text between a mark's two comments."""
    inside = text.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0]
    return inside.split("```text\n")[1].split("```")[0].splitlines()


def test_it_opens_with_the_two_commands(checkout: Path) -> None:
    first = re.findall(r"```sh\n(.*?)```", read(checkout, "README.md"), re.DOTALL)[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


def test_a_stranger_reads_it_at_one_sitting(checkout: Path) -> None:
    assert len(read(checkout, "README.md").encode()) < 8_500


def test_what_it_and_the_page_of_the_demo_show_is_what_is_printed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    (command,) = re.findall(r"^`socsched (.*?)`, the first half", read(checkout, "README.md"), re.MULTILINE)
    assert run(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert_printed(marked(read(checkout, "README.md"), "plan"), printed)
    demo = marked(read(checkout, "docs/demo.md"), "demo")
    first, measured = (next(n for n, line in enumerate(demo) if line.startswith(w)) for w in ("SIMULATED", "MEASURED"))
    shown = demo[first + 1 : measured]
    assert_printed(shown[: shown.index("...")], printed)


def test_every_verb_is_shown(checkout: Path) -> None:
    blocks = re.findall(r"```sh[^\n]*\n(.*?)```", read(checkout, "docs/verbs.md"), re.DOTALL)
    assert {shlex.split(line)[1] for block in blocks for line in block.splitlines() if line.strip()} >= set(verbs()) - {
        "book", "fit", "lint", "validate", "fleet", "demo", "plugins", "completion",
    }  # fmt: skip
