"""Why a frame took as long as it did: its response time in parts that add up to it to the nanosecond.

`Why(trace, plan)` indexes a trace once; `explain(chain, frame)` and `worst()` answer.  Everything is read off the trace
and the plan it is of, so that simulated and measured results are treated alike.
"""

from __future__ import annotations

from socsched.trace.why.explain import Why
from socsched.trace.why.parts import KINDS, Cause, Explanation, Part

__all__ = ["KINDS", "Cause", "Explanation", "Part", "Why"]
