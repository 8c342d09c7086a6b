"""Shared options: units, percentages, completion of names, output switches; numbers that are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from socsched.api.options import PlanOptions
from socsched.cli.options import NameOrPath, Number, Numbers, Percentage, Quantity, Slack, shipped_names
from socsched.cli.output import Output
from socsched.cli.root import cli, run, verbs
from socsched.cli.verbs import declared, output_options
from socsched.compiler import builder
from socsched.compiler.quantize.scales import Scales, read_pipeline_scales
from socsched.descriptor.catalog import get_pipeline
from socsched.errors import UsageError
from socsched.planning.planners import Option
from socsched.runtime.backends import Setting
from socsched.runtime.backends.built_in import TvmCpuBackend
from socsched.units import UNITS, parse_number


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


def test_every_option_can_be_set_by_environment() -> None:
    environment = os.environ | {"SOCSCHED_PLATFORM": "no-such-board"}
    done = subprocess.run(
        [sys.executable, "-m", "socsched", "plan", "pointpillars"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no-such-board" in done.stderr


NUMERIC = (Number, Numbers, Percentage, Quantity, Slack, click.IntRange, type(click.INT))
WORDS = ("nan", "-nan", "inf", "-inf", "infinity", "1e999", "1_0", "٣", "0x10", "")
UNITS_TRIED = ("", "%", " %", *{unit for units in UNITS.values() for unit in units})


def options(command: click.Command, context: click.Context, name: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Yield every parameter of a command and of those below it, with the words that lead there."""
    yield from ((f"{name} {parameter.name}", parameter) for parameter in command.params)
    if isinstance(command, click.Group):
        below = click.Context(command, parent=context)
        for each in command.list_commands(below):
            found = command.get_command(below, each)
            assert found is not None
            yield from options(found, below, f"{name} {each}")


def test_every_option_that_takes_a_number_refuses_what_is_none() -> None:
    tried = 0
    for name, parameter in options(cli, click.Context(cli)):
        assert not isinstance(parameter.type, (click.FloatRange, type(click.FLOAT))), f"{name} takes nan"
        if not isinstance(parameter.type, NUMERIC):
            continue
        tried += 1
        for word in WORDS:
            for unit in UNITS_TRIED:
                if isinstance(parameter.type, click.IntRange) and word in ("1_0", "٣"):
                    continue  # Python's own integers, none of which is out of the ordinary
                with pytest.raises(click.BadParameter):
                    parameter.type.convert(f"{word}{unit}", parameter, None)
    assert tried > 40


