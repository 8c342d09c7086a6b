"""Profiles of other tools become costs: engines, hidden DLA time, spread, state of the board, frontiers."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from profile_samples import XAVIER, nsys, ort, read, torch_trace, trtexec

from socsched.api.interchange import import_profile
from socsched.cli.root import run
from socsched.cost.profile import load_profile, save_profile
from socsched.errors import SocschedError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.interchange.trtexec import layers_of, parse_row, parts_of


@pytest.mark.parametrize("split", ["10", "38", "dla_only"])
def test_googlenet_splits_are_those_of_the_artefact(split: str, tmp_path: Path) -> None:
    stated = read("googlenet_xavier_splits.json")["schedules"][split]
    file = trtexec(tmp_path / "googlenet.profile", split)
    found = import_profile([file], XAVIER, precision="fp16", mode="MAXN")
    (recording,) = found.recordings
    assert recording.total_ns / 1e6 == pytest.approx(stated["profile_total_ms"], rel=0.001)
    costs = {cost.stage: cost for cost in found.profile.costs}
    on_dla = next(cost for cost in costs.values() if cost.engine.startswith("dla"))
    assert on_dla.time_ns / 1e6 == pytest.approx(stated["dla_suffix_ms"], rel=0.01)
    assert "wait for the DLA" in on_dla.source and on_dla.samples > 11_000 and "assumed" in on_dla.source
    if split == "dla_only":
        assert list(costs) == ["googlenet.1", "googlenet.2"]
        assert recording.handover_ns / 1e6 == pytest.approx(stated["data_to_nvm_ms"], rel=0.01)
        return
    assert list(costs) == ["googlenet.1", "googlenet.2", "googlenet.3"]
    assert costs["googlenet.1"].time_ns / 1e6 == pytest.approx(stated["gpu_prefix_ms"], rel=0.01)
    assert costs["googlenet.3"].time_ns / 1e6 == pytest.approx(stated["gpu_prob_ms"], rel=0.01)
    assert recording.handover_ns / 1e6 == pytest.approx(stated["gpu_to_dla_input_reformat_ms"], rel=0.01)
    assert len(found.layers["googlenet.2"]) == 140 - int(split)


TOTALS = {"24": 2.21434 / 0.774861, "53": 1.55889 / 0.6106, "81": 1.14226 / 0.47731, "110": 0.614552 / 0.272735}
"""Split -> total by the percentage of trtexec's longest row; the others' are in the data or the artefact's."""
WAITS = {"24": 2.21434, "53": 1.55889, "67": 1.3573, "81": 1.14226, "95": 0.91114, "110": 0.614552, "124": 0.393088}
WAITS |= {"mark_10": 3.35052, "mark_24": 3.35547, "mark_38": 3.34842, "mark_53": 3.3484, "mark_67": 3.34895}
WAITS |= {"mark_81": 3.34575, "mark_95": 3.34723, "mark_110": 3.34685, "mark_124": 3.35099, "dla_10": 2.42151}
"""Split -> the row that waits for the DLA."""
GPU_ONLY = ("-1", "gpu_0", "gpu_mark_-1", "gpu_mark_10", "gpu_mark_24", "gpu_mark_124")


@pytest.mark.parametrize("split", [*GPU_ONLY, *WAITS])
def test_every_split_of_the_artefact_books_its_wait_on_the_dla(split: str, tmp_path: Path) -> None:
    """Whichever row hides it: a reformatter of the DLA's block or of the next layer, or a copy from its memory."""
    stated = read("googlenet_xavier_splits.json")["schedules"]
    given = read("googlenet_trtexec_rows.json")["splits"][split]
    found = import_profile([trtexec(tmp_path / "g.profile", split)], XAVIER, precision="fp16", mode="MAXN")
    (recording,) = found.recordings
    total = TOTALS.get(split) or stated.get(split.removeprefix("gpu_"), {}).get("profile_total_ms")
    if "share" in given:
        longest, percent = given["share"]
        total = dict(map(tuple, given["rows"]))[longest] / percent * 100
    assert recording.total_ns / 1e6 == pytest.approx(total, rel=0.001)
    costs = sum(cost.time_ns for cost in found.profile.costs) + recording.handover_ns
    assert costs / 1e6 == pytest.approx(total, rel=0.001)
    on_dla = [c for c in found.profile.costs if c.engine.startswith("dla")]
    if split in GPU_ONLY:
        assert not on_dla and [c.engine for c in found.profile.costs] == ["gpu"] and not recording.handover_ns
        return
    (dla,) = on_dla
    submission = dict(map(tuple, given["rows"]))["{DLA}"]
    assert dla.time_ns / 1e6 == pytest.approx(WAITS[split] + submission, rel=0.02)
    first = 0 if split.startswith("mark") else int(split.removeprefix("dla_"))
    assert len(found.layers[dla.stage]) == 140 - first


