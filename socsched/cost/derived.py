"""The roofline as a source of costs, for every stage with a model; of host code without a
known time it is a lower bound."""

from __future__ import annotations

from dataclasses import replace

from socsched.cost.host_functions import computable as known
from socsched.cost.roofline import Estimate
from socsched.cost.sources import ROOFLINE, CostRequest, CostSource


def cost(request: CostRequest) -> Estimate | None:
    """Return the roofline estimate of a stage or of a part of a network."""
    found = request.roofline()
    work = request.work
    if found is not None and work is not None and work.host_code and not known(work, request.engine):
        return replace(found, lower=True)
    return found


SOURCE = CostSource("roofline", ROOFLINE, cost, parts=True)
