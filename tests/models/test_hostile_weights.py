"""Untrusted weights and checkpoints: small files that claim large arrays, and contents that are not arrays."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import save

from socsched.errors import InputError
from socsched.models.npz import read_npz
from socsched.models.torch_file import load, read_checkpoint
from socsched.models.weights import load_weights


def npy(header: str, data: bytes = b"") -> bytes:
    """Return an .npy file with any header."""
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(path: Path, **members: bytes) -> Path:
    """Write an .npz of the given .npy contents."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def head(shape: str, dtype: str = "<f4") -> str:
    return f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}"


def test_an_archive_that_expands_is_refused(tmp_path: Path) -> None:
    """300 KB of zeros took 300 MB; now 64 MiB and 16 times the file are the most."""
    np.savez_compressed(tmp_path / "w.npz", w=np.zeros(75 * 2**20, np.float32))
    with pytest.raises(InputError, match="expands to"):
        load_weights(tmp_path / "w.npz")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (npy(head(f"({2**40},)")), "needs 4398046511104 bytes, not 0"),
        (npy(head(f"({2**62}, 8)")), "needs"),
        (npy(head("(-1,)")), "not the shape"),
        (npy(head("(1,)", "|O"), b"\x80\x04N."), "expected numbers"),
        (npy(head("(1,)", "<U4"), bytes(16)), "expected numbers"),
        (npy(head("(1,)", "<c8"), bytes(8)), "expected numbers"),
        (npy(head("(2,)"), bytes(12)), "needs 8 bytes, not 12"),
        (npy("{'descr': __import__('os').system('id')}"), "not a readable"),
        (b"\x93NUMPY\x09\x00", "version"),
        (b"", "not a readable"),
    ],
)
def test_a_header_is_believed_as_far_as_there_are_bytes(content: bytes, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=problem):
        read_npz(npz(tmp_path / "w.npz", w=content))


def test_arrays_are_read_as_numpy_wrote_them(tmp_path: Path) -> None:
    arrays = {
        "c": np.arange(24.0).reshape(2, 3, 4), "f": np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        "scalar": np.array(7), "empty": np.zeros((0, 3), np.float16), "big": np.arange(3, dtype=">i4"),
        "truth": np.array([True, False]),
    }  # fmt: skip
    np.savez(tmp_path / "w.npz", **arrays)
    found = read_npz(tmp_path / "w.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype


def test_a_tensor_that_repeats_a_storage_is_refused(tmp_path: Path) -> None:
    """With strides of 0, 1 KB of checkpoint became 2 GB."""
    save(tmp_path / "w.pth", {"state_dict": {"w": np.ones((3, 5), np.float32)}})
    assert load(tmp_path / "w.pth")["state_dict"]["w"].shape == (3, 5)
    with zipfile.ZipFile(tmp_path / "w.pth") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    # sizes (3, 5) and strides (5, 1), written as BININT1, become (2^30, 5) and (0, 1)
    changed = members[name].replace(b"K\x03K\x05", b"J\x00\x00\x00\x40K\x05").replace(b"K\x05K\x01", b"K\x00K\x01")
    assert changed != members[name]
    with zipfile.ZipFile(tmp_path / "evil.pth", "w") as archive:
        for member, content in members.items():
            archive.writestr(member, changed if member == name else content)
    with pytest.raises(InputError, match="far larger than the file"):
        load(tmp_path / "evil.pth")


def test_a_checkpoint_that_expands_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "w.pth", {"w": np.ones(3, np.float32)})
    made = io.BytesIO((tmp_path / "w.pth").read_bytes())
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/99", bytes(2**28))
    (tmp_path / "w.pth").write_bytes(made.getvalue())
    with pytest.raises(InputError, match="expands to"):
        load(tmp_path / "w.pth")


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",
        b"\x80\x02}p2000000000\n.",
        b"\x80\x05\x96" + (2**34).to_bytes(8, "little") + b".",
    ],
    ids=["memo", "memo in text", "array"],
)
def test_a_pickle_that_reserves_gigabytes_is_refused(program: bytes, tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", program)
    code = f"""
import resource
from pathlib import Path
from socsched.models.torch_file import read_checkpoint
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
read_checkpoint({str(file)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.search(r"InputError: .*(damaged|holds no tensors)", done.stderr) and "MemoryError" not in done.stderr


def dag(leaf: bytes, wrap: bytes, depth: int) -> bytes:
    """Return instructions that leave a container which holds another twice, which holds another twice, and so on."""
    return leaf + b"".join(b"\x94h" + bytes([at]) + wrap for at in range(depth))


PAIRS = dag(b")", b"\x86", 60)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (b"}" + PAIRS + b"K\x01s.", "a key that is no name"),
        (b"}(" + PAIRS + b"K\x01u.", "a key that is no name"),
        (b"(" + PAIRS + b"K\x01d.", "instruction DICT"),
        (b"\x8f(" + PAIRS + b"\x90.", "holds a list"),
        (b"(" + PAIRS + b"\x91.", "holds a tuple"),
        (PAIRS + b".", "holds a tuple"),
        (PAIRS + b"\x93.", "damaged"),
        (PAIRS + b"\x8c\x01a\x93.", "without a name"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n" + PAIRS + b"R.", "damaged"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x01" + PAIRS + PAIRS + b"tR.", "beyond its storage"),
        (PAIRS + b"Q.", "damaged"),
        (b"((" + PAIRS + b"ctorch\nFloatStorage\n" + PAIRS + b"NK\x01tQ.", "unknown kind"),
        (b"ccollections\nOrderedDict\n" + PAIRS + b"R.", "with arguments"),
        (b"}\x8c\x04meta}\x8c\x01a" + PAIRS + b"ss.", "holds no tensors"),
        (b"}\x8e" + (2**20).to_bytes(8, "little") + bytes(2**20) + b"K\x01s.", "a key that is no name"),
        (b"}\x8b\x00\x00\x10\x00" + b"\x7f" * 2**20 + b"K\x01s.", "a key that is no name"),
        (b"}" * 3_000_000 + b".", "no end within"),
    ],
)  # fmt: skip
def test_a_pickle_whose_values_take_for_ever_to_hash_or_print_is_refused(
    program: bytes, problem: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", program)
    began = time.process_time()
    with pytest.raises(InputError, match=problem):
        read_checkpoint(tmp_path / "w.pth")
    assert time.process_time() - began < 10


def test_half_precision_of_brains_becomes_float32(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3e38], np.float32)
    data = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    program = (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nBFloat16Storage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x03tQK\x00K\x03\x85K\x01\x85\x89"
        b"ccollections\nOrderedDict\n)RtRs."
    )
    with zipfile.ZipFile(tmp_path / "w.pth", "w") as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/data/0", data)
    np.testing.assert_allclose(read_checkpoint(tmp_path / "w.pth").tensors["w"], values, rtol=0.01)
