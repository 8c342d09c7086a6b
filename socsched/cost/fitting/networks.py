"""Passes of the networks in a folder: NAME.onnx or NAME.onnx.xz, each read once and unpacked within limits."""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path

from socsched.errors import InputError, SocschedError
from socsched.graph.expand import fuse_network
from socsched.graph.operators import Pass
from socsched.graph.passes import passes
from socsched.models.onnx_graph import read
from socsched.models.onnx_layers import translate

MAX_BYTES = 2**31
"""Unpacked size of a network: the most that an ONNX file without external data can have."""
_STEP = 2**24


class Networks:
    """Networks of a folder by name; `passes` raises InputError for one that is missing or cannot be read."""

    def __init__(self, folder: Path | None, known: dict[str, tuple[Pass, ...]] | None = None) -> None:
        self.folder = folder
        self.known: dict[str, tuple[Pass, ...] | str] = dict(known or {})

    def passes(self, name: str) -> tuple[Pass, ...]:
        """Return a network's passes in the order of execution."""
        if name not in self.known:
            self.known[name] = self._read(name)
        found = self.known[name]
        if isinstance(found, str):
            raise InputError(found, "see --networks")
        return found

    def _read(self, name: str) -> tuple[Pass, ...] | str:
        """Return the passes, or why there are none."""
        if self.folder is None:
            return f"{name}: no folder of networks is given"
        plain, packed = self.folder / f"{name}.onnx", self.folder / f"{name}.onnx.xz"
        try:
            if plain.is_file():
                return _passes(plain)
            if not packed.is_file():
                return f"{name}: neither {plain.name} nor {packed.name} is in {self.folder}"
            with tempfile.TemporaryDirectory(prefix="socsched-fit-") as place:
                file = Path(place) / plain.name
                _unpack(packed, file)
                return _passes(file)
        except SocschedError as error:
            return str(error)


def _passes(file: Path) -> tuple[Pass, ...]:
    network, _ = translate(read(file))
    return passes(fuse_network(network))


def _unpack(packed: Path, file: Path) -> None:
    try:
        with lzma.open(packed) as source, file.open("wb") as target:
            total = 0
            while part := source.read(_STEP):
                total += len(part)
                if total > MAX_BYTES:
                    raise InputError(f"{packed.name}: unpacks to more than {MAX_BYTES // 2**20} MiB")
                target.write(part)
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{packed.name}: damaged xz: {error}") from None
