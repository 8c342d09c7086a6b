"""Times that runs on this machine have shown: kept by what a stage computes, and used by later plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.cost import profile
from socsched.descriptor import host
from socsched.descriptor.pipeline import Stage

STAGE = Stage("backbone", "b", "pointpillars.backbone", params={"pillars": 6000})
PLACE = ("cpu", "fp32", 2, "tvm")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path))
    monkeypatch.delenv(host.SWITCH, raising=False)


def test_a_stage_keeps_its_median_in_any_pipeline_and_under_any_name() -> None:
    assert profile.known("host", STAGE, *PLACE) is None
    assert profile.learn([(profile.place(STAGE, *PLACE), [9_000, 10_000, 11_000, 10_500, 30_000])]) == 1
    found = profile.known("host", Stage("other", "o", STAGE.model, params=STAGE.params), *PLACE)
    assert found is not None
    time, error, source = found
    assert time == 10_500 and error == pytest.approx(30_000 / 10_500 - 1, abs=1e-3) and "5 jobs" in source


@pytest.mark.parametrize(
    ("platform", "params", "place"),
    [
        ("jetson-agx-orin-64gb", STAGE.params, PLACE),
        ("host", {"pillars": 8600}, PLACE),
        ("host", STAGE.params, ("cpu", "fp32", 1, "tvm")),
        ("host", STAGE.params, ("cpu", "int8", 2, "tvm")),
        ("host", STAGE.params, ("cpu", "fp32", 2, "onnxruntime")),
    ],
)
def test_another_place_or_work_is_not_known(
    platform: str, params: dict[str, int], place: tuple[str, str, int, str]
) -> None:
    profile.learn([(profile.place(STAGE, *PLACE), [1_000] * 5)])
    assert profile.known(platform, Stage("s", "s", STAGE.model, params=params), *place) is None


def test_a_network_file_that_changes_is_another_stage(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"one")
    stage = Stage("s", "s", "onnx", params={"file": str(file)})
    profile.learn([(profile.place(stage, *PLACE), [1_000] * 5)])
    assert profile.known("host", stage, *PLACE) is not None
    file.write_bytes(b"another")
    assert profile.known("host", stage, *PLACE) is None


def test_plans_without_the_probe_are_without_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    profile.learn([(profile.place(STAGE, *PLACE), [1_000] * 5)])
    monkeypatch.setenv(host.SWITCH, host.QUICK)
    assert profile.known("host", STAGE, *PLACE) is None
    monkeypatch.delenv(host.SWITCH)
    profile.forget()
    assert profile.known("host", STAGE, *PLACE) is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 1}', '{"format": 1, "times": 3}', '{"format": 9, "times": {}}']
)
def test_a_damaged_cache_knows_nothing(content: str, tmp_path: Path) -> None:
    profile.learn([(profile.place(STAGE, *PLACE), [1_000] * 5)])
    (file,) = (tmp_path / profile.KIND).iterdir()
    file.write_text(content)
    assert profile.known("host", STAGE, *PLACE) is None
