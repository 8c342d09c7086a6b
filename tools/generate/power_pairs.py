"""Write the table of measured power that `socsched validate` reads, from a corpus of published measurements.

Usage: python -m tools.generate.power_pairs MEASUREMENTS.csv.gz PAIRS.csv.gz -o power.csv

MEASUREMENTS holds every published row (columns id, platform, engine, power_mode_or_clocks, network, batch, precision,
runtime_version, metric, value, statistic, conditions, source_repo, source_path, note), PAIRS those rows of execution
times that are matched to a network, an engine and a mode.  A row of power belongs to the run that its file lies in; its
network, precision and mode are those of the run's time in PAIRS.  Rows of MLPerf's power-limited configurations have no
time in PAIRS, but state their clocks.  Rows that cannot be matched are counted with the reason, and left out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from socsched.descriptor.catalog import find_platform
from socsched.validation.power import COLUMNS, OPTIONAL

Row = Mapping[str, str]
NETWORKS = {"resnet50": "resnet50", "ssd-resnet34": "ssd_resnet34_1200", "bert-99": "bert_large_384"}
"""Networks of MLPerf's reference implementations, by the name that its results use."""
ONE_CORE = {("TFLite vmaster (xnnpack)", "fp32")}
"""Runtime and precision of CPU rows that used one core: XNNPACK's default, and their times are those of one core."""
_CLOCK = re.compile(r"(?:soc|xavier)_(cpu|gpu|dla|emc)_freq=(\d+)MHz")
_BUS_BYTES = {"jetson-agx-orin-64gb": 32, "jetson-agx-xavier": 32}
_MODES = {
    "jetson-agx-orin-64gb": ("MODE_30W", "MODE_15W"),
    "jetson-agx-xavier": ("MODE_30W_ALL", "MODE_15W"),
}
"""The power modes nearest to the power-limited configurations: with fast and with slow memory."""
_SLOW_MEMORY_MHZ = (1331, 2133)
_LEAST_DLA_MHZ = 200
"""A DLA at a lower clock is parked: configurations without DLA set its lowest one."""


class Unmatched(Exception):
    """A row cannot be matched; the text is the reason."""


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a .csv or .csv.gz file."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def pairs(measurements: list[dict[str, str]], times: list[dict[str, str]]) -> tuple[list[list[str]], Counter[str]]:
    """Return the rows of the table, and the number of rows left out by reason."""
    matched = {row["id"]: row for row in times}
    runs: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in measurements:
        if row["id"] in matched:
            runs[_run(row)].append(row)
    rows: list[list[str]] = []
    missing: Counter[str] = Counter()
    for row in measurements:
        if row["metric"] != "power_W":
            continue
        try:
            found = _match(row, [matched[one["id"]] for one in runs[_run(row)] if _same(row, one)])
        except Unmatched as reason:
            missing[str(reason)] += 1
            continue
        cells = {
            "id": row["id"], "platform": row["platform"], "measured_w": row["value"], "statistic": row["statistic"],
            "source": row["source_repo"], "meter": _meter(row), "share": "", "flag": "", "time_ms": "", "clocks": "",
            **found,
        }  # fmt: skip
        rows.append([cells[name] for name in (*COLUMNS, *OPTIONAL)])
    return rows, missing


def _run(row: Row) -> tuple[str, str]:
    return row["source_repo"], row["source_path"].rpartition("/")[0]


def _same(row: Row, other: Row) -> bool:
    """Return whether two rows of a run are of the same engine and precision: a file may hold several."""
    return (row["engine"], row["precision"]) == (other["engine"], other["precision"])


def _meter(row: Row) -> str:
    if "wall-plug" in row["conditions"]:
        return "wall"
    if row["conditions"].startswith("module power"):
        return "module"
    raise Unmatched("the meter is not stated")


