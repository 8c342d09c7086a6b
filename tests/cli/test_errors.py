"""Every way the command line can fail, verb by verb: the message, the exit code, and no traceback.

Options whose values have a syntax are found by walking the commands, so that none can be forgotten; names and files are
tables, and a test sees to it that every such option and every verb is in them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from error_lines import BOARD, OUTPUTS, WRONG

from socsched.cli.options import Number, Objectives, Percentage, Quantity
from socsched.cli.root import cli, run, verbs

UNWRITABLE = Path("/sys" if os.path.ismount("/sys") else "/proc")
FULL = Path("/dev/full")
TINY = f"""schema_version: "1"
name: tiny
parameters: {{platform: {BOARD}, mode: MAXN, pipeline: pointpillars}}
simulate: {{duration: 100 ms}}
""".encode()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return files and folders to fail with, by the names that commands below use."""
    root = tmp_path_factory.mktemp("files")
    assert run(["plan", "pointpillars", "-p", BOARD, "--mode", "MAXN", "-q", "-o", str(root / "plan.json")]) == 0
    assert run(["simulate", str(root / "plan.json"), "--duration", "300ms", "-q", "-o", str(root / "good")]) == 0
    assert run(["plan", "pointpillars", "-p", "host", "--no-refine", "-q", "-o", str(root / "host.json")]) in (0, 1)
    for name, content in {
        "broken.json": b"{",
        "empty.json": b"{}",
        "bytes.json": b"\x00\xff\xfe",
        "broken.yaml": b"a: [",
        "broken.csv": b"id,platform",
        "empty.csv": b"id,platform,engine,precision,mode,share,network,measured_ms,statistic,flag,source\n",
        "broken.npz": b"not a zip",
        "broken.bin": b"123",
        "broken.taskset.json": b"{}",
        "tiny.yaml": TINY,
        "jobs.csv": b"Task ID,Job ID,Arrival min,Arrival max,Cost min,Cost max,Deadline,Priority\n1,1,0,0,1,2,10,10\n",
    }.items():
        (root / name).write_bytes(content)
    (root / "folder").mkdir()
    for name in ("notrace", "badtrace", "badplan"):
        (root / name).mkdir()
        for file in (root / "good").iterdir():
            (root / name / file.name).write_bytes(file.read_bytes())
    (root / "notrace" / "trace.bin").unlink()
    damaged = bytearray((root / "good" / "trace.bin").read_bytes())
    (root / "badtrace" / "trace.bin").write_bytes(damaged[: len(damaged) // 2])
    (root / "badplan" / "plan.json").write_bytes(b"{")
    for name in ("simulated", "measured"):
        (root / "two" / name).mkdir(parents=True)
        (root / "two" / name / "plan.json").write_bytes((root / "plan.json").read_bytes())
    (root / "badresult").mkdir()
    (root / "badresult" / "result.json").write_bytes(b"[]")
    return {"root": str(root), "new": str(root / "new")}


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    """Run a command that fails; check that it does so in good order, and return exit code and what it said."""
    capsys.readouterr()
    code = run(arguments)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert "this is a fault in socsched" not in err, err
    assert err.lower().startswith(("usage:", "error:")) or "\nerror: " in err or "interrupted" in err, err
    assert out == ""
    return code, err


@pytest.mark.parametrize(("line", "says"), [pytest.param(*row, id=row[0]) for rows in WRONG.values() for row in rows])
def test_what_is_wrong_is_named(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    code, err = fails(capsys, [word.format(**files) for word in line.split()])
    assert code == (3 if "--engine ray" in line and "sweep" in line else 2), err
    assert says in err.replace("\n", " ")


@pytest.mark.parametrize("name", verbs())
def test_a_verb_refuses_options_it_does_not_have(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = fails(capsys, [name, "--nonsense"])
    assert code == 2
    assert "--nonsense" in err


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that does something, with the words that lead to it."""
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from commands(found, (*path, name))
    else:
        yield path, command


def values(option: click.Parameter) -> tuple[str, ...]:
    """Return values an option cannot take by its syntax; none where anything goes."""
    if isinstance(option.type, click.Choice):
        return ("nonsense",)
    if isinstance(option.type, (click.IntRange, click.FloatRange)):
        return ("nonsense", "-1")
    if isinstance(option.type, Quantity):
        return ("nonsense", "0", "-1s", "3 parsecs")
    if isinstance(option.type, Number):
        return ("nonsense", "nan", "inf")
    if isinstance(option.type, Percentage):
        return ("nonsense", "-5%")
    if isinstance(option.type, Objectives):
        return ("nonsense", "energy,energy")
    return ()


SYNTAX = [
    (path, option, value)
    for path, command in commands(cli)
    for option in command.params
    if option.param_type_name == "option" and not getattr(option, "is_flag", False)
    for value in values(option)
]


@pytest.mark.parametrize(
    ("path", "option", "value"),
    [pytest.param(*row, id=f"{' '.join(row[0])} {row[1].opts[0]} {row[2]}") for row in SYNTAX],
)
def test_a_value_that_cannot_be_is_refused(
    path: tuple[str, ...], option: click.Parameter, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = "x" if any(p.param_type_name == "argument" and p.required for p in _command(path).params) else None
    code, err = fails(capsys, [*path, *([given] if given else []), f"{option.opts[-1]}={value}"])
    assert code == 2
    assert option.opts[-1] in err


def _command(path: tuple[str, ...]) -> click.Command:
    return next(command for words, command in commands(cli) if words == path)


def test_no_verb_and_no_option_that_takes_a_name_or_file_is_left_out() -> None:
    assert set(WRONG) == set(verbs())
    reported = [line.split() for rows in WRONG.values() for line, _ in rows] + [row[0].split() for row in OUTPUTS]
    for path, command in commands(cli):
        for option in command.params:
            if option.param_type_name != "option" or getattr(option, "is_flag", False) or values(option):
                continue
            # a seed is any number from 0 on, and so on: what is left are names and files
            used = [words for words in reported if words[: len(path)] == list(path)]
            assert any(set(option.opts) & set(words) for words in used), f"{' '.join(path)} {option.opts}"


@pytest.mark.parametrize(("line", "says"), [pytest.param(*row, id=row[0]) for row in OUTPUTS])
@pytest.mark.parametrize("where", ["unwritable", "in a file"])
def test_what_cannot_be_written_is_named(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], line: str, says: str, where: str
) -> None:
    place = UNWRITABLE / "socsched" if where == "unwritable" else Path(files["root"]) / "empty.json"
    if where == "unwritable" and not UNWRITABLE.is_dir():
        pytest.skip("no folder here is read-only for this user")
    code, err = fails(capsys, [word.format(place=place, **files) for word in line.split()])
    assert code in (2, 3), err
    assert str(place) in err
    assert "hint: " in err


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "line",
    [
        f"plan pointpillars -p {BOARD} --mode MAXN --no-refine -o /dev/full",
        "plan {root}/plan.json --export linux -o /dev/full",
    ],
)
def test_a_full_disk_is_named(files: dict[str, str], capsys: pytest.CaptureFixture[str], line: str) -> None:
    code, err = fails(capsys, [word.format(**files) for word in line.split()])
    assert code == 3
    assert "No space left on device" in err
    assert "free space" in err


WHERE_INTERRUPTED = {
    "plan": ("socsched.api.planning.plan_with", f"plan pointpillars -p {BOARD}"),
    "book": ("socsched.api.books.book", f"book pointpillars -p {BOARD}"),
    "analyze": ("socsched.api.analysis.load_plan", "analyze {root}/plan.json"),
    "simulate": ("socsched.api.simulation.run", "simulate {root}/plan.json"),
    "run": ("socsched.api.execution.run", "run {root}/plan.json"),
    "profile": ("socsched.api.profiling.profile", "profile pointpillars -p host"),
    "fit": ("socsched.api.fitting.fit", "fit qcs8550"),
    "compile": ("socsched.executor.application.require_compilers", "compile {root}/plan.json"),
    "report": ("socsched.api.folders.render", "report {root}/good -o {root}/x.html"),
    "why": ("socsched.api.folders.load_trace", "why {root}/good"),
    "compare": ("socsched.reporting.compare.load_result", "compare {root}/good {root}/good"),
    "verify": ("socsched.api.verification.verify", "verify {root}/missing.onnx"),
    "advise": ("socsched.api.advise.advise", f"advise pointpillars -p {BOARD}"),
    "lint": ("socsched.lint.check.lint_file", f"lint pointpillars -p {BOARD}"),
    "validate": (
        "socsched.validation.validate.read_measurements",
        "validate {root}/broken.csv --networks {root}/folder",
    ),
    "guard": ("socsched.api.loading.load_plan", "guard {root}/plan.json -o {root}/guarded"),
    "demo": ("socsched.api.planning.plan_with", "demo -o {root}/demo --frames 1"),
    "calibrate": ("socsched.descriptor.catalog.get_pipeline", "calibrate pointpillars"),
    "platforms": ("socsched.descriptor.catalog.get_platform", f"platforms show {BOARD}"),
    "pipelines": ("socsched.descriptor.catalog.get_pipeline", "pipelines show pointpillars"),
    "doctor": ("socsched.cli.doctor.examine", "doctor"),
    "plugins": ("socsched.plugins.names", "plugins"),
    "sweep": ("socsched.study.sweep.sweep", "sweep {root}/tiny.yaml -o {root}/interrupted"),
    "fleet": ("socsched.descriptor.study.load_study", "fleet {root}/tiny.yaml"),
    "study": ("socsched.cli.results.plan_from", "study policies {root}/plan.json"),
    "weights": ("socsched.models.torch_file.read_checkpoint", "weights import {root}/broken.npz"),
}


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb != "completion"])
def test_an_interrupt_ends_every_verb_quietly(
    verb: str, files: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, line = WHERE_INTERRUPTED[verb]

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, interrupted)
    capsys.readouterr()
    assert run([word.format(**files) for word in line.split()]) == 130
    out, err = capsys.readouterr()
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in out + err


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take every compiler off PATH, and every compiled stage out of the cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.usefixtures("without_compiler")
def test_without_a_compiler_it_says_how_to_get_one(
    files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, err = fails(capsys, ["compile", "pointpillars", "-p", "host", "--stage", "pfn", "-o", str(tmp_path / "a")])
    assert code == 3
    assert "compiler" in err
    assert "build-essential" in err or "socsched doctor" in err


def test_errors_are_json_where_that_is_asked_for(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["why", f"{files['root']}/good", "--chain", "radar", "--json"]) == 2
    out = capsys.readouterr().out
    assert json.loads(out)["error"]["exit_code"] == 2


def test_quiet_still_says_what_is_wrong(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    code, err = fails(capsys, ["report", f"{files['root']}/folder", "-q"])
    assert (code, "no results here" in err) == (2, True)
