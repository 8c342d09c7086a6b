"""The configurations of a study: grids, samples, modes; fields by path."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from study_files import Writer

from socsched.descriptor.study import load_study
from socsched.errors import UsageError
from socsched.study.design import points
from socsched.study.inputs import replace_fields
from socsched.study.sweep import configurations, rungs

MODES = {"jetson-agx-orin-64gb": ("MAXN", "MODE_30W")}


def test_a_grid_goes_through_everything_last_parameter_first(write: Writer) -> None:
    study = load_study(write(parameters="  load: [1.0, 1.5]\n  seed: {between: [0, 2], steps: 3}"))
    found = points(study, MODES)
    assert [(p.load, p.seed) for p in found] == [(1.0, 0), (1.0, 1), (1.0, 2), (1.5, 0), (1.5, 1), (1.5, 2)]
    assert [p.config for p in found] == list(range(6))


def test_all_modes_are_those_of_each_platform(write: Writer) -> None:
    path = write()
    text = path.read_text().replace("platform: jetson-agx-orin-64gb", "platform: [jetson-agx-orin-64gb, rk3588]")
    path.write_text(text.replace("mode: MODE_30W", "mode: all"))
    found = Counter(point.platform for point in configurations(load_study(path)))
    assert found["jetson-agx-orin-64gb"] == 4 and found["rk3588"] >= 1
    path.write_text(text)
    assert {point.platform for point in configurations(load_study(path))} == {"jetson-agx-orin-64gb"}
    path.write_text(text.replace("MODE_30W", "MODE_31W"))
    with pytest.raises(UsageError, match="has any of the listed modes"):
        configurations(load_study(path))


def test_a_latin_hypercube_has_one_point_in_every_stratum(write: Writer) -> None:
    more = "design: {kind: latin-hypercube, points: 50, seed: 3}"
    study = load_study(write(more, "  load: {between: [1, 2]}\n  rate.camera: {between: [10, 60]}"))
    found = points(study, MODES)
    assert sorted(int((point.load - 1) * 50) for point in found) == list(range(50))
    assert sorted(int(dict(point.values)["rate.camera"] - 10) for point in found) == list(range(50))
    assert [p.load for p in found] != sorted(p.load for p in found)
    assert points(study, MODES) == found


def test_a_random_sample_is_that_of_its_seed(write: Writer) -> None:
    def sample(seed: int) -> list[float]:
        more = f"design: {{kind: random, points: 200, seed: {seed}}}"
        return [p.load for p in points(load_study(write(more, "  load: {between: [1, 100], scale: log}")), MODES)]

    assert sample(1) == sample(1) != sample(2)
    middle = sorted(sample(1))[100]
    assert 6 < middle < 16, "half of a logarithmic range of 1 to 100 lies below 10"


def test_halving_keeps_shares_and_runs_the_rest_longer(write: Writer) -> None:
    more = "design: {kind: halving, keep: 0.5, first: 2}\nsimulate: {runs: 16}"
    study = load_study(write(more, "  seed: {between: [0, 31], steps: 32}"))
    assert rungs(study, 32) == [(32, 2), (16, 4), (8, 8), (4, 16)]


def test_fields_are_found_by_path_index_and_name(checkout: Path) -> None:
    data = {"a.b": {"c": 1}, "modes": [{"name": "15W", "cap": {"value": "15 W"}}, {"name": "1"}], "a": {"b": {"c": 2}}}
    assert replace_fields(data, [("a.b.c", 7)])["a.b"]["c"] == 7, "the longest key wins"
    first, named = (replace_fields(data, [(f"modes[{name}].cap.value", "1 W")]) for name in ("0", "15W"))
    assert first == named != data
    changed = replace_fields(data, [("modes[15W].cap.value", "20 W"), ("a.b.new", 3)])
    assert changed["modes"][0]["cap"]["value"] == "20 W" and changed["a.b"]["new"] == 3
    assert data["modes"][0]["cap"]["value"] == "15 W", "the original stays"
    for path, reported in (
        ("modes[7].cap", r"no item \[7\]; expected 15W, 1"),
        ("modes.cap", r"expected \[index\] or \[name\]"),
        ("a.b.c.d", "no fields below 1"),
        ("x.y", "unknown field 'x'"),
    ):
        with pytest.raises(ValueError, match=reported):
            replace_fields(data, [(path, 0)])
