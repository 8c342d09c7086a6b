"""Damaged files of every format end in one error of the package, or in a pipeline whose file reads back the same."""

from __future__ import annotations

import random
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
