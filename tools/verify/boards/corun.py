"""Networks on GPU and DLA at the same time: published throughputs, and those of planned and simulated pipelines.

How engines slow each other down is the shipped descriptor's; times alone are measured.  Of the rows here only the DLA's
enter its fit (one number, `mrmc`), so each case is also predicted with the number that the other case gives.

- TensorRT#2745 and NVIDIA forum 219770 do not name their networks.  GoogleNet, ResNet-50 and ResNet-101 stand in, with
  costs and traffic of the descriptor; the middle of the three slowdowns counts.
- Forum 219770 states that a query takes 7.54 ms alone, 6.93 of it on the DLA, and that the GPU is busy for about 30 %
  of that time: kernels before every query change the layout of its input, and tensors are copied.  What is not on the
  DLA is a stage on the GPU before it, the rest of the GPU's time another next to it.
- tensorrt_demos#364 (Xavier NX, for which no descriptor is shipped, so that of AGX Xavier stands in): most layers of
  YOLOv4 fall back from the DLA to the GPU.  How much GPU time that is, is not stated: it follows from the GPU's row,
  and predicts the DLA's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Contention, Platform
from socsched.planning.plan import Task
from tools.generate.contention_sections import dla_loss, rows
from tools.verify.boards import planned, schedules
from tools.verify.boards.planned import Part

STAND_INS = ("googlenet", "resnet50", "resnet101")
COUNTED = "TensorRT#2745"
"""The case whose times depend on the memory; the others depend on how much of the GPU a DLA's query takes."""
ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row: time alone, together as published and as predicted (ms); `spread`: least and most of the stand-ins."""

    case: str
    run: str
    engine: str
    alone_ms: float
    measured_ms: float
    predicted_ms: float
    spread: tuple[float, float]

    @property
    def error(self) -> float:
        """Relative error of the predicted time."""
        return self.predicted_ms / self.measured_ms - 1


def load(data: Path) -> dict[str, Any]:
    """Return the published co-runs."""
    found: dict[str, Any] = json.loads((data / "corun" / "gpu_dla.json").read_text(encoding="utf-8"))
    return found


def board(name: str, dla_loss: float | None = None, model: bool = True) -> Platform:
    """Return a shipped platform, with another largest loss (%) of its DLA, or without its contention model."""
    found = get_platform(name)
    if not model:
        return replace(found, dram=replace(found.dram, contention=Contention("")))
    if dla_loss is None:
        return found
    parameters = dict(found.dram.contention.parameters)
    parameters["dla"] = {**parameters["dla"], "mrmc": dla_loss}
    return replace(found, dram=replace(found.dram, contention=replace(found.dram.contention, parameters=parameters)))


def together_ms(
    platform: Platform, mode: str, chains: Mapping[str, tuple[Part, ...]], alone: Mapping[str, float]
) -> dict[str, float]:
    """Return the mean time (ms) between results of chains that each start a frame when the one before has ended.

    `alone`: the time (ms) of a part alone, to which its stand-in is lengthened with its traffic.
    """
    plan = planned.plan(chains, platform, mode, dict.fromkeys(chains, 1000.0), "int8")
    last = {parts[0].name: next(p.name for p in reversed(parts) if not p.after) for parts in chains.values()}
    tasks = []
    for task in plan.tasks:
        if task.name in alone:
            task = _lengthened(task, alone[task.name])
        if task.name in last:
            task = replace(task, after=(), timer=True, period_ns=1, closed_by=last[task.name])
        tasks.append(task)
    done = planned.rates(schedules.as_processes(replace(plan, tasks=tuple(tasks)), ""), SECONDS)
    return {name: 1000 / done[last[parts[0].name]] for name, parts in chains.items()}


def left_out() -> dict[str, float]:
    """Return the DLA's largest loss (%) for each case, as fitted to the rows of the other."""
    cases = ("TensorRT#2745", "forum 219770")
    return {case: dla_loss([row for other in cases if other != case for row in rows(other)]) for case in cases}


def _lengthened(task: Task, ms: float) -> Task:
    factor = ms * planned.MS / task.cost_ns
    longer = tuple(
        replace(
            s, time_ns=round(s.time_ns * factor), fixed_ns=round(s.fixed_ns * factor), bytes=round(s.bytes * factor)
        )
        for s in task.segments
    )
    time = sum(s.time_ns for s in longer)
    return replace(task, segments=longer, cost_ns=time, wcet_ns=time)


def orin(data: Path, dla_loss: Mapping[str, float] | None = None, model: bool = True) -> list[Prediction]:
    """Return the predictions for Orin; `dla_loss` by case, else the shipped one; `model` False: max-min sharing."""
    known = load(data)
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in known["rows"]:
        if row["platform"] == ORIN:
            runs.setdefault((row["case"], row["run"]), []).append(row)
    found = []
    for (case, run), each_row in runs.items():
        platform = board(ORIN, (dla_loss or {}).get(case), model)
        tried = [_orin_run(platform, known, case, each_row, run, name) for name in STAND_INS]
        dlas = 0
        for row in each_row:
            key = "gpu" if row["engine"] == "gpu" else f"dla{dlas}"
            dlas += row["engine"] == "dla"
            values = sorted(each[key] for each in tried)
            found.append(
                Prediction(case, run, key, row["alone_ms"], row["together_ms"], median(values), (values[0], values[-1]))
            )
    return found


def _orin_run(
    platform: Platform, known: Mapping[str, Any], case: str, listed: list[dict[str, Any]], run: str, network: str
) -> dict[str, float]:
    """Return the time (ms) between results of every engine, with a stand-in on all of them."""
    names = ["gpu", *(f"dla{number}" for number in range(run.count("DLA")))]
    times = {engine: [row["alone_ms"] for row in listed if row["engine"] == engine] for engine in ("gpu", "dla")}
    dlas = times["dla"] + times["dla"][-1:] * (len(names) - 1 - len(times["dla"]))
    alone = dict(zip(names, times["gpu"] + dlas, strict=True))
    chains = {name: (Part(name, network, name),) for name in names}
    if case == "forum 219770":
        task = known["dla_task_ms"]
        for name in names[1:]:
            first = alone[name] - task
            rest = known["busy_gpu_beside_one_dla_alone"] * alone[name] - first
            copies = Part(f"{name}.copies", "", "gpu", ms=rest, after=f"{name}.reformat")
            chains[name] = (Part(f"{name}.reformat", "", "gpu", ms=first), copies, Part(name, network, name, after=""))
            alone[name] = task
    return together_ms(platform, "MAXN", chains, alone)


def fall_back(data: Path) -> list[Prediction]:
    """Return the predictions for tensorrt_demos#364; the first row gives the DLA's time on the GPU."""
    gpu, dla = (row for row in load(data)["rows"] if row["case"] == "tensorrt_demos#364")

    def tried(share: float) -> dict[str, float]:
        chains = {
            "gpu": (Part("gpu", "", "gpu", ms=gpu["alone_ms"]),),
            "dla0": (Part("back", "", "gpu", ms=share * dla["alone_ms"]),
                     Part("dla0", "", "dla0", ms=(1 - share) * dla["alone_ms"], queue=1)),
        }  # fmt: skip
        return together_ms(get_platform(XAVIER), "MODE_15W", chains, {})

    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if tried(middle)["gpu"] < gpu["together_ms"] else (low, middle)
    found = tried(low)
    return [
        Prediction(
            row["case"],
            f"{low:.0%} on the GPU",
            key,
            row["alone_ms"],
            row["together_ms"],
            found[key],
            (found[key],) * 2,
        )
        for key, row in (("gpu", gpu), ("dla0", dla))
    ]
