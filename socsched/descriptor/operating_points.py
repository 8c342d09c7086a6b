"""Power of an engine at an operating point, from its switched capacitance or its operating points' measured power.

P = C V^2 f per unit (Chandrakasan, Sheng, Brodersen, Low-power CMOS digital design, JSSC 27(4) 1992, equation 1), with
C as Linux device trees give it: dynamic-power-coefficient in uW/MHz/V^2.
"""

from __future__ import annotations

from socsched.descriptor.platform import Engine, Figure

_LINEAR_ERROR = 0.5


def dynamic_power(engine: Engine, units: int, clock_hz: int) -> Figure:
    """Return the additional power (mW) of `units` busy units at a clock; an overestimate where no voltage is known.

    Without a coefficient or measured power of the operating points, the engine's own figure is scaled by units and
    clock, which ignores that the voltage falls with the clock.
    """
    point = engine.points.at(clock_hz) if engine.points else None
    if point and point.dynamic_mw is not None:
        return _of_point(engine, units, clock_hz, point.dynamic_mw, point.clock_hz)
    if point and point.microvolt and engine.coefficient:
        return _of_coefficient(engine, engine.coefficient, units, clock_hz, point.microvolt)
    full = engine.dynamic_mw
    share = units / engine.units * clock_hz / engine.clock_hz.value
    if share == 1.0:
        return full
    note = f"{full.value / 1000:.3g} W x {units}/{engine.units} units x {share * engine.units / units:.3g} of the clock"
    error = max(full.error, _LINEAR_ERROR)
    return Figure(round(full.value * share), "derived", full.source, f"{note}; the voltage is not known", error)


def _of_point(engine: Engine, units: int, clock_hz: int, power: float, clock_of: int) -> Figure:
    assert engine.points is not None
    mega = clock_hz / 1e6
    value = round(units * power * min(clock_hz / clock_of, 1.0))
    note = f"{units} x {power:.4g} mW of the operating point at {mega:g} MHz"
    return Figure(value, "derived", engine.points.source, note, 0.2)


def _of_coefficient(engine: Engine, coefficient: Figure, units: int, clock_hz: int, microvolt: int) -> Figure:
    mega, volt = clock_hz / 1e6, microvolt / 1e6
    value = round(units * coefficient.value * mega * volt**2 / 1000)
    note = f"{units} x {coefficient.value:g} uW/MHz/V^2 x {mega:g} MHz x ({volt:g} V)^2"
    return Figure(value, "derived", coefficient.source, note, coefficient.error or 0.3)
