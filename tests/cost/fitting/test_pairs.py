"""Files of measurements for a fit: wrong rows are refused with their line; patterns over rows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from socsched.cost import measurements
from socsched.cost.fitting.cells import fastest, pattern, read_pairs
from socsched.cost.measurements import Row
from socsched.errors import InputError, UsageError

HEAD = "platform,engine,precision,mode,share,network,measured_ms,flag,source"
ROW = "qcs8550,npu,int8,performance,1,resnet50,0.767,,quic/ai-hub-models"


def write(path: Path, *rows: str, head: str = HEAD) -> Path:
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_a_row_is_read_without_the_columns_of_a_validation(tmp_path: Path) -> None:
    (pair,) = read_pairs(write(tmp_path / "p.csv", ROW))
    cells = tuple(ROW.split(","))
    source = "quic/ai-hub-models"
    assert pair == Row(
        "qcs8550", "npu", "int8", "performance", 1, "resnet50", 0.767, source=source, line=2, cells=cells
    )
    assert pair.measured_us == pytest.approx(767)
    packed = tmp_path / "p.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "p.csv").read_bytes()))
    assert read_pairs(packed) == [pair]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW.replace("0.767", "-1"), "measured_ms"),
        (ROW.replace("0.767", "nan"), "measured_ms"),
        (ROW.replace("0.767", "inf"), "measured_ms"),
        (ROW.replace("0.767", "fast"), "measured_ms"),
        (ROW.replace("resnet50", "../../etc/passwd"), "network"),
        (ROW.replace("resnet50", ""), "network"),
        (ROW.replace(",1,", ",-1,"), "share"),
        (ROW + ",more", "10 cells, the header has 9"),
        ("a,b", "2 cells"),
        (ROW + "x" * 200_000, "CSV"),
        ('"' + ROW, "CSV"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as raised:
        read_pairs(write(tmp_path / "p.csv", ROW, row))
    assert "p.csv" in str(raised.value)
    assert problem == "CSV" or ":3:" in str(raised.value)


def test_files_that_are_no_measurements_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (b"", b"\xff\xfe\x00", b"\x1f\x8bbroken", HEAD.encode(), b"a,b\n1,2\n", (HEAD + ",mode\n").encode()):
        (tmp_path / "p.csv").write_bytes(content)
        with pytest.raises(InputError, match=r"p\.csv"):
            read_pairs(tmp_path / "p.csv")
    monkeypatch.setattr(measurements, "MOST_ROWS", 2)
    with pytest.raises(InputError, match="more than 2 rows"):
        read_pairs(write(tmp_path / "p.csv", ROW, ROW, ROW))


def test_patterns_need_every_column_and_one_glob_of_each() -> None:
    pair = Row("a", "gpu", "int8", "", 0, "resnet50", 1.0, source="x/y")
    assert pattern("engine=cpu|gpu,source=x/*").holds(pair) and pattern("resnet*").holds(pair)
    assert not pattern("engine=gpu,source=z/*").holds(pair)
    for wrong in ("colour=red", "engine=", ""):
        with pytest.raises(UsageError):
            pattern(wrong)


def test_the_fastest_row_of_a_network_counts() -> None:
    rows = [Row("a", "gpu", "int8", "", 0, name, time) for name, time in (("b", 3.0), ("a", 2.0), ("b", 1.0))]
    assert fastest(rows) == {"a": 2000.0, "b": 1000.0}
