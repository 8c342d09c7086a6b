"""Frames from MCAP files: values, choice of topics, damaged and hostile files."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap_recordings import CLOUD, IMAGE, Cdr, cloud, compressed, header, image, write

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import InputError, UsageError
from socsched.models.registry import bindings
from socsched.runtime import mcap_file
from socsched.runtime.input_files import InputFiles, list_frames
from socsched.runtime.inputs import sources
from socsched.runtime.mcap_file import open_mcap
from socsched.runtime.ros_messages import CLOUD as POINTS
from socsched.runtime.ros_messages import COMPRESSED as COMPRESSED_IMAGE
from socsched.runtime.ros_messages import IMAGE as RAW
from socsched.runtime.ros_messages import decode

RNG = np.random.default_rng(0)
CLOUDS = [RNG.normal(0, 20, (count, 4)).astype(np.float32) for count in (300, 1, 777)]
PIXELS = RNG.integers(0, 256, (6, 10, 3), dtype=np.uint8)


@pytest.fixture
def stack(checkout: Path) -> Pipeline:
    return load_pipeline(checkout / "pipelines" / "perception-stack.yaml")


def feeds(stack: Pipeline, file: Path, **topics: str) -> dict[str, Any]:
    return sources(stack, bindings(stack), list_frames(file), 0, topics)


def test_points_are_those_of_the_message() -> None:
    for points in CLOUDS:
        found = decode(POINTS, "cdr", cloud(points))
        assert found.tobytes() == points.tobytes()
        assert found.ctypes.data % 64 == 0


@pytest.mark.parametrize(("fields", "order", "gap"), [("f4", ">", 3), ("f8", "<", 0), ("u2", "<", 5), ("u1", ">", 1)])
def test_points_of_other_types_are_converted(fields: str, order: str, gap: int) -> None:
    points = RNG.integers(0, 200, (50, 4)).astype(np.float32)
    assert np.array_equal(decode(POINTS, "cdr", cloud(points, fields, order, gap)), points)


def test_missing_returns_are_left_out() -> None:
    points = CLOUDS[0].copy()
    points[[3, 7], 1] = np.nan, np.inf
    assert np.array_equal(decode(POINTS, "cdr", cloud(points)), np.delete(points, [3, 7], 0))
    points[:, 0] = np.nan
    with pytest.raises(ValueError, match="no point"):
        decode(POINTS, "cdr", cloud(points))


@pytest.mark.parametrize(
    ("encoding", "order"), [("rgb8", (0, 1, 2)), ("bgr8", (2, 1, 0)), ("rgba8", (0, 1, 2, 0)), ("mono8", (1,))]
)
def test_images_become_red_green_blue(encoding: str, order: tuple[int, ...]) -> None:
    given = np.ascontiguousarray(PIXELS[:, :, list(order)])
    expected = PIXELS if encoding != "mono8" else PIXELS[:, :, [1, 1, 1]]
    assert np.array_equal(decode(RAW, "cdr", image(given, encoding, 3)), expected.transpose(2, 0, 1)[None])


def test_compressed_images_are_decoded() -> None:
    assert np.array_equal(decode(COMPRESSED_IMAGE, "cdr", compressed(PIXELS)), PIXELS.transpose(2, 0, 1)[None])


HUGE = header().put("I", 2**31, 2**31, 0).put("B", 0).put("I", 16, 0).octets(b"").put("B", 1).message()
MANY = header().put("I", 1, 1, 2**32 - 1).message()
PROBLEMS = [
    (POINTS, b"", "encapsulation"),
    (POINTS, b"\0\x03\0\0" + bytes(40), "encapsulation"),
    (POINTS, cloud(CLOUDS[0])[:200], "sequence of|shorter"),
    (POINTS, HUGE, "points of 16 bytes in 0 bytes"),
    (POINTS, MANY, "4294967295 fields"),
    (POINTS, Cdr().put("i", 1).put("I", 2, 2**32 - 1).message(), "sequence of 4294967295 bytes"),
    (RAW, image(PIXELS, "yuv422"), "encoding 'yuv422'"),
    (RAW, header().put("I", 2**16, 2**16).text("rgb8").put("B", 0).put("I", 0).octets(b"").message(), "65536 x 65536"),
    (COMPRESSED_IMAGE, header().text("png").octets(b"no image").message(), "not a JPEG"),
]


@pytest.mark.parametrize(("kind", "data", "problem"), PROBLEMS)
def test_hostile_messages_are_refused(kind: str, data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(kind, "cdr", data)


@pytest.mark.parametrize("encoding", ["cdr", "json", "protobuf"])
def test_changed_messages_are_decoded_or_refused(encoding: str) -> None:
    rng = random.Random(1)
    for number in range(300):
        raw = bytearray(cloud(CLOUDS[1]) if encoding == "cdr" else b'{"fields":[{"name":"x","offset":0,"type":7}]}')
        for _ in range(rng.randint(1, 6)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            decode(POINTS if number % 2 else COMPRESSED_IMAGE, encoding, bytes(raw))


@pytest.mark.needs("MCAP")
@pytest.mark.parametrize("compression", ["ZSTD", "LZ4", "NONE"])
def test_topics_feed_the_sensors_of_their_type(stack: Pipeline, tmp_path: Path, compression: str) -> None:
    topics = {"/points": (CLOUD, map(cloud, CLOUDS)), "/image": (IMAGE, [image(PIXELS, "rgb8")] * 2)}
    found = feeds(stack, write(tmp_path / "a.mcap", {**topics, "/other": ("x/msg/Y", [b"z"])}, compression))
    assert isinstance(found["lidar"], InputFiles) and isinstance(found["camera"], InputFiles)
    assert [found["lidar"].count, found["camera"].count] == [3, 2]
    for number in (0, 1, 2, 1, 5):
        assert np.array_equal(found["lidar"].frame(number).outputs["points"], CLOUDS[number % 3])
    assert found["lidar"].frame(1).title == "a.mcap 1"
    assert np.array_equal(found["camera"].frame(1).outputs["image"], PIXELS.transpose(2, 0, 1)[None])


@pytest.mark.needs("MCAP")
def test_files_without_chunks_are_read(stack: Pipeline, tmp_path: Path) -> None:
    file = write(tmp_path / "a.mcap", {"/points": (CLOUD, map(cloud, CLOUDS))}, use_chunking=False)
    assert np.array_equal(feeds(stack, file)["lidar"].frame(2).outputs["points"], CLOUDS[2])


@pytest.mark.needs("MCAP")
def test_one_of_several_topics_is_chosen(stack: Pipeline, tmp_path: Path) -> None:
    kinds = {name: (CLOUD, [cloud(points)]) for name, points in zip(("/front", "/rear"), CLOUDS, strict=False)}
    file = write(tmp_path / "a.mcap", kinds)
    with pytest.raises(InputError, match="topics that could feed sensor lidar: /front, /rear") as caught:
        feeds(stack, file)
    assert "--topic lidar=TOPIC" in caught.value.hint
    assert np.array_equal(feeds(stack, file, lidar="/rear")["lidar"].frame(0).outputs["points"], CLOUDS[1])
    with pytest.raises(InputError, match="/nowhere is not in the file"):
        feeds(stack, file, lidar="/nowhere")
    with pytest.raises(UsageError, match="no sensor 'radio'"):
        feeds(stack, file, radio="/rear")
    named = write(tmp_path / "b.mcap", {**kinds, "/top/lidar/points": (CLOUD, [cloud(CLOUDS[2])])})
    assert np.array_equal(feeds(stack, named)["lidar"].frame(0).outputs["points"], CLOUDS[2])
    with pytest.raises(InputError, match="no sensor of this pipeline takes it"):
        feeds(stack, write(tmp_path / "c.mcap", {"/text": ("std_msgs/msg/String", [b"x"])}))


@pytest.mark.needs("MCAP")
def test_a_damaged_message_is_a_lost_frame(stack: Pipeline, tmp_path: Path, capsys: Any) -> None:
    file = write(tmp_path / "a.mcap", {"/points": (CLOUD, [cloud(CLOUDS[0]), b"\0\1\0\0xy", cloud(CLOUDS[1])])})
    lidar = feeds(stack, file)["lidar"]
    assert "message 1: the message is shorter" in lidar.frame(1).problem
    assert "frame 1 skipped" in capsys.readouterr().err
    assert not lidar.frame(2).problem


@pytest.mark.needs("MCAP")
def test_truncated_and_changed_files_are_refused_or_read(tmp_path: Path) -> None:
    raw = write(tmp_path / "a.mcap", {"/points": (CLOUD, map(cloud, CLOUDS))}).read_bytes()
    damaged, rng = tmp_path / "b.mcap", random.Random(2)
    for length in (0, 5, 8, 30, 500, len(raw) // 2):
        damaged.write_bytes(raw[:length])
        with pytest.raises(InputError, match=r"ends within a record|not a readable MCAP file"):
            open_mcap(damaged)
    for _ in range(150):
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 8)):
            changed[rng.randrange(len(raw))] = rng.randrange(256)
        damaged.write_bytes(changed)
        try:
            file = open_mcap(damaged)
            for topic in file.topics.values():
                for number in range(len(topic)):
                    file.message(topic, number)
        except InputError as error:
            assert str(damaged) in str(error)


@pytest.mark.needs("MCAP")
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_chunks_that_expand_beyond_their_stated_size_are_refused(tmp_path: Path, compression: str) -> None:
    import lz4.frame
    import zstandard
    from mcap.data_stream import RecordBuilder
    from mcap.records import Chunk

    squeeze = zstandard.compress if compression == "zstd" else lz4.frame.compress
    builder = RecordBuilder()
    Chunk(compression, squeeze(bytes(50_000_000)), 0, 0, 0, 1000).write(builder)
    file = tmp_path / "bomb.mcap"
    file.write_bytes(b"\x89MCAP0\r\n" + builder.end())
    with pytest.raises(InputError, match="1001 bytes or more that states 1000"):
        open_mcap(file)


@pytest.mark.needs("MCAP")
def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "a.mcap", {name: (CLOUD, map(cloud, CLOUDS)) for name in ("/a", "/b")})
    monkeypatch.setattr(mcap_file, "MOST_MESSAGES", 5)
    with pytest.raises(InputError, match="more than 5 messages"):
        open_mcap(file)
    monkeypatch.setattr(mcap_file, "MOST_TOPICS", 1)
    with pytest.raises(InputError, match="more than 1 topics"):
        open_mcap(file)
    monkeypatch.setattr(mcap_file, "MOST_RECORD", 100)
    with pytest.raises(InputError, match="expected at most 100"):
        open_mcap(file)


@pytest.mark.needs("MCAP for ROS 2")
def test_the_ros_decoder_reads_the_same_values(tmp_path: Path) -> None:
    """The messages of these tests are those of ROS 2, by a decoder that is given the published definitions."""
    from mcap_ros2._dynamic import generate_dynamic

    definition = "std_msgs/Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\n" + (
        "uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense\n" + "=" * 80 + "\nMSG: std_msgs/Header\n"
        "builtin_interfaces/Time stamp\nstring frame_id\n" + "=" * 80 + "\nMSG: builtin_interfaces/Time\nint32 sec\n"
        "uint32 nanosec\n" + "=" * 80 + "\nMSG: sensor_msgs/PointField\nstring name\nuint32 offset\nuint8 datatype\n"
        "uint32 count\n"
    )
    read = generate_dynamic(CLOUD, definition)[CLOUD]
    message = read(cloud(CLOUDS[0]))
    assert bytes(message.data) == CLOUDS[0].tobytes() == decode(POINTS, "cdr", cloud(CLOUDS[0])).tobytes()
    assert [(field.name, field.offset) for field in message.fields][:2] == [("x", 0), ("y", 4)]


@pytest.mark.needs("Foxglove SDK")
def test_files_of_foxgloves_sdk_are_read(stack: Pipeline, tmp_path: Path) -> None:
    import foxglove
    from foxglove.messages import CompressedImage, PackedElementField, PackedElementFieldNumericType, PointCloud

    fields = [
        PackedElementField(name=name, offset=4 * i, type=PackedElementFieldNumericType.Float32)
        for i, name in enumerate(("x", "y", "z", "intensity"))
    ]
    file = tmp_path / "a.mcap"
    with foxglove.open_mcap(file):
        for points in CLOUDS:
            foxglove.log("/points", PointCloud(point_stride=16, fields=fields, data=points.tobytes()))
        png = compressed(PIXELS)
        foxglove.log("/image", CompressedImage(data=png[png.index(b"\x89PNG") :], format="png"))
    found = feeds(stack, file)
    assert [found["lidar"].frame(number).outputs["points"].tobytes() for number in range(3)] == [
        points.tobytes() for points in CLOUDS
    ]
    assert np.array_equal(found["camera"].frame(0).outputs["image"], PIXELS.transpose(2, 0, 1)[None])
