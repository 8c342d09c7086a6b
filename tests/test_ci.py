"""What CI runs with: a PATH of what README asks for alone, and a second run of what the first one skipped."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from socsched.cli.doctor_tools import OPTIONAL

SUITE = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("name", ["a b[1]::c", "\\x00", "plain"])
def test_some(name):
    Path("there").exists() or name == "plain" or pytest.skip("not there")

def test_expected():
    pytest.xfail("known")
"""
MODULE = "import pytest\npytest.importorskip('no_such_module')\n\ndef test_never():\n    pass\n"


@pytest.fixture
def skipped(checkout: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("skipped", checkout / "tools" / "skipped.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="not a Debian: apt-get install dpkg")
def test_its_path_holds_what_readme_asks_for_and_nothing_optional(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    subprocess.run(["sh", str(checkout / "tools" / "bare_path.sh"), str(folder), sys.executable], check=True)
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
    assert "SOCSCHED_SHARED=" in after and "-rs" in after


def test_what_was_skipped_runs_again_and_is_counted_once(skipped: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(SUITE)
    (tmp_path / "tests" / "test_two.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}

    def run(file: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={file}", *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)

    first, second = str(tmp_path / "first.xml"), str(tmp_path / "second.xml")
    run(first)
    again = skipped.skipped(first)
    some = "tests/test_one.py::test_some"
    assert again == ["tests/test_two.py", f"{some}[a b[1]::c]", f"{some}[\\x00]"]
    (tmp_path / "there").touch()
    (tmp_path / "again").write_text("\n".join(again))
    run(second, "@again")
    assert dict(skipped.outcomes(second)) == {
        "tests/test_two.py": "skipped",
        f"{some}[a b[1]::c]": "passed",
        f"{some}[\\x00]": "passed",
    }


@pytest.mark.parametrize(
    ("second", "line"),
    [
        ('<testcase classname="t.a" name="x"/><testcase classname="t.b" name="y"/>', "3 passed, 0 failed, 0 skipped"),
        ('<testcase classname="t.a" name="x"><failure/></testcase>', "1 passed, 1 failed, 1 skipped"),
        ('<testcase classname="" name="t.b"><skipped/></testcase>', "1 passed, 0 failed, 2 skipped"),
    ],
)
def test_the_last_run_of_a_test_counts(
    skipped: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], second: str, line: str
) -> None:
    first = '<testcase classname="t.a" name="x"><skipped/></testcase><testcase classname="t.a" name="z"/>'
    first += '<testcase classname="" name="t.b"><skipped/></testcase>'
    for name, cases in (("1.xml", first), ("2.xml", second)):
        (tmp_path / name).write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert skipped.main(["--count", str(tmp_path / "1.xml"), str(tmp_path / "2.xml")]) == 0
    assert capsys.readouterr().out.strip() == line
