"""From rows of a file to sections of a descriptor, on networks with known passes."""

from __future__ import annotations

import lzma
import shutil
from pathlib import Path

import pytest

from socsched import resources
from socsched.api.fitting import fit
from socsched.api.options import FitOptions
from socsched.cli.root import run
from socsched.cost.fitting.cells import Choice, HostProgram, Networks, pattern
from socsched.cost.fitting.families import find_family, nominal, use_of
from socsched.cost.fitting.recipe import FitRequest, document, fit_platform, rewritten
from socsched.cost.fitting.table import job_times, table
from socsched.cost.measurements import Row
from socsched.cost.profile import MeasuredCost, Profile, save_profile
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.fit import NAMES, Parameters
from socsched.descriptor.source import parse, read_bytes
from socsched.errors import InputError, UsageError
from tests.cost.fitting.synthetic import networks

WORK = dict(zip((f"net{n}" for n in range(12)), networks(12), strict=True))
TRUE = Parameters(0.45, 1, 1.2, 0.6, 1, 0.15, 0.006, 5, 4, 0.7, 0.7, 4, 0.3, 0.3, 1, 0.4, 1)


def rows(platform: str, count: int = 12, engine: str = "npu", precision: str = "int8") -> list[Row]:
    use = use_of(get_platform(platform), engine, "", precision)
    family = find_family(use.engine, use.threads)
    assert family is not None
    times = job_times(table(list(WORK.values()), nominal(use, family)), TRUE)
    known = list(zip(WORK, times, strict=True))[:count]
    return [Row(platform, engine, precision, "", 0, name, float(us) / 1e3) for name, us in known]


def report(pairs: list[Row], **given: object):  # type: ignore[no-untyped-def]
    request = FitRequest(get_platform("qcs8550"), "npu", "int8", **given)  # type: ignore[arg-type]
    return fit_platform(request, pairs, Networks(known=WORK))


def test_a_board_with_measurements_gets_its_own_parameters() -> None:
    (section,) = report(rows("qcs8550")).sections
    assert section.networks == tuple(sorted(WORK)) and section.error < 0.1
    assert section.parameters.conv == pytest.approx(TRUE.conv, rel=0.2)
    assert section.interval < 0.3 and "conv" in section.classes and "resize" not in section.classes


def test_a_board_without_measurements_gets_those_of_its_family() -> None:
    (prior,), (borrowed,) = report([]).sections, report(rows("sa8295p") + rows("qcs6490")).sections
    assert prior.parameters.conv == pytest.approx(0.5) and not prior.networks and prior.error_design is None
    assert borrowed.parameters.conv == pytest.approx(TRUE.conv, rel=0.2) and not borrowed.networks
    assert borrowed.error < prior.error


def test_an_anchor_counts_as_a_measurement_of_the_board() -> None:
    family = rows("sa8295p") + rows("qcs6490")
    slow = [Row(p.platform, p.engine, p.precision, "", 0, p.network, 2 * p.measured_ms) for p in rows("qcs8550", 1)]
    (section,) = report(family + slow).sections
    (without,) = report(family).sections
    work = [table([WORK["net0"]], s.nominal) for s in (without, section)]
    before, after = (job_times(one, s.parameters)[0] for one, s in zip(work, (without, section), strict=True))
    assert before < 0.7 * slow[0].measured_us and after > 1.25 * before


def test_rows_that_are_not_used_are_named_with_the_reason() -> None:
    odd = [
        Row("nowhere", "npu", "int8", "", 0, "net0", 1.0),
        Row("qcs8550", "tpu", "int8", "", 0, "net0", 1.0),
        Row("qcs8550", "npu", "int8", "99W", 0, "net0", 1.0),
        Row("qcs8550", "npu", "int8", "", 0, "net0", 1.0, flag="NOISY"),
        Row("qcs8550", "npu", "int8", "", 0, "net1", 1.0, source="bad/x"),
        Row("qcs8550", "npu", "int8", "", 0, "unknown", 1.0),
    ]
    found = report(rows("qcs8550") + odd, choice=Choice(excluded=(pattern("source=bad/*"),)))
    reasons = " ".join(one.reason for one in found.refused)
    for part in ("no descriptor", "no engine 'tpu'", "no mode '99W'", "NOISY", "source=bad/*", "no folder of networks"):
        assert part in reasons


def test_rows_under_another_host_are_cells_of_their_own_with_its_costs() -> None:
    choice = Choice(hosts=(HostProgram(pattern("source=slow/*"), 10.0, 500.0),))
    slow = [Row(p.platform, p.engine, p.precision, "", 0, p.network, p.measured_ms + 0.425, source="slow/x")
            for p in rows("qcs8550")]  # fmt: skip
    found = report(rows("qcs8550") + slow, choice=choice)
    assert [cell.engine.submit_us for cell in found.families[0].cells] == [75, 500]
    assert len({cell.board for cell in found.families[0].cells}) == 1


