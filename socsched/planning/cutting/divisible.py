"""A stage that may be cut: its units of layers, where each may run, and the costs of units and changes of place."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from socsched.cost.conversion import conversion_figures, converter, handover_ns, visible_ns
from socsched.cost.cost import Cost
from socsched.cost.fitted import entry_ns
from socsched.cost.model import CostModel, WorkOf
from socsched.cost.power import job_energy_uj
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine
from socsched.errors import CompileError, UsageError
from socsched.graph.accelerator_kernels import RIDERS, passes, restricted
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.fusion import Graph
from socsched.graph.network import Network
from socsched.graph.operators import DTYPE_BYTES, Operator, Pass, StageWork, TensorType, tensor_bytes
from socsched.graph.operators import Place as NetworkPlace
from socsched.graph.partition import prefixes, units
from socsched.models.model import Model
from socsched.models.parts import PART, PartOf, cut_pipeline, part_of, parts_of, whole_stage, without_part
from socsched.models.registry import get_model

_UNTYPED = ("uint8", "int32", "int64", "bool")


@dataclass(slots=True)
class Sliced:
    """A `WorkOf` that supports parts: those of a stage share its operators as analysed whole."""

    work: WorkOf
    _wholes: dict[tuple[str, str], _Whole] = field(default_factory=dict)
    _models: dict[str, Model] = field(default_factory=dict)
    _graphs: dict[str, Graph] = field(default_factory=dict)
    _passes: dict[tuple[str, frozenset[str]], tuple[Pass, ...]] = field(default_factory=dict)

    def __call__(self, stage: Stage, precision: str) -> StageWork:
        """Return the work and traffic of a stage, or of a part of one, in a precision."""
        part = part_of(stage.params)
        if part is None:
            return self.work(stage, precision)
        whole = self._whole(stage, precision)
        model = self._model(stage, part.cut)
        assert model.network is not None
        inside = {layer.name for layer in model.network().layers}
        inputs, outputs = (
            tuple(at_precision(port.type, precision) for port in side) for side in (model.inputs, model.outputs)
        )
        own = self._own(stage, whole.graph, whole.groups(inside)) if whole.graph else ()
        return StageWork(stage.name, precision, tuple(slices(whole, inside)), inputs, outputs, own, place=whole.place)

    def _whole(self, part: Stage, precision: str) -> _Whole:
        key = (_key(part), precision)
        if key not in self._wholes:
            stage = whole_stage(part)
            assert stage is not None
            build_network = get_model(stage.model or "", stage.params).network
            assert build_network is not None
            network, done = build_network(), self.work(stage, precision)
            owner = owners(network, done.operators)
            if owner is None:
                raise UsageError(f"stage {stage.name!r}: its operators do not match its layers", "plan it uncut")
            self._wholes[key] = _Whole(
                network, done.operators, tuple(owner), self._graph(part) if done.passes else None, done.place
            )
        return self._wholes[key]

    def _own(self, part: Stage, graph: Graph, groups: set[str]) -> tuple[Pass, ...]:
        """Return the passes of a part, which are the same in every precision."""
        key = (_key(part), frozenset(groups))
        if key not in self._passes:
            self._passes[key] = passes(restricted(graph, groups))
        return self._passes[key]

    def _graph(self, part: Stage) -> Graph:
        key = _key(part)
        if key not in self._graphs:
            made = get_model(part.model or "", without_part(part.params)).network
            assert made is not None
            self._graphs[key] = fuse_network(made())
        return self._graphs[key]

    def _model(self, part: Stage, cut: str) -> Model:
        key = f"{_key(part)} {cut}"
        if key not in self._models:
            self._models[key] = get_model(part.model or "", part.params)
        return self._models[key]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A network with its operators in a precision, the layer of each operator, and its graph where passes are known."""

    network: Network
    operators: tuple[Operator, ...]
    owner: tuple[str, ...]
    graph: Graph | None = None
    place: NetworkPlace = ()

    def groups(self, inside: set[str]) -> set[str]:
        """Return the names of the operators of some layers."""
        return {op.name for op, name in zip(self.operators, self.owner, strict=True) if name in inside}


def _key(part: Stage) -> str:
    return f"{part.model} {sorted(without_part(part.params).items(), key=str)}"


