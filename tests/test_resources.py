"""The search path of descriptor files, in order, and the error for an unknown name."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched import resources
from socsched.errors import UsageError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """All five places of the search order, each with a platform of its own and one called `same`."""
    roots = {name: tmp_path / name for name in ("first", "second", "cwd", "user", "shipped")}
    for name, root in roots.items():
        folder = root / "socsched" / "platforms" if name == "user" else root / "platforms"
        folder.mkdir(parents=True)
        (folder / f"only-{name}.yaml").touch()
        (folder / "same.yaml").touch()
    monkeypatch.setenv("SOCSCHED_PATH", f"{roots['first']}:{roots['second']}:{tmp_path / 'absent'}:")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(roots["user"]))
    monkeypatch.setattr(resources, "__file__", str(roots["shipped"] / "socsched" / "resources.py"))
    monkeypatch.chdir(roots["cwd"])
    return roots


def test_every_place_is_searched_in_order(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources.names("platforms") == sorted([*(f"only-{name}" for name in places), "same"])
    for name, root in places.items():
        assert resources.find("platforms", f"only-{name}").resolve().is_relative_to(root)
        assert resources.find("platforms", "same").resolve().is_relative_to(root)
        for file in root.rglob("same.yaml"):
            file.unlink()
    with pytest.raises(UsageError):
        resources.find("platforms", "same")


def test_an_installed_package_has_its_files_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "socsched" / "platforms").mkdir(parents=True)
    (tmp_path / "socsched" / "platforms" / "inside.yml").touch()
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "socsched" / "resources.py"))
    assert resources.find("platforms", "inside") == tmp_path / "socsched" / "platforms" / "inside.yml"


def test_a_path_is_taken_literally(places: dict[str, Path]) -> None:
    path = places["second"] / "platforms" / "same.yaml"
    assert resources.find("platforms", str(path)) == path
    (places["cwd"] / "mine.yaml").touch()
    assert resources.find("pipelines", "mine.yaml") == Path("mine.yaml")


@pytest.mark.parametrize("text", ["nowhere/same", "same.yaml", "./same"])
def test_a_missing_path_is_no_name(places: dict[str, Path], text: str) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        resources.find("platforms", text)


def test_a_folder_is_no_file(places: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="is a folder, not a file"):
        resources.find("platforms", str(places["first"]))


def test_an_unknown_name_gets_the_nearest(places: dict[str, Path]) -> None:
    with pytest.raises(UsageError) as caught:
        resources.find("platforms", "only-secnd")
    assert str(caught.value) == "no platform is called 'only-secnd'"
    assert "did you mean only-second" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        resources.find("pipelines", "qqq")
    assert caught.value.hint.startswith("there are: none")


def test_shipped_files_of_this_checkout_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOCSCHED_PATH", raising=False)
    assert "jetson-agx-orin-64gb" in resources.names("platforms")
    assert {"pointpillars", "perception-stack"} <= set(resources.names("pipelines"))
