"""The data of the tests: few bytes, each with its source."""

from __future__ import annotations

from pathlib import Path

MIB = 1 << 20


def test_every_file_is_in_the_table_of_sources(data: Path) -> None:
    page = (data / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip().replace("\\", "") for line in page.splitlines() if line.startswith("| ")][1:]
    for file in data.rglob("*"):
        if file.is_file() and file.name != "README.md":
            name = file.relative_to(data).as_posix()
            assert [row for row in rows if name.startswith(row) or file.relative_to(data).match(row)], name


def test_all_data_is_small_enough_to_ship(data: Path) -> None:
    assert sum(file.stat().st_size for file in data.rglob("*") if file.is_file()) <= 6 * MIB
