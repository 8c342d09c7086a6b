"""Sweeps by the command line: the same table from every engine, resumed, settled, reported; docs/sweeps.md."""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from math import comb
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_files import Writer

from socsched.study import bounds

pytest.importorskip("pyarrow", reason="tables are Parquet")

from socsched.cli.root import run
from socsched.descriptor.source import parse
from socsched.descriptor.study import study_from
from socsched.planning import io
from socsched.study import store as table
from socsched.study.bounds import compare_with_limit
from socsched.study.report import effects
from socsched.study.store import encode
from socsched.study.sweep import front
from socsched.study.work import unpack

LOADS = "  load: [1.0, 4.0]\n  seed: [0, 50]\n  policy: [edf, fifo]"


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "table.parquet").read_bytes()).hexdigest()


def sweep(study: Path, folder: Path, *more: str) -> int:
    return run(["sweep", str(study), "-o", str(folder), "-q", *more])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small sweep by one worker; the study is in the same parent folder."""
    folder = tmp_path_factory.mktemp("swept")
    study = folder / "small.yaml"
    study.write_text(f"""schema_version: "1"
name: small
parameters:
  platform: jetson-agx-orin-64gb
  mode: [MODE_30W, MODE_15W]
  pipeline: camera-detection
{LOADS}
simulate: {{duration: 2 s, runs: 4, confidence: 0.9}}
holds: {{misses: 0.1, slack: 0.5}}
""")
    assert sweep(study, folder / "out", "--workers", "1") == 0
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return table.read(folder / "table.parquet")


@pytest.mark.slow
def test_every_configuration_has_its_row_and_shares_its_plan(swept: Path) -> None:
    rows = rows_of(swept / "out")
    assert [row["config"] for row in rows] == list(range(16))
    # fifo has no bounds: it is planned as edf is, so that load, seed and policy share one plan a mode
    assert len({row["plan"] for row in rows}) == len(list((swept / "out" / "plans").iterdir())) == 2
    assert {row["error"] for row in rows} == {""}
    light = [row for row in rows if row["load"] == 1.0]
    heavy = [row for row in rows if row["load"] == 4.0 and row["mode"] == "MODE_15W"]
    assert all(row["missed"] + row["dropped"] == 0 for row in light)
    assert all(row["missed"] + row["dropped"] > row["frames"] / 2 and row["settled"] == "fails" for row in heavy)
    assert all(row["holds"] == (row["slack"] >= 0.5 and row["settled"] == "holds") for row in rows)
    assert {row["holds"] for row in rows} == {True, False}


@pytest.mark.slow
def test_runs_end_when_misses_are_settled(swept: Path) -> None:
    for row in rows_of(swept / "out"):
        lost, each = row["missed"] + row["dropped"], row["frames"] // row["runs"]
        assert compare_with_limit(lost, row["frames"], 0.1, 0.9, 4) == row["settled"] != "open"
        if not lost:
            assert compare_with_limit(0, row["frames"] - each, 0.1, 0.9, 4) == "open", (
                "it ended at the first look that settles"
            )


@pytest.mark.slow
def test_two_workers_and_a_second_session_make_the_same_bytes(swept: Path) -> None:
    study = swept / "small.yaml"
    assert sweep(study, swept / "two", "--workers", "2") == 0
    assert digest(swept / "two") == digest(swept / "out")
    rows = rows_of(swept / "out")
    (part,) = (swept / "two" / "parts").iterdir()
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:5]) + lines[5][:30])
    (swept / "two" / "table.parquet").unlink()
    assert sweep(study, swept / "two") == 2, "results are not overwritten"
    assert sweep(study, swept / "two", "--resume", "--workers", "1") == 0
    assert digest(swept / "two") == digest(swept / "out")
    written = sum(len(path.read_bytes().splitlines()) for path in (swept / "two" / "parts").iterdir())
    assert written == len(rows) + 1, "11 rows were computed again, in addition to the torn line"
    assert encode(json.loads(lines[0].partition(b" ")[2])) == lines[0]


def test_a_row_is_what_simulate_says_of_its_plan(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in rows_of(swept / "out") if row["policy"] == "fifo" and row["load"] == 1.0)
    plan = swept / "plan.json"
    packed = (swept / "out" / "plans" / f"{row['plan']}.json.gz").read_bytes()
    io.save(unpack(packed, swept / "out" / "inputs").plan, plan)
    lost = frames = longest = 0
    for number in range(row["runs"]):
        seed = str(row["seed"] + number)
        capsys.readouterr()
        run(["simulate", str(plan), "--duration", "2s", "--seed", seed, "--policy", "fifo", "--json"])
        chains = json.loads(capsys.readouterr().out)["chains"].values()
        lost += sum(chain["missed"] + chain["dropped"] for chain in chains)
        frames += sum(chain["released"] for chain in chains)
        longest = max(longest, *(chain["response_time_ns"]["max"] for chain in chains))
    found = (row["missed"] + row["dropped"], row["frames"], row["worst_response_max_ns"])
    assert (lost, frames, longest) == found


@pytest.mark.slow
def test_policies_reach_the_simulation(write: Writer, tmp_path: Path) -> None:
    """Without preemption the 20 ms controller waits for others on its core, with it it does not."""
    study = write("simulate: {duration: 3 s}\ncuts: false", "  policy: [edf, np-fifo, fp]")
    text = study.read_text().replace("camera-detection", "perception-stack")
    study.write_text(text.replace("MODE_30W", "MAXN"))
    assert sweep(study, tmp_path / "out", "--workers", "2") in (0, 1)
    edf, fifo, fp = rows_of(tmp_path / "out")
    assert edf["plan"] == fifo["plan"] != fp["plan"]
    figures = ("worst_response_max_ns", "data_age_max_ns", "power_peak_mw", "worst_response_share")
    assert [edf[name] for name in figures] != [fifo[name] for name in figures]
    study.write_text(text.replace("np-fifo", "np-fife"))
    assert sweep(study, tmp_path / "none") == 2


def test_the_page_shows_answer_front_map_and_tornado(swept: Path) -> None:
    page = (swept / "out" / "report.html").read_text()
    for text in ("configurations hold", "Fronts", "feasibility over", "sensitivity of", "smallest", "MODE_15W"):
        assert text in page
    assert "http://" not in page.replace("http://www.w3.org", "") and "<script src" not in page
    assert "<circle" in page and "<polyline" not in page.split("Sensitivities")[1]
    best = swept / "out" / "best" / "smallest.plan.json"
    held = [row for row in rows_of(swept / "out") if row["holds"]]
    assert json.loads(best.read_text())["mode"] == min(held, key=lambda row: row["tdp_mw"])["mode"]


def test_columns_are_documented_in_the_file(swept: Path) -> None:
    import pyarrow.parquet as pq

    schema = pq.read_schema(swept / "out" / "table.parquet")
    assert all(schema.field(name).metadata[b"meaning"] for name in schema.names)
    assert schema.metadata[b"study"] == b"small"


@pytest.mark.slow
def test_halving_gives_the_better_half_more_runs(write: Writer, tmp_path: Path) -> None:
    more = "design: {kind: halving, keep: 0.5, first: 1}\nsimulate: {duration: 1 s, runs: 4, settle: false}"
    study = write(more, "  load: [1.0, 2.0, 3.0, 40.0]")
    assert sweep(study, tmp_path / "out", "--workers", "1") == 0
    rows = rows_of(tmp_path / "out")
    assert sorted((row["rung"], row["runs"]) for row in rows) == [(0, 1), (0, 1), (1, 2), (2, 4)]
    assert rows[3]["rung"] == 0, "forty times the load misses most"


@pytest.mark.slow
def test_what_cannot_be_planned_is_a_row_that_says_why(write: Writer, tmp_path: Path) -> None:
    (tmp_path / "harm.yaml").write_text("stalls: [{engine: dla7, from: 0 s, until: 1 s}]")
    study = write("simulate: {duration: 1 s}", "  faults: [none, harm.yaml]")
    assert sweep(study, tmp_path / "out", "--workers", "1") == 0
    good, bad = rows_of(tmp_path / "out")
    assert good["verdict"] == "feasible" and good["holds"]
    assert bad["verdict"] == "error" and "expected an engine of the plan" in bad["error"] and bad["holds"] is False
    assert bad["error"].startswith("faults/harm.yaml:1:19: stalls[0].engine"), "named as the study ships it"


@pytest.mark.slow
def test_fields_of_both_files_reach_the_plan(write: Writer, tmp_path: Path) -> None:
    fields = "  rate.camera: 10\n  pipeline.chains.camera-detection.deadline: 50 ms\n"
    study = write("simulate: {duration: 1 s}", fields + "  platform.dram.achievable.value: [20 GB/s, 170 GB/s]")
    assert sweep(study, tmp_path / "out", "--workers", "2") == 0
    rows = rows_of(tmp_path / "out")
    assert len({row["plan"] for row in rows}) == 2
    rate, deadline = "rate.camera_hz", "pipeline.chains.camera-detection.deadline_ns"
    assert {(row[rate], row["frames"]) for row in rows} == {(10.0, 10)}, "the file's camera has 15 frames a second"
    assert {row[deadline] for row in rows} == {50e6}
    assert all(row["worst_response_share"] == pytest.approx(row["worst_response_max_ns"] / 50e6) for row in rows)
    memory = {row["platform.dram.achievable.value_bytes_per_s"]: row["latency_ns"] for row in rows}
    assert memory[20e9] > memory[170e9]


AXES = ("latency_ns", "tdp_mw")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9) | st.none()), max_size=30))
def test_a_front_is_what_no_other_row_beats(places: list[tuple[int, int | None]]) -> None:
    rows = [{"config": n, "latency_ns": a, "tdp_mw": b} for n, (a, b) in enumerate(places)]
    known = [row for row in rows if row["tdp_mw"] is not None]

    def beats(a: dict[str, Any], b: dict[str, Any]) -> bool:
        ends = [(a[axis], b[axis]) for axis in AXES]
        return all(x <= y for x, y in ends) and any(x < y for x, y in ends)

    best = [row for row in known if not any(beats(other, row) for other in known)]
    found = front(rows, AXES)
    assert {tuple(row[a] for a in AXES) for row in best} == {tuple(rows[n][a] for a in AXES) for n in found}
    assert len(found) == len({tuple(row[a] for a in AXES) for row in best}), "one of those alike"


def test_effects_are_means_over_all_else_widest_first() -> None:
    rows = [{"slack": 10 * a + b, "a": a, "b": b, "c": 1} for a in (0, 1) for b in (0, 1, 4)]
    rows.append({"slack": None, "a": 5, "b": 5, "c": 1})
    wide, narrow = effects(rows, ["b", "a", "c"], "slack")
    assert wide == ("a", ((5 / 3, 0), (35 / 3, 1)))
    assert narrow == ("b", ((5.0, 0), (9.0, 4)))


@pytest.fixture(scope="module")
def text(checkout: Path) -> str:
    return (checkout / "docs" / "sweeps.md").read_text(encoding="utf-8")


def test_the_study_shown_is_one(text: str, tmp_path: Path) -> None:
    study, fleet = re.findall(r"```yaml\n(.*?)```", text, re.S)
    (tmp_path / "harm.yaml").write_text("{}")
    found = study_from(parse((study + fleet).encode(), str(tmp_path / "rates.yaml")))
    assert found.fleet is not None and found.fleet.vehicles == 10_000
    assert len(found.parameters) == 10


def exact_at_most(k: int, n: int, p: Fraction) -> Fraction:
    """P(X <= k) in whole numbers: no rounding anywhere."""
    return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@settings(max_examples=60)
@given(st.integers(1, 60), st.data(), st.integers(1, 999))
def test_tails_are_those_of_exact_arithmetic(n: int, data: st.DataObject, thousandths: int) -> None:
    k, p = data.draw(st.integers(0, n)), Fraction(thousandths, 1000)
    below = exact_at_most(k, n, p)
    assert bounds.at_most(k, n, float(p)) == pytest.approx(float(below), rel=1e-9, abs=1e-15)
    above = 1 - exact_at_most(k - 1, n, p) if k else Fraction(1)
    assert bounds.at_least(k, n, float(p)) == pytest.approx(float(above), rel=1e-9, abs=1e-15)


@settings(max_examples=40)
@given(st.integers(1, 80), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_ends_of_the_interval_leave_exactly_the_tail(n: int, data: st.DataObject, confidence: float) -> None:
    k = data.draw(st.integers(0, n))
    low, high = bounds.interval(k, n, confidence)
    tail = (1 - confidence) / 2
    assert 0 <= low <= k / n <= high <= 1
    if k < n:
        assert float(exact_at_most(k, n, Fraction(high))) == pytest.approx(tail, rel=1e-6)
    if k > 0:
        assert float(1 - exact_at_most(k - 1, n, Fraction(low))) == pytest.approx(tail, rel=1e-6)


def test_published_intervals() -> None:
    """Clopper-Pearson at 95 %: 1 of 10 and 5 of 20 from tables, 0 of n is 1 - 0.025^(1/n)."""
    assert bounds.interval(1, 10, 0.95) == pytest.approx((0.0025, 0.4450), abs=5e-5)
    assert bounds.interval(5, 20, 0.95) == pytest.approx((0.0866, 0.4910), abs=5e-5)
    assert bounds.interval(0, 100, 0.95) == pytest.approx((0.0, 1 - 0.025**0.01))
    assert bounds.interval(0, 0, 0.95) == (0.0, 1.0)


def test_large_counts_are_fast_and_agree_with_the_normal_limit() -> None:
    low, high = bounds.interval(30_000, 10_000_000, 0.95)
    spread = 1.959964 * (0.003 * 0.997 / 1e7) ** 0.5
    assert (low, high) == pytest.approx((0.003 - spread, 0.003 + spread), rel=1e-4)


def test_a_verdict_settles_when_the_interval_leaves_the_limit() -> None:
    limit, confidence = 0.01, 0.99
    enough = next(n for n in range(1, 2000) if bounds.interval(0, n, confidence)[1] <= limit)
    assert bounds.compare_with_limit(0, enough - 1, limit, confidence) == "open"
    assert bounds.compare_with_limit(0, enough, limit, confidence) == "holds"
    assert bounds.compare_with_limit(0, enough, limit, confidence, looks=10) == "open", (
        "each look has a part of the error"
    )
    assert bounds.compare_with_limit(50, 1000, limit, confidence) == "fails"
    assert bounds.compare_with_limit(10, 1000, limit, confidence) == "open"
    assert bounds.compare_with_limit(0, 10**9, 0.0, confidence) == "open", "that nothing is ever missed cannot be shown"
    assert bounds.compare_with_limit(1, 10, 0.0, confidence) == "fails"


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_looking_often_errs_no_more_than_promised(seed: int) -> None:
    """At a true share equal to the limit, either verdict is wrong: 1 - confidence bounds how often one is given."""
    from random import Random

    rng, wrong, trials = Random(seed), 0, 60
    for _ in range(trials):
        k = n = 0
        for _ in range(5):
            n += 200
            k += sum(rng.random() < 0.05 for _ in range(200))
            if bounds.compare_with_limit(k, n, 0.05, 0.9, looks=5) != "open":
                wrong += 1
                break
    # 60 trials at 10 %: 18 or more has a probability of 2e-5
    assert wrong < 18


def test_clusters_widen_the_interval_and_independence_does_not() -> None:
    together = [(100, 100), *[(0, 100)] * 99]
    alone = [(1, 100)] * 100
    low, high, effect = bounds.cluster_interval(together, 0.95)
    assert effect == pytest.approx(100 * 100 / 100 * 1.0, rel=0.05)
    assert bounds.cluster_interval(alone, 0.95) == (*bounds.interval(100, 10_000, 0.95), 1.0)
    assert low < bounds.interval(100, 10_000, 0.95)[0] and high > bounds.interval(100, 10_000, 0.95)[1]
