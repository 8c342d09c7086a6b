"""`socsched platforms show`: its output agrees with the descriptor."""

from __future__ import annotations

import pytest

from socsched.cli.root import run
from socsched.descriptor.catalog import get_platform
from socsched.units import format_frequency, format_power


def words(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """Return the words that `platforms show` prints, wherever lines are broken."""
    assert run(["platforms", "show", *arguments]) == 0
    return set(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["jetson-agx-orin-64gb", "rk3588", "qcs8550"])
def test_a_board_is_shown_whole(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    platform = get_platform(name)
    reported = [platform.title, *platform.rails, *platform.thermal, *platform.sources]
    for engine in platform.engines:
        reported += [engine.id, engine.title]
    for mode in platform.modes:
        reported += [mode.name, format_power(mode.cap_mw.value) if mode.cap_mw else "none stated"]
    said = words(capsys, name)
    assert not [text for text in reported if not set(text.split()) <= said]


def test_the_clocks_of_an_engine_are_those_of_its_operating_points(capsys: pytest.CaptureFixture[str]) -> None:
    said = words(capsys, "jetson-agx-orin-64gb", "--engine", "gpu")
    points = get_platform("jetson-agx-orin-64gb").engine("gpu").points
    assert points is not None
    assert {word for point in points.points for word in format_frequency(point.clock_hz).split()} <= said
