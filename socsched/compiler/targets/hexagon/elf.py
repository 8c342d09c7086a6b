"""Minimal ELF reader: the processor, defined symbols and undefined symbols of an object (no numpy, no tools).

Layout: System V ABI, "Object Files"; both classes, little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from socsched.bounded import read_bytes
from socsched.errors import InputError

MOST_BYTES = 2**30

X86_64, QDSP6, AARCH64 = 62, 164, 183
"""Values of e_machine; QDSP6 is the original name of Hexagon."""
MACHINES = {X86_64: "x86-64", QDSP6: "Hexagon (QDSP6)", AARCH64: "aarch64"}
_SYMBOL_TABLE, _UNDEFINED, _LOCAL = 2, 0, 0


@dataclass(frozen=True, slots=True)
class Elf:
    """An object file or library: `bits` 32 or 64, `machine` (e_machine), global symbols by place of definition."""

    bits: int
    machine: int
    defined: frozenset[str]
    undefined: frozenset[str]

    @property
    def processor(self) -> str:
        """Return the processor's name, or its number if it is not known."""
        return MACHINES.get(self.machine, f"e_machine {self.machine}")


def read_elf(path: Path) -> Elf:
    """Return the content of an ELF file; InputError if it is not ELF or is truncated."""
    data = read_bytes(path, "library", "compile it again", MOST_BYTES)
    if data[:4] != b"\x7fELF" or len(data) < 52 or data[5] != 1:
        raise InputError(f"{path}: no little-endian ELF file")
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"{path}: damaged ELF file: {error}") from None


def _read(data: bytes) -> Elf:
    wide = data[4] == 2
    (machine,) = struct.unpack_from("<H", data, 18)
    (start,) = struct.unpack_from("<Q", data, 40) if wide else struct.unpack_from("<I", data, 32)
    size, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    sections = [_section(data, start + index * size, wide) for index in range(count)]
    defined: set[str] = set()
    undefined: set[str] = set()
    for kind, offset, length, link, entry in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][1]
        for at in range(offset, offset + length, entry):
            name, info, section = _symbol(data, at, wide)
            if name and info >> 4 != _LOCAL:
                end = data.index(b"\0", names + name)
                (undefined if section == _UNDEFINED else defined).add(data[names + name : end].decode())
    return Elf(64 if wide else 32, machine, frozenset(defined), frozenset(undefined))


def _section(data: bytes, at: int, wide: bool) -> tuple[int, int, int, int, int]:
    """Return type, offset, size, link and entry size of a section header."""
    layout = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    _, kind, _, _, offset, size, link, _, _, entry = struct.unpack_from(layout, data, at)
    return kind, offset, size, link, entry


def _symbol(data: bytes, at: int, wide: bool) -> tuple[int, int, int]:
    """Return name (offset), info and section of a symbol."""
    if wide:
        name, info, _, section = struct.unpack_from("<IBBH", data, at)
        return name, info, section
    name, _, _, info, _, section = struct.unpack_from("<IIIBBH", data, at)
    return name, info, section
