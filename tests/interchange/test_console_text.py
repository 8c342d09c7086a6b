"""Console text that people paste: trtexec, nsys stats, RKNN; profiles that are cut off; encodings; unknown files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profile_samples import (
    KERNELS,
    LAYER_ROWS,
    OLD_RKNN,
    PROJECTED,
    PROJECTED_ROWS,
    PROJECTION,
    RANKING,
    RANKING_2,
    RKNN_15,
    XAVIER,
    as_table,
    command,
    ort,
    rknn,
    summary,
    table,
    trtexec,
)

from socsched.api.interchange import import_profile
from socsched.cli.root import run
from socsched.errors import SocschedError
from socsched.interchange.costs import Imported

ORIN = "jetson-agx-orin-64gb"


def imported(folder: Path, text: str, platform: str = ORIN, name: str = "net.log", **choices: object) -> Imported:
    (folder / name).write_text(text, encoding="utf-8")
    return import_profile([folder / name], platform, **choices)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "engine", "precision"),
    [
        ("--fp16", "gpu", "fp16"),
        ("--int8 --fp16", "gpu", "int8"),
        ("--best", "gpu", "int8"),
        ("--int8 --useDLACore=0", "dla0", "int8"),
        ("--fp16 --useDLACore=1 --allowGPUFallback", "dla1", "fp16"),
    ],
)
def test_a_summary_states_engine_precision_and_spread(
    options: str, engine: str, precision: str, tmp_path: Path
) -> None:
    found = imported(tmp_path, command(options) + summary())
    (cost,) = found.profile.costs
    assert (cost.engine, cost.precision, cost.time_ns, cost.median_ns) == (engine, precision, 22_000_000, 20_900_000)
    assert cost.samples == 100 and cost.error == pytest.approx(0.05) and cost.runtime == "tensorrt"
    assert any("ran on the GPU" in note for note in found.notes) == ("Fallback" in options)
    part = imported(tmp_path, command(options) + summary().split("[05/10/2024-12:25:00] [I] Total")[0]).profile.costs[0]
    assert part.samples == 0 and "p99 as the source states" in part.source


def test_what_a_log_states_is_not_overridden(tmp_path: Path) -> None:
    text = command("--int8 --useDLACore=0 --batch=4") + "[I] Selected Device: NVIDIA GeForce RTX 2080\n[I] SMs: 46\n"
    found = imported(tmp_path, text + summary(), precision="fp16")
    assert found.profile.costs[0].precision == "int8"
    said = " ".join(found.notes)
    assert "--precision fp16 is not used" in said and "a job is a batch of 4" in said
    assert (
        "'NVIDIA GeForce RTX 2080'" in said and "46 multiprocessors" in said and "mode: MODE_30W, the default" in said
    )
    allowed = imported(tmp_path, command("--int8 --fp16") + summary(), precision="fp16")
    assert allowed.profile.costs[0].precision == "fp16"


def test_the_precision_echoed_for_a_loaded_engine_is_not_the_engines(tmp_path: Path) -> None:
    text = command("--loadEngine=m.engine") + "[I] Precision: FP32\n[I] DLACore: 1\n" + summary()
    with pytest.raises(SocschedError, match="does not state the precision"):
        imported(tmp_path, text)
    (cost,) = imported(tmp_path, text, precision="int8").profile.costs
    assert (cost.precision, cost.engine) == ("int8", "dla1")
    built = text.replace("--loadEngine=m.engine", "").replace("FP32", "FP32+FP16")
    assert imported(tmp_path, built).profile.costs[0].precision == "fp16"


@pytest.mark.parametrize("form", ["7", "8.5", "8.6"])
def test_tables_of_layers_in_every_form(form: str, tmp_path: Path) -> None:
    found = imported(tmp_path, table(LAYER_ROWS, form) + summary(), precision="fp16")
    (cost,) = found.profile.costs
    assert cost.time_ns == pytest.approx(1_770_000 * 22 / 21, rel=0.001), "spread of the summary"
    assert found.layers["net"] == ("conv 1", "relu", "fc 0") and cost.samples == 100
    alone = imported(tmp_path, table(LAYER_ROWS, form), precision="fp16").profile.costs[0]
    assert (alone.time_ns, alone.error) == (1_770_000, 0.1)
    quoted = "".join("> " + line for line in table(LAYER_ROWS, form).splitlines(keepends=True))
    assert imported(tmp_path, quoted, precision="fp16").profile.costs[0].time_ns == 1_770_000


@pytest.mark.parametrize("form", ["7", "8.5", "8.6"])
def test_tables_book_the_wait_for_a_dla_on_it(form: str, tmp_path: Path) -> None:
    block = "{conv1,relu1}"
    rows = [("data to nvm", 0.05), (block, 0.03), ("prob input reformatter 0", 3.33), ("prob", 0.01)]
    costs = imported(tmp_path, table(rows, form), XAVIER, precision="fp16").profile.costs
    assert [(c.engine, c.time_ns) for c in costs] == [("dla0", 3_360_000), ("gpu", 10_000)]
    ranges = [("{ForeignNode[conv1...fc]}", 1.0), ("prob", 0.02)]
    for stated in (command("--int8 --useDLACore=1"), command("") + "[I] [TRT] [DlaLayer] {ForeignNode[conv1...fc]}\n"):
        costs = imported(tmp_path, stated + table(ranges, form), XAVIER, precision="int8").profile.costs
        assert [c.engine[:3] for c in costs] == ["dla", "gpu"]
    costs = imported(tmp_path, table(ranges, form), XAVIER, precision="int8").profile.costs
    assert [c.engine for c in costs] == ["gpu"]


def test_older_summaries(tmp_path: Path) -> None:
    seven = "[I] GPU Compute\n[I] min: 3.6 ms\n[I] mean: 3.7 ms\n[I] median: 3.65 ms\n[I] percentile: 3.9 ms at 99%\n"
    (cost,) = imported(tmp_path, seven, XAVIER, precision="fp16").profile.costs
    assert (cost.time_ns, cost.median_ns) == (3_900_000, 3_650_000)
    five = "Average over 10 runs is 1.5 ms (host walltime is 1.9 ms, 99% percentile time is 1.8).\n" * 3
    (cost,) = imported(tmp_path, five, XAVIER, precision="fp16").profile.costs
    assert (cost.time_ns, cost.median_ns, cost.samples) == (1_800_000, 1_500_000, 30)
    averages = "[I] Average on 10 runs - GPU latency: 2.5 ms - Host latency: 3 ms (enqueue 0.4 ms)\n" * 2
    found = imported(tmp_path, averages, XAVIER, precision="fp16")
    assert found.profile.costs[0].time_ns == 2_500_000 and "no summary" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (command("--fp16"), "states no time"),
        (command("--fp16") + "[E] Error[4]: no kernel\n&&&& FAILED TensorRT.trtexec", "no kernel"),
        (table([], "8.6", total=False), "states no time"),
        (command("--fp16") + summary() + command("--int8") + summary(), "2 runs of trtexec"),
        ("".join(line for line in table(LAYER_ROWS, "8.5").splitlines(True) if "fc 0" not in line), "rows add up to"),
    ],
)
def test_logs_without_times_are_refused(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(SocschedError, match=where) as caught:
        imported(tmp_path, text, precision="fp16")
    assert caught.value.exit_code == 2 and caught.value.hint


OTHER = " ** OpenMP Summary (openmp_sum):\n\n" + as_table(
    "Time (%)|Total Time (ns)|Instances|Avg (ns)|Name", [("100.0", "500,000", "3", "166666.7", "parallel")]
)
API = (
    OTHER
    + """[5/8] Executing 'cuda_api_sum' stats report

 Time (%)  Total Time (ns)  Num Calls   Avg (ns)   Name
 --------  ---------------  ---------  ----------  --------
     79.9      11829862720        735  16095051.3  cudaFree

