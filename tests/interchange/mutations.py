"""Damaged files, and pipelines written and read back."""

from __future__ import annotations

import random
from pathlib import Path

from socsched.descriptor.pipeline_file import load_pipeline
from socsched.interchange.pipeline_text import ImportedPipeline


def changed(raw: bytes, rng: random.Random) -> bytes:
    found = bytearray(raw)
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(found))
        if rng.random() < 0.5:
            found[at] = rng.choice(b'0123456789-"{}[]<>,:eNn \x00\xff')
        else:
            del found[at : at + rng.randrange(1, 30)]
    return bytes(found)


def same_when_read_back(imported: ImportedPipeline, file: Path) -> None:
    pipeline = imported.pipeline(str(file))
    file.write_text(imported.text(), encoding="utf-8")
    assert load_pipeline(file) == pipeline
