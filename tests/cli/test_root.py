"""The root command: help, verbs that fail to import, Ctrl-C in imports, every error as text with its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from socsched.cli import root
from socsched.cli.verbs import output_options
from socsched.errors import CompileError, DescriptorError, Finding, InputError, MachineError

HEAVY = {"tvm", "numpy", "pydantic", "rich", "perfetto", "yaml", "PIL", "http"}


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes the verb `plan` raise what it is given, and runs it."""

    def run(error: BaseException, *flags: str) -> int:
        @click.command("plan")
        @output_options
        def command() -> None:
            raise error

        monkeypatch.setattr(root.LazyGroup, "get_command", lambda self, ctx, name: command)
        return root.run(["plan", *flags])

    return run


def test_help_lists_every_verb_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom socsched.cli.root import run\nassert run(['--help']) == 0\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for verb in root.verbs():
        assert f"\n  {verb}" in done.stdout
    assert not HEAVY & set(eval(done.stderr))


@pytest.mark.parametrize("verb", root.verbs())
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"socsched {verb}" in shown
    assert "--json" in shown


def test_a_verb_that_cannot_be_imported_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = root.import_module

    def broken(name: str):
        if name.endswith(".run"):
            raise ImportError("libfoo.so.1 is missing", name="foo")
        return real(name)

    monkeypatch.setattr(root, "import_module", broken)
    assert root.run(["--help"]) == 0
    assert "libfoo.so.1 is missing" in " ".join(capsys.readouterr().out.split())
    assert root.run(["run", "plan.json", "--frames", "3"]) == 3
    assert "cannot import foo" in capsys.readouterr().err


def test_an_unknown_verb_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["simulte"]) == 2
    assert "simulate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("scan.bin: empty", "record again"), 2, "error: scan.bin: empty\nhint: record again\n"),
        (
            DescriptorError([Finding("a.yaml", 3, 5, "clock", "a frequency")]),
            2,
            "error: a.yaml:3:5: clock: a frequency\n",
        ),
        (CompileError("no g++"), 3, "error: no g++\n"),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 2, "x.json: No such file or directory"),
        (PermissionError(13, "Permission denied", "/out"), 3, "/out: Permission denied"),
        (ModuleNotFoundError("No module named 'tvm'", name="tvm"), 3, "cannot import tvm"),
        (MemoryError(), 3, "out of memory"),
        (ZeroDivisionError("division by zero"), 3, "ZeroDivisionError: division by zero"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_become_text_and_exit_codes(
    raising, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    assert raising(error) == code
    captured = capsys.readouterr()
    assert text in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_verbose_shows_the_traceback(raising, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(ZeroDivisionError("division by zero"), "-v") == 3
    assert "Traceback" in capsys.readouterr().err


def test_json_reports_errors_as_an_object_too(raising, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(MachineError("no board", "plug it in"), "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema_version": "1",
        "error": {"message": "no board", "hint": "plug it in", "exit_code": 3},
    }


def test_main_exits_with_the_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "socsched", "platforms", "check", str(tmp_path / "none.yaml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


SHOWN = {
    "page": ["pipelines", "show", "pointpillars"],
    "document": ["platforms", "show", "jetson-agx-orin-64gb", "--json"],
    "help": ["plan", "--help"],
    "version": ["--version"],
}


@pytest.mark.parametrize("arguments", SHOWN.values(), ids=SHOWN)
@pytest.mark.sampled(2)
def test_a_closed_pipe_ends_the_process_quietly(arguments: list[str]) -> None:
    """The exit code is the one shells give to what SIGPIPE ended, not that of a verdict."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "socsched", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("arguments", SHOWN.values(), ids=SHOWN)
@pytest.mark.sampled(2)
def test_closed_streams_are_no_fault(arguments: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "socsched", *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-m", "socsched", "plan", "nothing"])
    assert done.returncode == 2


def test_a_locale_without_our_characters_gets_others() -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain.pop("PYTHONIOENCODING", None)
    done = subprocess.run([sys.executable, "-m", "socsched", *SHOWN["page"]], env=plain, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.isascii() and "?" in done.stdout


LISTS_PLATFORMS = "from socsched.cli import main; main(['platforms', 'list'])"


@pytest.mark.parametrize("module", ["click", "rich", "pydantic"])
def test_ctrl_c_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", LISTS_PLATFORMS],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")
