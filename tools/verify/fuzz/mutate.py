"""Mutations that keep most of a file's structure, to get past its parser: of values, bytes, lines, archives."""

from __future__ import annotations

import copy
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = (
    0, 1, -1, 2, 7, -(2**31), 2**31 - 1, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64,
    10**30, 10**400, 0.5, -0.0, 1e-300, 1e308, -1e308, float("inf"), float("nan"), 1023, 1024, 1025, 10**15, 10**18,
)  # fmt: skip
TEXTS = (
    "", " ", "$(touch PWNED)", "`id`", "';x;'", "\n", "a\nb", "\x1b[2J", "\x00", "\ud800", "\u202e", "\x85", "x" * 300,
    "x" * 100_000, "../../etc/passwd", "/dev/zero", "{}", "[]", "null", "-1", "1e999", "10 ms", "1e30 s", "-1 ms",
    "100 GB/s", "<script>", "native", "nonsense-linux-gnu", "edf", "prema", "token", "cpu0", "gpu", "fp16", "int8",
    "NaN", "[/x]", "%s%n", "a>b", "*",
)  # fmt: skip
BYTES = (b"\xff", b"\x00", b"\xed\xa0\x80", b"[" * 2000, b"\t", b"&a *a", b"\n", b"-", b"9" * 30)
SHAPES = ("()", "(0,)", "(-1,)", "(3,)", f"({2**40},)", f"({2**62}, 4)", "(1," * 3, f"({'1,' * 70})", "None")
DTYPES = ("<f4", "|O", "<f8", "|S10", "<U5", "<c16", "<i8", "|b1", ">f4", "<M8[s]", "f4, (9,9)i4", "V0", "|S0")


def value(random: Random) -> Any:
    """Return an unexpected value."""
    return random.choice(
        (
            lambda: random.choice(NUMBERS), lambda: random.choice(TEXTS), lambda: None, lambda: random.random() < 0.5,
            lambda: [], lambda: {}, lambda: [[]] * random.choice((1, 50)), lambda: {"a": {"a": {"a": []}}},
            lambda: nested(random.choice((5, 40, 300))), lambda: [random.choice(NUMBERS)] * random.choice((1, 3, 2000)),
        )
    )()  # fmt: skip


def nested(depth: int) -> Any:
    """Return lists in lists."""
    made: Any = []
    for _ in range(depth):
        made = [made]
    return made


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value."""
    found = [path]
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


def structure(data: Any, random: Random) -> Any:
    """Return data with one to three values replaced, removed, renamed, repeated or exchanged."""
    data = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        known = places(data)
        path = random.choice(known)
        if not path:
            if random.random() < 0.02:
                return value(random)
            continue
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        _change(holder, path[-1], data, known, random)
    return data


def _change(holder: Any, key: Any, data: Any, known: list[tuple[Any, ...]], random: Random) -> None:
    old, kind = holder[key], random.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other: Any = data
        for part in random.choice(known):
            other = other[part]
        holder[key] = copy.deepcopy(other)
    elif kind == 2 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder) * random.choice((1, 1, 3)))
    elif kind == 3 and isinstance(holder, dict):
        holder[str(random.choice((*TEXTS, *holder)))] = holder.pop(key)
    elif kind in (4, 5, 6) and isinstance(old, (int, float)) and not isinstance(old, bool):
        near = (old + 1, old - 1, -old, old * 1000, old * 10**9, 0, old / 3 if old < 1e300 else 1)
        holder[key] = random.choice((*near, *NUMBERS))
    elif kind in (4, 5) and isinstance(old, str):
        at = random.randrange(len(old) + 1)
        holder[key] = old[:at] + random.choice(TEXTS) + old[at:]
    else:
        holder[key] = value(random)


def raw(data: bytes, random: Random) -> bytes:
    """Return bytes with some changed, cut off, repeated or put in."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(made) + 1)
        end = min(len(made), at + random.choice((1, 2, 4, 8, 64, 1000)))
        kind = random.randrange(7)
        if kind == 0:
            del made[at:]
        elif kind == 1:
            del made[at:end]
        elif kind == 2:
            made[at:at] = made[at:end]
        elif kind == 3:
            made[at:at] = random.choice(BYTES)
        elif at < len(made):
            made[at] = random.choice((0, 255, random.randrange(256), made[at] ^ (1 << random.randrange(8))))
    return bytes(made)