def test_ranges_are_of_the_dla_only_where_something_says_so(tmp_path: Path) -> None:
    def rows(*names: str) -> Path:
        path = tmp_path / "net.json"
        path.write_text(json.dumps([{"name": name, "averageMs": 1.0, "medianMs": 0.9} for name in names]))
        return path

    block = "{ForeignNode[a...c]}"
    own = import_profile([rows(block, "d")], XAVIER, precision="fp16")
    assert [cost.engine for cost in own.profile.costs] == ["gpu"]
    copied = import_profile([rows("x to nvm", block, "c from nvm", "c copy finish", "d")], XAVIER, precision="fp16")
    assert [(c.engine[:3], c.time_ns, c.median_ns) for c in copied.profile.costs] == [
        ("dla", 3_000_000, 2_700_000),
        ("gpu", 1_000_000, 900_000),
    ]
    info = tmp_path / "layers.json"
    outputs = [{"Format/Datatype": "Channel major FP16 format where channel % 16 == 0"}]
    info.write_text(json.dumps({"Layers": [{"Name": block, "LayerType": "DLA", "Outputs": outputs}]}))
    listed = import_profile([rows(block, "d"), info], XAVIER, engines={"dla": "dla1"})
    assert [cost.precision for cost in listed.profile.costs] == ["fp16", "fp16"]
    assert [cost.engine for cost in listed.profile.costs] == ["dla1", "gpu"]


def test_times_and_board_log_give_spread_and_state(tmp_path: Path) -> None:
    profile = tmp_path / "net.json"
    profile.write_text(json.dumps([{"count": 4}, {"name": "a + b", "averageMs": 2.0}]))
    times = tmp_path / "times.json"
    times.write_text(json.dumps([{"computeMs": ms, "latencyMs": ms + 1} for ms in (9.0, 2.0, 2.0, 4.0, 4.0)]))
    log = tmp_path / "tegrastats.log"
    line = "RAM 2000/31918MB CPU [1%@1190] EMC_FREQ 5%@{} GR3D_FREQ 99%@{} CPU@50C VDD_GPU_SOC {}mW/2000mW"
    log.write_text("\n".join(line.format(2133, *v) for v in ((1377, 4000), (1377, 6000), (675, 2000), (1377, 4000))))
    found = import_profile([profile, times, log], XAVIER, precision="int8", skip=1)
    (cost,) = found.profile.costs
    mean = (9 + 2 + 2 + 4 + 4) / 5
    assert cost.times_ns == tuple(round(2e6 * ms / mean) for ms in (2, 2, 4, 4))
    assert cost.time_ns == max(cost.times_ns) and cost.error == pytest.approx(0.5)
    assert "lowered in 25% of the samples, to 675 MHz" in cost.state and "4.0 W on average" in cost.state
    assert cost.state.startswith("mode MAXN (by the clocks in tegrastats.log)") and cost.mode == "MAXN"
    save_profile(found.profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == found.profile


def test_onnx_runtime_runs_are_jobs(tmp_path: Path) -> None:
    found = import_profile([ort(tmp_path / "net.json")], XAVIER, precision="fp32", skip=1, engines={"cpu": "carmel3"})
    first, second = found.profile.costs
    assert (first.engine, first.times_ns) == ("gpu", (10_000, 20_000))
    assert (second.engine, second.times_ns) == ("carmel3", (5_000, 10_000))
    assert found.layers == {"net.1": ("a", "b"), "net.2": ("c",)}
    with pytest.raises(SocschedError, match="no engine of the kind 'QNN'"):
        import_profile([ort(tmp_path / "q.json", "QNNExecutionProvider")], XAVIER, precision="int8")


def test_onnx_runtimes_own_profile(tmp_path: Path) -> None:
    ort_ = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    numpy = pytest.importorskip("numpy")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["y"], name="mul"),
        helper.make_node("Relu", ["y"], ["z"], name="act"),
    ]
    ports = [helper.make_tensor_value_info(name, kind, [64, 64]) for name in ("x", "z")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    options = ort_.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "ort")
    options.graph_optimization_level = ort_.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort_.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for _ in range(5):
        session.run(None, {"x": numpy.ones((64, 64), numpy.float32)})
    found = import_profile([session.end_profiling()], XAVIER, precision="fp32", skip=2, stages={})
    (cost,) = found.profile.costs
    assert cost.samples == 3 and next(iter(found.layers.values())) == ("mul", "act")


