"""The wheel holds what is needed and nothing that git ignores; the lock names no registry and every hash."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import socsched


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the names in a wheel built from what git would put into a release."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=checkout, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (checkout / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((checkout / name).read_bytes())
    (source / "platforms" / "private.secret").write_text("not to be shipped")
    (source / ".gitignore").write_text((source / ".gitignore").read_text() + "*.secret\n")
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(target.glob("*.whl"))).namelist()


def test_descriptors_and_assets_are_in_the_wheel(wheel: list[str], checkout: Path) -> None:
    for kind in ("platforms", "pipelines", "studies"):
        for file in (checkout / kind).glob("*.yaml"):
            assert f"socsched/{kind}/{file.name}" in wheel
    for file in (checkout / "socsched" / "trained").iterdir():
        assert f"socsched/trained/{file.name}" in wheel
    for asset in ("report.css", "gantt.js"):
        assert f"socsched/report/assets/{asset}" in wheel
    assert "socsched/py.typed" in wheel


def test_ignored_files_and_tests_are_not(wheel: list[str]) -> None:
    assert not [name for name in wheel if name.endswith(".secret") or name.startswith("tests/")]
    assert {name.split("/")[0] for name in wheel} == {"socsched", f"socsched-{socsched.__version__}.dist-info"}


@pytest.mark.parametrize("name", ["run.lock", "dev.lock"])
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
    assert run <= dev
    assert {"apache-tvm==0.27.0.post1", "apache-tvm-ffi==0.1.14.post0"} <= run
    assert metadata.version("apache-tvm-ffi") == "0.1.14.post0"