def at_precision(tensor: TensorType, precision: str) -> TensorType:
    """Return a floating-point tensor in a precision; others keep their type."""
    return tensor if tensor.dtype in _UNTYPED else replace(tensor, dtype=precision)


def owners(network: Network, operators: Sequence[Operator]) -> list[str] | None:
    """Return the layer each operator is named after, None if the names do not identify layers."""
    by_name = {_plain(layer.name): layer.name for layer in network.layers}
    if len(by_name) < len(network.layers):
        return None
    found = [by_name.get(_plain(operator.name)) for operator in operators]
    return None if None in found else [name for name in found if name]


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


def slices(whole: _Whole, inside: set[str]) -> list[Operator]:
    """Return the operators of the layers `inside`, with their traffic when no other layers run with them.

    Reads or writes that an operator is spared by a neighbour are its own again if that neighbour is in another part.
    """
    inputs = {layer.name: layer.inputs for layer in whole.network.layers if layer.name in inside}
    charged: set[str] = set()
    found = []
    for operator, name in zip(whole.operators, whole.owner, strict=True):
        if name not in inside:
            continue
        sizes = sum(map(_size, operator.inputs)), sum(map(_size, operator.outputs))
        source = inputs[name][0] if inputs[name] else ""
        if operator.kind == "concat" and not operator.bytes and any(value not in inside for value in inputs[name]):
            operator = replace(operator, read_bytes=sizes[0], write_bytes=sizes[1])
        elif operator.kind == "conv2d" and not operator.read_bytes and source not in charged:
            operator = replace(operator, read_bytes=sizes[0])
        if operator.kind == "conv2d":
            charged.add(source)
        found.append(operator)
    return found


def _size(tensor: TensorType) -> int:
    size = DTYPE_BYTES[tensor.dtype]
    for dimension in tensor.shape:
        size *= dimension
    return size


