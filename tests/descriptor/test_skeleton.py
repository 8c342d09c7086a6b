"""`platforms new`: a commented file that is valid unchanged and never overwrites another."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.cli.root import run
from socsched.descriptor.platform_file import load_platform, write_skeleton
from socsched.errors import UsageError


@pytest.mark.parametrize("name", ["my-board", "123", "true", "1.5"])
def test_the_skeleton_passes_the_strict_check(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["platforms", "new", name]) == 0
    file = tmp_path / "platforms" / f"{name}.yaml"
    assert run(["platforms", "check", str(file), "--strict"]) == 0, capsys.readouterr().err
    platform = load_platform(file)
    assert platform.name == name
    assert all(engine.clock_hz.kind == "assumed" for engine in platform.engines)
    assert file.read_text().count("placeholder") > 15


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_skeleton("a", file)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["", "a b", "../a", "a\nb", "-a", "a" * 65, "ä"])
def test_names_that_no_platform_can_have_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        write_skeleton(name, tmp_path / "a.yaml")
    assert not list(tmp_path.iterdir())
