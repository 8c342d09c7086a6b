"""Damaged files of every format end in one error of the package, or in a pipeline whose file reads back the same.

Small files of other tools that take much memory or time: attributes, chunks, elements.

"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from amalthea_writer import waters
from ctf_writer import chain, write
from datafiles import read
from mutations import changed, same_when_read_back
from profile_samples import XAVIER, nsys, ort, torch_trace, trtexec

from socsched.api.interchange import import_profile
from socsched.errors import SocschedError
from socsched.interchange import xml_file
from socsched.interchange.amalthea import import_amalthea
from socsched.interchange.ros2 import pipeline_of, read_graph

CHANGES = 60


@pytest.mark.parametrize(
    "make", [lambda p: trtexec(p, "38"), ort, torch_trace, nsys], ids=["trt", "ort", "torch", "nsys"]
)
def test_profiles(make: Callable[[Path], Path], tmp_path: Path) -> None:
    raw, rng = make(tmp_path / "seed").read_bytes(), random.Random(1)
    for _ in range(CHANGES):
        (tmp_path / "x").write_bytes(changed(raw, rng))
        try:
            import_profile([tmp_path / "x"], XAVIER, precision="fp16")
        except SocschedError as error:
            assert str(error)


def test_models(tmp_path: Path) -> None:
    raw, rng, file = waters(read("waters2019.json")).encode(), random.Random(2), tmp_path / "m.amxmi"
    file.write_bytes(raw)
    same_when_read_back(import_amalthea(file), tmp_path / "m.yaml")
    for _ in range(CHANGES):
        file.write_bytes(changed(raw, rng))
        try:
            same_when_read_back(import_amalthea(file), tmp_path / "m.yaml")
        except SocschedError as error:
            assert str(error)


@pytest.mark.parametrize("name", ["metadata", "stream_0"])
def test_traces(name: str, tmp_path: Path) -> None:
    folder, rng = write(tmp_path / "t", chain()), random.Random(3)
    raw = (folder / name).read_bytes()
    same_when_read_back(pipeline_of(read_graph(folder), folder), tmp_path / "t.yaml")
    for _ in range(CHANGES):
        (folder / name).write_bytes(changed(raw, rng))
        try:
            same_when_read_back(pipeline_of(read_graph(folder), folder), tmp_path / "t.yaml")
        except SocschedError as error:
            assert str(error)


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