@pytest.mark.parametrize("text", WORDS)
def test_no_number_is_read_from_them(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        parse_number(text)


@pytest.mark.parametrize("text", ["1", "-1.5", "1e3", ".5", " 2 "])
def test_numbers_are_read(text: str) -> None:
    assert parse_number(text) == float(text)


@pytest.mark.parametrize(("text", "slack"), [("10%", (0.1, 0)), ("10ms", (0.0, 10_000_000))])
def test_slack_is_a_part_or_a_time(text: str, slack: tuple[float, int]) -> None:
    assert Slack().convert(text, None, None) == slack


def test_guard_and_plan_take_the_same_options_of_planning() -> None:
    def taken(verb: str) -> dict[str | None, object]:
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None
        return {parameter.name: parameter.to_info_dict() for parameter in command.params}

    plan, guard = taken("plan"), taken("guard")
    names = [name for name, _ in declared(PlanOptions)]
    assert len(names) > 14
    for name in (*names, "platform", "mode"):
        assert plan[name] == guard[name], name


@pytest.mark.parametrize("text", ["nan", "inf", "1e999"])
def test_options_of_planners_are_numbers_too(text: str) -> None:
    assert Option(0.5, "a share").read("share", "0.25") == 0.25
    with pytest.raises(UsageError, match="expected float"):
        Option(0.5, "a share").read("share", text)


BOARD = "jetson-agx-orin-64gb"


def completed(line: str) -> list[str]:
    """Return the completions of the last word of a line."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(cli, {}, "socsched", "_X").get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("pl", {"plan", "platforms"}),
        ("plan point", {"pointpillars"}),
        ("plan pointpillars -p jetson-agx-o", {"jetson-agx-orin-32gb", BOARD}),
        (f"plan pointpillars -p {BOARD} --mode M", {"MAXN", "MODE_15W", "MODE_30W", "MODE_50W"}),
        (f"plan pointpillars -p {BOARD} --pin back", {"backbone=gpu", "backbone=dla0"}),
        (f"compile pointpillars -p {BOARD} --stage ", {"voxelise", "decode"}),
        (f"compile pointpillars -p {BOARD} --engine d", {"dla0", "dla1"}),
        (f"platforms show {BOARD} --mode MODE_1", {"MODE_15W"}),
        (f"platforms rules {BOARD} --engine d", {"dla0"}),
        ("simulate pointpillars --policy ed", {"edf", "edf-criticality"}),
        ("plan pointpillars --objective latency,en", {"latency,energy"}),
        ("plan pointpillars --solver c", {"cpsat"}),
        ("completion f", {"fish"}),
    ],
)
def test_names_complete(line: str, there: set[str]) -> None:
    found = completed(line)
    assert there <= set(found)
    assert all(item.startswith(line.split(" ")[-1]) for item in found)


def test_chains_and_stages_of_a_plan_complete(tmp_path: Path) -> None:
    plan = {"chains": [{"name": "lidar-detection"}], "stages": [{"name": "pfn"}], "platform": BOARD}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert completed(f"why {tmp_path} --chain l") == ["lidar-detection"]
    assert completed(f"compile {tmp_path}/plan.json --stage ") == ["pfn"]
    assert completed(f"compile {tmp_path}/plan.json --engine dla1") == ["dla1"]


@pytest.mark.parametrize(
    "line", ["plan nothing --pin ", "why nowhere --chain ", "plan pointpillars -p nothing --mode "]
)
def test_a_line_that_makes_no_sense_completes_nothing(line: str) -> None:
    assert completed(line) == []


def test_every_verb_completes() -> None:
    assert set(completed("")) == set(verbs())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_the_program_and_parse(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_SOCSCHED_COMPLETE" in script
    if which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == shell


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err


@pytest.mark.slow
def test_scales_of_the_shipped_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On synthetic frames and seeded weights, which are reported."""
    file = tmp_path / "scales.json"
    assert run(["calibrate", "pointpillars", "--frames", "1", "-o", str(file), "--json"]) == 0
    printed = capsys.readouterr()
    assert "seeded random weights only" in printed.err
    assert json.loads(printed.out)["stages"] == {"backbone": 21, "head": 4}
    scales = read_pipeline_scales(file)
    assert scales["backbone"].source == "least squared error over 1 inputs"
    assert scales["backbone"].values["neck"].step == pytest.approx(scales["head"].values["neck"].step, rel=1e-3)


def test_a_run_compiles_with_its_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scales.json"
    file.write_text(json.dumps({"head": {"neck": 0.1}}))
    given: list[Scales | None] = []

    def compiled(*arguments: Any, scales: Scales | None = None) -> None:
        given.append(scales)
        raise StopIteration

    monkeypatch.setattr(builder, "compile_stage", compiled)
    pipeline = get_pipeline("pointpillars")
    stages = {stage.name: stage for stage in pipeline.stages}
    task: Any = SimpleNamespace(engine="cpu", precision="int8", lanes=("cpu",))
    platform: Any = SimpleNamespace(engine=lambda name: None)
    plan: Any = None
    for name, path in (("head", file), ("backbone", file), ("head", None)):
        setting = Setting(plan, pipeline, platform, {name: {}}, None, 0, path)
        with pytest.raises(StopIteration):
            TvmCpuBackend().prepare(task, stages[name], setting)
    assert given[0] is not None and given[0].values["neck"].step == 0.1
    assert given[1:] == [None, None]