def _match(row: Row, times: list[dict[str, str]]) -> dict[str, str]:
    if row["platform"].startswith("other:"):
        raise Unmatched(f"no descriptor of {row['platform'].removeprefix('other:')}")
    _meter(row)
    if "not the reference" in row["note"]:
        raise Unmatched("the network is not the reference network")
    if len(times) == 1:
        (time,) = times
        names = ("precision", "mode", "network", "flag")
        found = {name: time[name] for name in names} | {"engine": time["engine"], "time_ms": time["measured_ms"]}
        if (row["runtime_version"], row["precision"]) in ONE_CORE:
            return found | {"share": "1"}
        if row["engine"].startswith("cpu"):
            return found | {"engine": _joined(row["platform"], time["engine"], time["mode"])}
        return found
    if row["network"] not in NETWORKS:
        raise Unmatched("no network file, or no matched time of the same run")
    return {**_configuration(row), "network": NETWORKS[row["network"]], "precision": "int8"}


def _joined(platform: str, engine: str, mode: str) -> str:
    """Return all engines of the engine's kind that are online, as rows of all cores use them."""
    found = find_platform(platform)
    assert found is not None
    kind, state = found.engine(engine).kind, found.mode(mode)
    return "+".join(one.id for one in found.engines if one.kind == kind and state.engines[one.id].units)


def _configuration(row: Row) -> dict[str, str]:
    """Return mode, engines and clocks of a row of MLPerf's GPU and DLA results."""
    stated = row["power_mode_or_clocks"]
    engines = "gpu+dla0+dla1" if "dla concurrently" in row["engine"] else "gpu"
    batch = "" if row["batch"] == "1" or "dla" in row["batch"] else f"batch {row['batch']}"
    clocks = {name: int(value) for name, value in _CLOCK.findall(stated)}
    if clocks:
        mode = _MODES[row["platform"]][clocks.get("emc") in _SLOW_MEMORY_MHZ]
        return {"mode": mode, "engine": engines, "clocks": _clocks(row, clocks, engines), "flag": batch}
    offline = "/offline/" in row["source_path"].lower()
    if "Max15W" in stated:
        return {"mode": "MODE_15W", "engine": "gpu", "flag": "batch not stated" if offline else ""}
    if stated == "GPU and both DLAs are used in ResNet50":
        both = offline and row["network"] == "resnet50"
        return {
            "mode": "MAXN",
            "engine": "gpu+dla0+dla1" if both else "gpu",
            "flag": "batch not stated" if offline and not both else "",
        }
    raise Unmatched("mode and clocks are not stated")


def _clocks(row: Row, clocks: Mapping[str, int], engines: str) -> str:
    platform = find_platform(row["platform"])
    assert platform is not None
    cores = re.search(r"cpu_cores=(\d+)", row["power_mode_or_clocks"])
    left = int(cores[1]) if cores else 1000
    found = []
    for engine in platform.engines:
        if engine.kind == "cpu":
            units = min(left, engine.units)
            left -= units
            found.append(f"{engine.id}={clocks['cpu']}MHz*{units}" if units else f"{engine.id}=off")
        elif engine.kind == "dla":
            used = engine.id in engines and clocks["dla"] >= _LEAST_DLA_MHZ
            found.append(f"{engine.id}={clocks['dla']}MHz" if used else f"{engine.id}=off")
        elif engine.kind in clocks:  # the image processor keeps the mode's clock
            found.append(f"{engine.id}={clocks[engine.kind]}MHz")
    if clocks.get("emc"):
        found.append(f"dram={clocks['emc'] * 2 * _BUS_BYTES[row['platform']] / 1e3:g}GB/s")
    return " ".join(found)


def main() -> None:
    """Write the table and print what was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    rows, missing = pairs(read(given.measurements), read(given.pairs))
    with given.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*COLUMNS, *OPTIONAL))
        writer.writerows(rows)
    print(f"{len(rows)} rows of power matched, {sum(missing.values())} left out:")
    for reason, count in missing.most_common():
        print(f"{count:6d}  {reason}")


if __name__ == "__main__":
    main()