"""
)


@pytest.mark.parametrize(
    "text",
    [
        PROJECTED,
        API + KERNELS.format("cuda_gpu_kern_sum") + PROJECTED,
        as_table(PROJECTION, PROJECTED_ROWS, separated=True),
    ],
)
def test_ranges_projected_onto_the_gpu_are_jobs(text: str, tmp_path: Path) -> None:
    found = imported(tmp_path, text, precision="fp16")
    assert {c.stage: (c.engine, c.time_ns, c.median_ns, c.samples) for c in found.profile.costs} == {
        "detect": ("gpu", 3_600_000, 2_900_000, 4),
        "my-plan": ("gpu", 110_000, 100_000, 4),
    }


@pytest.mark.parametrize("report", ["cuda_gpu_kern_sum", "gpukernsum"])
def test_kernels_of_a_capture_are_shared_among_its_jobs(report: str, tmp_path: Path) -> None:
    for text in (KERNELS.format(report), "".join(f"# {line}\n" for line in KERNELS.format(report).splitlines())):
        found = imported(tmp_path, API + text, precision="fp16")
        (cost,) = found.profile.costs
        assert (cost.engine, cost.time_ns, cost.samples) == ("gpu", 2_000_000, 20)
        assert "20 jobs assumed" in " ".join(found.notes)
    with pytest.raises(SocschedError, match="do not show how many jobs"):
        imported(tmp_path, KERNELS.format(report).replace(" 20 ", " 21 "), precision="fp16")
    with pytest.raises(SocschedError, match="hold no rows"):
        imported(tmp_path, OTHER, precision="fp16")
    with pytest.raises(SocschedError, match="hold no rows"):
        imported(tmp_path, KERNELS.format(report).split("    75.0")[0], precision="fp16")


def test_kernels_by_range_and_ranges_on_the_cpu(tmp_path: Path) -> None:
    by_range = "NVTX Range|Style|PID|TID|NVTX Inst|Kern Inst|Total Time (ns)|Avg (ns)|Kernel Name"
    rows = [(":detect", "PushPop", "7", "7", "4", "8", "8,000,000", "1,000,000.0", "void conv<int, int>()"),
            (":detect", "PushPop", "7", "7", "4", "4", "400,000", "100,000.0", "relu")]  # fmt: skip
    (cost,) = imported(tmp_path, as_table(by_range, rows), precision="fp16").profile.costs  # type: ignore[arg-type]
    assert (cost.stage, cost.engine, cost.time_ns) == ("detect", "gpu", 2_100_000)
    ranges = "Time (%)|Total Time (ns)|Instances|Avg (ns)|Med (ns)|Min (ns)|Max (ns)|StdDev (ns)|Style|Range"
    row = ("100.0", "12,000", "4", "3000.0", "2900.0", "2800", "3600", "10.0", "PushPop", ":track")
    for separated in (False, True):
        found = imported(tmp_path, as_table(ranges, [row], separated), precision="fp32")
        (cost,) = found.profile.costs
        assert (cost.stage, cost.engine, cost.time_ns, cost.median_ns) == ("track", "cpu0", 3600, 2900)
        assert "waiting for the GPU included" in " ".join(found.notes)
    whole = "Time (%)|Total Time (ns)|Instances|Avg (ns)|Category|Operation"
    copies = [
        ("90.0", "9,000", "3", "3000.0", "CUDA_KERNEL", "conv"),
        ("10.0", "900", "3", "300.0", "MEMORY_OPER", "[memcpy]"),
    ]
    (cost,) = imported(tmp_path, as_table(whole, copies), precision="fp32").profile.costs  # type: ignore[arg-type]
    assert cost.time_ns == 3300


def test_oldest_names_of_columns(tmp_path: Path) -> None:
    text = (
        "CUDA Kernel Statistics:\n\n Time(%)  Total Time (ns)  Instances   Average   Minimum  Maximum   Name\n"
        " -------  ---------------  ---------  ---------  -------  -------  ------\n"
        "   100.0          222,080          2  111,040.0  111,000  111,080  kernel(int, float)\n\n"
    )
    assert imported(tmp_path, text, precision="fp32").profile.costs[0].time_ns == 111_040


def test_tables_of_rknn_old_and_new(tmp_path: Path) -> None:
    found = imported(tmp_path, OLD_RKNN, "rk3588", precision="int8")
    (cost,) = found.profile.costs
    assert (cost.engine, cost.time_ns) == ("npu0", 1_281_000) and "npu 800 MHz" in cost.state
    assert found.layers["net"][0] == "MobilenetV1/MobilenetV1/Conv2d_0/Relu6_1_RKNN_mark_perm_60_0"
    assert any("npu loaded at 800 MHz, 1000 MHz in performance" in note for note in found.notes)
    found = imported(tmp_path, RKNN_15.format("100.0%/0.0%/0.0%"), "rk3588")
    (cost,) = found.profile.costs
    assert (cost.engine, cost.time_ns, cost.precision) == ("npu0", 500_000, "int8")
    assert found.recordings[0].handover_ns == 7000 and found.layers["net"] == ("ConvRelu_2", "c2")


@pytest.mark.parametrize(
    "line", ["I target set by user is: {0}", "toolkit version: 1.6.0, target platform: {0}, model"]
)
def test_rknn_states_its_target(line: str, tmp_path: Path) -> None:
    for target, notes in (("rk3588", 0), ("rk3566", 1)):
        text = line.format(target) + "\n" + RKNN_15.format("100.0%/0.0%/0.0%")
        said = [note for note in imported(tmp_path, text, "rk3588").notes if "was recorded on" in note]
        assert len(said) == notes


def test_rknn_states_the_cores_it_ran_on(tmp_path: Path) -> None:
    second = imported(tmp_path, RKNN_15.format("0.0%/100.0%/0.0%"), "rk3588")
    assert second.profile.costs[0].engine == "npu1"
    shared = imported(tmp_path, RKNN_15.format("33.3%/33.3%/33.3%"), "rk3588")
    assert "3 cores of the NPU" in " ".join(shared.notes) and shared.profile.costs[0].engine == "npu0"


@pytest.mark.parametrize("text", [RANKING, RANKING_2])
def test_a_ranking_alone_gives_the_time_of_every_target(text: str, tmp_path: Path) -> None:
    found = imported(tmp_path, text, "rk3588", precision="int8", engines={"cpu": "a760"})
    assert [(c.engine, c.time_ns) for c in found.profile.costs] == [("npu0", 9_338_000), ("a760", 248_000)]
    assert found.recordings[0].handover_ns == 33_000 and "not state their order" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (RANKING.split("ConvRelu")[0], "without rows"),
        (OLD_RKNN.split("0   ")[0], "without rows"),
        (RKNN_15.format("0%/0%/0%").replace("3    Conv   ", "... Conv   "), "rows add up to"),
        (rknn(True).replace(": 560", ": 5600"), "rows are missing|rows add up to"),
    ],
)
def test_tables_without_rows_are_refused(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(SocschedError, match=where):
        imported(tmp_path, text, "rk3588", precision="int8", engines={"cpu": "a760"})


def test_onnx_runtime_profiles_that_are_cut_off(tmp_path: Path) -> None:
    whole = ort(tmp_path / "net.json").read_text().replace("}, {", "},\n{")
    engines = {"cpu": "carmel3"}
    for text, runs in (
        (whole[:-1], 3),
        (whole[:-1] + ",\n", 3),
        (whole[: whole.rindex('"c_kernel_time"')], 2),
        (whole[: whole.rindex('"model_run"') - 30], 2),
    ):
        found = imported(tmp_path, text, XAVIER, "cut.json", precision="fp32", engines=engines)
        assert found.recordings[0].samples == runs, text[-60:]
        assert any(f"{runs} whole runs" in note for note in found.notes)
    for text in (
        whole.replace("model_run", "model run", 1)[: whole.index("model_run") + 200],
        whole.replace(":", "", 1),
    ):
        with pytest.raises(SocschedError):
            imported(tmp_path, text, XAVIER, "cut.json", precision="fp32", engines=engines)
    part = trtexec(tmp_path / "t.json", "38").read_text()[:-40]
    with pytest.raises(SocschedError, match="valid JSON"):
        imported(tmp_path, part, XAVIER, "cut.json", precision="fp32")


def test_onnx_runtime_states_the_precision(tmp_path: Path) -> None:
    events = json.loads(ort(tmp_path / "net.json", "CPUExecutionProvider").read_text())
    for event in events:
        if str(event["name"]).endswith("_kernel_time"):
            event["args"]["input_type_shape"] = [{"int64": [1]}, {"float16": [1, 3]}]
    found = imported(tmp_path, json.dumps(events), XAVIER, precision="int8")
    assert found.profile.costs[0].precision == "fp16" and "--precision int8 is not used" in " ".join(found.notes)


@pytest.mark.parametrize(
    ("name", "content", "looks"),
    [
        ("a.log", b"", "an empty file"),
        ("a.json", b'{"nodes": 1, "edges": []}', "JSON, an object with nodes, edges"),
        ("a.json", b'[{"x": 1}]', "JSON, a list of objects with x"),
        ("a.nsys-rep", b"\x00\x01\x02abc", "a report of Nsight Systems"),
        ("a.onnx", b"\x08\x07\x12\x07pytorch", "a network (ONNX)"),
        ("a.bin", bytes(range(256)), "binary data"),
        ("a.png", b"\x89PNG\r\n\x1a\n123", "a picture (PNG)"),
        ("perf.data", b"PERFILE2abc", "the data of perf record"),
        ("a.csv", b"one,two,three\n1,2,3\n", "comma-separated values with the columns one,two,three"),
        ("a.txt", "Überschrift\n".encode(), "text that begins 'Überschrift'"),
    ],
)
def test_unknown_files_are_described_and_known_formats_listed(
    name: str, content: bytes, looks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    words = ["profile", "import", str(tmp_path / name), "-p", ORIN, "--precision", "fp16", "-o", str(tmp_path / "p")]
    assert run(words) == 2
    said = capsys.readouterr().err
    assert f"it looks like {looks}" in said and "tegrastats line" not in said
    for known in ("trtexec", "nsys stats", "ONNX Runtime", "PyTorch", "QNN", "RKNN", "ftrace", "tegrastats", "jtop"):
        assert known in said
