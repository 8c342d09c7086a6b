"""Second table of docs/zoo.md, networks compiled for this machine's CPU: python -m tools.generate.zoo_compile FOLDER...

Each network is compiled in fp32 by a process of its own that has LIMIT seconds; compressed files are unpacked for it.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from socsched.compiler.builder import compile_stage
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import SocschedError
from tools.generate.zoo import COMPILED, NETWORKS, PAGE, file_of

LIMIT = 300
_HEAD = f"""{COMPILED}

Seconds to compile for a CPU with AVX-512 in fp32 without a cache, on a busy machine with two cores, at most {LIMIT}
each (`python -m tools.generate.zoo_compile FOLDER`); networks not listed were not compiled. The load
varied between one and six processes a core, so times tell only what is feasible.

| network | seconds | network | seconds | network | seconds |
|---|---:|---|---:|---|---:|
"""


def child(file: Path) -> str:
    """Return the seconds that a network takes, or the reason for which it is not compiled."""
    engine = next(engine for engine in get_platform("host").engines if engine.kind == "cpu")
    begun = time.monotonic()
    try:
        compile_stage(Stage("net", "net", "onnx", params={"file": str(file)}), engine, "fp32", threads=1)
    except SocschedError as error:
        return f"no: {str(error).partition(': ')[2]}"
    return f"{time.monotonic() - begun:.0f}"


def compiled(file: Path) -> str:
    """Return a network's cell, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if file.suffix == ".xz":
            unpacked = Path(folder) / file.stem
            unpacked.write_bytes(lzma.decompress(file.read_bytes()))
            file = unpacked
        command = [sys.executable, "-m", "tools.generate.zoo_compile", "--child", str(file)]
        environment = {**os.environ, "SOCSCHED_CACHE": folder}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
        except subprocess.TimeoutExpired:
            return f"more than {LIMIT}"
        return done.stdout.strip() or f"no: exit code {done.returncode}"


def write(cells: list[str]) -> None:
    """Replace the page's section by names and seconds, three pairs a row."""
    padded = cells + [""] * (-len(cells) % 6)
    rows = [f"| {' | '.join(padded[start : start + 6])} |" for start in range(0, len(padded), 6)]
    page = PAGE.read_text(encoding="utf-8").partition(COMPILED)[0].rstrip()
    PAGE.write_text(f"{page}\n\n{_HEAD}" + "\n".join(rows) + "\n", encoding="utf-8")


def main(folders: list[Path]) -> None:
    """Compile every network; the page is written after each, so that it holds what was compiled until an interrupt."""
    cells = []
    for title, name in NETWORKS.items():
        file = file_of(name, folders)
        if file is not None:
            cells += [title, compiled(file)]
            print(*cells[-2:], flush=True)
            write(cells)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        print(child(Path(sys.argv[2])))
    else:
        main(list(map(Path, sys.argv[1:])))
