"""Slowdown attribution: the response time of a frame in parts that add up to it to the nanosecond.

`Why(trace, plan)` indexes a trace once; `explain(chain, frame)` and `worst()` return explanations.  All parts are
derived from the trace and its plan, so that simulated and measured results are treated alike.
"""

from __future__ import annotations

from socsched.trace.why.explain import Why
from socsched.trace.why.parts import KINDS, Cause, Explanation, Part

__all__ = ["KINDS", "Cause", "Explanation", "Part", "Why"]
