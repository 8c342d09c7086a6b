"""Profiles in the format gpulet's authors published: a CSV of networks by batch, a CSV of interference constants.

Columns: network, batch, duration (ms), utilisation of SMs, L2 and DRAM, achieved and theoretical occupancy (percent);
github.com/casys-kaist/glet, resource/GPU/UTIL.CSV and INT_MODEL_CONSTANT.CSV.  Objectives are those of the file
scripts/createSchedulingCases.py there: about twice the latency of a batch of 32 on their GPU.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from socsched.errors import InputError
from socsched_literature.sharing.interference import LinearInterference
from socsched_literature.sharing.measured import curves, law_of
from socsched_literature.sharing.profile import Profile, Sample, ShareLaw

MS = 1_000_000
OBJECTIVES_MS: Mapping[str, int] = {
    "lenet": 5,
    "googlenet": 66,
    "resnet50": 108,
    "ssd": 202,
    "ssd-mobilenetv1": 202,
    "vgg16": 142,
    "mnasnet1_0": 62,
    "mobilenet_v2": 64,
    "densenet161": 202,
    "bert": 22,
}
"""Network -> objective in ms, as published for a 2080 Ti."""


def read_profiles(
    file: Path, objectives_ns: Mapping[str, int] | None = None, factor: float = 2.0, law: ShareLaw = "amdahl"
) -> list[Profile]:
    """Return the networks of a CSV file by name.

    `objectives_ns` gives the objectives by network; any other network gets `factor` times the latency of its largest
    batch, the rule of gpulet's authors.  With the law `measured`, networks without measurements get the law
    `measured.OTHERWISE`.  InputError gives file, line and the expected format.
    """
    rows: dict[str, list[Sample]] = {}
    for line, fields in _lines(file):
        name, *numbers = fields
        values = _numbers(file, line, numbers[:7], 7)
        batch, duration, _, l2, dram, achieved, theoretical = values
        if batch < 1 or batch != int(batch) or duration <= 0 or not 0 < achieved <= theoretical:
            raise InputError(f"{file}:{line}: expected a batch of at least 1, a duration above 0, an occupancy reached")
        sample = Sample(int(batch), round(duration * MS), achieved / theoretical, l2 / 100, dram / 100)
        rows.setdefault(name, []).append(sample)
    given = objectives_ns or {}
    found = []
    for name in sorted(rows):
        samples = sorted(rows[name], key=lambda one: one.batch)
        if len({one.batch for one in samples}) < len(samples):
            raise InputError(f"{file}: {name} has a batch twice")
        objective = given.get(name) or round(factor * samples[-1].latency_ns)
        found.append(Profile(name, objective, tuple(samples), law_of(name, law), curves=curves(name)))
    if not found:
        raise InputError(f"{file}: no networks", hint="expected lines NETWORK,BATCH,MS,SM%,L2%,DRAM%,OCCUPANCY%,LIMIT%")
    return found


def read_constants(file: Path) -> LinearInterference:
    """Return the interference model of a CSV file with a header and five constants; InputError otherwise."""
    for line, fields in _lines(file):
        return LinearInterference(*_numbers(file, line, fields, 5))
    raise InputError(f"{file}: expected five constants in the second line")


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    with file.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            if number > 1 and row:
                yield number, row


def _numbers(file: Path, line: int, fields: list[str], count: int) -> list[float]:
    try:
        values = [float(value) for value in fields]
    except ValueError as error:
        raise InputError(f"{file}:{line}: {error}") from None
    if len(values) != count:
        raise InputError(f"{file}:{line}: expected {count} numbers, got {len(values)}")
    return values
