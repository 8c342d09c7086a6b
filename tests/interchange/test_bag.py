"""Import of recordings of topics: rates, sizes, jitter; MCAP, SQLite and ROS 1 storage; files cut off or damaged."""

from __future__ import annotations

import gzip
import random
import sqlite3
import struct
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap_recordings import write
from profile_samples import database

from socsched.api.interchange import import_pipeline
from socsched.cli.root import run
from socsched.errors import DescriptorError, InputError, MachineError, SocschedError
from socsched.interchange import xml_file
from socsched.interchange.bag import read_recording
from socsched.interchange.pipeline_text import NoRate, Rate, clocks, rate_of
from socsched.runtime.mcap_file import open_mcap

MS = 10**6
LATE = (0, 2, 1, 0, 3)
"""Lateness of messages in ms; the first and the fourth are on the grid of 10 ms."""
TIMES = [50 * MS + 10 * MS * number + late * MS for number, late in enumerate(LATE[:4])]


def bag(folder: Path, *files: str, extra: str = "") -> Path:
    listed = "".join(f"    - {name}\n" for name in files)
    text = f"rosbag2_bagfile_information:\n  version: 9\n{extra}  relative_file_paths:\n{listed}"
    (folder / "metadata.yaml").write_text(text, encoding="utf-8")
    return folder


def rate(times: list[int], length: int = 0) -> Rate | NoRate:
    """Return the rate of a topic in a recording of its own length, or a longer one."""
    other = [times[0], times[0] + length] if length else times[:1]
    return rate_of(times, clocks([times, other]))


def test_rate_is_the_mean_distance_and_jitter_the_lateness_after_its_grid() -> None:
    found = rate(TIMES)
    assert isinstance(found, Rate)
    assert (found.period_ns, found.jitter_ns) == (10 * MS, 2 * MS)
    assert (found.shortest_ns, found.longest_ns) == (9 * MS, 12 * MS)
    assert isinstance(rate(TIMES[:2]), NoRate) and isinstance(rate(TIMES[:1]), NoRate)


@settings(max_examples=200, deadline=None)
@given(
    period=st.integers(2, 1000),
    count=st.integers(6, 300),
    late=st.floats(0, 0.4),
    part=st.floats(0.55, 1),
    zero=st.sampled_from([0, 1000 * 10**9, 1_700_000_000 * 10**9, 4 * 10**18]),
    seed=st.integers(0, 10**6),
)
def test_periodic_topics_have_their_period(
    period: int, count: int, late: float, part: float, zero: int, seed: int
) -> None:
    """Late by less than half a period, in any part of the recording that is over half of it, on any clock."""
    rng = random.Random(seed)
    times = [zero + int((place + rng.random() * late) * period * MS) for place in range(count)]
    found = rate(times, int(period * MS * count / part))
    assert isinstance(found, Rate) and found.period_ns == pytest.approx(period * MS, rel=2 / count)
    assert found.jitter_ns <= 2 * period * MS


@settings(max_examples=200, deadline=None)
@given(
    bursts=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 60)), min_size=1, max_size=2),
    gap=st.integers(0, 2 * MS),
    length=st.integers(2000, 100_000),
    zero=st.sampled_from([0, 1_700_000_000 * 10**9]),
)
def test_bursts_and_latched_topics_have_no_rate(
    bursts: list[tuple[float, int]], gap: int, length: int, zero: int
) -> None:
    """One burst or two, however many messages and wherever in the recording: a latched map, parameters, a restart."""
    times = [zero + int(at * length * MS) + number * gap for at, count in bursts for number in range(count)]
    assert isinstance(rate_of(sorted(times), clocks([times, [zero, zero + length * MS]])), NoRate)


def test_a_burst_at_the_start_of_a_steady_topic_does_not_change_its_rate() -> None:
    times = [number * MS for number in range(80)] + [number * 100 * MS for number in range(1, 100)]
    found = rate(times)
    assert isinstance(found, Rate) and found.period_ns == pytest.approx(100 * MS, rel=0.01)
    assert "messages of a burst left out" in found.note


def test_a_latched_topic_is_an_event_whatever_its_size(tmp_path: Path) -> None:
    rows = [(1, number * 100 * MS, b"x") for number in range(50)] + [(2, 0, bytes(5_000_000)), (2, 1000, bytes(9))]
    found = import_pipeline("rosbag2", database(tmp_path / "a.db3", rows))
    assert list(found.mapping["sensors"]) == ["imu"]
    assert any("/text" in note and "2 messages, of which no rate follows" in note for note in found.notes)


