"""`socsched validate` of measured power: predictions, cells, refusals, files; clocks that no mode has."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")

from socsched.cli.root import run
from socsched.cost.power import Watts, at_wall
from socsched.descriptor.catalog import get_platform
from socsched.errors import SocschedError
from socsched.validation.power import COLUMNS, OPTIONAL, PowerValidation, validate_power
from socsched.validation.predict import with_clocks
from tests.validation.pairs import BOARD, folder

NAMES = [*COLUMNS, *OPTIONAL]


def row(number: int, **cells: str) -> list[str]:
    known = {
        "id": f"m{number}", "platform": BOARD, "engine": "gpu", "precision": "fp16", "mode": "MAXN", "share": "",
        "network": "trunk", "meter": "wall", "measured_w": "45", "statistic": "mean", "flag": "", "source": "here",
        "time_ms": "", "clocks": "",
    }  # fmt: skip
    assert set(cells) <= set(known)
    return [{**known, **cells}[name] for name in NAMES]


def write(root: Path, rows: list[list[str]]) -> Path:
    folder(root)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([NAMES, *rows])
    (root / "power.csv").write_text(out.getvalue())
    return root / "power.csv"


def validated(root: Path, rows: list[list[str]]) -> PowerValidation:
    return validate_power(write(root, rows), root / "networks")


def test_wall_is_module_through_the_supply(tmp_path: Path) -> None:
    found = validated(tmp_path, [row(1, meter="module"), row(2), row(3, engine="gpu+dla0+dla1", meter="module")])
    module, wall, three = found.predictions
    platform = get_platform(BOARD)
    assert platform.supply
    known = Watts(module.predicted * 1e3, (module.high - module.predicted) * 1e3)
    expected = at_wall(platform.supply, known)
    assert wall.predicted * 1e3 == pytest.approx(expected.mw)
    assert (wall.high - wall.low) * 1e3 == pytest.approx(2 * expected.error_mw)
    mode = platform.mode("MAXN")
    dla = 2 * mode.engines["dla0"].dynamic_mw.value / 1e3
    assert three.predicted == pytest.approx(module.predicted + dla, rel=0.2) and three.predicted > dla


def test_a_share_of_an_engine_draws_its_share(tmp_path: Path) -> None:
    rows = [
        row(number, engine="cpu0", precision="fp32", share=str(number), meter="rail VIN_SYS_5V0") for number in (1, 4)
    ]
    rows += [
        row(5, engine="cpu0", precision="fp32", share="1", meter="module"),
        row(6, precision="fp32", meter="module"),
    ]
    found = validated(tmp_path, rows)
    assert "states no idle power" in found.predictions[0].refused
    one, four = (
        validated(tmp_path, [row(1, engine="cpu0", precision="fp32", share=s, meter="module")]).predictions[0]
        for s in "14"
    )
    cluster = get_platform(BOARD).mode("MAXN").engines["cpu0"].dynamic_mw.value / 1e3
    traffic = [sum(p.mw for p in one.parts if p.load == "dram") / 1e3 for one in (one, four)]
    assert four.predicted - traffic[1] - one.predicted + traffic[0] == pytest.approx(cluster * 3 / 4)


def test_cells_take_the_fastest_run_or_the_median(tmp_path: Path) -> None:
    timed = [row(1, time_ms="2", measured_w="20"), row(2, time_ms="1", measured_w="40"), row(3, time_ms="3")]
    assert [cell.measured for cell in validated(tmp_path, timed).cells] == [40]
    untimed = [
        row(1, measured_w="30"),
        row(2, measured_w="20"),
        row(3, measured_w="90"),
        row(4, measured_w="1", flag="x"),
    ]
    found = validated(tmp_path, untimed)
    assert [cell.measured for cell in found.cells] == [30]
    assert found.document["overall"]["cells"] == 1 and found.document["flagged"] == 1
    (group,) = found.document["groups"]
    assert (group["platform"], group["meter"], group["engine"]) == (BOARD, "wall", "gpu")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"measured_w": "-3"}, "measured_w: expected 0.001 to 100000 W, got '-3'"),
        ({"measured_w": "nan"}, "measured_w: expected"),
        ({"meter": "socket"}, "meter: expected wall, module or rail NAME, got 'socket'"),
        ({"meter": "rail VDD_X"}, "has no rail VDD_X"),
        ({"engine": "gpu+gpu"}, "an engine twice"),
        ({"engine": "gpu+npu"}, "has no engine 'npu'"),
        ({"engine": "gpu+dla0", "share": "1"}, "several engines"),
        ({"network": "../trunk"}, "expected the name of a file"),
        ({"network": "absent"}, "no network absent.onnx"),
        ({"time_ms": "soon"}, "time_ms: expected"),
        ({"clocks": "gpu=fast"}, "expected a frequency"),
        ({"clocks": "gpu=9GHz"}, "beyond the clock of gpu"),
        ({"clocks": "gpu=off"}, "0 units"),
        ({"clocks": "cpu0=1GHz*9"}, "expected 1 to 4 units"),
        ({"clocks": "npu=1GHz"}, "expected ENGINE=CLOCK"),
        ({"platform": "jetson-tx2", "mode": "MAXN"}, "states no carrier board and adaptor"),
    ],
)
def test_rows_that_cannot_be_predicted_are_kept_with_their_reason(
    tmp_path: Path, cells: dict[str, str], reason: str
) -> None:
    found = validated(tmp_path, [row(1, **cells), row(2)])
    assert reason in found.predictions[0].refused and not found.predictions[1].refused


def test_files_of_a_validation_of_power(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write(tmp_path, [row(1), row(2, meter="socket")])
    (tmp_path / "bar.yaml").write_text('schema_version: "1"\ngroups: [{meter: wall, mape: 0.0001}]\n')
    command = ["validate", str(table), "--networks", str(tmp_path / "networks"), "--bar", str(tmp_path / "bar.yaml")]
    assert run([*command, "-o", str(tmp_path / "out")]) == 1
    assert "wall" in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "out" / "rows.csv").read_text().splitlines()))
    assert [one["refused"] == "" for one in rows] == [True, False]
    assert float(rows[0]["lo_w"]) < float(rows[0]["predicted_w"]) < float(rows[0]["hi_w"])
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["refused_rows"] == 1 and summary["bar"]["failures"][0].startswith(f"{BOARD} gpu wall: mape")
    assert "predicted [W]" in (tmp_path / "out" / "index.html").read_text()


def test_a_table_without_its_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "power.csv").write_text("id,measured_w\n1,2\n")
    with pytest.raises(SocschedError, match=r"power.csv:1: columns are missing: platform"):
        validate_power(tmp_path / "power.csv", tmp_path)


def test_power_between_the_modes() -> None:
    platform = get_platform(BOARD)
    mode = with_clocks(platform, platform.mode("MAXN"), "gpu=700MHz cpu1=off cpu0=576MHz*2 dram=100GB/s")
    assert mode.engines["cpu1"].units == 0 and mode.engines["cpu0"].units == 2 and mode.dram.value == 100e9
    slow, fast = (platform.mode(name).engines["gpu"].dynamic_mw.value for name in ("50W", "MAXN"))
    assert 0.7 * slow < mode.engines["gpu"].dynamic_mw.value < slow < fast
    same = with_clocks(platform, platform.mode("MAXN"), "gpu=816MHz")
    assert same.engines["gpu"].dynamic_mw.value == pytest.approx(slow, rel=0.01)
