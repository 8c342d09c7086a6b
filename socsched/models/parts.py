"""Parts of a network as separate stages, in the form all later steps use.

A part is the stage's model with one more param, `part`: the cut points that delimit it and the tensors that cross
there.  `registry.get_model` returns network and ports, so that compiler, simulator and executor need no knowledge of
cuts.

With parts as stages every bound of the analysis holds unchanged.  Segments of one task on alternating engines would be
self-suspension: pessimistic bounds, no frames in flight, one deadline for all parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part, parse_part, take
from socsched.models.model import Model, Port

if TYPE_CHECKING:  # as in `registry`
    from socsched.descriptor.pipeline import Chain, Pipeline, Stage

PART = "part"
"""Name of the param."""


@dataclass(frozen=True, slots=True)
class PartOf:
    """A part of a stage: `cut` is written BEGIN:END (see `graph.partition`), `count` is the number of parts.

    `crossing` gives the fp32 type of every tensor the part receives from or passes to other parts, by layer; `after`
    are the numbers of the parts it waits for, empty for the first, which the stage's own trigger starts.
    """

    stage: str
    cut: str
    number: int
    count: int
    after: tuple[int, ...]
    crossing: Mapping[str, TensorType]

    @property
    def name(self) -> str:
        """Return the name of the part as a stage."""
        return f"{self.stage}.{self.number}"

    def param(self) -> dict[str, Any]:
        """Return the part in the form of its stage's param, plain data."""
        crossing = {name: [list(t.shape), t.dtype, t.layout] for name, t in self.crossing.items()}
        plain = {"stage": self.stage, "cut": self.cut, "number": self.number, "count": self.count}
        return {**plain, "after": list(self.after), "crossing": crossing}


def part_of(params: Mapping[str, Any]) -> PartOf | None:
    """Return the part these params describe, None for a whole stage; UsageError if the param is invalid."""
    entry = params.get(PART)
    if entry is None:
        return None
    try:
        crossing = {
            n: TensorType(tuple(shape), dtype, layout) for n, (shape, dtype, layout) in entry["crossing"].items()
        }
        numbers = int(entry["number"]), int(entry["count"]), tuple(int(number) for number in entry["after"])
        return PartOf(str(entry["stage"]), str(entry["cut"]), *numbers, crossing)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UsageError(f"params.{PART} does not have the form that `socsched plan` writes: {error!r}") from None


