"""Frames from files: assignment of files to sensors, rows of arrays, and errors before the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from socsched.descriptor.pipeline import Pipeline, Sensor
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import InputError
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.scan import write_bin
from socsched.models.registry import bindings
from socsched.runtime import input_files
from socsched.runtime.frames import Frame
from socsched.runtime.input_files import InputFiles, list_frames, of_files
from socsched.runtime.inputs import Nothing, sources

PORT = {"x": TensorType((1, 3, 4, 6), "fp32", "NCHW")}


@pytest.fixture
def stack(checkout: Path) -> Pipeline:
    """Return a pipeline with a LiDAR and a camera."""
    return load_pipeline(checkout / "pipelines" / "perception-stack.yaml")


def picture(file: Path, size: tuple[int, int] = (40, 30)) -> Path:
    pixels = np.random.default_rng(size).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return file


def arrays(file: Path, **given: Any) -> Path:
    np.savez_compressed(file, **given)
    return file


def fed(file: Path) -> InputFiles:
    found = of_files(list_frames(file), PORT, Nothing(), Sensor("camera", "camera", 10**8))
    assert found is not None
    return found


def test_scans_go_to_the_lidar_and_images_to_the_camera(stack: Pipeline, tmp_path: Path) -> None:
    write_bin(tmp_path / "a.bin", np.ones((7, 4), np.float32))
    picture(tmp_path / "b.png")
    picture(tmp_path / "c.JPG")
    feeds = sources(stack, bindings(stack), list_frames(tmp_path), 0)
    assert [feeds[name].count for name in ("lidar", "camera")] == [1, 2]
    assert feeds["lidar"].frame(3).outputs["points"].shape == (7, 4)
    with Image.open(tmp_path / "b.png") as image:
        expected = np.asarray(image).transpose(2, 0, 1)[None]
    assert np.array_equal(feeds["camera"].frame(2).outputs["image"], expected)
    assert not any(feed.count for name, feed in feeds.items() if name not in ("lidar", "camera"))


def test_a_sensor_without_files_gets_synthetic_frames(stack: Pipeline, tmp_path: Path) -> None:
    feeds = sources(stack, bindings(stack), [picture(tmp_path / "b.png")], 0)
    assert feeds["lidar"].count == 0 and len(feeds["lidar"].frame(0).outputs["points"]) > 1000


def test_rows_of_an_array_are_frames(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((3, 3, 4, 6)).astype(np.float32)
    frames = fed(arrays(tmp_path / "a.npz", x=rows))
    assert frames.count == 3
    assert [np.array_equal(frames.frame(k).outputs["x"], rows[k % 3 : k % 3 + 1]) for k in range(4)] == [True] * 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": np.zeros((1, 3, 4, 7), np.float32)}, "expected float32 [1, 3, 4, 6]"),
        ({"x": np.zeros((1, 3, 4, 6))}, "float64"),
        ({"x": np.zeros((0, 3, 4, 6), np.float32)}, "[0, 3, 4, 6]"),
        ({"x": np.array(["a"])}, "expected float32"),
        ({"x": np.float32(1)}, "expected float32"),
    ],
    ids=["shape", "type", "empty", "text", "scalar"],
)
def test_arrays_that_do_not_fit_the_port_are_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=None) as caught:
        fed(arrays(tmp_path / "a.npz", **given))
    assert says in str(caught.value)


def test_objects_in_an_archive_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="object"):
        fed(tmp_path / "a.npz")


def test_an_archive_larger_than_memory_is_refused_by_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "LARGEST", 1000)
    with pytest.raises(InputError, match="MiB"):
        fed(arrays(tmp_path / "a.npz", x=np.zeros((9, 3, 4, 6), np.float32)))


def test_a_frame_with_nan_is_skipped_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.zeros((2, 3, 4, 6), np.float32)
    rows[0, 0, 0, 0] = np.nan
    frames = fed(arrays(tmp_path / "a.npz", x=rows))
    assert "NaN" in frames.frame(0).problem and not frames.frame(1).problem
    assert "frame 0 skipped" in capsys.readouterr().err
    assert np.array_equal(frames.warm().outputs["x"], rows[1:])


def test_damaged_files_are_frames_that_cannot_be_used(stack: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 nothing")
    frame: Frame = sources(stack, bindings(stack), [tmp_path / "a.png"], 0)["camera"].frame(0)
    assert "not a readable image" in frame.problem
    with pytest.raises(InputError, match="not a readable array file"):
        fed(tmp_path / "b.npz")


def test_files_that_no_sensor_takes_are_refused(checkout: Path, tmp_path: Path) -> None:
    lidar = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    with pytest.raises(InputError, match="takes an image without preprocessing"):
        sources(lidar, bindings(lidar), [picture(tmp_path / "a.png")], 0)
    camera = load_pipeline(checkout / "pipelines" / "camera-detection.yaml")
    write_bin(tmp_path / "a.bin", np.ones((7, 4), np.float32))
    with pytest.raises(InputError, match="no sensor of this pipeline takes it"):
        sources(camera, bindings(camera), [tmp_path / "a.bin"], 0)
    with pytest.raises(InputError, match="no sensor of this pipeline takes it"):
        sources(camera, bindings(camera), [arrays(tmp_path / "c.npz", y=np.zeros(3))], 0)
    (tmp_path / "empty").mkdir()
    for wrong in ("empty", "none", "d.txt"):
        (tmp_path / "d.txt").write_text("")
        with pytest.raises(InputError):
            list_frames(tmp_path / wrong)
