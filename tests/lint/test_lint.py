"""`socsched lint`: violations of every rule file are found, at the right place, and reported in every format."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from violations import PLATFORMS, VIOLATIONS, Violation

from socsched.api.loading import save_plan
from socsched.api.planning import plan
from socsched.cli.root import run
from socsched.lint.check import Diagnostic, Place, github, kept, lint_file, sarif
from socsched.lint.server import checked
from tests.models.onnx_files import Builder

ORIN = "jetson-agx-orin-64gb"


def lint(*arguments: object) -> int:
    return run(["lint", *map(str, arguments)])


@pytest.mark.parametrize("violation", VIOLATIONS, ids=lambda violation: violation.name)
def test_every_rule_file_that_refuses_an_operator_reports_it_and_no_other_does(
    violation: Violation, tmp_path: Path
) -> None:
    file = str(violation.save(tmp_path))
    for rules, platform in PLATFORMS.items():
        found = {entry.rule for entry in lint_file(file, platform)}
        expected = {f"{rules}/{violation.operator}"} if rules in violation.refused else set()
        assert {rule for rule in found if rule.startswith(f"{rules}/")} == expected, platform


def test_sixty_violations_are_covered() -> None:
    assert sum(len(violation.refused) for violation in VIOLATIONS) >= 60
    assert {rules for violation in VIOLATIONS for rules in violation.refused} >= {*PLATFORMS} - {
        "hexagon-htp-v68-integer",
        "hexagon-htp-v73",
    }


def test_a_pipeline_is_reported_at_the_lines_of_its_stages() -> None:
    found = lint_file("pointpillars", ORIN)
    lines = Path("pipelines/pointpillars.yaml").read_text().splitlines()
    assert {entry.stage for entry in found} == {"pfn", "scatter"}
    for entry in found:
        assert lines[entry.place.line - 1].strip() == f"{entry.stage}:"
        assert entry.level == "warning" and entry.sources and entry.engines == ("dla0", "dla1")


@pytest.mark.parametrize(("levels", "first", "found"), [(True, "firm", 1), (True, "hard", 0), (False, "firm", 0)])
def test_a_hard_stage_that_waits_for_one_that_overruns_drop_is_an_error(
    tmp_path: Path, levels: bool, first: str, found: int
) -> None:
    time = "time: {value: 1 ms, kind: assumed, note: a test, error: 0}"
    costs = "[{platform: rk3588, mode: performance, engine: cpu, precision: fp32, " + time + "}]"
    stage = "title: t, precisions: [fp32], costs: " + costs
    high = ", high: 2" if levels else ""
    file = tmp_path / "p.yaml"
    file.write_text(
        "schema_version: '1'\nname: p\ntitle: p\n"
        "sensors: {cam: {kind: camera, period: 50 ms, bytes_per_frame: 1 kB, assumed: a test}}\n"
        f"stages:\n  b: {{after: [cam], criticality: {first}, {stage}}}\n"
        f"  c: {{after: [b], criticality: hard{high}, {stage}}}\n"
        "chains: {k: {path: [cam, b, c], deadline: 40 ms, assumed: a test}}\n"
    )
    reported = lint_file(str(file), "rk3588")
    assert [(each.rule, each.stage, each.place.line) for each in reported] == [("dropped-input", "c", 7)] * found


def test_a_stage_that_is_dropped_in_a_hard_chain_is_an_error(tmp_path: Path) -> None:
    time = "time: {value: 1 ms, kind: assumed, note: a test, error: 0}"
    costs = "[{platform: rk3588, mode: performance, engine: cpu, precision: fp32, " + time + "}]"
    file = tmp_path / "p.yaml"
    file.write_text(
        "schema_version: '1'\nname: p\ntitle: p\n"
        "sensors: {cam: {kind: camera, period: 50 ms, bytes_per_frame: 1 kB, assumed: a test}}\n"
        f"stages:\n  b: {{after: [cam], criticality: hard, high: 2, title: t, precisions: [fp32], costs: {costs}}}\n"
        f"  c: {{after: [b], title: t, precisions: [fp32], costs: {costs}}}\n"
        "chains: {k: {path: [cam, b, c], deadline: 40 ms, criticality: hard, assumed: a test}}\n"
    )
    assert [(each.rule, each.stage, each.place.line) for each in lint_file(str(file), "rk3588")] == [
        ("dropped-input", "c", 7)
    ]


def test_a_runtime_without_the_accelerator_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint("pointpillars", "-p", ORIN, "--runtime-version", "11.2") == 1
    assert "TensorRT 11.0 to 11.3 has no DLA" in capsys.readouterr().out


def test_a_plan_is_checked_for_its_own_engines(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    made = plan("pointpillars-s", ORIN, mode="MAXN")
    save_plan(made, file)
    assert lint(file) == 0
    tasks = [replace(task, engine="dla0") if task.name == "pfn" else task for task in made.tasks]
    save_plan(replace(made, tasks=tuple(tasks)), file)
    found = lint_file(str(file), None)
    assert {entry.rule for entry in found} == {"nvdla-v2/pillar_features"}
    assert {entry.level for entry in found} == {"error"}
    lines = file.read_text().splitlines()
    assert lines[found[0].place.line - 1].strip() == '"engine": "dla0",'
    assert lines[found[0].place.line - 3].strip() == '"name": "pfn",'


def test_faults_of_the_file_are_diagnostics_with_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(Path("pipelines/pointpillars.yaml").read_text().replace("deadline:", "dead-line:"))
    assert lint(file, "-p", ORIN) == 1
    assert re.search(rf"{re.escape(str(file))}:\d+:\d+: error: .*\[invalid-file\]", capsys.readouterr().out)


def test_sarif_has_what_its_readers_require(tmp_path: Path) -> None:
    file = tmp_path / "lint.sarif"
    assert lint("pointpillars", "-p", ORIN, "--format", "sarif", "-o", file) == 0
    log = json.loads(file.read_text())
    assert log["version"] == "2.1.0" and len(log["runs"]) == 1
    driver, results = log["runs"][0]["tool"]["driver"], log["runs"][0]["results"]
    assert results and driver["name"]
    for result in results:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]
        assert location["region"]["startLine"] >= 1 and location["region"]["startColumn"] >= 1
        assert not location["artifactLocation"]["uri"].startswith("/")
        assert result["level"] in ("error", "warning", "note") and result["message"]["text"]


def test_annotations_escape_what_would_end_them() -> None:
    entry = Diagnostic("a/b", "note", "50%\nof::it", Place("a,b:c.yaml", 3, 4))
    assert github([entry]) == "::notice file=a%2Cb%3Ac.yaml,line=3,col=4,title=a/b::50%25%0Aof::it"
    assert json.loads(sarif([entry]))["runs"][0]["results"][0]["message"]["text"] == entry.message


def test_ignored_rules_are_left_out_and_strict_counts_warnings() -> None:
    assert lint("pointpillars", "-p", ORIN, "--strict") == 1
    assert lint("pointpillars", "-p", ORIN, "--strict", "--ignore", "nvdla-v2/*") == 0
    entry = Diagnostic("a/b", "error", "", Place("f"))
    assert kept([entry], ["a/softmax"]) == [entry]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("pointpillars",),
        ("pointpillars", "-p", ORIN, "--engine", "npu"),
        ("pointpillars", "-p", ORIN, "--engine", "gpu"),
        ("nonesuch", "-p", ORIN),
        ("pointpillars", "-p", "nonesuch"),
        ("pointpillars", "-p", ORIN, "--runtime-version", "twelve"),
    ],
)
def test_requests_that_cannot_be_carried_out_are_usage_errors(arguments: tuple[str, ...]) -> None:
    assert lint(*arguments) == 2


def test_the_server_reports_unsaved_text_and_never_raises(tmp_path: Path) -> None:
    text = Path("pipelines/pointpillars.yaml").read_text()
    file = tmp_path / "pipeline.yaml"
    assert {entry.stage for entry in checked(file, text, ORIN)} == {"pfn", "scatter"}
    assert [entry.rule for entry in checked(file, "stages: [", ORIN)] == ["invalid-file"]
    assert [entry.rule for entry in checked(file, text, None)] == ["request"]
    (surrogate,) = checked(file, "\ud800: 1", ORIN)
    assert surrogate.rule == "invalid-file" and "expected UTF-8 text" in surrogate.message
    for deep in ("[" * 100_000, "{" * 100_000, "a: &a [*a]"):
        assert [entry.rule for entry in checked(file, deep, ORIN)] == ["invalid-file"]
    for name in ("zero.onnx", "zero.json"):
        (tmp_path / name).symlink_to("/dev/zero")
        assert checked(tmp_path / name, "", ORIN)


def gelu(b: Builder, x: str, halved_first: bool) -> str:
    """Write a GELU out in the two orders of PyTorch's exporters."""
    moved = b.op("Add", b.op("Erf", b.op("Div", x, b.constant(np.float32(2**0.5)))), b.constant(np.float32(1)))
    half = b.constant(np.float32(0.5))
    return str(b.op("Mul", b.op("Mul", x, half), moved) if halved_first else b.op("Mul", b.op("Mul", x, moved), half))