def without_part(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of the whole stage."""
    return {key: value for key, value in params.items() if key != PART}


def whole_stage(stage: Stage) -> Stage | None:
    """Return the whole stage of a part, None for a stage that is not a part; triggers are the part's."""
    part = part_of(stage.params)
    return replace(stage, name=part.stage, params=without_part(stage.params)) if part else None


def part_model(model: Model, part: PartOf) -> Model:
    """Return the model of a part: `model`'s own ports where the part has them, one port per tensor at a cut."""
    assert model.network is not None
    whole = model.network()
    network = part_network(whole, part)
    ports = dict(zip(whole.inputs, model.inputs, strict=True))
    left = dict(zip(whole.outputs, model.outputs, strict=True))
    return Model(
        name=f"{model.name}[{part.cut}]",
        inputs=tuple(ports.get(name) or _port(part, name) for name in network.inputs),
        outputs=tuple(left.get(name) or _port(part, name) for name in network.outputs),
        network=lambda: network,
        classes=model.classes,
        weights=model.weights,
        trained=model.trained,
        scales=model.scales,
        quantised=model.quantised,
        whole=model.network,
    )


def part_network(network: Network, part: PartOf) -> Network:
    """Return the layers of a part."""
    return take(network, parse_part(part.cut), part.crossing)


def _port(part: PartOf, tensor: str) -> Port:
    return Port(f"{part.stage}:{tensor}", part.crossing[tensor])


def parts_of(
    stage: str, network: Network, cuts: Sequence[Sequence[str]], types: Mapping[str, TensorType]
) -> list[PartOf]:
    """Return the parts between consecutive cuts, each named by its last layers.

    A part waits for those it reads from, so that parts on different branches may run concurrently; `types` gives the
    fp32 type of every layer's result.
    """
    between = [Part(a, b) for a, b in itertools.pairwise([(), *(tuple(cut) for cut in cuts), ()])]
    networks = [take(network, part, types) for part in between]
    home = {layer.name: number for number, part in enumerate(networks, 1) for layer in part.layers}
    parts = []
    for number, (part, place) in enumerate(zip(networks, between, strict=True), 1):
        read = {name for name in part.inputs if name in home}
        later = {name for other in networks[number:] for name in other.inputs}
        left = {layer.name for layer in part.layers} & later
        crossing = {name: types[name] for name in [*part.inputs, *part.outputs] if name in read | left}
        after = tuple(sorted({home[name] for name in read})) or ((1,) if number > 1 else ())
        parts.append(PartOf(stage, str(place), number, len(networks), after, crossing))
    return parts


def cut_pipeline(pipeline: Pipeline, cuts: Mapping[str, Sequence[PartOf]]) -> Pipeline:
    """Return the pipeline with every stage of `cuts` replaced by its parts; triggers, reads and chains follow.

    UsageError when a stage of the pipeline already has a part's name.
    """
    names = {stage.name for stage in pipeline.stages}
    for part in (part for parts in cuts.values() for part in parts):
        if part.name in names:
            raise UsageError(
                f"stage {part.stage!r} cannot be cut: {part.name!r} is a stage already", "rename that stage"
            )
    ends = {name: _ends(parts) for name, parts in cuts.items()}
    stages: list[Stage] = []
    for stage in pipeline.stages:
        stage = replace(stage, after=_renamed(stage.after, ends), reads=_renamed(stage.reads, ends))
        stages += [_part_stage(stage, part) for part in cuts[stage.name]] if stage.name in cuts else [stage]
    chains = tuple(_through(chain, cuts) for chain in pipeline.chains)
    return replace(pipeline, stages=tuple(stages), chains=chains)


def uncut(name: str, params: Mapping[str, Any]) -> str:
    """Return the name of the stage in the pipeline's file."""
    part = part_of(params)
    return part.stage if part else name


def _ends(parts: Sequence[PartOf]) -> tuple[str, ...]:
    """Return the parts that no other part waits for: the stage is complete when they are."""
    waited = {number for part in parts for number in part.after}
    return tuple(part.name for part in parts if part.number not in waited)


def _renamed(names: Sequence[str], ends: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(new for name in names for new in ends.get(name, (name,)))


def _part_stage(stage: Stage, part: PartOf) -> Stage:
    # Timer and sampled inputs belong to the parts without predecessors; other parts get them through their ancestors.
    first = not part.after
    before = tuple(f"{part.stage}.{number}" for number in part.after)
    return replace(
        stage,
        name=part.name,
        title=f"{stage.title}, layers {part.cut}",
        params={**stage.params, PART: part.param()},
        after=stage.after if first else before,
        # Each part can hold one more frame in flight.
        queue=stage.queue + part.number - 1,
        reads=stage.reads if first else (),
        period_ns=stage.period_ns if first else None,
        offset_ns=stage.offset_ns if first else 0,
        jitter_ns=stage.jitter_ns if first else 0,
    )


def _through(chain: Chain, cuts: Mapping[str, Sequence[PartOf]]) -> Chain:
    path: list[str] = []
    for name in chain.path:
        path += _way(cuts[name]) if name in cuts else [name]
    return replace(chain, path=tuple(path))


def _way(parts: Sequence[PartOf]) -> list[str]:
    """Return a trigger path from the first part to the last."""
    by_number, way = {part.number: part for part in parts}, [parts[-1]]
    while way[0].after:
        way.insert(0, by_number[way[0].after[-1]])
    return [part.name for part in way]
