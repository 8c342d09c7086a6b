"""The law `measured`: the curves meet the measured points, never rise, and report missing measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.errors import InputError, UsageError
from socsched_literature.sharing import profile as measured
from socsched_literature.sharing.profile import Curve, LinearInterference, Profile, Sample, read_profiles
from socsched_literature.studies.sharing import from_profiles

MS = 1_000_000
KNOWN = [(name, batch) for name, each in measured.measurements().ms.items() for batch in each]
HEAD = "network,batch,ms,sm,l2,dram,achieved,theoretical\n"


def test_the_file_says_where_it_is_from_and_which_multiprocessors_ran() -> None:
    raw = json.loads(measured.FILE.read_text(encoding="utf-8"))
    assert {"command", "date", "name", "driver_version", "torch", "cuda", "runs"} <= set(raw["source"])
    assert raw["source"]["runs"] >= 50
    whole = measured.measurements().whole
    for name, share in raw["shares"].items():
        assert len(set(share["multiprocessors"])) == int(name.split()[0]) <= whole
        # The same code ran on every share: all networks' results are those on the whole GPU bit for bit.
        assert share["same_bits"] == f"{len(KNOWN)} of {len(KNOWN)}"
    assert all(low <= median <= high for each in raw["ms"].values() for times in each.values()
               for median, low, high in times.values())  # fmt: skip


@given(st.sampled_from(KNOWN))
def test_measured_points_are_met(key: tuple[str, int]) -> None:
    """Within what pooling moved them, which is 5 % at most and nothing where times fall with the share."""
    network, batch = key
    points = measured.measurements().medians(network, batch)
    sample = Sample(batch, round(points[-1][1] * MS), 0.5)
    profile = Profile(network, 10**9, (sample,), "measured", curves=measured.curves(network))
    times = [ms for _, ms in points]
    exact = times == sorted(times, reverse=True)
    for share, ms in points:
        assert profile.stretched(sample, share) / MS == pytest.approx(ms, rel=1e-4 if exact else 0.05)


def test_most_points_need_no_pooling() -> None:
    errors = measured.fit_errors()
    assert len(errors) == 11 * len(KNOWN)
    assert sum(errors) / len(errors) < 0.005 and max(errors) < 0.05


@given(st.sampled_from(KNOWN), st.integers(1, 32), st.integers(1, 99))
def test_a_larger_share_is_never_slower(key: tuple[str, int], batch: int, share: int) -> None:
    samples = (Sample(1, MS, 0.5), Sample(32, 20 * MS, 0.5))
    profile = Profile(key[0], 10**9, samples, "measured", curves=measured.curves(key[0]))
    assert profile.latency(batch, share) >= profile.latency(batch, share + 1) >= profile.latency(batch, 100)
    assert profile.latency(batch, 100) == profile.at(batch).latency_ns


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20))
def test_pooling_never_rises_keeps_the_mean_and_leaves_what_falls(values: list[float]) -> None:
    found = measured.falling(values)
    assert found == sorted(found, reverse=True)
    assert sum(found) == pytest.approx(sum(values))
    assert measured.falling(found) == pytest.approx(found)
    assert measured.falling(sorted(values, reverse=True)) == sorted(values, reverse=True)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=6))
def test_pooling_is_the_nearest_in_squares(values: list[int]) -> None:
    """Against the definition: the minimum over all upper sets of the maximum over all lower sets of means."""
    n = len(values)
    expected = [
        max(min(sum(values[a:b]) / (b - a) for a in range(i + 1)) for b in range(i + 1, n + 1)) for i in range(n)
    ]
    assert measured.falling([float(one) for one in values]) == pytest.approx(expected)


def test_between_and_below_measured_shares_by_hand() -> None:
    curves = (Curve(1, ((0.1, 5.0), (0.5, 1.8), (1.0, 1.0))), Curve(3, ((0.1, 9.0), (0.5, 2.0), (1.0, 1.0))))
    profile = Profile("net", 10**9, (Sample(1, 10 * MS, 0.5), Sample(3, 20 * MS, 0.5)), "measured", curves=curves)
    # 1 / p is 4 at a quarter, between 2 and 10: a quarter of the way from 1.8 to 5.
    assert profile.latency(1, 25) == 26 * MS
    assert profile.latency(1, 5) == 100 * MS
    assert profile.latency(2, 10) == 15 * 7 * MS


def test_a_network_that_was_not_measured_is_refused_or_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'elsewhere' was not measured on shares"):
        Profile("elsewhere", MS, (Sample(1, MS, 0.5),), "measured")
    file = tmp_path / "profiles.csv"
    file.write_text(HEAD + "elsewhere,1,4,1,1,1,20,50\nresnet50,1,4,1,1,1,20,50\n")
    laws = {one.name: one.law for one in read_profiles(file, law="measured")}
    assert laws == {"elsewhere": measured.OTHERWISE, "resnet50": "measured"}
    assert {one.law for one in read_profiles(file, law="fill")} == {"fill"}
    source = from_profiles(file, None, {"elsewhere": 1.0, "resnet50": 1.0}, "measured")
    assert "(law of shares fixed, not measured: elsewhere)" in source.title
    assert "not measured" not in from_profiles(file, None, {"resnet50": 1.0}, "measured").title


def test_profiles_of_the_measurements_alone() -> None:
    found = {one.name: one for one in measured.profiles()}
    assert set(found) == set(measured.measurements().counters)
    one = found["resnet50"]
    assert one.latency(32, 100) == round(measured.measurements().ms["resnet50"][32]["132"][0] * MS)
    assert one.slo_ns == 2 * one.latency(32, 100)
    assert all(0 < sample.fill <= 1 and 0 <= sample.dram <= 1 for each in found.values() for sample in each.samples)


def test_constants_of_neighbours_are_those_that_pairs_were_made_with() -> None:
    """Pairs whose slowdown is made from constants give these constants back; the measured ones are met as said."""
    made = LinearInterference(0.1, 0.7, 0.3, 0.2, 1.05)
    pairs = []
    for pair in measured.measurements().pairs:
        me, you = measured.running(pair.me, pair.share), measured.running(pair.you, pair.beside)
        ms = pair.alone[0] * made.predicted(me, [you])
        pairs.append(replace(pair, together=(ms, ms, ms)))
    found = measured.neighbours(pairs)
    for name in ("l2_me", "l2_you", "dram_me", "dram_you", "rest"):
        assert getattr(found, name) == pytest.approx(getattr(made, name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSONDecodeError"),
        ('{"source": {}}', "multiprocessors"),
        (
            '{"source": {"multiprocessors": 4}, "ms": {"net": {"1": {"4": [1.0, 2.0, 3.0]}}}}',
            "10th and 90th percentile",
        ),
        ('{"source": {"multiprocessors": 4}, "ms": {"net": {"one": {}}}}', "'one'"),
    ],
)
def test_a_file_that_holds_no_measurements(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "shares.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        measured.measurements(file)
    with pytest.raises(InputError, match="nowhere"):
        measured.measurements(tmp_path / "nowhere.json")
