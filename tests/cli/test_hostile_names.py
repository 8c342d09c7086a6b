"""Names from files on a terminal and in JUnit: control sequences are escaped, XML stays valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.text import Text

from socsched.cli import root
from socsched.cli.output import echo
from socsched.reporting.junit import render
from socsched.reporting.terminal import console, table
from socsched.text import one_line, printable
from tests.sim.rich_plan import rich_plan

NASTY = "a\x1b]0;title\x07\x1b[2Jb\x00\x9bc\u202ed\udcff\r"


def harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text) and "\u202e" not in text


def test_control_characters_are_spelt_out() -> None:
    assert printable("a\x1b[2J\n\tb") == "a\\x1b[2J\n\tb" and one_line("a\n\tb\u2028") == "a\\n\\tb\\u2028"
    assert harmless(printable(NASTY)) and printable("äöü ✓ → µs") == "äöü ✓ → µs"


def test_nothing_of_a_name_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console(60).print(table(NASTY, ["x"], [[NASTY], ["[red]kept[/]"]]), Text(NASTY))
    echo(NASTY)
    echo(NASTY, err=True)
    captured = capsys.readouterr()
    assert harmless(captured.out) and harmless(captured.err)
    assert captured.out.count("\\x1b]0;title") == 4 and "[red]kept[/]" in captured.out


def test_an_error_about_a_hostile_name_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"schema_version": "\\u001b[2Jx"}')
    assert root.run(["analyze", str(file)]) == 2
    assert harmless(capsys.readouterr().err)
    assert root.run(["analyze", str(tmp_path / "\udcff\x1b[2J.json")]) == 2
    assert harmless(capsys.readouterr().err)


def test_junit_stays_valid_whatever_the_names() -> None:
    plan = rich_plan()
    chains = tuple(replace(chain, name=chain.name + NASTY + "<&>") for chain in plan.chains)
    made = replace(plan, chains=chains, pipeline=NASTY)
    tree = ElementTree.fromstring(render(made, {"kind": NASTY, "chains": {}}).encode())
    (pipeline,) = {item.attrib["value"] for item in tree.iter("property") if item.attrib["name"] == "pipeline"}
    assert "\\x1b" in pipeline
    assert sum(case.attrib["name"].startswith("deadline of chain") for case in tree.iter("testcase")) == 2 * len(chains)
