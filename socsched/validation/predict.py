"""Predictions for measurements: each row is a stage with one network, costed as the planner costs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from socsched.cost.cost import Cost
from socsched.cost.measurements import Row
from socsched.cost.model import CostModel
from socsched.cost.sources import CostSource, cost_sources
from socsched.descriptor.fields import PRECISIONS, Quantity
from socsched.descriptor.fit import Fit
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.descriptor.platform import Engine, EngineMode, Figure, Platform, PowerMode, dynamic_power
from socsched.descriptor.validation import suggest
from socsched.errors import SocschedError, of_machine
from socsched.graph.operators import StageWork
from socsched.graph.rules import FallBack, fall_back
from socsched.models.onnx_file import PACKED
from socsched.models.work import stage_work
from socsched.planning.uncertainty import interval_ns
from socsched.progress import tell
from socsched.text import one_line

_CLOCK = Quantity("frequency", positive=True).read
_RATE = Quantity("bandwidth", positive=True).read
_ERROR = 0.5
"""Relative error of a power between the measured ones of two modes."""
MOST = 32


def with_clocks(platform: Platform, mode: PowerMode, text: str) -> PowerMode:
    """Return a mode with some engines at other clocks or off; ValueError names what is wrong with the text."""
    engines, dram = dict(mode.engines), mode.dram
    settings = text.split()
    if len(settings) > MOST:
        raise ValueError(f"clocks: expected at most {MOST} settings, got {len(settings)}")
    for setting in settings:
        name, _, value = setting.partition("=")
        if name == "dram":
            dram = replace(dram, value=_read(_RATE, setting, value))
            continue
        engine = next((one for one in platform.engines if one.id == name), None)
        if engine is None or not value:
            raise ValueError(
                f"clocks: expected ENGINE=CLOCK, ENGINE=CLOCK*UNITS, ENGINE=off or dram=RATE, got {setting[:60]!r}"
            )
        engines[name] = _setting(platform, engine, mode, setting, value)
    return replace(mode, name=f"{mode.name} {' '.join(settings)}", engines=engines, dram=dram)


def _setting(platform: Platform, engine: Engine, mode: PowerMode, setting: str, value: str) -> EngineMode:
    if value == "off":
        return EngineMode(0, 0, Figure(0, "derived", note="the engine is off"))
    clock, _, count = value.partition("*")
    if count and not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= engine.units):
        raise ValueError(f"clocks: expected 1 to {engine.units} units of {engine.id}, got {setting[:60]!r}")
    units = int(count) if count else mode.engines[engine.id].units or engine.units
    hertz = round(_read(_CLOCK, setting, clock))
    if hertz > engine.clock_hz.value * 1.2:
        raise ValueError(f"clocks: {setting[:60]!r} is beyond the clock of {engine.id}")
    return EngineMode(units, hertz, power_between_modes(platform, engine, units, hertz))


def _read(reader: object, setting: str, value: str) -> float:
    try:
        return float(reader(value))  # type: ignore[operator]
    except ValueError as error:
        raise ValueError(f"clocks: {setting[:60]!r}: {error}") from None


def power_between_modes(platform: Platform, engine: Engine, units: int, clock_hz: int) -> Figure:
    """Return the dynamic power (mW) of units at a clock: of its operating points, else between those of the modes.

    Between two modes the power of one unit follows a power law of the clock; outside of them it is that of the nearest
    mode, in proportion to the clock.
    """
    point = engine.points.at(clock_hz) if engine.points else None
    if point and (point.dynamic_mw is not None or (point.microvolt and engine.coefficient)):
        return dynamic_power(engine, units, clock_hz)
    states = [mode.engines[engine.id] for mode in platform.modes]
    powers_at = {engine.clock_hz.value: engine.dynamic_mw.value / engine.units}
    powers_at |= {float(state.clock_hz): state.dynamic_mw.value / state.units for state in states if state.units}
    powers = sorted(item for item in powers_at.items() if item[1] > 0)
    if not powers:
        return dynamic_power(engine, units, clock_hz)
    below, above = powers[0], powers[-1]
    for one, other in pairwise(powers):
        if one[0] <= clock_hz <= other[0]:
            slope = math.log(other[1] / one[1]) / math.log(other[0] / one[0])
            return _figure(engine, units * one[1] * (clock_hz / one[0]) ** slope)
    nearest = below if clock_hz < below[0] else above
    return _figure(engine, units * nearest[1] * clock_hz / nearest[0])


def _figure(engine: Engine, power: float) -> Figure:
    error = max(engine.dynamic_mw.error, _ERROR)
    return Figure(round(power), "derived", engine.dynamic_mw.source, "between the powers of the modes", error)


Platforms = Callable[[str], Platform | None]
"""Returns the platform of a name, None for an unknown one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A predicted figure and the ends of its interval (ms or W), or the reason why there is none."""

    predicted: float = 0.0
    low: float = 0.0
    high: float = 0.0
    refused: str = ""

    def holds(self, measured: float) -> bool:
        """Return whether a measured figure lies inside the predicted interval, ends included."""
        return self.low <= measured <= self.high


@dataclass(frozen=True, slots=True)
class Prediction(Predicted):
    """The predicted time of a row (ms).

    `mode`, `share`: as the descriptor names the mode, and with all units of the engine for a row that states none.
    `apart`: why the row is predicted but not comparable, "" where it is.  `falls_back`: what other units get of a
    network whose layers a profiler placed.
    """

    mode: str
    share: int
    provenance: str = ""
    apart: str = ""
    falls_back: FallBack | None = None


Place = tuple[str, str, str, str, int, str]
"""Platform, engine, precision, mode, share (0: not stated) and runtime, as a row names them."""


def predict(rows: Sequence[Row], folder: Path, platforms: Platforms) -> list[Prediction]:
    """Return the prediction of every row; networks are NAME.onnx or NAME.onnx.xz in `folder`.

    Every network is read once, and rows that agree in everything but the measurement share one prediction.  Raises
    MachineError if this machine cannot read networks.
    """
    boards: dict[str, Platform | None] = {}
    for name in {row.platform for row in rows}:
        boards[name] = platforms(name)
    predictions: dict[str, dict[Place, Prediction]] = {}
    for row in rows:
        if not row.problem:
            predictions.setdefault(row.network, {})[_place(row)] = Prediction(row.mode, row.share)
    sources = cost_sources()
    for number, (network, cells) in enumerate(sorted(predictions.items())):
        tell("networks", number, len(predictions), "", network)
        stage: Stage | str = find_stage(folder, network)
        models: dict[tuple[str, str, str], CostModel] = {}
        work = Works()
        for place in cells:
            cells[place] = _predict(stage, place, boards, models, work, sources)
        placed = {_place(row) for row in rows if row.network == network and row.strays is not None and not row.problem}
        for place in placed:
            left = _fallen_back(stage, place, boards[place[0]], work)
            cells[place] = replace(cells[place], falls_back=left)
    return [
        Prediction(row.mode, row.share, refused=row.problem) if row.problem else predictions[row.network][_place(row)]
        for row in rows
    ]


def _fallen_back(stage: Stage | str, place: Place, platform: Platform | None, work: Works) -> FallBack | None:
    """Return what a board's accelerator leaves of a network, None where either is not known.

    A row on another unit than an accelerator is one that its program did not get onto the accelerator.
    """
    _, name, precision, *_, program = place
    engines = platform.engines if platform else ()
    engine = next((one for one in engines if one.id == name and one.operators.runtime), None)
    engine = engine or next((one for one in engines if one.operators.runtime), None)
    if engine is None or isinstance(stage, str):
        return None
    try:
        return fall_back(work(stage, precision), engine, program)
    except SocschedError as error:
        if of_machine(error):
            raise
        return None


def _place(row: Row) -> Place:
    return row.platform, row.engine, row.precision, row.mode, row.share, row.runtime


def find_stage(folder: Path, network: str) -> Stage | str:
    """Return the stage of a network, or why there is none."""
    files = [folder / f"{network}.onnx{ending}" for ending in ("", PACKED)]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return f"no network {network}.onnx or {network}.onnx{PACKED}"
    return replace(onnx_pipeline(file).stages[0], name=network, precisions=PRECISIONS)


class Works:
    """The work of one network by precision, or the error that its file gives, computed once."""

    def __init__(self) -> None:
        self.known: dict[str, StageWork | SocschedError] = {}

    def __call__(self, stage: Stage, precision: str) -> StageWork:
        if precision not in self.known:
            try:
                self.known[precision] = stage_work(stage, precision)
            except SocschedError as error:
                self.known[precision] = error
        answer = self.known[precision]
        if isinstance(answer, SocschedError):
            raise answer
        return answer


def _predict(
    stage: Stage | str,
    place: Place,
    platforms: Mapping[str, Platform | None],
    models: dict[tuple[str, str, str], CostModel],
    work: Works,
    sources: tuple[CostSource, ...],
) -> Prediction:
    name, engine, precision, mode, share, runtime = place
    setup = configuration(platforms[name], name, engine, precision, mode, share)
    if isinstance(setup, str):
        return Prediction(mode, share, refused=setup)
    platform, state, share = setup
    mode = state.name
    if isinstance(stage, str):
        return Prediction(mode, share, refused=stage)
    described = platform.engine(engine).precisions.get(precision)
    fits = described.fitted if described else ()
    program, apart = _program(fits, runtime)
    model = models.get((name, mode, program))
    if model is None:
        model = models[name, mode, program] = CostModel(platform, state, work, sources=sources, runtime=program)
    alone = replace(stage, share=share, engines=(engine,))
    cost = costed(model, alone, engine, precision)
    if isinstance(cost, str):
        return Prediction(mode, share, refused=cost)
    if not apart and any(fit.varies(runtime) for fit in fits) and is_sequence(work(alone, precision)):
        apart = one_line(f"sequences as long as each input, not as the network's: {shown(runtime)}")
    low, high = (end / 1e6 for end in interval_ns(cost))
    return Prediction(mode, share, cost.provenance, apart, predicted=cost.time_ns / 1e6, low=low, high=high)


def costed(model: CostModel, stage: Stage, engine: str, precision: str) -> Cost | str:
    """Return the cost of a stage with its share of an engine, or why it cannot run there."""
    try:
        cost = model.at(stage, engine, precision, stage.share)
        if cost is not None:
            return cost
        reasons = (r.reason for r in model.refused(stage) if (r.engine, r.precision) == (engine, precision))
        return one_line(next(reasons, "the engine cannot run it"))
    except SocschedError as error:
        if of_machine(error):
            raise
        return one_line(str(error))


def is_sequence(work: StageWork) -> bool:
    """Return whether a network's inputs are sequences, (batch, positions) or (batch, positions, values), not images."""
    return all(len(one.shape) <= 3 for one in work.inputs)