def test_sections_are_the_same_bytes_twice_and_hold_every_parameter() -> None:
    texts = [document(report(rows("qcs8550")).sections, "mine", "2026-11-23") for _ in range(2)]
    assert texts[0] == texts[1]
    fitted = parse(texts[0].encode(), "x").data["engines"]["npu"]["precisions"]["int8"]["fitted"][0]
    assert tuple(fitted["parameters"]) == NAMES
    assert (fitted["source"], fitted["networks"], fitted["date"]) == ("mine", 12, "2026-11-23")


def test_a_descriptor_keeps_everything_else_when_sections_are_put_in() -> None:
    path = resources.find("platforms", "qcs8550")
    sections, raw = report(rows("qcs8550")).sections, read_bytes(path)
    once = rewritten(raw, "q.yaml", sections, "mine", "2026-11-23")
    assert rewritten(once.encode(), "q.yaml", sections, "mine", "2026-11-23") == once
    data, before = parse(once.encode(), "q").data, parse(raw, "q").data
    assert data["engines"]["npu"]["precisions"]["int8"].pop("fitted")[0]["networks"] == 12
    assert data["sources"].pop("mine")
    del before["engines"]["npu"]["precisions"]["int8"]["fitted"]
    assert data == before
    flat = b"engines: {npu: {precisions: {int8: {layout: NCHW}}}}\nsources: {}\n"
    with pytest.raises(UsageError, match="one line"):
        rewritten(flat, "q.yaml", sections, "mine", "2026-11-23")


def test_a_cpu_gets_a_section_for_one_core_a_cluster_and_joined_clusters() -> None:
    path = resources.find("platforms", "rk3588")
    times = {name: 5.0 + number for number, name in enumerate(WORK)}
    programs = ((1, "ncnn 1"), (2, "TFLite v2 (ruy)"))
    measured = [
        Row("rk3588", "a760", "fp32", "", share, name, ms / share, runtime=runtime)
        for share, runtime in programs
        for name, ms in times.items()
    ]
    request = FitRequest(get_platform("rk3588"), "a760", "fp32")
    one, cluster, joined = fit_platform(request, measured, Networks(known=WORK)).sections
    assert [section.use.running() for section in (one, cluster, joined)] == [1, 2, 4]
    assert [len(section.networks) for section in (one, cluster, joined)] == [12, 0, 12]
    assert [section.family.name for section in (one, cluster, joined)] == ["cpu", "cpu", "cpu-joined"]
    text = rewritten(read_bytes(path), "rk.yaml", (one, cluster, joined), "mine", "2026-11-23")
    fits = parse(text.encode(), "rk").data["engines"]["a76"]["precisions"]["fp32"]["fitted"]
    assert [fit["units"] for fit in fits] == [1, 2, 4] and fits[2]["joined"] == ["a760", "a761"]
    assert fits[2]["runtimes"] == ["TFLite*"] and fits[0]["runtimes"] == ["ncnn*"]


def test_rows_of_a_program_that_the_family_does_not_stand_for_are_left_out() -> None:
    odd = Row("jetson-tx2", "gpu", "fp16", "", 0, "net0", 1.0, runtime="ncnn 1")
    found = fit_platform(FitRequest(get_platform("jetson-tx2"), "gpu", "fp16"), [odd], Networks(known=WORK))
    assert "measured with ncnn 1" in found.refused[0].reason and not found.sections[0].networks


def test_damaged_and_missing_networks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx.xz").write_bytes(b"no xz")
    (tmp_path / "b.onnx.xz").write_bytes(lzma.compress(b"no onnx" * 100))
    (tmp_path / "c.onnx").write_bytes(b"no onnx")
    for name, problem in (("a", "damaged xz"), ("b", "b.onnx"), ("c", "c.onnx"), ("d", "neither")):
        with pytest.raises(InputError, match=problem):
            Networks(tmp_path).passes(name)


def test_the_command_writes_the_same_file_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    line = ["fit", "qcs8550", "--engine", "npu", "--date", "2026-11-23", "-o"]
    for name in ("a.yaml", "b.yaml"):
        assert run([*line, str(tmp_path / name)]) == 0
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    assert "npu.int8" in capsys.readouterr().out
    own = tmp_path / "board.yaml"
    shutil.copy(resources.find("platforms", "qcs8550"), own)
    assert run(["fit", str(own), "--engine", "npu", "--date", "2026-11-23", "--write", "-q"]) == 0
    shipped = resources.find("platforms", "qcs8550").read_text()
    assert own.read_text().count("fitted:") == shipped.count("fitted:") and own.read_text() != shipped


def test_a_profile_names_stages_of_a_pipeline(tmp_path: Path) -> None:
    costs = (MeasuredCost("backbone", "gpu", "MAXN", "fp16", 0, 4_000_000, median_ns=3_000_000),)
    save_profile(Profile("jetson-agx-orin-64gb", costs, "test", "2026-11-23"), tmp_path / "p.json")
    chosen = FitOptions(profiles=(tmp_path / "p.json",), pipeline="pointpillars", engine="gpu", precision="fp16")
    found = fit("jetson-agx-orin-64gb", chosen)
    assert found.sections[0].networks == ("backbone",)
    assert found.families[0].cells[0].measured_us.tolist() == [3000.0]