@pytest.mark.parametrize("second", [1_700_000_000 * 10**9, 5 * 3600 * 10**9])
def test_clocks_are_taken_one_by_one(second: int, tmp_path: Path) -> None:
    """Stamps that jump from 0 to the epoch, two clocks in turn, and a simulation that starts again."""
    steady = [number * 100 * MS for number in range(40)]
    jump = [0, 1000] + [second + time for time in steady]
    turns = [time + (second if number % 2 else 0) for number, time in enumerate(steady)]
    again = [10**12 + time for time in (*steady, *steady[:30])]
    for times, period in ((jump, 100 * MS), (turns, 200 * MS), (again, 100 * MS)):
        found = rate_of(times, clocks([times]))
        assert isinstance(found, Rate) and (found.period_ns, found.jitter_ns) == (period, 0)
        assert "messages of another clock left out" in found.note
    file = database(tmp_path / "a.db3", [(1, time, b"x") for time in jump])
    sensor = import_pipeline("rosbag2", file).pipeline("x").sensors[0]
    assert (sensor.period_ns, sensor.jitter_ns) == (100 * MS, 0)


def test_a_bag_in_several_files_becomes_sensors(tmp_path: Path) -> None:
    database(tmp_path / "a.db3", [(1, time, bytes(300)) for time in TIMES[2:]] + [(2, 5, b"once")])
    database(tmp_path / "b.db3", [(1, time, bytes(320)) for time in TIMES[:2]])
    found = import_pipeline("rosbag2", bag(tmp_path, "a.db3", "b.db3"))
    assert found.mapping["sensors"] == {
        "imu": {"kind": "imu", "period": "10 ms", "jitter": "2 ms", "bytes_per_frame": "320 B", "source": "recording"}
    }
    assert any("/text" in note and "left out" in note for note in found.notes)
    pipeline = found.pipeline("x.yaml")
    assert [(s.period_ns, s.jitter_ns, s.bytes_per_frame) for s in pipeline.sensors] == [(10 * MS, 2 * MS, 320)]
    assert not pipeline.chains


def test_a_gap_in_a_recording_is_reported(tmp_path: Path) -> None:
    times = [number * MS for number in (*range(20), *range(27, 40))]
    found = import_pipeline("rosbag2", database(tmp_path / "a.db3", [(1, time, b"x") for time in times]))
    assert found.mapping["sensors"]["imu"]["period"] == "1 ms" and found.mapping["sensors"]["imu"]["jitter"] == "0 ns"
    assert any("7 messages are missing" in note for note in found.notes)
    times = [number * 100 * MS for number in range(50)] + [5000 * MS + number * 20 * MS for number in range(50)]
    found = import_pipeline("rosbag2", database(tmp_path / "c.db3", [(1, time, b"x") for time in times]))
    assert found.mapping["sensors"]["imu"]["jitter"] == found.mapping["sensors"]["imu"]["period"]
    assert any("messages are missing or the rate changes" in note for note in found.notes)
    burst = [(1, number * MS, b"x") for number in (0, 1, 2, 3, 20)]
    with pytest.raises(InputError, match=r"5 messages within .* in bursts"):
        import_pipeline("rosbag2", database(tmp_path / "b.db3", burst))


def test_topics_with_one_name_as_text_are_kept_apart(tmp_path: Path) -> None:
    rows = [(topic, time, b"x") for topic in (1, 2) for time in TIMES]
    found = import_pipeline("rosbag2", database(tmp_path / "a.db3", rows, ("/a/b", "/a_b")))
    assert list(found.mapping["sensors"]) == ["a-b", "a-b-2"]


@pytest.mark.needs("MCAP")
def test_mcap_and_sqlite_give_the_same_sensors(tmp_path: Path) -> None:
    messages = [bytes(10 + number) for number in range(7)]
    mcap = write(tmp_path / "a.mcap", {"/imu": ("sensor_msgs/msg/Imu", messages)})
    rows = [(1, number * 100 * MS, data) for number, data in enumerate(messages)]
    one = import_pipeline("mcap", mcap)
    other = import_pipeline("rosbag2", database(tmp_path / "a.db3", rows))
    assert one.mapping["sensors"] == other.mapping["sensors"]
    assert import_pipeline("rosbag2", bag(tmp_path, "a.mcap")).mapping["sensors"] == one.mapping["sensors"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1", "relative_file_paths: expected a list"),
        ("rosbag2_bagfile_information: {relative_file_paths: [../a.db3]}", "not a file of this folder"),
        ("rosbag2_bagfile_information: {relative_file_paths: [b.db3]}", "not a file of this folder"),
        ("x: [", "expected valid YAML"),
    ],
)
def test_metadata_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    database(tmp_path / "a.db3", [])
    (tmp_path / "metadata.yaml").write_text(text, encoding="utf-8")
    with pytest.raises((InputError, DescriptorError), match=problem):
        read_recording(tmp_path)


