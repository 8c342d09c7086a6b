"""The wheel contains all required files and none that git ignores; the lock contains every hash and no registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import socsched
from socsched.errors import extra


@pytest.fixture(scope="module")
def source(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout without what git ignores, and with a private file."""
    source = tmp_path_factory.mktemp("source") / "copy"
    ignored = (checkout / ".gitignore").read_text().split()
    shutil.copytree(checkout, source, ignore=shutil.ignore_patterns(".git", *(name.strip("/") for name in ignored)))
    (source / "platforms" / "private.secret").write_text("not to be shipped")
    (source / ".gitignore").write_text((source / ".gitignore").read_text() + "*.secret\n")
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the names in a wheel built from the copy."""
    return wheel_of(source, tmp_path_factory.mktemp("dist"))


def wheel_of(folder: Path, target: Path) -> list[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(target.glob("*.whl"))).namelist()


def test_the_literature_is_a_wheel_of_its_own(source: Path, checkout: Path, tmp_path: Path) -> None:
    names = wheel_of(source / "socsched_literature", tmp_path)
    info = f"socsched_literature-{socsched.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"socsched_literature", info}
    code = [path.relative_to(checkout).as_posix() for path in (checkout / "socsched_literature").rglob("*.py")]
    assert {*code, "socsched_literature/LICENSE", f"{info}/entry_points.txt"} <= {*names}


def test_what_make_runs_is_in_the_source_distribution(source: Path, checkout: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(source / "dist")]
    subprocess.run(command, cwd=source, capture_output=True, check=True)
    with tarfile.open(next((source / "dist").glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*re.findall(r"\b(?:tools|requirements)/\S+\b", (checkout / "Makefile").read_text())} <= names
    assert {path.relative_to(checkout).as_posix() for path in (checkout / "tools").rglob("*.py")} <= names


def test_descriptors_and_assets_are_in_the_wheel(wheel: list[str], checkout: Path) -> None:
    for kind in ("platforms", "pipelines", "studies", "schemas"):
        for file in (checkout / kind).iterdir():
            assert file.is_dir() or file.suffix == ".secret" or f"socsched/{kind}/{file.name}" in wheel
    for file in (checkout / "socsched" / "trained").iterdir():
        assert f"socsched/trained/{file.name}" in wheel
    for asset in ("report.css", "gantt.js"):
        assert f"socsched/reporting/assets/{asset}" in wheel
    assert "socsched/py.typed" in wheel


def test_licence_and_notices_are_in_the_wheel_and_name_the_version(wheel: list[str], checkout: Path) -> None:
    for name in ("LICENSE", "NOTICE"):
        assert f"socsched-{socsched.__version__}.dist-info/licenses/{name}" in wheel
    assert "Version 2.0, January 2004" in (checkout / "LICENSE").read_text()
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (socsched.__version__, "Apache-2.0")
    assert f"\n## {socsched.__version__} - {citation['date-released']}\n" in (checkout / "CHANGELOG.md").read_text()


def test_ignored_files_and_tests_are_not(wheel: list[str]) -> None:
    assert not [name for name in wheel if name.endswith(".secret") or name.startswith("tests/")]
    assert {name.split("/")[0] for name in wheel} == {
        "socsched",
        "socsched_ros",
        f"socsched-{socsched.__version__}.dist-info",
    }


@pytest.mark.parametrize("name", ["run.lock", "dev.lock", "onnx.lock"])
def test_locks_are_complete_and_name_no_registry(checkout: Path, name: str) -> None:
    text = (checkout / "requirements" / name).read_text()
    assert not re.search(r"https?://|file://|index-url|find-links", text)
    entries = re.findall(r"^([a-z0-9_.-]+)==(\S+)(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(entries) > 20
    for package, _, rest in entries:
        assert "--hash=sha256:" in rest, package


def test_the_locks_agree_and_hold_the_pinned_pair(checkout: Path) -> None:
    def pins(name: str) -> set[str]:
        text = (checkout / "requirements" / name).read_text()
        return {line.rstrip(" \\") for line in text.splitlines() if re.match(r"^[a-z0-9]", line)}

    run, dev = pins("run.lock"), pins("dev.lock")
    assert run <= pins("onnx.lock") <= dev
    assert {"apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post0"} <= run
    assert metadata.version("apache-tvm-ffi") == "0.1.14.post0"


def test_one_run_of_pip_installs_a_lock_from_wheels_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of the `make` that runs this

    def recipe(stamp: str) -> list[str]:
        made = ["make", "-n", "-B", f".venv/{stamp}"]
        lines = subprocess.run(made, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()
        return [line for line in lines if "install.sh" in line]

    (demo,), (tests,) = recipe(".run"), recipe(".dev")
    assert "requirements/run.lock" in demo and "requirements/dev.lock" in tests
    assert "socsched_literature" in tests and "socsched_literature" not in demo
    # what is said before the download is what README says
    readme = (checkout / "README.md").read_text()
    for line, verb in ((demo, "make demo"), (tests, "make test")):
        size = re.search(r'"(\d+ MB)"', line)
        assert size and re.search(rf"`{verb}` (downloads\s)?about {size[1]}", readme)


FAKE_PYTHON = """#!/bin/sh
# `-m venv FOLDER` makes an environment of this very file; as pip it writes down what is asked for
case "$*" in
  "-c import pip"*) exit "$FAKE_OLD" ;;
  "-m venv "*) for last; do :; done; mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
  *"install --no-compile"*)
    echo "$*" >"$0.asked"
    echo "Collecting big==1 (from -r some.lock (line 3))"
    echo "  Downloading big-1-py3-none-any.whl.metadata (62 kB)"
    echo "  Downloading big-1-py3-none-any.whl (16.5 MB)"
    echo "  Using cached small-2-py3-none-any.whl (500 kB)"
    echo "WARNING: slow" >&2
    exit "$FAKE_STATUS" ;;
