"""Optional dependencies: one list for `doctor`, `make help` and docs; what `doctor` prints without a tool."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import types
from collections.abc import Callable, Iterable
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from socsched.cli import doctor, doctor_machine, doctor_targets
from socsched.cli.doctor_tools import OPTIONAL, Check
from socsched.compiler.targets.opencl import device

PROGRAMS = [tool for tool in OPTIONAL.values() if tool.programs]
PACKAGES = [tool for tool in OPTIONAL.values() if tool.package]
DEEP = "/opt/a/toolchain/of/a/vendor/with/a/long/name/bin/"
"""Where the faked programs are: a path that fits no column."""
COMPILERS = ("g++", "clang++", "c++")


class Machine:
    """A machine on which the tools of `there` are, by the names of `OPTIONAL`, and nothing else; faked, not installed.

    "g++" among them is the C++ compiler, which is not optional.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.there: frozenset[str] = frozenset()
        real = metadata.version
        programs = {name: tool.name for tool in PROGRAMS for name in tool.programs} | dict.fromkeys(COMPILERS, "g++")
        packages = {tool.package: tool.name for tool in PACKAGES}

        def which(name: str, *_: Any) -> str | None:
            return DEEP + Path(name).name if programs.get(name) in self.there else None

        def version(name: str) -> str:
            if name in packages and packages[name] not in self.there:
                raise metadata.PackageNotFoundError(name)
            return "1.2.3.post4" if name in packages else real(name)

        def load(name: str, *_: Any) -> Any:
            if not ("libcudart" in self.there and name == "libcudart.so.13"):
                raise OSError(name)

        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("SOCSCHED_CACHE", str(root / "cache"))  # counting a full one takes a while
        monkeypatch.setattr(shutil, "which", which)
        monkeypatch.setattr(metadata, "version", version)
        for module in (doctor_machine, device):
            monkeypatch.setattr(module, "ctypes", types.SimpleNamespace(CDLL=load, util=device.ctypes.util))
        for module in (doctor_machine, doctor_targets):
            monkeypatch.setattr(module, "system", types.SimpleNamespace(machine=lambda: "x86_64"))
        monkeypatch.setattr(doctor_machine, "ROOT", root)
        monkeypatch.setattr("socsched.runtime.meters.Nvml", lambda *_: types.SimpleNamespace(available=False))
        monkeypatch.setattr(
            "socsched.runtime.realtime.refusal", lambda: "" if "real time" in self.there else "not (EPERM)"
        )
        monkeypatch.setattr(util, "find_spec", lambda name: object() if "TensorRT" in self.there else None)
        monkeypatch.setattr(
            "socsched.runtime.backends.tensorrt_dla.import_module",
            lambda _: types.SimpleNamespace(__version__="10.3.0"),
        )
        monkeypatch.setattr(doctor_targets, "_architectures", lambda _: {"sm_80", "sm_87", "sm_90"})

    def has(self, there: Iterable[str]) -> list[Check]:
        """Return the findings of `doctor` where only these tools are installed."""
        self.there = frozenset(there)
        return doctor.examine()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Machine]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Machine(monkeypatch, tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def shown() -> Iterable[Callable[[list[Check], int], str]]:
    """Return a function that gives what `doctor` prints of findings at a width."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NO_COLOR", "1")

        def show(checks: list[Check], width: int) -> str:
            import contextlib
            import io

            monkeypatch.setenv("COLUMNS", str(width))
            with contextlib.redirect_stdout(io.StringIO()) as out:
                doctor._show(checks)
            return out.getvalue()

        yield show


SWITCHES = [[tool.name] for tool in PROGRAMS] + [[tool.name for tool in PACKAGES]]
"""The tools the test below removes: each program separately, the Python packages, whose rows are alike, together."""


def test_it_fits_whatever_is_missing(machine: Machine, shown: Callable[[list[Check], int], str]) -> None:
    for chosen in itertools.product([False, True], repeat=len(SWITCHES)):
        there = [name for names, taken in zip(SWITCHES, chosen, strict=True) if taken for name in names]
        checks = machine.has(there)
        for width in (60, 80):
            out = shown(checks, width)
            assert [line for line in out.splitlines() if cell_len(line) > width] == [], there
        missing = {check.name for check in checks if check.status == "missing"}
        assert missing & {tool.name for tool in (*PROGRAMS, *PACKAGES)} == {
            tool.name for tool in (*PROGRAMS, *PACKAGES) if tool.name not in there
        }


@settings(max_examples=25)
@given(st.sets(st.sampled_from([*OPTIONAL, "g++"])), st.sampled_from([60, 80]))
def test_it_fits_any_mixture(
    machine: Machine, shown: Callable[[list[Check], int], str], there: set[str], width: int
) -> None:
    checks = machine.has(there)
    assert ("C++ compiler" in {check.name for check in checks if check.status == "missing"}) is ("g++" not in there)
    out = shown(checks, width)
    assert ("Required: how to fix it" in out) is ("g++" not in there)
    assert [line for line in out.splitlines() if cell_len(line) > width] == []


def test_every_remedy_is_shown_whole(machine: Machine, shown: Callable[[list[Check], int], str]) -> None:
    checks = machine.has([])
    words = shown(checks, 60).split("how to fix it", 1)[1].replace("\n", " ")
    for check in checks:
        assert check.remedy.replace(" ", "") in words.replace(" ", "") or not check.remedy, check.name


def test_the_list_holds_exactly_what_may_be_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that `doctor` finds on a machine with nothing on it, and that the main job does without."""
    monkeypatch.setattr("tvm.target.codegen.llvm_get_targets", lambda: ["x86_64"])
    checks = machine.has([])
    assert {check.name for check in checks if check.status == "missing" and not check.main} == set(OPTIONAL)
    found = {check.name: check for check in checks}
    for name, tool in OPTIONAL.items():
        assert (found[name].enables, found[name].remedy) == (tool.enables, tool.remedy)


def test_every_extra_of_the_package_is_in_the_list(checkout: Path) -> None:
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", text.split("[project.optional-dependencies]")[1].split("\n[")[0], re.MULTILINE)
    listed = {found[1] for tool in OPTIONAL.values() if (found := re.search(r"socsched\[(\w+)\]", tool.install))}
    assert listed == set(extras) - {"test", "dev"}


def test_the_page_lists_the_same(checkout: Path) -> None:
    text = (checkout / "docs" / "optional.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", text.split("<!-- optional -->")[1], re.MULTILINE)
    rows = rows[: rows.index(next(row for row in rows if row[0] == list(OPTIONAL)[-1])) + 1]
    plain = [tuple(cell.replace("`", "").replace("\\|", "|") for cell in row) for row in rows[1:]]
    assert plain == [(tool.name, tool.enables, tool.install) for tool in OPTIONAL.values()]


def test_make_help_lists_the_same_and_what_preflight_asks_for(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of the `make` that runs this
    done = subprocess.run(["make", "-s", "help"], cwd=checkout, capture_output=True, text=True, check=True)
    words = " ".join(done.stdout.split())
    assert f"optional: {', '.join(OPTIONAL)} (socsched doctor" in words
    preflight = (checkout / "tools" / "ci" / "preflight.sh").read_text(encoding="utf-8")
    readme = (checkout / "README.md").read_text(encoding="utf-8")
    for package in ("python3-venv", "build-essential"):
        assert package in preflight and package in words and package in readme
