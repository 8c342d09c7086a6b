"""Shared options: units, percentages, completion of names, output switches."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from socsched.cli.options import NameOrPath, Output, Percentage, Quantity, output_options, shipped_names


@pytest.mark.parametrize(("text", "ns"), [("60s", 60 * 10**9), ("1.5 ms", 1_500_000), ("2 min", 120 * 10**9)])
def test_durations_take_units(text: str, ns: int) -> None:
    assert Quantity("duration").convert(text, None, None) == ns


@pytest.mark.parametrize("text", ["60", "5 W", "-1 s", "0 s", "soon"])
def test_durations_without_sense_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Quantity("duration").convert(text, None, None)


@pytest.mark.parametrize(("text", "ratio"), [("5%", 0.05), ("12.5", 0.125), ("0%", 0.0)])
def test_percentages(text: str, ratio: float) -> None:
    assert Percentage().convert(text, None, None) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["-5%", "five"])
def test_percentages_without_sense_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Percentage().convert(text, None, None)


def test_shipped_names_complete() -> None:
    assert "host" in shipped_names("platforms")
    assert "pointpillars" in shipped_names("pipelines")
    items = NameOrPath("platforms").shell_complete(
        click.Context(click.Command("x")), click.Argument(["x"]), "jetson-agx"
    )
    assert [item.value for item in items] == [
        name for name in shipped_names("platforms") if name.startswith("jetson-agx")
    ]
    assert items


def test_the_shell_completes_platform_names() -> None:
    environment = os.environ | {
        "_SOCSCHED_COMPLETE": "bash_complete",
        "COMP_WORDS": "socsched plan x -p jet",
        "COMP_CWORD": "4",
    }
    code = "import sys; sys.argv[0] = 'socsched'; from socsched.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "jetson-agx-orin-64gb" in done.stdout


@pytest.fixture
def verb() -> click.Command:
    @click.command("verb")
    @output_options
    @click.pass_obj
    def command(output: Output) -> None:
        output.note("working")
        output.result({"answer": 42}, lambda: click.echo("the answer is 42"))

    return command


def test_results_go_to_stdout_and_notes_to_stderr(verb: click.Command) -> None:
    done = CliRunner().invoke(verb, [], obj=Output())
    assert (done.stdout, done.stderr) == ("the answer is 42\n", "working\n")


def test_json_prints_one_object_with_its_schema_version(verb: click.Command) -> None:
    done = CliRunner().invoke(verb, ["--json"], obj=Output())
    assert done.stdout == '{\n  "answer": 42,\n  "schema_version": "1"\n}\n'


def test_quiet_prints_nothing(verb: click.Command) -> None:
    done = CliRunner().invoke(verb, ["-q"], obj=Output())
    assert (done.stdout, done.stderr) == ("", "")


def test_every_option_can_be_set_by_environment() -> None:
    environment = os.environ | {"SOCSCHED_PLATFORM": "no-such-board"}
    done = subprocess.run(
        [sys.executable, "-m", "socsched", "plan", "pointpillars"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no-such-board" in done.stderr