def test_torch_ranges_take_the_span_of_their_kernels(tmp_path: Path) -> None:
    found = import_profile([torch_trace(tmp_path / "t.json")], XAVIER, precision="fp16", stages={"detect": "backbone"})
    (cost,) = found.profile.costs
    assert (cost.stage, cost.engine, cost.times_ns) == ("backbone", "gpu", (70_000,) * 3)
    assert "2 kernels per job, busy 86% of the span" in cost.source
    plain = import_profile([torch_trace(tmp_path / "c.json", False)], XAVIER, precision="fp16")
    assert {c.stage: (c.engine, c.time_ns) for c in plain.profile.costs}["detect"] == ("carmel0", 100_000)


def test_nsys_ranges_and_graphs(tmp_path: Path) -> None:
    for place, (ranges, graphs, stage) in enumerate(
        ((True, False, "head"), (True, True, "head"), (False, True, "graph-3"))
    ):
        found = import_profile([nsys(tmp_path / f"{place}.sqlite", ranges, graphs)], XAVIER, precision="fp16")
        (cost,) = found.profile.costs
        assert (cost.stage, cost.times_ns) == (stage, (1000, 1001, 1002, 1003))
    with pytest.raises(SocschedError, match="cannot be told apart"):
        import_profile([nsys(tmp_path / "none.sqlite", False, False)], XAVIER, precision="fp16")


def test_the_device_that_profiles_name_is_compared_with_the_platform(tmp_path: Path) -> None:
    trace = json.loads(torch_trace(tmp_path / "t.json").read_text())
    for name, units, notes in (("Xavier", 8, 0), ("NVIDIA A100-SXM4-80GB", 108, 2), ("Xavier", 6, 1)):
        (tmp_path / "t.json").write_text(json.dumps(trace | {"deviceProperties": [{"name": name, "numSms": units}]}))
        file = nsys(tmp_path / f"{name}{units}.sqlite")
        with closing(sqlite3.connect(file)) as base:
            base.execute("CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT, smCount INTEGER)")
            base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?, ?)", (name, units))
            base.commit()
        for one in (tmp_path / "t.json", file):
            found = import_profile([one], XAVIER, precision="fp16", mode="MAXN")
            assert len(found.notes) == notes and all("XAVIER" in n.upper() for n in found.notes), found.notes


