"""Mutations that keep most of a file's structure, to get past its parser: of values, bytes, lines, archives."""

from __future__ import annotations

import copy
import gzip
import importlib
import io
import json
import pickletools
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from socsched.trace.io import MAGIC

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
        return gzip.compress(random.choice((b" ", b"[", b"\0")) * 10**8, 1, mtime=0)
    return gzip.compress(as_json(gzip.decompress(data), random), 1, mtime=0) * random.choice((1, 1, 1, 2))


def as_blocks(data: bytes, random: Random) -> bytes:
    """Change a trace in blocks: any bytes, or its index, which stays where it is looked for."""
    if random.random() < 0.5:
        return raw(data, random)
    end = len(data) - 8 - len(MAGIC)
    begin = end - int.from_bytes(data[end : end + 8], "little")
    index = as_gzip(data[begin:end], random)
    return data[:begin] + index + len(index).to_bytes(8, "little") + MAGIC


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
    """Return a member of a checkpoint changed; of its pickle, sizes mostly, and instructions."""
    if not name.endswith(".pkl") or random.random() < 0.2:
        return raw(content, random)
    made = bytearray(content)
    spots = [at for at, byte in enumerate(made[:-2]) if byte in b"KMJ"]  # BININT1, BININT2, BININT
    for _ in range(random.choice((1, 2, 4))):
        at = random.choice(spots)
        width = {ord("K"): 1, ord("M"): 2, ord("J"): 4}[made[at]]
        made[at + 1 : at + 1 + width] = random.choice((bytes(width), b"\xff" * width, random.randbytes(width)))
    if random.random() < 0.6:
        places = [at for _, _, at in _instructions(content)]
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.choice(places) if places else 0
            made[at:at] = random.choice(PICKLES) * random.choice((1, 1, 3, 60))
    return bytes(made)


def _instructions(program: bytes) -> list[Any]:
    found = []
    with suppress(ValueError, IndexError):
        found.extend(pickletools.genops(program))
    return found


PICKLES = (
    b")", b"]", b"}", b"(", b"N", b"0", b"2", b"\x94", b"\x85", b"\x86", b"\x87", b"t", b"l", b"u", b"s", b"a", b"e",
    b"R", b"b", b"\x81", b"\x8f", b"\x90", b"\x91", b"Q", b"q\x00h\x00", b"2\x86", b"\x94h\x00\x86", b"}2s", b"]2a",
    b"ccollections\nOrderedDict\n)R", b"cos\nsystem\n", b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"\x8b\xff\xff\xff\x7f", b"\x96" + b"\xff" * 8, b"r\xff\xff\xff\x7f", b"I1" + b"0" * 4000 + b"\n",
    b"X\xff\xff\xff\x7f", b"\x93", b"I-1\n", b"F1e400\n", b"\x82\x01", b"\x97\x98", b"h\xff", b"g99999\n",
)  # fmt: skip
"""Instructions of pickles: containers, copies, calls, references to other modules, sizes."""

HEAVY = (
    "instr(replace(hex(zeroblob(200000)), '00', 'ab'), replace(hex(zeroblob(90000)), '00', 'ab') || 'c')",
    "length(zeroblob(1000000000))", "hex(randomblob(100000000))",
    "replace(hex(zeroblob(1000000)), '0', hex(zeroblob(9000)))",
    "printf('%.*c', 1000000000, 'x')", "abs(-9223372036854775807 - 1)", "9223372036854775807", "-1", "1e300",
    "x'ff'", "NULL",
    "'\u202e\x1b[2J'", "(WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT max(x) FROM t)",
    "load_extension('/tmp/none')", "like('%a%a%a%a%a%a%b', hex(zeroblob(100000)))", "group_concat(1)",
)  # fmt: skip
"""SQL expressions that take long or much memory, or values that are none."""


def database(data: bytes, random: Random) -> bytes:
    """Return a SQLite file with a generated column, a view in place of a table, other values, or bytes changed."""
    if random.random() < 0.3:
        return raw(data, random)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "base")
        file.write_bytes(data)
        base = sqlite3.connect(file)
        for _ in range(random.choice((1, 1, 2))):
            with suppress(sqlite3.Error, UnicodeError, OverflowError):
                _change_base(base, random)
        with suppress(sqlite3.Error):
            base.commit()
        base.close()
        made = file.read_bytes()
    return raw(made, random) if random.random() < 0.1 else made