def as_json(data: bytes, random: Random) -> bytes:
    """Return a JSON (or YAML that is JSON) text mutated."""
    if random.random() < 0.15:
        return raw(data, random)
    try:
        made = structure(json.loads(data), random)
        return json.dumps(made, ensure_ascii=random.random() < 0.7).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return data


def as_gzip(data: bytes, random: Random) -> bytes:
    """Return a gzip file of mutated JSON, repeated, of a long run of one byte, or with bytes changed."""
    kind = random.randrange(10)
    if kind < 2:
        return raw(data, random)
    if kind == 2:
        return gzip.compress(random.choice((b" ", b"[", b"\0")) * 10**8, 1)
    return gzip.compress(as_json(gzip.decompress(data), random), 1) * random.choice((1, 1, 1, 2))


def as_lines(data: bytes, random: Random) -> bytes:
    """Return a file of JSON lines with a line mutated, removed, repeated or exchanged."""
    lines = data.splitlines(keepends=True)
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(lines))
        kind = random.randrange(8)
        if kind == 0:
            del lines[at:]
        elif kind == 1:
            lines.append(lines[at])
        elif kind == 2:
            lines[at] = raw(lines[at], random)
        else:
            lines[at] = as_json(lines[at], random) + b"\n" if lines[at].strip() else b"\n"
        if not lines:
            return b""
    return b"".join(lines)


def as_text(data: bytes, random: Random) -> bytes:
    """Return text with lines exchanged, repeated or removed, words replaced, or bytes changed."""
    if random.random() < 0.3:
        return raw(data, random)
    lines = data.decode().split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        at, other = random.randrange(len(lines)), random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[other])
        elif kind == 2:
            lines[at], lines[other] = lines[other], lines[at]
        else:
            words = lines[at].split(" ")
            words[random.randrange(len(words))] = str(random.choice((*TEXTS, *NUMBERS[:20])))
            lines[at] = " ".join(words)
        lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def as_archive(member: Callable[[str, bytes, Random], bytes]) -> Callable[[bytes, Random], bytes]:
    """Return a mutation of zip archives: of a member, of the list of members, or of the archive's bytes."""

    def mutate(data: bytes, random: Random) -> bytes:
        if random.random() < 0.2:
            return raw(data, random)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(name, archive.read(name)) for name in archive.namelist()]
        at = random.randrange(len(entries))
        name, content = entries[at]
        kind = random.randrange(10)
        if kind == 0:
            del entries[at]
        elif kind == 1:
            entries.append((name, content))
        elif kind == 2:
            entries[at] = (random.choice(("", "a/../b", "x" * 200, "data.pkl", "/etc/x", "a\x01b.npy")), content)
        else:
            entries[at] = (name, member(name, content, random))
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, content in entries:
                archive.writestr(zipfile.ZipInfo(name or "_"), content)
        return made.getvalue()

    return mutate


def npy(name: str, content: bytes, random: Random) -> bytes:
    """Return an .npy file with its header or its data changed."""
    if random.random() < 0.3:
        return raw(content, random)
    size = int.from_bytes(content[8:10], "little")
    shape, dtype = random.choice(SHAPES), random.choice(DTYPES)
    header = f"{{'descr': {dtype!r}, 'fortran_order': {random.random() < 0.5}, 'shape': {shape}, }}".encode()
    if random.random() < 0.3:
        header = raw(content[10 : 10 + size], random)
    return content[:8] + (len(header) & 0xFFFF).to_bytes(2, "little") + header + content[10 + size :]


def member(name: str, content: bytes, random: Random) -> bytes:
    """Return a member of a checkpoint changed; of its pickle, sizes mostly."""
    if not name.endswith(".pkl") or random.random() < 0.3:
        return raw(content, random)
    made = bytearray(content)
    spots = [at for at, byte in enumerate(made[:-2]) if byte in b"KMJ"]  # BININT1, BININT2, BININT
    for _ in range(random.choice((1, 2, 4))):
        at = random.choice(spots)
        width = {ord("K"): 1, ord("M"): 2, ord("J"): 4}[made[at]]
        made[at + 1 : at + 1 + width] = random.choice((bytes(width), b"\xff" * width, random.randbytes(width)))
    return bytes(made)