def test_faulty_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such recording"):
        read_recording(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no metadata\.yaml in this folder, and no \.mcap or \.db3 file"):
        read_recording(tmp_path)
    with pytest.raises(InputError, match=r"no topic with a rate: .*0 messages"):
        import_pipeline("rosbag2", database(tmp_path / "empty.db3", []))
    with pytest.raises(InputError, match="message of topic 7"):
        read_recording(database(tmp_path / "lost.db3", [(7, 1, b"")]))
    with pytest.raises(InputError, match="not a readable rosbag2 file"):
        read_recording(database(tmp_path / "text.db3", [(1, "soon", b"")]))  # type: ignore[list-item]


def test_a_folder_without_metadata_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "drive"
    folder.mkdir()
    for number in range(12):
        rows = [(1, (10 * number + place) * 10 * MS, b"x") for place in range(10)]
        database(folder / f"drive_{number}.db3", rows)
    (folder / "notes.txt").write_text("not a recording")
    found = import_pipeline("rosbag2", folder)
    assert found.mapping["sensors"]["imu"]["period"] == "10 ms" and found.mapping["sensors"]["imu"]["jitter"] == "0 ns"
    assert any("no metadata.yaml" in note for note in found.notes)
    assert any("120 messages" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_files_compressed_as_a_whole_are_expanded(kind: str, tmp_path: Path) -> None:
    raw = database(tmp_path / "a.db3", [(1, time, bytes(300)) for time in TIMES]).read_bytes()
    suffix, compress = {"gzip": (".gz", gzip.compress), "zstd": (".zstd", zstandard.compress)}[kind]
    (tmp_path / "a.db3").unlink()
    (tmp_path / f"a.db3{suffix}").write_bytes(compress(raw))
    extra = "  compression_mode: FILE\n  compression_format: zstd\n"
    found = import_pipeline("rosbag2", bag(tmp_path, f"a.db3{suffix}", extra=extra))
    (tmp_path / "metadata.yaml").unlink()
    assert found.mapping["sensors"] == import_pipeline("rosbag2", tmp_path).mapping["sensors"]
    assert found.mapping["sensors"]["imu"]["period"] == "10 ms"
    (tmp_path / f"a.db3{suffix}").write_bytes(compress(raw)[:-60])
    with pytest.raises(InputError, match=rf"{tmp_path}/a\.db3"):
        import_pipeline("rosbag2", tmp_path)
    (tmp_path / f"a.db3{suffix}").write_bytes(compress(bytes(200 * 2**20)))
    with pytest.raises(InputError, match="expands to more than a file of this size explains"):
        import_pipeline("rosbag2", tmp_path)


def test_files_that_metadata_lists_and_are_missing_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    database(folder / "old_0.db3", [(1, time, b"x") for time in TIMES])
    found = import_pipeline("rosbag2", bag(folder, "old/old_0.db3", "old/old_1.db3"))
    assert found.mapping["sensors"]["imu"]["period"] == "10 ms"
    assert any("1 of 2 files that metadata.yaml lists are missing: old/old_1.db3" in note for note in found.notes)


def test_topics_of_ros_itself_are_no_sensors(tmp_path: Path) -> None:
    """Seven parameter events that are all of a recording are within its length, and no sensor of a millisecond."""
    rows = [(1, number * MS, b"x") for number in range(7)]
    with pytest.raises(InputError, match="7 messages of ROS itself"):
        import_pipeline("rosbag2", database(tmp_path / "a.db3", rows, ("/parameter_events",)))


def test_types_of_one_topic_are_kept_apart(tmp_path: Path) -> None:
    file = database(
        tmp_path / "a.db3", [(topic, time, bytes(topic)) for topic in (1, 2) for time in TIMES], ("/a", "/a")
    )
    found = import_pipeline("rosbag2", file)
    assert {name: sensor["kind"] for name, sensor in found.mapping["sensors"].items()} == {"a": "imu", "a-2": "topic"}


@pytest.mark.needs("MCAP")
def test_types_of_one_topic_in_mcap_are_kept_apart(tmp_path: Path) -> None:
    from mcap.writer import Writer

    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        kinds = [writer.register_schema(kind, "ros2msg", b"") for kind in ("sensor_msgs/msg/Imu", "b/msg/B")]
        channels = [writer.register_channel("/话题", "cdr", kind) for kind in (*kinds, kinds[0])]
        for number in range(12):
            writer.add_message(channels[number % 3], number * 10 * MS, bytes(5 + number % 3), number)
        writer.finish()
    found = import_pipeline("mcap", tmp_path / "a.mcap")
    counts = {name: next(n for n in found.notes if n.startswith(f"{name}: /话题")) for name in found.mapping["sensors"]}
    assert len(counts) == 2 and sorted("8 messages" in note for note in counts.values()) == [False, True]


def test_topics_in_chinese_are_kept_with_a_number(tmp_path: Path) -> None:
    rows = [(topic, time, b"x") for topic in (1, 2) for time in TIMES]
    found = import_pipeline("rosbag2", database(tmp_path / "a.db3", rows, ("/相机", "/雷达")))
    assert len(found.mapping["sensors"]) == 2
    assert [sum(name in note for note in found.notes) for name in ("/相机", "/雷达")] == [1, 1]


@pytest.mark.needs("MCAP")
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
def test_an_mcap_file_cut_anywhere_gives_what_is_whole(compression: str, tmp_path: Path) -> None:
    """Cut within records, within chunks and between them, and without the summary: messages never get fewer."""
    rng = random.Random(1)
    messages = [bytes(rng.randrange(256) for _ in range(300)) for _ in range(200)]
    whole = write(tmp_path / "whole.mcap", {"/imu": ("sensor_msgs/msg/Imu", messages)}, compression)
    raw, file, counts = whole.read_bytes(), tmp_path / "cut.mcap", list[int]()
    cuts = sorted(rng.sample(range(60, len(raw)), 60))
    for cut in cuts:
        file.write_bytes(raw[:cut])
        recording = read_recording(file)
        counts.append(sum(len(topic.times) for topic in recording.topics.values()))
        for topic in recording.topics.values():
            assert list(topic.times) == [number * 100 * MS for number in range(len(topic.times))]
            assert set(topic.sizes) <= {300}
        assert any("cut.mcap ends" in note for note in recording.notes)
    assert counts == sorted(counts) and counts[-1] == 200
    content = 345 if compression == "NONE" else 600
    assert all(count >= cut // content - 80 for count, cut in zip(counts, cuts, strict=True))
    assert len(set(counts)) > 20 or compression != "NONE", "those within the chunk that is cut off are read too"


@pytest.mark.parametrize("share", [0.95, 0.5, 0.2])
def test_a_database_cut_off_gives_the_rows_before(share: float, tmp_path: Path) -> None:
    rows = [(1, number * 10 * MS, bytes(300 if number % 50 else 20_000)) for number in range(2000)]
    raw = database(tmp_path / "whole.db3", rows).read_bytes()
    file = tmp_path / "cut.db3"
    file.write_bytes(raw[: int(len(raw) * share)])
    recording = read_recording(file)
    (topic,) = (topic for topic in recording.topics.values() if topic.times)
    assert list(topic.times) == [number * 10 * MS for number in range(len(topic.times))]
    assert len(topic.times) >= 2000 * share - 200
    assert any(f"after {len(topic.times)} messages" in note and "pages are missing" in note for note in recording.notes)
    assert import_pipeline("rosbag2", file).mapping["sensors"]["imu"]["period"] == "10 ms"


def test_what_metadata_states_beyond_the_files_is_counted(tmp_path: Path) -> None:
    database(tmp_path / "a.db3", [(1, time, b"x") for time in TIMES])
    found = import_pipeline("rosbag2", bag(tmp_path, "a.db3", extra="  message_count: 9\n"))
    assert any("states 9 messages, 4 of them are in the files" in note for note in found.notes)


def test_messages_still_in_the_log_of_a_database_are_reported(tmp_path: Path) -> None:
    file = database(tmp_path / "a.db3", [(1, time, b"x") for time in TIMES])
    with closing(sqlite3.connect(file)) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES(1, 99, x'00')")
        base.commit()
        (tmp_path / "b.db3").write_bytes(file.read_bytes())
        (tmp_path / "b.db3-wal").write_bytes((tmp_path / "a.db3-wal").read_bytes())
    notes = read_recording(tmp_path / "b.db3").notes
    assert any("b.db3-wal holds messages" in note and "wal_checkpoint" in note for note in notes)


def ros1(file: Path, compression: str = "none", topics: tuple[str, ...] = ("/points", "/tf")) -> Path:
    """Write a bag of ROS 1 with 30 messages of the first topic at 10 Hz, and two of the others a microsecond apart."""
    from rosbags.rosbag1 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    writer = Writer(file)
    if compression != "none":
        writer.set_compression(writer.CompressionFormat[compression])
    with writer:
        connections = [writer.add_connection(topic, "std_msgs/msg/String", typestore=store) for topic in topics]
        for number in range(30):
            writer.write(connections[0], 1_700_000_000 * 10**9 + number * 100 * MS, bytes(100 + number))
        for connection in connections[1:]:
            for late in (0, 1000):
                writer.write(connection, 1_700_000_000 * 10**9 + late, bytes(10))
    return file


@pytest.mark.needs("bags of ROS 1")
@pytest.mark.parametrize("compression", ["none", "BZ2", "LZ4"])
def test_bags_of_ros_1(compression: str, tmp_path: Path) -> None:
    found = import_pipeline("rosbag1", ros1(tmp_path / "a.bag", compression))
    assert found.mapping["sensors"] == {
        "points": {
            "kind": "topic", "period": "100 ms", "jitter": "0 ns", "bytes_per_frame": "129 B", "source": "recording"
        }
    }  # fmt: skip
    assert any("/tf (std_msgs/msg/String): left out, 2 messages" in note for note in found.notes)


@pytest.mark.needs("bags of ROS 1")
@pytest.mark.parametrize("compression", ["none", "BZ2", "LZ4"])
def test_a_bag_of_ros_1_cut_anywhere_gives_what_is_whole(compression: str, tmp_path: Path) -> None:
    raw = ros1(tmp_path / "whole.bag", compression).read_bytes()
    file, counts, rng = tmp_path / "cut.bag", list[int](), random.Random(2)
    for cut in sorted(rng.sample(range(4200, len(raw)), 60)):
        file.write_bytes(raw[:cut])
        recording = read_recording(file)
        counts.append(sum(len(topic.times) for topic in recording.topics.values()))
        if counts[-1] < 32:
            assert any("cut.bag ends within a record" in note for note in recording.notes)
    assert counts == sorted(counts) and counts[-1] == 32 and (counts[0] < 32 or compression != "none")


@pytest.mark.needs("bags of ROS 1")
def test_changed_bags_of_ros_1_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(3)
    for compression in ("none", "BZ2", "LZ4"):
        raw = ros1(tmp_path / f"{compression}.bag", compression).read_bytes()
        file = tmp_path / "b.bag"
        for _ in range(100):
            changed = bytearray(raw)
            for _ in range(rng.randint(1, 20)):
                changed[rng.randrange(13, len(raw))] = rng.randrange(256)
            file.write_bytes(changed)
            try:
                import_pipeline("rosbag1", file)
            except InputError as error:
                assert str(file) in str(error)


def test_without_rosbags_a_bag_of_ros_1_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rosbags.rosbag1.reader", None)
    (tmp_path / "a.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(MachineError, match="need the package rosbags"):
        import_pipeline("rosbag1", tmp_path / "a.bag")


def test_an_empty_recording_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.db3").write_bytes(b"")
    database(tmp_path / "b.db3", [])
    (tmp_path / "c.mcap").write_bytes(b"\x89MCAP0\r\n")
    (tmp_path / "d.bag").write_bytes(b"\x7fELF" + bytes(50))
    (tmp_path / "e.mcap").write_text("#version 2.2.0\n")
    for name in ("a.db3", "b.db3", "c.mcap", "d.bag", "e.mcap"):
        assert run(["pipelines", "import", "rosbag2", str(tmp_path / name), "-o", str(tmp_path / "o.yaml")]) == 2
    err = capsys.readouterr().err
    assert not (tmp_path / "o.yaml").exists() and "Traceback" not in err
    assert "looks like an empty file" in err and "looks like a program" in err and "'#version 2.2.0'" in err


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
    (tmp_path / "bomb.mcap").write_bytes(b"\x89MCAP0\r\n" + chunk(bytes(200 * 2**20), stated))
    with pytest.raises(SocschedError, match="more than a file of this size explains"):
        open_mcap(tmp_path / "bomb.mcap")
