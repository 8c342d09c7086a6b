"""`socsched validate`: the same costs as `plan`, refusals with their reasons, files it writes, docs/fidelity.md."""

from __future__ import annotations

import csv
import hashlib
import json
import lzma
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")

from socsched.api.planning import plan
from socsched.cli.root import run
from socsched.cost.fitting.families import get_family
from socsched.validation.validate import Validation, scores_of_family, validate
from tests.cost.fitting.synthetic import TRUE, cell
from tests.models.onnx_files import Builder
from tests.validation.pairs import BOARD, COLUMNS, ROWS, folder, row, table
from tools.generate.fidelity import COMMANDS, PAGE, README, page


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("pairs"))


def checked(root: Path, *more: str) -> int:
    return run(["validate", str(root / "pairs.csv"), "--networks", str(root / "networks"), *more])


def validated(place: Path, rows: list[list[str]]) -> Validation:
    folder(place, rows)
    return validate(place / "pairs.csv", place / "networks")


def refusals(found: Validation) -> list[str]:
    return [prediction.refused for prediction in found.predictions]


def test_a_prediction_is_the_cost_of_the_planned_stage(root: Path) -> None:
    planned = plan(str(root / "networks" / "trunk.onnx"), BOARD, mode="MAXN")
    (task,) = (task for task in planned.tasks if task.kind == "stage")
    cell = row(
        1, engine=task.engine, precision=task.precision, share=str(len(task.lanes)) if task.engine == "cpu0" else ""
    )
    (prediction,) = validated(root / "one", [cell]).predictions
    assert round(prediction.predicted * 1e6) == task.cost_ns
    assert prediction.provenance == task.provenance
    low, high = round(task.cost_ns / (1 + task.error)), round(task.cost_ns * (1 + task.error))
    assert (round(prediction.low * 1e6), round(prediction.high * 1e6)) == (max(low, 1), high)


def test_cells_take_the_fastest_unflagged_row(root: Path) -> None:
    found = validate(root / "pairs.csv", root / "networks")
    assert found.document["overall"]["cells"] == 5
    assert found.document["flagged"] == 1
    assert min(cell.row.measured_ms for cell in found.cells) == 0.04
    assert found.predictions[2].predicted == found.predictions[0].predicted  # flagged, but predicted


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"platform": "nowhere"}, "no platform 'nowhere'"),
        ({"platform": "../platforms/jetson-tx2.yaml"}, "no platform '../platforms"),
        ({"platform": "host"}, "no platform 'host'"),
        ({"engine": "tpu"}, f"{BOARD} has no engine 'tpu'"),
        ({"precision": "fp64"}, "no precision 'fp64'"),
        ({"platform": "jetson-tx2", "precision": "int8", "engine": "denver"}, "computes in"),
        ({"mode": "warp"}, f"{BOARD} has no mode 'warp'"),
        ({"mode": ""}, f"{BOARD} has no mode ''"),
        ({"network": "unknown"}, "no network unknown.onnx or unknown.onnx.xz"),
        ({"network": "broken"}, "broken.onnx: not a usable ONNX file"),
        ({"share": "3"}, "gpu is used whole, with 16 units in MAXN, not with 3"),
        ({"engine": "cpu0", "precision": "fp32", "share": "99"}, "cpu0 has 4 units in MAXN, not 99"),
        ({"measured_ms": "nan"}, "measured_ms: expected"),
        ({"network": "../../etc/passwd"}, "network: expected the name of a file"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(tmp_path: Path, cells: dict[str, str], says: str) -> None:
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "broken.onnx").write_bytes(b"\x08\x09:\xff")
    good, bad = refusals(validated(tmp_path, [row(1), row(2, **cells)]))
    assert good == ""
    assert says in bad


def test_a_compressed_network_gives_the_same_prediction(tmp_path: Path) -> None:
    place = folder(tmp_path, ROWS)
    before = validate(place / "pairs.csv", place / "networks").predictions
    for file in list((place / "networks").iterdir()):
        (place / "networks" / f"{file.name}.xz").write_bytes(lzma.compress(file.read_bytes()))
        file.unlink()
    assert validate(place / "pairs.csv", place / "networks").predictions == before


