"""Tables of measurements: what a file must be, and rows that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from socsched.cost import measurements
from socsched.cost.measurements import read_measurements
from socsched.errors import InputError
from socsched.validation.document import ADDED
from tests.validation.pairs import COLUMNS, ROWS, row, table


def test_a_table_is_read_with_every_column(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(table(ROWS))
    found = read_measurements(tmp_path / "pairs.csv")
    assert list(found.columns) == COLUMNS
    assert [list(each.cells) for each in found.rows] == ROWS
    assert [each.share for each in found.rows] == [0, 0, 0, 0, 4, 4, 1]
    assert {each.problem for each in found.rows} == {""}


def test_a_compressed_table_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(table(ROWS))
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(table(ROWS).encode()))
    plain, packed = (read_measurements(tmp_path / name) for name in ("pairs.csv", "pairs.csv.gz"))
    assert plain.rows == packed.rows


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        *(
            ({"measured_ms": text}, "measured_ms: expected")
            for text in ("nan", "-1", "0", "inf", "1e99", "", "1_0", "٣")
        ),
        ({"measured_ms": "=1+1"}, "measured_ms: expected"),
        ({"measured_ms": "9" * 5000}, "measured_ms: expected"),
        *(({"share": text}, "share: expected") for text in ("0", "-1", "99999", "1.5", "all")),
        *(
            ({"network": text}, "network: expected")
            for text in ("", "../trunk", "/etc/passwd", "a/b", ".hidden", "a..b")
        ),
        ({"network": "trunk\0"}, "network: expected"),
        ({"id": " "}, "it has no id"),
    ],
)
def test_a_row_that_cannot_be_used_is_kept_with_its_problem(tmp_path: Path, cells: dict[str, str], says: str) -> None:
    (tmp_path / "pairs.csv").write_text(table([row(1), row(2, **cells)]))
    good, bad = read_measurements(tmp_path / "pairs.csv").rows
    assert good.problem == ""
    assert bad.problem.startswith(says)
    assert len(bad.problem) < 150


def test_an_id_counts_once(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(table([row(1), row(2), row(1)]))
    assert [each.problem for each in read_measurements(tmp_path / "pairs.csv").rows] == [
        "",
        "",
        "the id is that of line 2",
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ":1: columns are missing: id, platform"),
        (b"id,platform\n", ":1: columns are missing: engine"),
        (table(ROWS, [*COLUMNS[:-2], "source", "source"]).encode(), ":1: column 'source' is given twice"),
        (table([], [*COLUMNS, "inside"]).encode(), ":1: column 'inside' is one that validation adds"),
        (table([], [*COLUMNS, *map(str, range(100))]).encode(), ":1: more than 100 columns"),
        (table([row(1), ["x"]]).encode(), ":3: 1 cells, the header has 12 columns"),
        (table(ROWS).encode() + b"\xff\n", ":9: not UTF-8 text"),
        (table([]).encode() + b'"abc', ":2: not a CSV table"),
        (table([row(1, note="x" * 200_000)]).encode(), ": not a CSV table: field larger than"),
        (gzip.compress(table(ROWS).encode(), mtime=0)[:60], "damaged gzip"),
        (gzip.compress(b"\0" * (measurements.MOST_BYTES + 1), mtime=0), "expands to more than"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "pairs.csv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_measurements(tmp_path / "pairs.csv", reserved=ADDED)
    assert says.split(":")[-1].strip() in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'pairs.csv'}:")


def test_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_ROWS", 3)
    (tmp_path / "pairs.csv").write_text(table(ROWS))
    with pytest.raises(InputError, match=":5: more than 3 rows"):
        read_measurements(tmp_path / "pairs.csv")


def test_jobs_a_second_are_a_rate(tmp_path: Path) -> None:
    cells = [row(1, measured_ms="", flag="throughput"), row(2, flag="throughput"), row(3, measured_ms="")]
    rates = ["200", "100", ""]
    (tmp_path / "pairs.csv").write_text(
        table([[*one, fps] for one, fps in zip(cells, rates, strict=True)], [*COLUMNS, "fps"])
    )
    rate, timed, neither = read_measurements(tmp_path / "pairs.csv").rows
    assert (rate.rate, rate.measured_ms, rate.flag, rate.problem) == (True, 5.0, "", "")
    assert (timed.rate, timed.flag) == (False, "throughput")
    assert neither.problem.startswith("measured_ms: expected")
