"""Executors to compare the planned one with, as other rules for the same plan, and the planned one with `steal`.

event-chained     every job on its planned lanes, in the order of the planned policy; a finished stage starts the next
                  one (`native` and `auto` are other names for it)
sequential        one job at a time, frame after frame
stream-per-frame  every frame in flight has a thread of its own that runs its stages in turn; engines are shared without
                  arbitration, as with one CUDA stream per frame
shared-queue      all ready jobs in one queue, served by threads that can run any of them and wait for each to end
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.errors import UsageError
from socsched.planning.plan import Plan, PlannedEngine
from socsched.runtime.options import Options

NATIVE, AUTO = "native", "auto"
PLANNED = ("event-chained", NATIVE, AUTO)
BASELINES = ("sequential", "stream-per-frame", "shared-queue")
EXECUTORS = (*PLANNED, *BASELINES)
LEAST_STREAMS = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """`order` replaces the orders of all policies, which then do not preempt.  `places`: see `native/settings.hpp`.

    `threads` run all stages in place of lanes; `equal_engines`: groups of engines that differ in name only.
    """

    order: tuple[str, str] | None = None
    places: str = "planned"
    threads: int = 1
    equal_engines: tuple[tuple[str, ...], ...] = ()
    one_job: bool = False

    @property
    def shares_lanes(self) -> bool:
        """Return whether threads run jobs on all lanes of the plan."""
        return self.places in ("any-thread", "thread-of-frame")


def rules_of(plan: Plan, options: Options) -> Rules:
    """Return the rules of a run's executor; UsageError if it is unknown.

    A job that is to run `alone` follows its producer at once: it finds the data in the caches, as on lanes of its own.

    With `steal`, a job whose lanes are taken may run on as many idle lanes that other tasks use, on its own engine or
    on one that is declared alike; the analysis assumes fixed lanes, so that its bounds no longer apply.
    """
    executor = options.executor
    if executor not in EXECUTORS:
        raise UsageError(f"unknown executor {executor!r}", f"executors: {', '.join(EXECUTORS)}")
    if options.alone:
        return Rules(("newest", "nothing"), one_job=True)
    if executor == "sequential":
        return Rules(("release", "nothing"), one_job=True)
    if executor == "stream-per-frame":
        return Rules(("release", "nothing"), "thread-of-frame", max(options.in_flight, LEAST_STREAMS))
    if executor == "shared-queue":
        return Rules(("activation", "nothing"), "any-thread", len({(task.engine, task.lanes) for task in plan.tasks}))
    return Rules(places="equal", equal_engines=_alike(plan)) if options.steal else Rules()


def _alike(plan: Plan) -> tuple[tuple[str, ...], ...]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for engine in plan.engines:
        declared = tuple(getattr(engine, name) for name in PlannedEngine.__slots__ if name != "id")
        groups.setdefault(declared, []).append(engine.id)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
