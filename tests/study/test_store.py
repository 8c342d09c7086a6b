"""Rows that survive: torn lines, flipped bits, full disks, other studies."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import pytest

from socsched.errors import MachineError, UsageError
from socsched.study import store as stores
from socsched.study.store import create, decode, encode

ROWS = [{"config": n, "rung": 0, "text": f"row {n}"} for n in range(20)]


def test_rows_are_restored_and_never_duplicated(tmp_path: Path) -> None:
    first = create(tmp_path, "a", False)
    first.add(ROWS[:5])
    first.add(ROWS[3:8])
    first.close()
    again = create(tmp_path, "a", True)
    assert list(again.rows.values()) == ROWS[:8]
    again.add(ROWS)
    again.close()
    lines = [line for part in sorted((tmp_path / "parts").iterdir()) for line in part.read_bytes().splitlines()]
    assert [decode(line) for line in lines] == ROWS


def test_rows_are_on_the_disk_when_add_returns(tmp_path: Path) -> None:
    first = create(tmp_path, "a", False)
    first.add(ROWS[:5])
    # no close: the process is gone
    assert len(create(tmp_path, "a", True).rows) == 5
    assert [path.suffix for path in (tmp_path / "parts").iterdir()] == [stores.ROWS]


@pytest.mark.parametrize("lost", range(2, 40, 7))
def test_a_torn_line_is_no_row(tmp_path: Path, lost: int) -> None:
    first = create(tmp_path, "a", False)
    first.add(ROWS[:3])
    (part,) = (tmp_path / "parts").iterdir()
    part.write_bytes(part.read_bytes()[:-lost])
    again = create(tmp_path, "a", True)
    assert len(again.rows) == 2 and again.damaged == 1
    again.add(ROWS)
    again.close()
    assert list(create(tmp_path, "a", True).rows) == [(n, 0) for n in (0, 1, 2, *range(3, 20))]


def test_a_flipped_bit_costs_its_row_and_no_other(tmp_path: Path) -> None:
    first = create(tmp_path, "a", False)
    first.add(ROWS[:3])
    first.close()
    (part,) = (tmp_path / "parts").iterdir()
    part.write_bytes(part.read_bytes().replace(b"row 1", b"row 9"))
    again = create(tmp_path, "a", True)
    assert [config for config, _ in again.rows] == [0, 2] and again.damaged == 1


def test_a_full_disk_loses_nothing_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = create(tmp_path, "a", False)
    first.add(ROWS[:5])
    (part,) = (tmp_path / "parts").iterdir()
    size, real = part.stat().st_size, os.write

    def full(handle: int, data: bytes) -> int:
        if os.fstat(handle).st_size >= size + 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, bytes(data)[:30])

    monkeypatch.setattr(stores.os, "write", full)
    with pytest.raises(MachineError, match="the disk is full") as caught:
        first.add(ROWS[5:9])
    assert "--resume" in caught.value.hint
    monkeypatch.undo()
    assert part.stat().st_size == size
    first.close()
    again = create(tmp_path, "a", True)
    assert list(again.rows.values()) == ROWS[:5] and not again.damaged


@pytest.mark.needs("mounting")
def test_on_a_small_file_system(tmp_path: Path) -> None:
    import subprocess

    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    try:
        first, kept = create(folder / "out", "a", False), 0
        with pytest.raises(MachineError, match="the disk is full"):
            for row in ({"config": n, "rung": 0, "text": "x" * 999} for n in range(1000)):
                first.add([row])
                kept += 1
        first.close()
        assert 20 < kept < 64
        again = create(folder / "out", "a", True)
        assert len(again.rows) == kept and not again.damaged
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_results_of_different_studies_are_not_mixed(tmp_path: Path) -> None:
    create(tmp_path, "a", False).add(ROWS[:1])
    with pytest.raises(UsageError, match="already contains results"):
        create(tmp_path, "a", False)
    with pytest.raises(UsageError, match="another study"):
        create(tmp_path, "b", True)


def test_parts_are_closed_when_they_are_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PER_PART", 3)
    first = create(tmp_path, "a", False)
    for row in ROWS[:7]:
        first.add([row])
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["000001.rows", "000002.rows", "000003.open"]


def test_a_line_is_its_checksum_and_json() -> None:
    line = encode({"b": 1, "a": None})
    assert line == b'30dff8e4 {"a":null,"b":1}\n'
    assert decode(line.rstrip()) == {"b": 1, "a": None}
    assert decode(b"00000000 {}") is None and decode(b"") is None


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"5", b"{}", b'{"config": [], "rung": 1}', b'{"config": 1, "rung": "\\ud800"}', b"\xff"]
)
def test_rows_that_are_none_are_damaged_whatever_their_checksum(text: bytes, tmp_path: Path) -> None:
    create(tmp_path, "d", False)
    (tmp_path / "parts/000001.rows").write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    found = create(tmp_path, "d", True)
    assert (found.rows, found.damaged) == ({}, 1)


@pytest.mark.parametrize("name", ["study.json", "parts/000001.rows"])
def test_an_endless_file_of_a_study_is_refused(name: str, tmp_path: Path) -> None:
    create(tmp_path, "d", False)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="it is a device"):
        create(tmp_path, "d", True)
