"""Reading of untrusted files: what is no file, what never ends, how text is encoded."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from socsched import bounded
from socsched.bounded import decode, open_file, read_bytes, read_head, read_lines, read_plain, read_text
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.source import read
from socsched.errors import DescriptorError, InputError

TEXT = "täglich: 1\nzwei: [2]\n"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_a_link_to_a_device_is_refused_unopened(device: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").symlink_to(device)
    for reader in (lambda p: read_bytes(p, "plan", "", 100), lambda p: open_file(p, "plan", ""), read):
        with pytest.raises((InputError, DescriptorError), match="it is a device"):
            reader(tmp_path / "f.json")


def test_a_folder_and_a_missing_file_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: it is a folder"):
        read_bytes(tmp_path, "plan", "", 100)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        open_file(tmp_path / "none", "plan", "")
    with pytest.raises(InputError, match="cannot be read: embedded null byte"):
        read_bytes("a\0b", "plan", "", 100)


def test_a_pipe_is_read_to_its_end_and_no_further_than_the_limit(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write(count: int) -> None:
        with (tmp_path / "pipe").open("wb") as file:
            file.write(b"x" * count)

    for count in (70_000, 100_000):
        writer = threading.Thread(target=write, args=(count,))
        writer.start()
        if count == 70_000:
            assert read_bytes(tmp_path / "pipe", "plan", "", 80_000) == b"x" * count
        else:
            with pytest.raises(InputError, match="larger than"):
                read_bytes(tmp_path / "pipe", "plan", "", 80_000)
        writer.join(10)


def test_a_pipe_without_a_writer_does_not_hold_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PIPE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="nothing came through the pipe"):
        read_bytes(tmp_path / "pipe", "plan", "", 100)
    with pytest.raises(InputError, match="it is a pipe"):
        open_file(tmp_path / "pipe", "plan", "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_in_every_encoding(encoding: str, packed: bool, tmp_path: Path) -> None:
    raw = TEXT.replace("\n", "\r\n").encode(encoding)
    (tmp_path / "f").write_bytes(gzip.compress(raw) if packed else raw)
    assert read_text(tmp_path / "f", "log", "", 10_000) == TEXT
    assert decode(read_head(tmp_path / "f", "log", "", 10_000)) == TEXT


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_json_and_yaml_in_other_encodings(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes('{"ä": [1]}'.encode(encoding))
    assert JsonFile.open(tmp_path / "f", "plan").data == {"ä": [1]}
    (tmp_path / "f").write_bytes(TEXT.encode(encoding))
    assert read(tmp_path / "f").data == {"täglich": 1, "zwei": [2]}


def test_wrong_bytes_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\ntwo\xff\n")
    with pytest.raises(InputError, match="f:2: expected UTF-8 text"):
        read_text(tmp_path / "f", "log", "", 100)
    assert read_text(tmp_path / "f", "log", "", 100, "replace") == "one\ntwo\ufffd\n"


def test_gzip_is_bounded_and_checked(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(gzip.compress(b"\0" * 2**27))
    with pytest.raises(InputError, match="expands to more than"):
        read_plain(tmp_path / "f", "log", "", 2**30)
    (tmp_path / "f").write_bytes(gzip.compress(b"text")[:-4])
    with pytest.raises(InputError, match="damaged gzip"):
        read_plain(tmp_path / "f", "log", "", 2**30)


def test_json_deeper_than_the_stack_and_lone_surrogates_are_findings(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '["\\ud800"]'):
        (tmp_path / "f").write_text(text)
        with pytest.raises(DescriptorError, match=r"f:1:\d+: file: expected"):
            JsonFile.open(tmp_path / "f", "plan")


def test_lines_have_a_longest(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\n" + b"x" * 100 + b"\n")
    lines = read_lines(tmp_path / "f", "journal", "", 50)
    assert next(lines) == b"one\n"
    with pytest.raises(InputError, match="f:2: a line longer than 50 bytes"):
        next(lines)
