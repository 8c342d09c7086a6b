"""Choice of a study's configurations: the full grid, a random sample, a Latin hypercube.

Only integers are drawn, from a separate random stream per parameter, so that every machine gets the same sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any

from socsched.descriptor.study import ALL, Parameter, Study, quantity_text
from socsched.errors import UsageError

MOST = 10_000_000
_BITS = 62
_SPAN = 1 << _BITS
AUTO = "auto"
"""Mode of a study that does not vary it: the best one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A configuration and its number in the study; `values`: all parameters that the study lists, in its order.

    `load`: factor on simulated execution times; `seed`: seed of the first run; `faults`: as named in the study.
    """

    config: int
    platform: str
    mode: str
    pipeline: str
    objective: str
    policy: str
    faults: str
    load: float
    seed: int
    values: tuple[tuple[str, Any], ...]

    def changes(self, kind: str) -> tuple[tuple[str, Any], ...]:
        """Return the fields of the platform's or pipeline's file that this configuration changes, by path."""
        return tuple((name[len(kind) + 1 :], value) for name, value in self.values if name.startswith(f"{kind}."))

    def rates(self) -> tuple[tuple[str, float], ...]:
        """Return (sensor or timer, Hz) of rates that this configuration changes."""
        return tuple((name.removeprefix("rate."), value) for name, value in self.values if name.startswith("rate."))


def points(study: Study, modes: Mapping[str, Sequence[str]]) -> list[Point]:
    """Return the configurations of a study; `modes`: the available power modes by platform.

    A mode that a platform does not have is skipped for it.  Raises UsageError for a grid larger than `MOST`, and if no
    configuration remains.
    """
    kind = study.design.start if study.design.kind == "halving" else study.design.kind
    if kind == "grid":
        drawn = list(_grid(study, modes))
    else:
        drawn = list(_sample(study, modes, kind == "latin-hypercube"))
    if not drawn:
        raise UsageError(
            f"{study.file}: no platform of the study has any of the listed modes", "mode: all selects every mode"
        )
    return drawn


def _grid(study: Study, modes: Mapping[str, Sequence[str]]) -> Iterator[Point]:
    axes = [tuple(_steps(parameter)) for parameter in study.parameters]
    size = math.prod(map(len, axes)) * (max(map(len, modes.values())) if _all(study) else 1)
    if size > MOST:
        raise UsageError(f"{study.file}: the grid has {size} configurations", "draw some: design: {kind: random}")
    names, number = [parameter.name for parameter in study.parameters], 0
    for combination in product(*axes):
        chosen = dict(zip(names, combination, strict=True))
        for one in _moded(chosen, modes):
            yield _point(number, one)
            number += 1


def _all(study: Study) -> bool:
    parameter = study.parameter("mode")
    return parameter is not None and parameter.values == (ALL,)


def _moded(chosen: dict[str, Any], modes: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield a combination for every mode it covers: all of the platform's, its own, or none."""
    wanted = chosen.get("mode")
    if wanted is None:
        yield chosen
    elif wanted == ALL:
        for mode in modes[chosen["platform"]]:
            yield {**chosen, "mode": mode}
    elif wanted in modes[chosen["platform"]]:
        yield chosen


def _sample(study: Study, modes: Mapping[str, Sequence[str]], stratified: bool) -> Iterator[Point]:
    count, draws = study.design.points, {}
    for parameter in study.parameters:
        rng = Random(f"{study.design.seed}:{parameter.name}")
        strata = list(range(count))
        if stratified:
            for last in range(count - 1, 0, -1):  # Fisher-Yates shuffle on random bits
                other = rng.getrandbits(_BITS) * (last + 1) >> _BITS
                strata[last], strata[other] = strata[other], strata[last]
        bits = [rng.getrandbits(_BITS) for _ in range(count)]
        # a position in [0, 1), as an integer multiple of 2**-62
        draws[parameter.name] = [(s * _SPAN + b) // count for s, b in zip(strata, bits, strict=True)]
        if not stratified:
            draws[parameter.name] = bits
    for number in range(count):
        chosen = {p.name: _drawn(p, draws[p.name][number]) for p in study.parameters if p.name != "mode"}
        mode = study.parameter("mode")
        if mode is not None:
            known = modes[chosen["platform"]]
            options = known if _all(study) else [value for value in mode.values if value in known]
            if not options:
                continue
            chosen["mode"] = options[draws["mode"][number] * len(options) >> _BITS]
        yield _point(number, {p.name: chosen[p.name] for p in study.parameters})


def _drawn(parameter: Parameter, place: int) -> Any:
    if parameter.listed or parameter.steps:
        options = list(_steps(parameter))
        return options[place * len(options) >> _BITS]
    return _between(parameter, place / _SPAN)


def _steps(parameter: Parameter) -> Iterator[Any]:
    if parameter.listed:
        yield from parameter.values
    else:
        for step in range(parameter.steps):
            yield _between(parameter, step / (parameter.steps - 1))


def _between(parameter: Parameter, share: float) -> Any:
    """Return a value of a range in the form of a file, to six digits."""
    low, high = parameter.low, parameter.high
    value = low * (high / low) ** share if parameter.log else low + (high - low) * share
    if parameter.name == "seed":
        return round(value)
    value = float(f"{value:.6g}")
    return quantity_text(value, parameter.dimension) if parameter.dimension else value


def _point(number: int, chosen: Mapping[str, Any]) -> Point:
    return Point(
        number,
        chosen["platform"],
        chosen.get("mode", AUTO),
        chosen["pipeline"],
        chosen.get("objective", "latency"),
        chosen.get("policy", AUTO),
        chosen.get("faults", "none"),
        float(chosen.get("load", 1.0)),
        int(chosen.get("seed", 0)),
        tuple(chosen.items()),
    )
