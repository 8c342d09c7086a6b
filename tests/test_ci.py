"""The environment of CI: a PATH with README's requirements only, and a second run of the tests skipped in the first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from socsched.cli.doctor import OPTIONAL


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="not a Debian: apt-get install dpkg")
def test_its_path_holds_what_readme_asks_for_and_nothing_optional(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    subprocess.run(["sh", str(checkout / "tools" / "ci" / "bare_path.sh"), str(folder), sys.executable], check=True)
    there = {path.name for path in folder.iterdir()}
    assert {"sh", "make", "g++", "c++", "cc", "python3", "readelf", "awk", "tar"} <= there
    assert Path(folder / "python3").resolve() == Path(sys.executable).resolve()
    assert not there & {name for tool in OPTIONAL.values() for name in tool.programs}
    assert not there & {"git", "clinfo", "qemu-aarch64-static", "sudo"}
    # the programs work from there
    (tmp_path / "x.cc").write_text("#include <vector>\nint main() { return std::vector<int>{0}[0]; }\n")
    build = "g++ x.cc -o x && ./x"
    subprocess.run(["sh", "-c", build], cwd=tmp_path, env={"PATH": str(folder)}, check=True)


def test_the_script_calls_make_test_with_nothing_of_the_environment_but_what_it_names(checkout: Path) -> None:
    script = (checkout / ".ci" / "run").read_text()
    before, first, after = re.split(r"(env -i .*? make test) ", script, maxsplit=1, flags=re.DOTALL)
    assert 'PATH="$work/bin"' in first
    assert "SOCSCHED" not in first and "SOCSCHED_SHARED=" not in before
    assert "SOCSCHED_SHARED=" in after and "make optional" in after


SUITE = """
import pytest

@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("n", range(3))
def test_of_device_code(n):
    pass

@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", range(3))
def test_of_many_cases(n):
    pass
"""


@pytest.mark.parametrize(
    ("marks", "found", "counts"),
    [
        ("not slow", "yes", {"passed": 5, "deselected": 1}),
        ("not slow", "", {"passed": 2, "skipped": 1, "deselected": 3}),
        ("optional", "yes", {"passed": 3, "deselected": 3}),
        ("optional", "", {"skipped": 1, "deselected": 5}),
        ("", "", {"passed": 3, "skipped": 1, "deselected": 2}),
    ],
)
@pytest.mark.sampled(9)
def test_one_test_a_missing_tool_is_skipped_and_says_how_to_get_it(
    checkout: Path, tmp_path: Path, marks: str, found: str, counts: dict[str, int]
) -> None:
    for name in ("conftest.py", "optional.py", "recorded.py", "datafiles.py", "tiny_pillars.py"):
        (tmp_path / name).symlink_to(checkout / "tests" / name)
    (tmp_path / "test_some.py").write_text(SUITE)
    program = f"import shutil, sys, pytest; shutil.which = lambda name: {found!r}; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-q", "-rs", "-p", "no:cacheprovider"]
    command += ["-c", str(checkout / "pyproject.toml")]
    command += ["--rootdir", str(tmp_path), "-m", marks, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    reported = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|deselected)", last)}
    assert reported == counts
    assert ("3 tests need nvcc, which is not here: install the CUDA toolkit" in done.stdout) == (not found)
