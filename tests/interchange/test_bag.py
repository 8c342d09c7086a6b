"""Import of recordings of topics: rates, sizes, jitter; MCAP and SQLite storage; damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from mcap_recordings import write
from profile_samples import database

from socsched.api.interchange import import_pipeline
from socsched.errors import DescriptorError, InputError
from socsched.interchange.bag import RecordedRate, rate_of, read_topics

MS = 10**6
LATE = (0, 2, 1, 0, 3)
"""Lateness of messages in ms; the first and the fourth are on the grid of 10 ms."""
TIMES = [50 * MS + 10 * MS * number + late * MS for number, late in enumerate(LATE[:4])]


def bag(folder: Path, *files: str, extra: str = "") -> Path:
    listed = "".join(f"    - {name}\n" for name in files)
    text = f"rosbag2_bagfile_information:\n  version: 9\n{extra}  relative_file_paths:\n{listed}"
    (folder / "metadata.yaml").write_text(text, encoding="utf-8")
    return folder


def test_rate_is_the_mean_distance_and_jitter_the_lateness_after_its_grid() -> None:
    topic = RecordedRate("x")
    topic.times.extend(TIMES)
    rate = rate_of(topic)
    assert rate is not None
    assert (rate.period_ns, rate.jitter_ns) == (10 * MS, 2 * MS)
    assert (rate.shortest_ns, rate.longest_ns) == (9 * MS, 12 * MS)
    topic.times = topic.times[:1]
    assert rate_of(topic) is None


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
    times = [number * MS for number in (0, 1, 2, 3, 20)]
    found = import_pipeline("rosbag2", database(tmp_path / "a.db3", [(1, time, b"x") for time in times]))
    assert found.mapping["sensors"]["imu"]["jitter"] == found.mapping["sensors"]["imu"]["period"]
    assert any("messages are missing or the rate changes" in note for note in found.notes)


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
        (
            "rosbag2_bagfile_information: {compression_mode: FILE, relative_file_paths: [a.db3]}",
            "compressed by rosbag2",
        ),
        ("x: [", "expected valid YAML"),
    ],
)
def test_metadata_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    database(tmp_path / "a.db3", [])
    (tmp_path / "metadata.yaml").write_text(text, encoding="utf-8")
    with pytest.raises((InputError, DescriptorError), match=problem):
        read_topics(tmp_path)


def test_faulty_recordings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such recording"):
        read_topics(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no metadata\.yaml"):
        read_topics(tmp_path)
    with pytest.raises(InputError, match="no topic with two messages"):
        import_pipeline("rosbag2", database(tmp_path / "empty.db3", []))
    with pytest.raises(InputError, match="message of topic 7"):
        read_topics(database(tmp_path / "lost.db3", [(7, 1, b"")]))
    with pytest.raises(InputError, match="not a readable rosbag2 file"):
        read_topics(database(tmp_path / "text.db3", [(1, "soon", b"")]))  # type: ignore[list-item]


def test_changed_databases_are_read_or_refused(tmp_path: Path) -> None:
    raw = database(tmp_path / "a.db3", [(1, time, bytes(30)) for time in TIMES]).read_bytes()
    file, rng = tmp_path / "b.db3", random.Random(3)
    for _ in range(100):
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 20)):
            changed[rng.randrange(16, len(raw))] = rng.randrange(256)
        file.write_bytes(changed)
        try:
            import_pipeline("rosbag2", file)
        except InputError as error:
            assert str(file) in str(error)
