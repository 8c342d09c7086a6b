"""The documentation is correct: commands run as written, links have targets.

Convention: a block ```sh runs, line by line, in a separate folder per page; `sh slow` with the long tests; `sh no-run`
never.  A block ```text after one of these is what it prints at a width of 80 columns, "..." for what is left out.
A line ending in `# exit code N` is expected to end with it, others with 0.  /path/to/socsched means the checkout.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from socsched.api.loading import load_plan
from socsched.cli.root import cli, run, verbs
from tools.generate import fidelity

CHECKOUT = Path(__file__).parents[1]
PAGES = sorted((CHECKOUT / "docs").glob("*.md"))
BLOCK = re.compile(r"^( *)```(\w*[^\n]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def fences(page: Path) -> list[tuple[str, list[str]]]:
    """Return the language and mark of each block of a page ("sh slow", "text", "yaml") with its lines."""
    found = []
    for indent, info, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        found.append((info.strip(), [line.removeprefix(indent) for line in body.splitlines()]))
    return found


def blocks(page: Path) -> list[tuple[str, list[str]]]:
    """Return the mark of each shell block of a page ("", "slow", "no-run") with its lines."""
    shells = [(info, lines) for info, lines in fences(page) if info.split()[:1] == ["sh"]]
    return [(info.removeprefix("sh").strip(), [line for line in lines if line.strip()]) for info, lines in shells]


def execute(line: str, quiet: bool) -> int:
    """Run a line; socsched's in this process, so that no time is lost starting it."""
    line = line.replace("/path/to/socsched", str(CHECKOUT))
    words = shlex.split(line, comments=True)
    if words[0] == "socsched" and not {">", "|", "&&"} & set(words):
        return run([*words[1:], *(["-q"] if quiet else [])])
    return subprocess.run(["bash", "-c", line], check=False).returncode


def plain(lines: list[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def assert_printed(shown: list[str], printed: list[str]) -> None:
    """Every part of `shown` between lines "..." stands in `printed` as a whole, in this order; blanks count as one."""
    at, lines = 0, plain(printed)
    for part in "\n".join(plain(shown)).split("\n...\n"):
        wanted = part.removesuffix("\n...").split("\n")
        place = next((n for n in range(at, len(lines)) if lines[n : n + len(wanted)] == wanted), None)
        assert place is not None, "\n".join(["not printed:", *wanted, "", "printed:", *printed])
        at = place + len(wanted)


def follow(page: Path, marks: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run the blocks of a page that have one of the marks, in order, and compare what they print with what is shown."""
    listed = fences(page)
    for (info, lines), (after, shown) in zip(listed, [*listed[1:], ("", [])], strict=True):
        if info.split()[:1] != ["sh"] or info.removeprefix("sh").strip() not in marks:
            continue
        capsys.readouterr()
        for line in lines:
            reported = re.search(r"# exit code (\d)", line)
            wanted = int(reported[1]) if reported else 0
            assert not line.strip() or execute(line, quiet=after != "text") == wanted, line
        if after == "text":
            assert_printed(shown, capsys.readouterr().out.splitlines())


def runnable(mark: str) -> list[Path]:
    return [page for page in PAGES if any(found == mark for found, _ in blocks(page))]


@pytest.mark.parametrize("page", runnable(""), ids=lambda page: page.name)
def test_commands_run_and_print_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    follow(page, {""}, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable("slow"), ids=lambda page: page.name)
def test_slow_commands_run_and_print_as_written(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    follow(page, {"", "slow"}, capsys)


def test_what_is_not_printed_is_found() -> None:
    printed = ["a  1", "b 2", "c 3", "d 4"]
    assert_printed(["a 1", "...", "c   3"], printed)
    for shown in (["a 2"], ["a 1", "c 3"], ["c 3", "...", "a 1"], ["a 1", "...", "d 5"]):
        with pytest.raises(AssertionError, match="not printed"):
            assert_printed(shown, printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_marks_are_known_and_options_exist(page: Path) -> None:
    for mark, lines in blocks(page):
        assert mark in ("", "slow", "no-run")
        for line in lines:
            words = shlex.split(line, comments=True)
            start = next((i for i, word in enumerate(words) if Path(word).name == "socsched"), None)
            if start is None or start + 1 >= len(words):
                continue
            verb, *rest = words[start + 1 :]
            assert verb in verbs(), line
            command = cli.get_command(click.Context(cli), verb)
            if isinstance(command, click.Group):
                command = command.get_command(click.Context(command), rest[0])
            command = getattr(command, "subcommands", {}).get("".join(rest[:1]), command)
            assert command is not None
            known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
            assert {word.split("=")[0] for word in rest if word.startswith("-")} <= known, line


@pytest.mark.parametrize("page", [*PAGES, CHECKOUT / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_listed() -> None:
    index = (CHECKOUT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_every_tool_is_listed() -> None:
    tools = CHECKOUT / "tools"
    index = (tools / "README.md").read_text(encoding="utf-8")
    for file in [*tools.glob("*/*.py"), *tools.glob("*/*.sh"), *tools.glob("*/*/__main__.py")]:
        name = file.parent.name if file.stem == "__main__" else file.name.removesuffix(".py")
        assert f"`{name}`" in index, file


def test_the_readme_says_how_far_off_predictions_are() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    shown = text.split(fidelity.MARK)[1].strip()
    assert shown == fidelity.engines_table().strip(), "run python -m tools.generate.fidelity"


@pytest.mark.slow
def test_the_page_on_own_networks_works_with_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_files = pytest.importorskip("tests.models.onnx_files", reason="the onnx package is not installed")
    page = CHECKOUT / "docs" / "own-network.md"
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "my-detector.yaml").write_text(text)
    onnx_files.trunk(tmp_path / "my-detector.onnx")
    lines = next(lines for mark, lines in blocks(page) if mark == "no-run")
    assert [execute(line, quiet=True) for line in lines[:2]] == [0, 0]
    (prepare,) = [task for task in load_plan(tmp_path / "plan.json").tasks if task.name == "prepare"]
    assert len(prepare.lanes) == 1 and 2_000_000 <= prepare.cost_ns < 2_100_000, "2 ms on one core, and its launch"
