"""The cycles that a vendor's compiler expects of its own network, as a source of costs.

`socsched profile --vendor-model` writes them into a profile, so that planning neither needs nor starts a compiler.
They rank above a derived figure and below a published one, and yield to a fit, which rests on measurements.
"""

from __future__ import annotations

from socsched.cost.roofline import Estimate
from socsched.cost.sources import ANCHORS, ROOFLINE, CostRequest, CostSource, Known
from socsched.descriptor.fields import VENDOR_MODEL


def cost(request: CostRequest) -> Known | Estimate | None:
    """Return the time that the vendor's compiler expects in this configuration, scaled by clock to another mode."""
    profile, engine = request.profile, request.engine
    if profile is None or profile.platform != request.platform.name:
        return None
    if any(fit.networks for fit in engine.precisions[request.precision].fitted):
        return None
    for mode in request.platform.modes:
        names = (mode.name, *mode.aliases)
        found = profile.find(request.stage.name, engine.id, names, request.precision, request.share, VENDOR_MODEL)
        if found is not None:
            clocks = mode.engines[engine.id].clock_hz, request.mode.engines[engine.id].clock_hz
            ratio = clocks[0] / clocks[1] if all(clocks) else 1.0
            source = f"cycles expected by {profile.tool}"
            return Known(round(found.time_ns * ratio), VENDOR_MODEL, source, found.error, exact=ratio == 1.0)
    return None


SOURCE = CostSource("vendor-model", (ANCHORS + ROOFLINE) / 2, cost)
