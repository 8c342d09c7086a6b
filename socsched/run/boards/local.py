"""The board `local`: this machine."""

from __future__ import annotations

import os
from pathlib import Path

from socsched.descriptor import host
from socsched.descriptor.host_probe import rapl_domains
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.plan.plan import Plan


def platform_for(plan: Plan) -> Platform:
    """Return this machine's platform, UsageError when the plan was made for another one or for more cores."""
    if plan.platform != "host":
        raise UsageError(
            f"the plan is for {plan.platform!r}, this machine is 'host'",
            f"plan for this machine: socsched plan {plan.pipeline} -p host -o plan.json; or simulate this plan",
        )
    here = host.detect()
    known = {engine.id: engine for engine in here.engines}
    for engine in plan.engines:
        if engine.id not in known or engine.lanes > known[engine.id].units:
            units = known[engine.id].units if engine.id in known else 0
            raise UsageError(
                f"the plan uses {engine.lanes} lanes of {engine.id!r}, this machine has {units}",
                f"plan again on this machine: socsched plan {plan.pipeline} -p host -o plan.json",
            )
    return here


def power_counters() -> tuple[Path, ...]:
    """Return the package energy counters this user may read."""
    return tuple(rapl_domains())


def cpus(lanes: tuple[int, ...]) -> set[int]:
    """Return the CPU numbers that `lanes` stand for: the usable ones in order."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[lane] for lane in lanes if lane < len(usable)}