def _program(fits: Sequence[Fit], runtime: str) -> tuple[str, str]:
    """Return the runtime to predict for, and why its measurement is not comparable ("" where it is).

    A fit that states the programs it was made from stands for these; other programs run the same network at another
    speed.  The prediction for them is that of a plan.
    """
    stating = [fit for fit in fits if fit.runtimes]
    if not runtime or not stating:
        return "", ""
    if any(fit.covers(runtime) for fit in stating):
        return runtime, ""
    runtimes = dict.fromkeys(glob for fit in stating for glob in fit.runtimes)
    return "", one_line(f"other runtime: the fit stands for {', '.join(runtimes)}, the row for {shown(runtime)}")


def configuration(
    platform: Platform | None, name: str, engine: str, precision: str, mode: str, share: int
) -> tuple[Platform, PowerMode, int] | str:
    """Return the platform, the mode and the units used, or what is unknown about a row's configuration."""
    if platform is None:
        return f"no platform {shown(name)}"
    unit = next((one for one in platform.engines if one.id == engine), None)
    if unit is None:
        return f"{name} has no engine {shown(engine)}; {suggest(engine[:60], [one.id for one in platform.engines])}"
    if precision not in PRECISIONS:
        return f"no precision {shown(precision)}; expected one of {', '.join(PRECISIONS)}"
    try:
        state = platform.mode(mode)
    except KeyError:
        return f"{name} has no mode {shown(mode)}; {suggest(mode[:60], [one.name for one in platform.modes])}"
    units = state.engines[engine].units
    if units <= 0:
        return f"off in {mode}"
    if share > units:
        return f"{engine} has {units} units in {mode}, not {share}"
    if share and share != units and unit.shares != "unit":
        return f"{engine} is used whole, with {units} units in {mode}, not with {share}"
    return platform, state, share or units


def shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
