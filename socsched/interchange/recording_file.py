"""Files of profiles and logs: which reader a file is for, and what an unknown one looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from socsched.bounded import decode, open_file, read_head, read_plain, utf8
from socsched.descriptor.json_file import JsonFile, whole_entries
from socsched.errors import DescriptorError, InputError
from socsched.interchange import (
    board_log,
    ftrace,
    jtop,
    nsys,
    onnxruntime,
    qnn,
    rknn,
    torch_profiler,
    trtexec,
)
from socsched.interchange.profile_model import HINT, MOST_BYTES, MOST_VALUES, Recording


class TextReader(Protocol):
    """A module that reads the text of one format."""

    def accepts(self, text: str) -> bool:
        """Return whether a text is in the format."""

    def recording(self, path: Path, text: str) -> Recording:
        """Return the recording of a text; InputError with its fault."""


_JSON = (
    (trtexec.accepts_json, trtexec.json_recording),
    (onnxruntime.accepts, onnxruntime.recording),
    (torch_profiler.accepts, torch_profiler.recording),
)
_TEXT: tuple[TextReader, ...] = (qnn, jtop, trtexec, nsys, rknn, board_log, ftrace)
"""Readers of text, those with the plainest marks first."""
_HEAD_BYTES = 4096
_BEGINNINGS = (
    (b"\x7fELF", "a program or library (ELF)", ""),
    (b"\x89PNG", "a picture (PNG)", ""),
    (b"\xff\xd8\xff", "a picture (JPEG)", ""),
    (b"%PDF", "a PDF document", ""),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd", "unpack it"),
    (b"\xfd7zXZ", "a file compressed with xz", "unpack it"),
    (b"BZh", "a file compressed with bzip2", "unpack it"),
    (b"\x89MCAP0", "an MCAP recording", "socsched pipelines import mcap reads its topics"),
    (b"#ROSBAG", "a bag of ROS 1", "socsched pipelines import reads recordings of topics"),
    (b"PERFILE2", "the data of perf record", "give the text of `perf script`"),
    (b"\x17\x08Dtracing", "the data of trace-cmd record", "give the text of `trace-cmd report`"),
    (b"RKNN", "a model for Rockchip's NPU", "give the table that eval_perf() prints"),
    (b"ftrt", "an engine of TensorRT", "give the log of trtexec"),
    (b"ptrt", "an engine of TensorRT", "give the log of trtexec"),
)
_ENDINGS = {
    ".nsys-rep": ("a report of Nsight Systems", "give `nsys export --type sqlite`, or the tables of `nsys stats`"),
    ".qdrep": ("a report of Nsight Systems", "give `nsys export --type sqlite`, or the tables of `nsys stats`"),
    ".ncu-rep": ("a report of Nsight Compute", "record with Nsight Systems: it times whole runs"),
    ".onnx": ("a network (ONNX)", "give a profile of it"),
    ".pftrace": ("a trace for Perfetto", "give the profile that it was made of"),
}


def read_recording(path: Path) -> Recording:
    """Return the recording of a file in any known format; InputError if the format is unknown or the file is faulty."""
    if read_head(path, "profile", HINT, _HEAD_BYTES).startswith(nsys.MAGIC):
        with open_file(path, "profile", HINT) as file:
            if not file.read(len(nsys.MAGIC)).startswith(nsys.MAGIC):
                raise InputError(f"{path}: a compressed SQLite database", "unpack it with gunzip")
        return nsys.read_export(path)
    raw = utf8(read_plain(path, "profile", HINT, MOST_BYTES))
    if raw.lstrip()[:1] in (b"{", b"[") and (found := _json(path, raw)) is not None:
        return found
    text = decode(raw, "replace")
    reader = next((reader for reader in _TEXT if reader.accepts(text)), None)
    if reader is not None:
        return reader.recording(path, text)
    what, todo = looks(path, raw)
    raise InputError(f"{path}: the format is not known: it looks like {what}", f"{todo}; {HINT}" if todo else HINT)


def _json(path: Path, raw: bytes) -> Recording | None:
    """Return the recording of a JSON file, None if the text only begins like JSON ("[05/10/2024] [I] ...")."""
    try:
        data, cut = JsonFile(raw, str(path), HINT, MOST_VALUES).data, False
    except DescriptorError:
        events = whole_entries(raw)
        if events is None or not onnxruntime.accepts(events):
            if any(reader.accepts(decode(raw, "replace")) for reader in _TEXT):
                return None
            raise
        data, cut = events, True
    for accepts, recording in _JSON:
        if accepts(data):
            return onnxruntime.recording(path, data, cut) if cut else recording(path, data)
    what, todo = looks(path, raw, data)
    raise InputError(f"{path}: the format is not known: it looks like {what}", f"{todo}; {HINT}" if todo else HINT)


def looks(path: Path, raw: bytes, data: Any = None) -> tuple[str, str]:
    """Return what an unknown file looks like, and what to do instead if that is known."""
    if not raw.strip():
        return "an empty file", ""
    for begin, what, todo in _BEGINNINGS:
        if raw[:64].lstrip(b"\x00\x04\x18 ").startswith(begin):
            return what, todo
    if path.suffix.lower() in _ENDINGS:
        return _ENDINGS[path.suffix.lower()]
    if isinstance(data, dict):
        return f"JSON, an object with {_some(list(data)) or 'nothing in it'}", ""
    if isinstance(data, list):
        first = data[0] if data else None
        held = f"objects with {_some(list(first))}" if isinstance(first, dict) else f"{len(data)} values"
        return f"JSON, a list of {held}", ""
    if sum(byte < 9 or 13 < byte < 32 for byte in raw[:_HEAD_BYTES]) > len(raw[:_HEAD_BYTES]) // 50:
        return "binary data" + (f" ({path.suffix})" if path.suffix else ""), ""
    line = next(line for line in decode(raw[:_HEAD_BYTES], "replace").splitlines() if line.strip())
    printable = "".join(c if c.isprintable() else "?" for c in line.strip()[:60])
    if line.count(",") >= 2:
        return f"comma-separated values with the columns {printable}", ""
    return f"text that begins {printable!r}", ""


def _some(names: list[Any]) -> str:
    return ", ".join("".join(c for c in str(name)[:30] if c.isprintable()) for name in names[:4])
