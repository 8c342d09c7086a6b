"""Small files of other tools that would take much memory or time: attributes, chunks."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from socsched.errors import SocschedError
from socsched.interchange import xml_file


def test_attributes_are_counted_before_they_are_in_memory(tmp_path: Path) -> None:
    count = xml_file.MOST_ATTRIBUTES + 1
    (tmp_path / "a.amxmi").write_text("<a " + " ".join(f'a{number}=""' for number in range(count)) + "/>")
    began = time.process_time()
    with pytest.raises(SocschedError, match="expected at most 1500000 attributes"):
        xml_file.XmlFile(tmp_path / "a.amxmi", "model", "")
    assert time.process_time() - began < 2


def chunk(plain: bytes, stated: int) -> bytes:
    zstandard = pytest.importorskip("zstandard", reason="chunks of MCAP files are compressed with it")
    packed = zstandard.ZstdCompressor(19).compress(plain)
    body = (
        struct.pack("<QQQI", 0, 0, stated, 0) + struct.pack("<I", 4) + b"zstd" + struct.pack("<Q", len(packed)) + packed
    )
    return b"\x06" + struct.pack("<Q", len(body)) + body


@pytest.mark.parametrize("stated", [2**30, 2**62, 200 * 2**20])
def test_a_chunk_that_expands_is_refused_before_it_does(stated: int, tmp_path: Path) -> None:
    pytest.importorskip("mcap", reason="reads MCAP")
    from socsched.runtime.mcap_file import open_mcap

    (tmp_path / "bomb.mcap").write_bytes(b"\x89MCAP0\r\n" + chunk(bytes(200 * 2**20), stated))
    with pytest.raises(SocschedError, match="more than a file of this size explains"):
        open_mcap(tmp_path / "bomb.mcap")
