"""A share of the fuzzer's mutations with a fixed seed; `python -m tools.verify.fuzz --minutes 60` does an hour."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tools.verify.fuzz.formats import Format, formats
from tools.verify.fuzz.run import attempt, batch, mutation

FORMATS = {form.name: form for form in formats(Path())}
SLOWEST = {"plan", "trace", "journal", "platform", "pipeline", "rules"}


@pytest.mark.parametrize("name", FORMATS)
def test_every_seed_is_a_sound_file(name: str, tmp_path: Path) -> None:
    """Else mutations of it would only show how nonsense is refused."""
    form = FORMATS[name]
    file = tmp_path / ("manifest.json" if name == "manifest" else f"x{form.suffix}")
    outcomes = [attempt(form, seed, file) for seed in form.seeds]
    # a manifest without its bundle, and rules or platforms out of their folder, are refused for that
    assert all(outcome == "taken" for outcome in outcomes) or name in ("manifest", "platform"), outcomes


@pytest.mark.parametrize("name", FORMATS)
def test_a_few_mutations_of_every_format(name: str, tmp_path: Path) -> None:
    assert batch(FORMATS[name], 1, range(6 if name in SLOWEST else 24), tmp_path).findings == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_mutations_of_every_format(name: str, tmp_path: Path) -> None:
    tally = batch(FORMATS[name], 2, range(200 if name in SLOWEST else 1000), tmp_path)
    assert tally.findings == {}
    assert tally.counts["refused"] > 10 and sum(tally.counts.values()) >= 200


def test_mutations_are_the_same_for_the_same_seed() -> None:
    for form in FORMATS.values():
        made = [mutation(form, 1, number) for number in range(8)]
        assert made == [mutation(form, 1, number) for number in range(8)] and len(set(made)) > 4


def _reader(kind: str) -> Format:
    def read(file: Path) -> None:
        data = json.loads(file.read_bytes())
        if data == 3:
            raise KeyError("3")
        if data == 5:
            os._exit(9)
        while data == 7:
            time.process_time()
        if data == 9:
            bytearray(600 * 2**20)

    return Format(kind, ".json", (b"1",), lambda seed, random: str(random.randrange(11)).encode(), read)


@pytest.mark.slow
def test_the_fuzzer_sees_tracebacks_crashes_hangs_and_memory(tmp_path: Path) -> None:
    found = batch(_reader("toy"), 1, range(60), tmp_path)
    assert {outcome.split(" ")[0] for outcome in found.findings} == {"traceback", "crash", "hang", "memory"}
    assert sum(found.counts.values()) == 60