@pytest.mark.parametrize("halved_first", [False, True])
def test_a_gelu_that_is_written_out_is_one_operator_where_the_rule_says_so(halved_first: bool, tmp_path: Path) -> None:
    b = Builder()
    file = b.save(tmp_path / "gelu.onnx", [1, 3, 8, 8], [gelu(b, b.conv("image", 3, 8), halved_first)])
    for platform in ("qcs8550", "rk3588"):
        assert not [entry for entry in lint_file(str(file), platform) if entry.rule.endswith("/erf")], platform
    assert [entry for entry in lint_file(str(file), ORIN) if entry.rule == "nvdla-v2/erf"]


def test_a_layer_norm_that_is_written_out_is_one_operator_of_the_npu(tmp_path: Path) -> None:
    b = Builder()
    x = b.op("Reshape", b.conv("image", 3, 8), b.constant(np.array([1, 8, 64])))
    centred = b.op("Sub", x, b.op("ReduceMean", x, axes=[-1]))
    spread = b.op("ReduceMean", b.op("Pow", centred, b.constant(np.float32(2))), axes=[-1])
    root = b.op("Sqrt", b.op("Add", spread, b.constant(np.float32(1e-5))))
    file = b.save(tmp_path / "norm.onnx", [1, 3, 8, 8], [b.op("Div", centred, root)])
    assert not [e for e in lint_file(str(file), "rk3588") if e.rule in ("rknn-rk3588/sqrt", "rknn-rk3588/divide")]


