"""Ways to share as data: admission by each, MIG placements, growth of latency on a share, and interference."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.errors import InputError, UsageError
from socsched_literature.sharing.deployment import MECHANISMS, mechanism
from socsched_literature.sharing.mig_serving import Placed, geometry, layouts, partitions
from socsched_literature.sharing.profile import (
    LinearInterference,
    NoInterference,
    Profile,
    Running,
    Sample,
    ShareLaw,
    read_constants,
    read_profiles,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("name", "partition", "most", "compute", "bandwidth"),
    [("streams", "none", 0, False, False), ("mps", "logical", 48, True, False), ("mig", "physical", 7, True, True)],
)
def test_the_rows_of_the_survey(name: str, partition: str, most: int, compute: bool, bandwidth: bool) -> None:
    """Table II of arXiv 2203.09040."""
    row = mechanism(name)
    assert (row.partition, row.most, row.compute_isolated) == (partition, most, compute)
    assert row.bandwidth_isolated == bandwidth


def test_what_a_mechanism_admits() -> None:
    assert mechanism("mps").admits((60, 40)) and not mechanism("mps").admits((60, 41))
    assert not mechanism("mps").admits((2,) * 49) and mechanism("mps").admits((2,) * 48)
    assert not mechanism("mig").admits((10,) * 8)
    assert mechanism("streams").admits((100, 100, 100)) and not mechanism("streams").admits((50, 50))
    with pytest.raises(UsageError, match="sli"):
        mechanism("sli")


def test_a_gpu_has_the_nineteen_layouts_of_its_guide() -> None:
    """NVIDIA's table of configurations of an A100: 7 | 4+3, 4+2+1, 4+1+1+1 | 3+3, 3+2+1, 3+1+1+1 | 12 of two halves."""
    found = layouts("a100-40gb")
    assert len(found) == 19
    sizes = {tuple(sorted((one.compute for one in layout), reverse=True)) for layout in found}
    assert (3, 3) in sizes and (4, 3) in sizes and (3, 3, 1) not in sizes and (5, 2) not in sizes
    assert len(partitions("a100-40gb")) == 14
    assert len(layouts("a30-24gb")) == 5


def test_an_h100_has_small_instances_with_twice_the_memory() -> None:
    """Four of them take all eight memory slices."""
    assert ("1g.20gb",) * 4 in partitions("h100-80gb")


@pytest.mark.parametrize("gpu", ["a100-40gb", "h100-80gb"])
def test_layouts_are_legal_and_full(gpu: str) -> None:
    cut = geometry(gpu)
    for layout in layouts(gpu):
        assert cut.legal(layout)
        cells = [cell for one in layout for cell in range(one.start, one.start + cut.profile(one.profile).memory)]
        assert len(cells) == len(set(cells)) and max(cells) < cut.memory
        for profile in cut.profiles:
            for start in profile.starts:
                assert not cut.legal((*layout, Placed(start, profile.name, profile.compute)))


def test_overlaps_and_wrong_starts_are_refused() -> None:
    cut = geometry("a100-40gb")
    assert not cut.legal((Placed(0, "3g.20gb", 3), Placed(2, "2g.10gb", 2)))
    assert not cut.legal((Placed(2, "3g.20gb", 3),))
    assert not cut.legal((Placed(0, "7g.40gb", 7), Placed(6, "1g.5gb", 1)))
    with pytest.raises(UsageError, match="5g"):
        cut.profile("5g.25gb")


def profile(law: ShareLaw = "amdahl") -> Profile:
    return Profile("net", 100 * MS, (Sample(1, 10 * MS, 0.5, 0.1, 0.2), Sample(5, 18 * MS, 0.8, 0.3, 0.4)), law)


def test_latency_between_batches_and_on_shares() -> None:
    one = profile()
    assert one.latency(1, 100) == 10 * MS and one.latency(3, 100) == 14 * MS
    # Half needs every unit: 10 (0.5 + 0.5 / 0.25).
    assert one.latency(1, 25) == 25 * MS
    # 8 ms do not grow with the batch: 8 + 2 (0.5 + 0.5 / 0.25).
    assert profile("fixed").fixed_ns == 8 * MS
    assert profile("fixed").latency(1, 25) == 13 * MS
    # It fills half: no slower on half, twice as slow on a quarter.
    assert profile("fill").latency(1, 50) == 10 * MS and profile("fill").latency(1, 25) == 20 * MS
    with pytest.raises(UsageError, match="1 to 5"):
        one.latency(6, 100)


