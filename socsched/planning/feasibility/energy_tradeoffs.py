"""Reasons why a network is not where it would take the least energy: the violations if it moves there."""

from __future__ import annotations

from collections.abc import Iterator

from socsched.planning.candidate import Candidate, judge
from socsched.planning.plan import Violation
from socsched.planning.workload import Unconnectable, place_of
from socsched.units import format_duration


def refusals(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Yield (stage, reason) for every stage with a model that another place would run with less energy."""
    deployment = candidate.deployment
    workload, mapping = deployment.workload, deployment.mapping
    for name, chosen in mapping.items():
        stage = workload.graph.stage(name)
        least = min(workload.model.candidates(stage), key=lambda cost: cost.energy_uj)
        if not stage.modelled or least.energy_uj >= chosen.energy_uj or place_of(least) == place_of(chosen):
            continue
        saving = f"{least.engine} {least.precision} would take {least.energy_uj / 1e3:.3g} mJ a frame, not "
        saving += f"{chosen.energy_uj / 1e3:.3g}"
        try:
            moved = judge(workload, {**mapping, name: least}, thorough=False)
        except Unconnectable:
            yield name, f"{saving}, but no engine converts its tensors"
            continue
        if moved.violations:
            worst = max(moved.violations, key=lambda violation: violation.gap / max(violation.bound, 1))
            yield name, f"{saving}, but then {_shortfall(worst)}"
        elif moved.balance.power_mw >= candidate.balance.power_mw:
            yield name, f"{saving}, a saving that transfers between engines use up"


def _shortfall(violation: Violation) -> str:
    if violation.unit == "ns":
        return f"{violation.requirement}: {format_duration(violation.demand)} > {format_duration(violation.bound)}"
    if violation.unit == "ns/s":
        return f"{violation.requirement}: {violation.demand / 1e7:.3g} %"
    return f"{violation.requirement}: {violation.demand} > {violation.bound} {violation.unit}"