SLOW = 32
"""A place slower than the fastest by at least this factor on every unit is left out."""
ENGINES = 3
"""Number of engine kinds, the fastest ones, among which a network is divided."""
NEVER = float("inf")
"""Time of a unit that an engine refuses."""
_REFUSED_NS = 1e12
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how a part may run."""

    engine: str
    precision: str
    share: int


@dataclass(frozen=True, slots=True)
class Leg:
    """Consecutive units up to number `end` (exclusive) in one place: a part of the network."""

    end: int
    place: Place


Legs = tuple[Leg, ...]


class UnitFloor(NamedTuple):
    """Lower bounds of a unit, without what a job pays once.

    `lanes_ns`: time times cores, by engine; then time (ns), energy (µJ) and bytes.
    """

    lanes_ns: Mapping[str, int]
    time_ns: int
    uj: float
    bytes: int


@dataclass(slots=True)
class Divisible:
    """A stage's units in topological order.

    `cuts[i]` lies after unit i; `time_ns` and `energy_uj` by unit and place exclude the overhead that every job pays
    once (`entry_ns`, `entry_uj`) and are None where the engine does not accept the operator.  `least_ns`: a unit's
    shortest time over all possible places.  `members`: the layers of each unit; `free`: a unit within a part may take
    less than alone, because its neighbours read or write for it.  `shared`: divisions between two engines, once known
    (`segmentation`), `parallel`: those that run branches at the same time (`branches`).
    """

    stage: Stage
    network: Network
    types: Mapping[str, TensorType]
    cuts: tuple[tuple[str, ...], ...]
    crossing: tuple[tuple[TensorType, ...], ...]
    places: tuple[Place, ...]
    time_ns: tuple[tuple[int | None, ...], ...]
    energy_uj: tuple[tuple[int | None, ...], ...]
    entry_ns: tuple[int, ...]
    entry_uj: tuple[int, ...]
    least_ns: tuple[int, ...]
    members: tuple[tuple[str, ...], ...]
    free: tuple[bool, ...]
    floors: tuple[UnitFloor, ...]
    model: CostModel
    _changes: dict[tuple[int, int, int], tuple[int, int] | None] = field(default_factory=dict)
    _tensors: dict[TensorType, int] = field(default_factory=dict)
    _crossing: dict[int, list[int]] = field(default_factory=dict)
    _laid: list[list[_Laid]] = field(default_factory=list)
    _engines: list[Engine] = field(default_factory=list)
    _table: Table | None = None
    shared: list[Legs] | None = None
    parallel: dict[Legs, int] | None = None

    @property
    def units(self) -> int:
        """Return the number of units."""
        return len(self.time_ns)

    def floor_ns(self) -> int:
        """Return a lower bound (ns) for every way to cut the stage: its longest path with each unit at its fastest.

        Units that may cost less within a part count as zero.
        """
        done: dict[str, int] = {}
        layers = {layer.name: layer for layer in self.network.layers}
        for unit, members in enumerate(self.members):
            ready = max((done.get(name, 0) for member in members for name in layers[member].inputs), default=0)
            done |= dict.fromkeys(members, ready + (0 if self.free[unit] else self.least_ns[unit]))
        return max(done.values())

    def least(self) -> list[UnitFloor]:
        """Return the lower bounds of units wherever they run, without units that may cost less within a part."""
        return [floor for floor, free in zip(self.floors, self.free, strict=True) if not free]

    def forced(self, unit: int, source: int, sink: int) -> tuple[int, int] | None:
        """Return the least cost of a change of place after a unit: that of tensors the very next unit reads."""
        layers = {layer.name: layer for layer in self.network.layers}
        read = {name for member in self.members[unit + 1] for name in layers[member].inputs}
        tensors = self._numbers([self.types[name] for name in self.members[unit] if name in read])
        return self._change(tensors, source, sink) if tensors else (0, 0)

    def parts(self, legs: Legs) -> list[PartOf]:
        """Return the parts into which some legs divide the network."""
        return parts_of(self.stage.name, self.network, [self.cuts[leg.end - 1] for leg in legs[:-1]], self.types)

    def change(self, cut: int, source: int, sink: int) -> tuple[int, int] | None:
        """Return time (ns) and energy (µJ) of a change of place at a cut, None if no engine can convert."""
        key = (cut, source, sink)
        if key not in self._changes:
            if cut not in self._crossing:
                self._crossing[cut] = self._numbers(self.crossing[cut])
            self._changes[key] = self._change(self._crossing[cut], source, sink)
        return self._changes[key]

    def table(self) -> Table:
        """Return the costs of units and changes of place as arrays."""
        if self._table is None:
            count = range(len(self.places))
            change = np.zeros((2, self.units - 1, len(count), len(count)))
            for a, b in itertools.permutations(count, 2):
                for cut in range(self.units - 1):
                    found = self.change(cut, a, b)
                    change[:, cut, a, b] = (NEVER, 0.0) if found is None else found
            time = np.array([[NEVER if time is None else time for time in times] for times in self.time_ns], float)
            energy = np.array([[float(energy or 0) for energy in energies] for energies in self.energy_uj])
            self._table = Table(time, energy, *change)
        return self._table

    def _change(self, crossing: Sequence[int], a: int, b: int) -> tuple[int, int] | None:
        platform, mode = self.model.platform, self.model.mode
        source, sink = self._engines[a], self._engines[b]
        produced, consumed = self._laid[a], self._laid[b]
        size = read = written = 0
        for tensor in crossing:
            given, target = produced[tensor], consumed[tensor]
            size += given.bytes
            # Parts on one engine agree on the layout; a change of data type remains.
            if given.dtype != target.dtype or (given.layout != target.layout and source.id != sink.id):
                read, written = read + given.bytes, written + target.bytes
        if not written:
            return visible_ns(source, sink, size) + handover_ns(source, sink, size), 0
        engine = converter(platform, mode, source, sink)
        if engine is None:
            return None
        pace = self.model.conversion_pace(engine)
        time, energy = conversion_figures(read, written, source.id, engine, platform, mode, pace)
        time += handover_ns(source, engine, read) + handover_ns(engine, sink, written)
        return visible_ns(source, engine, size) + time + visible_ns(engine, sink, written), energy

    def _numbers(self, tensors: Sequence[TensorType]) -> list[int]:
        """Return tensors as indices into `_laid`, which lists by place how an engine stores them."""
        if not self._laid:
            different = list(dict.fromkeys(self.types.values()))
            self._tensors = {tensor: number for number, tensor in enumerate(different)}
            self._engines = [self.model.platform.engine(place.engine) for place in self.places]
            self._laid = [[self._stored(tensor, place) for tensor in different] for place in self.places]
        return [self._tensors[tensor] for tensor in tensors]

    def _stored(self, tensor: TensorType, place: Place) -> _Laid:
        precision = self.model.platform.engine(place.engine).precisions[place.precision]
        laid = replace(at_precision(tensor, place.precision), layout=precision.layout if len(tensor.shape) == 4 else "")
        return _Laid(laid.dtype, laid.layout, tensor_bytes(laid))


@dataclass(frozen=True, slots=True)
class Table:
    """Costs of units and changes of place, as arrays; `NEVER` where an engine refuses.

    `time` (ns) and `energy` (µJ) [unit, place]; `change_ns` and `change_uj` [cut, source, sink].
    """

    time: Floats
    energy: Floats
    change_ns: Floats
    change_uj: Floats


class _Laid(NamedTuple):
    """A tensor as an engine stores it."""

    dtype: str
    layout: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Apart:
    """A stage with its units as stages of their own; the costs of a mode are not among these data.

    `sharing`: layers that take less within a part than alone; `place`: that of the network, none where its passes are
    not known; the other fields as in `Divisible`.
    """

    stage: Stage
    network: Network
    types: Mapping[str, TensorType]
    cuts: tuple[tuple[str, ...], ...]
    crossing: tuple[tuple[TensorType, ...], ...]
    units: tuple[Stage, ...]
    members: tuple[tuple[str, ...], ...]
    sharing: frozenset[str]
    place: NetworkPlace


def taken_apart(pipeline: Pipeline, stage: Stage, model: CostModel) -> Apart | None:
    """Return a stage with its units; None if it is not a network, or one that cannot be cut.

    Stages that drop or degrade late jobs, or whose execution times are stated in absolute figures, stay whole: neither
    can be divided among parts.
    """
    whole = stage.model is not None and stage.on_late == "continue" and stage.degraded is None and stage.high is None
    if not whole or PART in stage.params or (stage.execution is not None and not stage.execution.relative):
        return None
    factory = get_model(stage.model or "", stage.params).network
    if factory is None:
        return None
    network = factory()
    if any(size < 0 for tensor in network.inputs.values() for size in tensor.shape):
        return None
    try:
        work = model.work_of(stage, stage.precisions[0])
    except CompileError:
        return None
    owner = owners(network, work.operators) if work else None
    if work is None or owner is None:
        return None
    types = layer_types(network)
    found = list(prefixes(network, types))
    # Two cuts after the same layers would coincide; a unit whose cut no tensor crosses is an output of its own.
    if not found or len({cut.after for cut in found}) < len(found):
        return None
    cuts = tuple(cut.after for cut in found)
    crossing = tuple(tuple(cut.crossing.values()) for cut in found)
    apart = cut_pipeline(pipeline, {stage.name: parts_of(stage.name, network, cuts, types)})
    stages = tuple(apart.stage(f"{stage.name}.{number + 1}") for number in range(len(cuts) + 1))
    # Under a fit these may ride on an operator of the same part; under rooflines they never do.
    rides = bool(work.passes) and any(p.fitted for e in model.platform.engines for p in e.precisions.values())
    sharing = frozenset(
        name
        for operator, name in zip(work.operators, owner, strict=True)
        if (operator.kind == "concat" and not operator.bytes)
        or (operator.kind == "conv2d" and not operator.read_bytes)
        or (rides and operator.kind in RIDERS)
    )
    return Apart(stage, network, types, cuts, crossing, stages, units(network), sharing, work.place)


def divisible(pipeline: Pipeline, stage: Stage, model: CostModel) -> Divisible | None:
    """Return a stage with its units and their costs; None if it cannot be cut, or no two engines may share it."""
    apart = taken_apart(pipeline, stage, model)
    return priced(apart, model) if apart else None


def priced(apart: Apart, model: CostModel) -> Divisible | None:
    """Return a stage with the costs of its units in a mode; None if no two engines may share it."""
    by_unit = [{Place(c.engine, c.precision, c.share): c for c in model.candidates(unit)} for unit in apart.units]
    if not all(by_unit):
        return None
    places = _worthwhile(by_unit)
    if len({place.engine for place in places}) < 2:
        return None
    platform, mode = model.platform, model.mode
    engines = [platform.engine(place.engine) for place in places]
    once = _Entry(model, apart.place)
    entries = tuple(once.of(place.engine, place.precision, place.share) for place in places)
    entry_uj = tuple(
        job_energy_uj(engine, mode, place.share, time, 0, 0.0)
        for engine, place, time in zip(engines, places, entries, strict=True)
    )
    times: list[tuple[int | None, ...]] = []
    energies: list[tuple[int | None, ...]] = []
    for unit in by_unit:
        found = [unit.get(place) for place in places]
        pairs = list(zip(found, entries, entry_uj, strict=True))
        times.append(tuple(c.time_ns - min(once, c.time_ns - 1) if c else None for c, once, _ in pairs))
        energies.append(tuple(c.energy_uj - min(once, c.energy_uj) if c else None for c, _, once in pairs))
    least = tuple(
        max(min(cost.time_ns - once.of(cost.engine, cost.precision, cost.share) for cost in unit.values()), 0)
        for unit in by_unit
    )
    free = tuple(any(name in apart.sharing for name in unit) for unit in apart.members)
    floors = tuple(_floor(unit, model, once) for unit in by_unit)
    ways = (places, tuple(times), tuple(energies), entries, entry_uj, least, apart.members, free, floors)
    return Divisible(apart.stage, apart.network, apart.types, apart.cuts, apart.crossing, *ways, model)


def _floor(unit: Mapping[Place, Cost], model: CostModel, once: _Entry) -> UnitFloor:
    """Return the lower bounds of a unit; a part is rounded up once, its units individually."""
    lanes: dict[str, int] = {}
    energies: list[float] = []
    for place, cost in unit.items():
        engine = model.platform.engine(place.engine)
        first = once.of(place.engine, place.precision, place.share)
        time = max(cost.time_ns - first - 1, 0)
        cores = min(place.share, model.mode.engines[place.engine].units) if engine.shares == "unit" else 1
        lanes[place.engine] = min(lanes.get(place.engine, time * cores), time * cores)
        entry = job_energy_uj(engine, model.mode, place.share, first, 0, 0.0)
        energies.append(max(cost.energy_uj - entry - 2.0, 0.0))
    least = min(max(cost.time_ns - once.of(cost.engine, cost.precision, cost.share) - 1, 0) for cost in unit.values())
    return UnitFloor(lanes, least, min(energies), min(cost.bytes for cost in unit.values()))


def _worthwhile(units: Sequence[Mapping[Place, Cost]]) -> tuple[Place, ...]:
    """Return the places to consider.

    For every engine and precision the fastest share, on the fastest `ENGINES` kinds of engine (equal engines are one
    kind), unless it is `SLOW` times slower than the fastest on every unit.
    """
    total: dict[Place, float] = {}
    for place in dict.fromkeys(place for unit in units for place in unit):
        total[place] = sum(unit[place].time_ns if place in unit else _REFUSED_NS for unit in units)
    best: dict[tuple[str, str], Place] = {}
    for place in sorted(total, key=total.__getitem__):
        best.setdefault((place.engine, place.precision), place)
    kept = [place for place in total if place in best.values() and not _slow(place, units)]
    speed: dict[str, float] = {}
    for place in kept:
        speed[place.engine] = min(speed.get(place.engine, total[place]), total[place])
    fastest = sorted(set(speed.values()))[:ENGINES]
    return tuple(place for place in kept if speed[place.engine] in fastest)


def _slow(place: Place, units: Sequence[Mapping[Place, Cost]]) -> bool:
    return all(
        place not in unit or unit[place].time_ns >= SLOW * min(cost.time_ns for cost in unit.values()) for unit in units
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """Time (ns) that a job of a network pays once, by engine and precision; `place`: that of the network."""

    model: CostModel
    place: NetworkPlace
    _known: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def of(self, engine: str, precision: str, share: int) -> int:
        """Return the time on so many units of an engine in a precision."""
        key = engine, precision, share
        if key not in self._known:
            state = self.model.mode.engines[engine]
            self._known[key] = entry_ns(self.model.platform.engine(engine), precision, state, self.place, share)
        return self._known[key]