def test_the_saturated_batch_is_the_largest_that_leaves_time_for_one_before_it() -> None:
    # L = 8 + 2 b ms: 2 L <= 30 ms up to b = 3, with 10 % slack (2 x 14 x 1.1 = 30.8) up to 2.
    one = Profile("net", 30 * MS, (Sample(1, 10 * MS, 0.5), Sample(5, 18 * MS, 0.5)))
    assert one.saturated(100) == (3, pytest.approx(3e9 / (14 * MS)))
    assert one.saturated(100, 1.1)[0] == 2
    assert one.saturated(20) == (0, 0.0)


@given(st.integers(1, 5), st.integers(5, 99), st.sampled_from(["amdahl", "fixed", "fill"]))
def test_a_larger_share_is_never_slower(batch: int, share: int, law: ShareLaw) -> None:
    one = profile(law)
    assert one.latency(batch, share) >= one.latency(batch, share + 1) >= one.latency(batch, 100)


def test_interference_by_hand() -> None:
    me, you = Running(profile(), 1, 50), Running(profile(), 5, 40)
    model = LinearInterference(1.0, 2.0, 3.0, 4.0, 0.5)
    # 1 x 0.1 x 0.5 + 2 x 0.3 x 0.4 + 3 x 0.2 x 0.5 + 4 x 0.4 x 0.4 + 0.5
    assert model.predicted(me, [you]) == pytest.approx(0.05 + 0.24 + 0.3 + 0.64 + 0.5)
    assert model.factor(me, []) == 1.0
    assert LinearInterference(0, 0, 0, 0, 0.9).factor(me, [you]) == 1.0
    assert NoInterference().factor(me, [you]) == 1.0


def test_published_profiles(data: Path) -> None:
    folder = data / "gpulet"
    found = {one.name: one for one in read_profiles(folder / "3080_UTIL.CSV")}
    assert len(found) == 9 and all(one.largest == 32 for one in found.values())
    # The table's own figures, and the rule of objectives.
    assert found["googlenet"].latency(32, 100) == 43_450_033
    assert found["googlenet"].slo_ns == 86_900_066
    assert found["googlenet"].samples[0].fill == pytest.approx(20.758030233931677 / 55.0581326958589)
    constants = read_constants(folder / "2080ti_INT_MODEL_CONSTANT.CSV")
    assert constants.l2_you == pytest.approx(0.71596, abs=1e-5) and constants.rest == pytest.approx(0.89537, abs=1e-5)


def test_the_model_predicts_little_interference_between_published_networks(data: Path) -> None:
    """The authors' histogram of measured overheads: most pairs below 1.2, few above 1.4 (section 4.4)."""
    folder = data / "gpulet"
    networks = read_profiles(folder / "2080ti_UTIL.CSV")
    model = read_constants(folder / "2080ti_INT_MODEL_CONSTANT.CSV")
    factors = sorted(
        model.factor(Running(a, batch, share), [Running(b, batch, 100 - share)])
        for a in networks for b in networks for batch in (2, 8, 32) for share in (20, 40, 50, 60, 80)
    )  # fmt: skip
    assert factors[0] >= 1.0 and factors[-1] < 1.4
    assert factors[len(factors) // 2] < 1.15


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h\nnet,1,5,1,1,1,50\n", ":2: expected 7 numbers"),
        ("h\nnet,1,5,1,1,1,50,ten\n", ":2: could not convert"),
        ("h\nnet,0,5,1,1,1,50,60\n", "batch of at least 1"),
        ("h\nnet,1,5,1,1,1,70,60\n", "occupancy"),
        ("h\nnet,1,5,1,1,1,50,60\nnet,1,6,1,1,1,50,60\n", "a batch twice"),
        ("h\n", "no networks"),
    ],
)
def test_a_faulty_profile_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "profile.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_profiles(file)


def test_every_mechanism_says_where_it_is_from() -> None:
    assert all(one.source for one in MECHANISMS.values())