def _change_base(base: sqlite3.Connection, random: Random) -> None:
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = random.choice(tables)
    columns = [row[1] for row in base.execute(f'PRAGMA table_info("{table}")')]
    column, heavy, kind = random.choice(columns), random.choice(HEAVY), random.randrange(7)
    if kind in (0, 1):  # the column becomes one that is computed whenever it is read
        rest = ", ".join(f'"{name}"' for name in columns if name != column) or "1"
        base.execute(f'CREATE TABLE other AS SELECT {rest} FROM "{table}"')
        base.execute(f'ALTER TABLE other ADD COLUMN "{column}" AS ({heavy})')
        base.execute(f'DROP TABLE "{table}"')
        base.execute(f'ALTER TABLE other RENAME TO "{table}"')
    elif kind == 2:
        base.execute(f'ALTER TABLE "{table}" RENAME TO hidden')
        base.execute(f'CREATE VIEW "{table}" AS SELECT * FROM hidden, hidden AS b, hidden AS c, hidden AS d')
    elif kind == 3:
        base.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    elif kind == 4:
        value = random.choice((*NUMBERS, *TEXTS[:30]))
        value = str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
        base.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid % ? = 0', (value, random.choice((1, 2, 5))))
    elif kind == 5:
        base.execute(
            f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{random.choice(("x", "start", "end", "id"))}"'
        )
    else:
        base.execute(f'DELETE FROM "{table}" WHERE rowid % 2 = 0')


def chunks(data: bytes, random: Random) -> bytes:
    """Return an MCAP file with records exchanged or of wrong lengths, or chunks that expand far."""
    if random.random() < 0.3:
        return raw(data, random)
    records, at = [], 8
    while at + 9 <= len(data):
        length = int.from_bytes(data[at + 1 : at + 9], "little")
        records.append((data[at], data[at + 9 : at + 9 + length]))
        at += 9 + length
    for _ in range(random.choice((1, 1, 2))):
        at = random.randrange(len(records))
        opcode, content = records[at]
        kind = random.randrange(8)
        if kind == 0:
            records.insert(at, records[random.randrange(len(records))])
        elif kind == 1:
            del records[at:]
        elif kind == 2:
            records[at] = (random.randrange(256), content)
        elif kind == 3:
            records[at] = (opcode, raw(content, random))
        else:
            records.insert(at, (6, _chunk(records, random)))
        if not records:
            break
    made = bytearray(data[:8])
    for opcode, content in records:
        length = random.choice((0, 1, 2**31, 2**63, 2**64 - 1)) if random.random() < 0.05 else len(content)
        made += bytes([opcode]) + length.to_bytes(8, "little") + content
    return bytes(made) + (data[:8] if random.random() < 0.5 else b"")


def _chunk(records: list[tuple[int, bytes]], random: Random) -> bytes:
    """Return a chunk of a record of the file, repeated and compressed, with its size as it is or not."""
    inner = random.choice([record for record in records if record[0] in (3, 4, 5)] or [(5, bytes(22))])
    one = bytes([inner[0]]) + len(inner[1]).to_bytes(8, "little") + inner[1]
    plain = (
        one * random.choice((1, 3, 1000))
        if random.random() < 0.8
        else one * (random.choice((2**20, 2**26)) // len(one))
    )
    stated = random.choice((len(plain), len(plain), len(plain) + 1, 0, 2**30, 2**62))
    compression, packed = random.choice((("", plain), ("zstd", b""), ("lz4", b""), ("none", plain)))
    if compression in ("zstd", "lz4"):
        try:
            module = importlib.import_module({"zstd": "zstandard", "lz4": "lz4.frame"}[compression])
        except ImportError:
            return b""
        packed = module.ZstdCompressor(1).compress(plain) if compression == "zstd" else module.compress(plain)
    head = bytes(16) + stated.to_bytes(8, "little") + bytes(4) + len(compression).to_bytes(4, "little")
    return head + compression.encode() + len(packed).to_bytes(8, "little") + packed


def as_xml(data: bytes, random: Random) -> bytes:
    """Return XML with tags nested, repeated, or of many attributes, with entities, in other encodings, or as text."""
    kind = random.randrange(12)
    if kind > 5:
        return as_text(data, random)
    ends = [at for at, byte in enumerate(data) if byte == ord(">")]
    at = random.choice(ends)
    if kind == 0:
        count = random.choice((5, 1000, 400_000))
        return data[:at] + b" " + b" ".join(b'a%d=""' % number for number in range(count)) + data[at:]
    if kind == 1:
        depth = random.choice((5, 100, 100_000))
        return data[: at + 1] + b"<a>" * depth + (b"</a>" * depth if random.random() < 0.7 else b"") + data[at + 1 :]
    if kind == 2:
        entity = b'<!DOCTYPE a [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
        return entity + data.replace(b">", b">&b;", 1)
    if kind == 3:
        return data.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le")))
    if kind == 4:
        return data[: at + 1] + b"<a/>" * random.choice((5, 1000, 300_000)) + data[at + 1 :]
    return data[: at + 1] + data[at + 1 :] * random.choice((2, 20))
