"""The documentation is correct: commands run as written, links have targets, the reference matches the code.

Convention: a block ```sh runs, line by line, in a separate folder per page; `sh slow` with the long tests; `sh no-run`
never.
A line ending in `# exit code N` is expected to end with it, others with 0.  /path/to/socsched means the checkout.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from socsched.cli.root import cli, run, verbs
from tools.generate import fidelity, reference

CHECKOUT = Path(__file__).parents[1]
PAGES = sorted((CHECKOUT / "docs").glob("*.md"))
BLOCK = re.compile(r"^( *)```(sh[^\n]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, list[str]]]:
    """Return the mark of each shell block of a page ("", "slow", "no-run") with its lines."""
    found = []
    for indent, info, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        found.append((info.removeprefix("sh").strip(), [line for line in lines if line.strip()]))
    return found


def execute(line: str) -> int:
    """Run a line; socsched's in this process, so that no time is lost starting it."""
    line = line.replace("/path/to/socsched", str(CHECKOUT))
    words = shlex.split(line, comments=True)
    if words[0] == "socsched" and not {">", "|", "&&"} & set(words):
        return run([*words[1:], "-q"])
    return subprocess.run(["bash", "-c", line], check=False).returncode


def follow(page: Path, marks: set[str]) -> None:
    """Run the blocks of a page that have one of the marks, in order."""
    for mark, lines in blocks(page):
        for line in lines if mark in marks else ():
            reported = re.search(r"# exit code (\d)", line)
            assert execute(line) == (int(reported[1]) if reported else 0), line


def runnable(mark: str) -> list[Path]:
    return [page for page in PAGES if any(found == mark for found, _ in blocks(page))]


@pytest.mark.parametrize("page", runnable(""), ids=lambda page: page.name)
def test_commands_run_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, {""})


@pytest.mark.slow
@pytest.mark.parametrize("page", runnable("slow"), ids=lambda page: page.name)
def test_slow_commands_run_as_written(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow(page, {"", "slow"})


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_listed() -> None:
    index = (CHECKOUT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in [*PAGES, *(CHECKOUT / "docs" / "reference").glob("*.md")]:
        name = page.relative_to(CHECKOUT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in index, name


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


def test_the_reference_is_what_the_code_says() -> None:
    assert reference.stale() == [], "run python -m tools.generate.reference"


@pytest.mark.slow
def test_the_page_on_own_networks_works_with_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_files = pytest.importorskip("tests.models.onnx_files", reason="the onnx package is not installed")
    page = CHECKOUT / "docs" / "own-network.md"
    monkeypatch.chdir(tmp_path)
    (text,) = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "my-detector.yaml").write_text(text)
    onnx_files.trunk(tmp_path / "my-detector.onnx")
    (lines,) = [lines for mark, lines in blocks(page) if mark == "no-run"]
    assert [execute(line) for line in lines[:2]] == [0, 0]