def test_damaged_and_bloated_archives_are_refused(tmp_path: Path) -> None:
    place = folder(tmp_path, [row(1, network=name) for name in ("short", "bomb", "noise")])
    for number, (name, content) in enumerate(
        {
            "short": lzma.compress((place / "networks" / "trunk.onnx").read_bytes())[:-40],
            "bomb": lzma.compress(b"\x12" + b"\x80\x80\x80\x60" + b"\0" * (200 * 2**20)),
            "noise": b"no xz",
        }.items()
    ):
        (place / "networks" / f"{name}.onnx.xz").write_bytes(content)
        (place / "pairs.csv").write_text("")
        found = refusals(_one(place, row(number, network=name)))
        assert f"{name}.onnx.xz: not a usable ONNX file" in found[0]


def _one(place: Path, cells: list[str]) -> Validation:
    from tests.validation.pairs import table

    (place / "pairs.csv").write_text(table([cells]))
    return validate(place / "pairs.csv", place / "networks")


def test_the_folder_has_rows_summary_and_page(root: Path, tmp_path: Path) -> None:
    assert checked(root, "-q", "-o", str(tmp_path / "out")) == 0
    with (tmp_path / "out" / "rows.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[-6:] == ["predicted_ms", "lo_ms", "hi_ms", "inside", "provenance", "refused"]
    assert [line[:-6] for line in rows] == ROWS
    for line in rows:
        predicted, low, high = map(float, line[-6:-3])
        assert 0 < low <= predicted <= high
        assert line[-3] == str(low <= float(line[7]) <= high).lower()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["overall"]["cells"] == 5
    assert [group["engine"] for group in summary["groups"]] == ["cpu0", "gpu"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<script" not in page
    assert page.count("<circle") == 5
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_json_is_the_summary(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert checked(root, "--json", "-o", str(tmp_path / "out")) == 0
    printed: Any = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "summary.json").read_text())


def test_hostile_cells_are_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "<script>alert(1)</script>", "\x1b[31m\u202e", 'a"b,c\nd']
    rows = [row(number, id=f"{number}{text}", source=text, note=text) for number, text in enumerate(hostile)]
    rows += [row(90 + number, platform=text) for number, text in enumerate(hostile)]
    rows += [row(80 + number, mode=text, network="mobilenet") for number, text in enumerate(hostile)]
    place = folder(tmp_path, rows)
    capsys.readouterr()
    assert checked(place, "-o", str(tmp_path / "out")) == 0
    assert "\x1b[31m" not in capsys.readouterr().out
    with (tmp_path / "out" / "rows.csv").open(newline="") as file:
        assert [line[:-6] for line in list(csv.reader(file))[1:]] == rows
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<script" not in page
    assert "\x1b" not in page


