"""`socsched study sharing`: networks from a pipeline and from a file, the table, the figure, and rejected input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from socsched.cli.root import run
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched_literature.sharing.profile import Profile, Running, Sample, SharedBandwidth
from socsched_literature.studies.sharing import SYSTEMS, Setting, Source, figure, from_pipeline, from_profiles, study

ORIN = "jetson-agx-orin-64gb"
SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000
CSV = """network,batch,ms,sm,l2,dram,achieved,theoretical
a,1,4,10,5,10,20,50
a,8,11,40,20,40,40,50
b,1,6,10,5,10,25,50
b,8,20,40,20,50,45,50
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    file = tmp_path / "profiles.csv"
    file.write_text(CSV)
    return file


def test_networks_of_a_pipeline_take_what_the_cost_model_says() -> None:
    platform = get_platform(ORIN)
    source = from_pipeline(get_pipeline("perception-stack"), platform, platform.mode("MAXN"), "gpu")
    found = {profile.name: (profile, rate) for profile, rate in source.networks}
    backbone, rate = found["backbone"]
    assert rate == pytest.approx(10) and backbone.slo_ns == 100 * MS
    # On half of the units what is bound by arithmetic takes twice as long, what is bound by memory no longer.
    assert 1.2 < backbone.latency(1, 50) / backbone.latency(1, 100) <= 2.0
    times = [backbone.latency(1, share) for share in range(5, 101, 5)]
    assert times == sorted(times, reverse=True)
    assert "plan" not in found, "no engine but the CPU runs it"
    with pytest.raises(UsageError, match="no engine 'npu'"):
        from_pipeline(get_pipeline("perception-stack"), platform, platform.mode("MAXN"), "npu")


def test_networks_of_a_file(profiles: Path) -> None:
    source = from_profiles(profiles, None, {"b": 20.0}, "fill")
    assert [(one.name, rate, one.law) for one, rate in source.networks] == [("b", 20.0, "fill")]
    both = from_profiles(profiles, None, {}, "fixed")
    rates = {rate for _, rate in both.networks}
    assert len(rates) == 1
    # Together half of one accelerator at the largest batches.
    assert sum(rate / one.saturated(100)[1] for one, rate in both.networks) == pytest.approx(0.5)
    with pytest.raises(UsageError, match="no network 'c'"):
        from_profiles(profiles, None, {"c": 1.0}, "fixed")


def test_memory_is_shared_in_proportion() -> None:
    """0.8 on half of the units, where it takes 1.6 times as long, asks for 0.5; twice that is no more than there is."""
    one = Profile("a", 100, (Sample(1, 10 * MS, 1.0, 0.0, 0.8),), "known", ((50, 1.6), (100, 1.0)))
    half = Running(one, 1, 50)
    model = SharedBandwidth()
    assert model.factor(half, []) == model.factor(half, [half]) == 1.0
    # Three ask for 1.5: half of each one's time is traffic, and takes half as long again.
    assert model.factor(half, [half, half]) == pytest.approx(1 + 0.5 * 0.5)
    assert one.latency(1, 70) == 16 * MS and one.latency(1, 25) == 32 * MS


def test_systems_differ_as_they_must() -> None:
    """Two networks of 10 ms that fill a tenth of the accelerator, asked for 80 times a second each: 160 % in turn."""
    networks = tuple(
        (Profile(name, 40 * MS, (Sample(1, 10 * MS, 0.1),), "fill"), 80.0) for name in ("a", "b")
    )  # fmt: skip
    source = Source("two", networks, "periodic", SharedBandwidth())
    rows = {row.system: row for row in study(source, SYSTEMS, (1.0,), 1, 4_000_000_000, Setting(mig="a30-24gb"))}
    assert rows["mps-equal"].satisfaction == rows["gpulet"].satisfaction == rows["mig"].satisfaction == 1.0
    assert rows["time-slicing"].satisfaction < 0.75
    assert rows["time"].unserved == pytest.approx(0.5) and rows["time"].satisfaction < 0.75
    assert all(not row.reason for row in rows.values())
    assert rows["gpulet"].goodput == pytest.approx(160, abs=1)
    two = study(source, ("time", "gpulet"), (1.0,), 1, 4_000_000_000, Setting(devices=2))
    assert [row.satisfaction for row in two] == [1.0, 1.0]


def test_the_figure_has_a_line_a_system_and_a_point_a_load() -> None:
    networks = ((Profile("a", 40 * MS, (Sample(1, 10 * MS, 0.5),)), 20.0),)
    source = Source("one & only", networks, "poisson", SharedBandwidth())
    rows = study(source, ("time", "gpulet", "mig"), (0.5, 1.0, 2.0), 1, 1_000_000_000)
    assert [row.reason for row in rows[-3:]] == ["no MIG geometry"] * 3
    root = ElementTree.fromstring(figure(source, rows))
    assert len(root.findall(f".//{SVG}polyline")) == 2
    assert len(root.findall(f".//{SVG}circle")) == 6


def test_the_verb(profiles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["study", "sharing", "--profiles", str(profiles), "--rate", "a=50", "--rate", "b=30", "--duration", "1s"]
    args += ["--seeds", "1", "--loads", "1,2", "--systems", "time,gpulet,streams"]
    assert run([*args, "-o", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["system"], row["load"]) for row in found["rows"]] == [
        (system, load) for system in ("time", "gpulet", "streams") for load in (1.0, 2.0)
    ]
    assert all(0 <= row["satisfaction"] <= 1 for row in found["rows"])
    ElementTree.fromstring((tmp_path / "out" / "sharing.svg").read_text())
    assert json.loads((tmp_path / "out" / "sharing.json").read_text()) == found
    assert run(args) == 0
    assert "gpulet" in capsys.readouterr().out


def test_the_example_of_the_documentation_runs(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (checkout / "socsched_literature" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert re.fullmatch(r"9\d\.\d% in time, worst network 9\d\.\d%\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "expected PIPELINE"),
        (["perception-stack"], "needs a platform"),
        (["--systems", "sli", "--profiles", "FILE"], "unknown way to share 'sli'"),
        (["--rate", "a=many", "--profiles", "FILE"], "NETWORK=1/S"),
        (["--rate", "a=0", "--profiles", "FILE"], "above zero"),
        (["--mechanism", "mig", "--profiles", "FILE"], "cannot make parts"),
        (["--mechanism", "sli", "--profiles", "FILE"], "unknown way to share 'sli'"),
    ],
)
def test_what_it_refuses(more: list[str], message: str, profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["study", "sharing", *(str(profiles) if part == "FILE" else part for part in more)]) == 2
    assert message in capsys.readouterr().err