esac
"""


@pytest.mark.parametrize(("status", "old"), ["00", "10", "01"])
def test_the_installation_says_what_it_downloads_and_fails_with_pip(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, old: str
) -> None:
    (tmp_path / "python").write_text(FAKE_PYTHON)
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("FAKE_STATUS", status)
    monkeypatch.setenv("FAKE_OLD", old)
    command = ["sh", str(checkout / "tools" / "ci" / "install.sh"), str(tmp_path / "python"), str(tmp_path / "venv")]
    done = subprocess.run([*command, "some.lock", "17 MB"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == int(status), done.stderr
    assert "about 17 MB" in done.stderr and "WARNING: slow" in done.stderr
    assert re.search(r"big +16 MB", done.stderr) and "2 wheels, 17 MB" in done.stderr
    assert "Collecting" not in done.stderr
    asked = (tmp_path / ("venv/bin" if old == "1" else "") / "python.asked").read_text()
    assert "--only-binary :all:" in asked and "--require-hashes" in asked


def test_what_only_tests_import_is_not_installed_to_run(checkout: Path) -> None:
    text = (checkout / "requirements" / "run.lock").read_text()
    installed = set(re.findall(r"^([a-z0-9_.-]+)==", text, re.MULTILINE))
    assert not installed & {"perfetto", "protobuf", "matplotlib", "pandas", "pytest", "onnx", "ray", "ortools"}


def test_no_page_and_no_message_installs_socsched_from_a_package_index(checkout: Path) -> None:
    """It is on none: the one form is `pip install '/path/to/socsched[EXTRA]'`, with an extra that exists."""
    section = (checkout / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]")[1]
    extras = set(re.findall(r"^([a-z0-9]+) = \[", section.split("\n[")[0], re.M))
    index = re.compile(
        r"pip3? install(?:\s+-{1,2}[\w-]+)*\s+[\"']?socsched\b(?!_)"  # by its name
        r"|(?<![/\w-])socsched\[[a-z]"  # an extra of its name
    )
    pages = [*checkout.glob("*.md"), checkout / "Makefile"]
    for folder in ("docs", "socsched", "socsched_ros", "socsched_literature", "tests", "tools", "studies"):
        pages += [
            p for p in (checkout / folder).rglob("*") if p.suffix in (".py", ".md", ".sh", ".yml", ".yaml", ".txt")
        ]
    named, faults = set[str](), list[str]()
    for page in pages:
        text = page.read_text(encoding="utf-8", errors="replace")
        named |= set(re.findall(r"(?:'/path/to/socsched\[|extra\([\"'])([a-z0-9]+)[\]\"']", text))
        faults += [f"{page}: {match[0]}" for match in index.finditer(text) if page != Path(__file__)]
    assert not faults and len(named) > 8 and named <= extras
    assert extra("onnx") == "pip install '/path/to/socsched[onnx]'"


def test_each_template_of_ci_installs_what_the_extra_says(checkout: Path) -> None:
    extra = re.findall(r'^onnx = \["(onnx\S+)"\]', (checkout / "pyproject.toml").read_text(), re.M)[0]
    for name in ("github-actions.yml", "gitlab-ci.yml", "Jenkinsfile", "guard/action.yml"):
        assert f'pip install "$SOCSCHED_SOURCE" "{extra}"' in (checkout / "docs" / "ci" / name).read_text(), name
    assert f'"{extra}"' in (checkout / ".pre-commit-hooks.yaml").read_text()