def test_the_bar_decides_the_exit_code(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bar = tmp_path / "bar.yaml"
    bar.write_text("schema_version: '1'\noverall: {mape: 1000}\n")
    assert checked(root, "--bar", str(bar)) == 0
    bar.write_text(
        f"schema_version: '1'\noverall: {{cells: 6}}\ngroups: [{{platform: {BOARD}, engine: gpu, cells: 2}}]\n"
    )
    capsys.readouterr()
    assert checked(root, "--bar", str(bar)) == 1
    assert "overall: cells is 5, expected at least 6" in capsys.readouterr().out


def test_an_own_descriptor_answers_for_its_platform(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "platforms" / f"{BOARD}.yaml"
    own = tmp_path / "mine.yaml"
    own.write_text(shipped.read_text().replace(f"name: {BOARD}", "name: mine", 1))
    place = folder(tmp_path, [row(1, platform="mine"), row(2)])
    found = validate(place / "pairs.csv", place / "networks", None, (str(own),))
    assert refusals(found) == ["", ""]
    assert found.predictions[0].predicted == found.predictions[1].predicted


def test_cells_of_another_runtime_are_apart_and_counted(root: Path) -> None:
    place = folder(root / "programs")
    columns, rows = [*COLUMNS, "runtime"], [[*cells, program] for cells, program in zip(
        [row(1), row(2, network="mobilenet"), row(3, engine="cpu0", precision="fp32", share="4")],
        ["TensorRT 10.3", "ncnn 2026", ""], strict=True,
    )]  # fmt: skip
    (place / "pairs.csv").write_text(table(rows, columns))
    found = validate(place / "pairs.csv", place / "networks")
    document = found.document
    assert (document["overall"]["cells"], document["everything"]["cells"]) == (2, 3)
    (reason,) = document["apart"]
    assert reason["cells"] == 1 and reason["reason"].startswith("other runtime: the fit stands for *TensorRT*")
    assert {g["engine"]: (g["cells"], g["apart"]) for g in document["groups"]} == {"gpu": (1, 1), "cpu0": (1, 0)}
    assert found.predictions[1].predicted > 0, "predicted all the same"
    excluded = validate(place / "pairs.csv", place / "networks", exclude=("engine=cpu*",)).document
    assert excluded["overall"]["cells"] == 1 and excluded["everything"]["cells"] == 3


def test_a_row_of_a_known_host_program_is_predicted_with_its_costs(root: Path) -> None:
    place = folder(root / "hosts")
    programs = ["TensorRT 10.3", "Ultralytics 8.3.x, JetPack 6.1"]
    rows = [[*row(number), program] for number, program in enumerate(programs)]
    (place / "pairs.csv").write_text(table(rows, [*COLUMNS, "runtime"]))
    plain, hosted = validate(place / "pairs.csv", place / "networks").predictions
    assert hosted.predicted > plain.predicted + 0.3, "a Python loop around each job"
    assert not hosted.apart


def test_sequences_of_programs_without_padding_are_apart(root: Path) -> None:
    place = folder(root / "sequences")
    b = Builder(1)
    b.save(
        place / "networks" / "words.onnx", [1, 16, 64], [b.op("MatMul", "words", b.constant(b.normal(64, 64)))], "words"
    )
    program = "23.02 Jetson CUDA-X AI Developer Preview, TensorRT 8.5.2, CUDA 11.4"
    rows = [[*row(1, network="words", precision="int8"), program], [*row(2, precision="int8"), program]]
    rows.append([*row(3, network="words", precision="int8"), "TensorRT 10.3"])
    (place / "pairs.csv").write_text(table(rows, [*COLUMNS, "runtime"]))
    words, image, padded = validate(place / "pairs.csv", place / "networks").predictions
    assert words.apart.startswith("sequences as long as each input") and words.predicted > 0
    assert not image.apart and not padded.apart


BOARDS = Path(__file__).parents[1] / "data" / "boards"


def test_the_page_states_data_date_and_every_engine(tmp_path: Path) -> None:
    place = folder(tmp_path)
    summary = validate(place / "pairs.csv", place / "networks").document
    text = page(summary, "made-up | times", "2030-01-02")
    assert "made-up \\| times" in text
    assert ", 2030-01-02" in text
    assert summary["sha256"] in text
    assert "| jetson-agx-orin-64gb | cpu0 | fp32 | 3 |" in text
    assert "| **all** |  |  | 5 |" in text


def test_the_command_beside_the_headline_reads_what_is_shipped() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert COMMANDS[0] in README.read_text(encoding="utf-8") and "\n".join(COMMANDS) in text
    words = shlex.split(COMMANDS[0])
    assert (PAGE.parents[1] / words[2]) == BOARDS / "pairs.csv.gz" and (
        PAGE.parents[1] / words[4]
    ) == BOARDS / "networks"
    assert hashlib.sha256((BOARDS / "pairs.csv.gz").read_bytes()).hexdigest() in text


@pytest.mark.slow
def test_the_page_is_what_the_shipped_measurements_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    summary = validate(BOARDS / "pairs.csv.gz", BOARDS / "networks").document
    date = re.search(r"- socsched \S+, ([\d-]+)", text)
    words = text.partition("- Measurements: ")[2].partition("\n")[0]
    assert date and page(summary, words, date[1]) == text, "run the commands of the page"


def test_what_fits_have_not_seen_is_scored_apart_from_what_they_have(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert checked(root, "--leave-out", "nvidia-gpu", "--json") == 0
    rows: Any = json.loads(capsys.readouterr().out)["left_out"]
    assert [(one["family"], one["left_out"], one["boards"], one["cells"]) for one in rows] == [
        ("nvidia-gpu", "network", 1, 2), ("nvidia-gpu", "design", 1, 2),
    ]  # fmt: skip
    assert all(one["mape"] > 0 and one["interval"] > 0 for one in rows)
    assert checked(root, "--leave-out", "abacus") == 2


def test_boards_left_out_are_better_with_more_of_their_networks() -> None:
    odd = TRUE.changed(onchip=TRUE.onchip / 2, spill=TRUE.spill / 2, vector=TRUE.vector / 2)
    cells = [cell(f"b{n}.npu.int8", 30, 0, odd if n == 1 else TRUE) for n in range(4)]
    rows = {one["left_out"]: one for one in scores_of_family(cells, get_family("rknpu"))}
    measured = [f"board, {count} measured" for count in (1, 5, 20)]
    assert list(rows) == ["network", "design", "board and design", "board", *measured]
    assert rows["board, 20 measured"]["mape"] < rows["board"]["mape"]
    assert rows["board"]["cells"] == 120 and rows["board, 20 measured"]["cells"] == 40
