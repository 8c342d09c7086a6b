"""Properties of every explanation."""

from __future__ import annotations

from socsched.planning.plan import Plan
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace
from socsched.trace.why import KINDS, OCCUPIED, Explanation

SHARED = ("execution", "conversion", "above", "bandwidth", "throttling", "fault", "lanes", "switch", "restart")


def check(found: Explanation, trace: Trace, plan: Plan) -> None:
    """Check one explanation against the trace, by records and not by the code that made it."""
    chain = next(chain for chain in plan.chains if chain.name == found.chain)
    fates = frame_fates(trace, plan, chain)
    finish = int(fates.finish_ns[found.frame])
    assert found.release_ns == int(fates.release_ns[found.frame])
    assert (found.outcome == "completed") == (finish >= 0)
    if finish >= 0:
        assert found.end_ns == finish
    assert sum(part.ns for part in found.parts) == found.response_ns
    assert sum(cause.ns for cause in found.causes()) == found.lateness_ns + found.deadline_ns
    at = found.release_ns
    for part in found.parts:
        assert part.kind in KINDS
        assert part.ns > 0 or part.kind == "above"
        assert found.release_ns <= part.from_ns <= part.until_ns <= found.end_ns
        if part.kind not in SHARED:
            assert part.ns == part.until_ns - part.from_ns
            assert part.from_ns >= at  # windows of waits do not overlap
            at = part.until_ns
        elif part.kind != "above":
            # planned time may exceed the window by what the job saved
            assert part.ns <= part.until_ns - part.from_ns or part.kind in ("execution", "conversion")
        _really_ran(part.kind, part.engine, part.by, part.frame, part.from_ns, part.until_ns, trace)


def _really_ran(kind: str, engine: str, by: str, frame: int, begin: int, end: int, trace: Trace) -> None:
    if kind in OCCUPIED:
        own = [
            (piece.start_ns, piece.end_ns)
            for piece in trace.slices
            if piece.engine == engine and (trace.jobs[piece.job].task, trace.jobs[piece.job].frame) == (by, frame)
        ]
        assert any(a <= begin and end <= b for a, b in own), (kind, engine, by, frame, begin, end, own)
    elif kind == "bandwidth" and by and by != "foreign traffic":
        own = [
            piece
            for piece in trace.slices
            if (trace.jobs[piece.job].task, trace.jobs[piece.job].frame) == (by, frame)
            and piece.start_ns < end
            and piece.end_ns > begin
        ]
        assert own, (kind, by, frame, begin, end)