def test_what_could_take_no_network_is_judged_only_where_it_is_named(tmp_path: Path) -> None:
    b = Builder()
    file = str(b.save(tmp_path / "plain.onnx", [1, 3, 16, 16], [b.conv("image", 3, 8)]))
    for platform in ("jetson-orin-nano-8gb", "jetson-agx-orin-64gb", "jetson-tx2"):
        assert lint(file, "-p", platform, "--strict") == 0, platform
    assert {entry.engines for entry in lint_file(file, "jetson-orin-nano-8gb", engines=["vic"])} >= {("vic",)}


def test_a_batch_that_the_file_leaves_open_is_said(tmp_path: Path) -> None:
    b = Builder()
    file = str(b.save(tmp_path / "open.onnx", ["N", 3, 16, 16], [b.conv("image", 3, 8)]))
    (entry,) = lint_file(file, ORIN)
    assert entry.rule == "open-shape" and "image" in entry.message and entry.engines == ("dla0", "dla1")
    (entry,) = lint_file(file, "jetson-orin-nano-8gb")
    assert "planned with a batch of 1" in entry.message and "fixed shapes" not in entry.message
    assert lint_file(file, ORIN, sizes=((), ("N=1..4",))) == []


def test_faults_of_networks_have_rules_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    assert lint(empty, "-p", ORIN) == 2 and "holds no network" in capsys.readouterr().out
    b = Builder()
    wide = b.save(tmp_path / "wide.onnx", [1, 3, "H", "W"], [b.conv("image", 3, 8)])
    unknown = Builder()
    strange = unknown.save(
        tmp_path / "strange.onnx",
        [1, 3, 8, 8],
        [unknown.op("Reshape", "image", unknown.op("Abs", unknown.op("Cast", "image", to=7)))],
    )
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"\x08\x09garbage")
    rules = [entry.rule for file in (wide, strange, damaged) for entry in lint_file(str(file), ORIN)]
    assert rules == ["open-shape", "unknown-operator", "invalid-file"]


def test_a_flatten_that_drops_sizes_of_one_stays_with_its_neighbours(tmp_path: Path) -> None:
    b = Builder()
    x = b.op("AveragePool", b.conv("image", 3, 8), kernel_shape=[8, 8], strides=[8, 8])
    x = b.op("Gemm", b.op("Flatten", x), b.constant(b.normal(10, 8)), b.constant(b.normal(10)), transB=1)
    file = b.save(tmp_path / "head.onnx", [1, 3, 8, 8], [x])
    assert not [entry for entry in lint_file(str(file), ORIN) if entry.rule == "nvdla-v2/reshape"]