def test_other_databases_are_described(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db3")) as base:
        base.execute("CREATE TABLE messages(x)")
        base.execute("CREATE TABLE topics(x)")
        base.commit()
    (tmp_path / "a.db3.gz").write_bytes(gzip.compress((tmp_path / "a.db3").read_bytes()))
    for name, said in (("a.db3", "SQLite database with messages, topics"), ("a.db3.gz", "compressed SQLite database")):
        with pytest.raises(SocschedError, match=said):
            import_profile([tmp_path / name], XAVIER, precision="fp16")


def test_names_of_rows_and_layers() -> None:
    assert parse_row("a + b input reformatter 0").role == "input"
    assert parse_row("Reformatting CopyNode for Output Tensor 0 to {ForeignNode[a...b]}").base == "{ForeignNode[a...b]}"
    assert layers_of("a + b || c + PWN(d, e)") == ("a", "b", "c", "d", "e")
    assert layers_of("{ForeignNode[b...d]}", ["a", "b", "c", "d"]) == ("b", "c", "d")
    assert layers_of("{ForeignNode[b...d]}") == ("b", "d")


def test_sections_become_cuts_of_our_network() -> None:
    layers = tuple(
        Layer(name, "relu", inputs) for name, inputs in (("a", ("x",)), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")))
    )
    network = Network("n", {"x": TensorType((1, 4), "float32", "")}, layers, ("d",))
    assert [str(p) for p in parts_of(network, [("a", "c"), ("b", "d")])] == [":c", "c:"]
    assert [str(p) for p in parts_of(network, [("b", "c"), ("d",)])] == [":b+c", "b+c:"]
    assert parts_of(network, [("d",), ("a",)]) == () and parts_of(network, [("z",), ("d",)]) == ()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "an empty file"),
        (b"{}", "an object with nothing in it"),
        (b"[1]", "a list of 1 values"),
        (b"[" * 10_000, "recursion limit"),
        (b'[{"count": 1}]', "rows with times"),
        (b'[{"count": 1}, {"name": 3}]', r"\[1\]: expected an object"),
        (b'[{"count": 1}, {"name": "a", "averageMs": "x"}]', r"\[1\].averageMs: expected a number"),
        (b'{"traceEvents": [3, {"ph": "X"}]}', "annotated ranges"),
        (b'[{"cat": "Session"}]', "model_run"),
        (b"SQLite format 3\x00 broken", "not a readable SQLite"),
        (b"\xff\xfe\x00", "looks like"),
    ],
)
def test_hostile_files_give_one_error(content: bytes, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)
    with pytest.raises(SocschedError, match=expected) as caught:
        import_profile([file], XAVIER, precision="fp16")
    assert caught.value.exit_code == 2 and caught.value.hint


def test_the_command_writes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = trtexec(tmp_path / "googlenet.profile", "38"), tmp_path / "profile.json"
    words = ["profile", "import", str(file), "-p", XAVIER, "-o", str(out), "--json"]
    assert run([*words]) == 2
    assert "precision" in capsys.readouterr().err
    assert run([*words, "--precision", "fp16", "--engine", "dla=dla9", "--stage", "googlenet=net"]) == 2
    assert "no engine 'dla9'" in capsys.readouterr().err
    assert run([*words, "--precision", "fp16", "--stage", "googlenet=net"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recordings"][0]["total_ns"] == pytest.approx(2_738_100, rel=0.001)
    assert [cost.stage for cost in load_profile(out).costs] == ["net.1", "net.2", "net.3"]


def test_recorded_jobs_are_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, file in enumerate(
        (nsys(tmp_path / "n.sqlite"), torch_trace(tmp_path / "t.json"), ort(tmp_path / "o.json"))
    ):
        folder, out = tmp_path / f"r{place}", tmp_path / f"p{place}.json"
        words = ["profile", "import", str(file), "-p", XAVIER, "--precision", "fp16", "-o", str(out)]
        assert run([*words, "--results", str(folder), "-q"]) == 0
        (figures,) = json.loads((folder / "result.json").read_text())["chains"].values()
        wanted = (1603, 270_000, 70_000)[place]
        assert figures["response_time_ns"]["max"] == wanted and figures["missed"] == 0
        capsys.readouterr()
        assert run(["why", str(folder), "--json"]) == 0
        assert str(wanted) in capsys.readouterr().out
        assert run(["compare", str(folder), str(folder), "-q"]) == 0
        assert run(["report", str(folder), "-o", str(tmp_path / f"{place}.md"), "-q"]) == 0
    means = trtexec(tmp_path / "g.profile", "38")
    words = ["profile", "import", str(means), "-p", XAVIER, "--precision", "fp16", "-o", str(tmp_path / "p.json")]
    assert run([*words, "--results", str(tmp_path / "x")]) == 2
    assert "states when jobs ran" in capsys.readouterr().err
