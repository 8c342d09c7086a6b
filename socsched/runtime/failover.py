"""Handling of failed stages and hung engines: abandoned jobs, and failover to another plan."""

from __future__ import annotations

from collections.abc import Sequence

from socsched.errors import MachineError
from socsched.runtime.activation import Activation
from socsched.runtime.dispatch import Dispatcher
from socsched.runtime.executor_state import Hub
from socsched.runtime.plan_instance import Version
from socsched.trace.trace import Instant


class Losses:
    """The lanes lost so far; `versions` are the initial plan and then the failover plans, best first.

    All methods are called with the hub's guard held.
    """

    def __init__(self, hub: Hub, versions: Sequence[Version]) -> None:
        self._hub, self._versions = hub, versions
        self._lost: set[tuple[str, int]] = set()

    def failed(self, act: Activation, start: int, end: int, error: BaseException, dispatcher: Dispatcher) -> None:
        """Handle a stage that raised: fail over to another plan, or end the run."""
        hub, text = self._hub, f"{type(error).__name__}: {error}"
        if hub.collector is not None and self._replacement(act) is not None:
            dispatcher.abandon(act, start, end, text)
            self._take_over(act, end, text)
            return
        hub.failure = hub.failure or (act, error)
        hub.halted = True
        dispatcher.abandon(act, start, end)

    def hung(self, act: Activation, now: int, text: str) -> None:
        """Handle a hung job: its engine is out of service."""
        hub = self._hub
        owner = hub.owners.pop(act, None)
        if owner is None or act.place is None:
            return
        dispatcher, version = owner
        version.workers[act.place.worker].dead = True
        self._give_up(act, dispatcher, now, text)
        for other in [o for o in dispatcher.running.values() if o.place and o.place.worker == act.place.worker]:
            if hub.owners.pop(other, None):  # queued behind it: its end will not be reported either
                self._give_up(other, dispatcher, now, f"queued behind a job that hangs: {text}")
        if self._replacement(act) is not None:
            self._take_over(act, now, text)
        elif version.rules.name == "event-chained":
            dispatcher.retire(act.place.worker, [t.name for t in version.rules.crews()[act.place.worker].tasks], now)
            dispatcher.trace.instants.append(
                Instant(now, "fault", act.task.name, act.job.frame, f"{text}; no plan can take over")
            )
            self._lose(act)
        else:
            hub.failure = hub.failure or (
                act,
                MachineError(text, "use the executor event-chained, which continues without the engine"),
            )
            hub.halted = True
        hub.dispatch()
        hub.notify()

    def _give_up(self, act: Activation, dispatcher: Dispatcher, now: int, why: str) -> None:
        self._hub.running -= 1
        begun = act.begun_ns - self._hub.origin_ns if act.begun_ns >= 0 else now
        dispatcher.abandon(act, begun, now, why)

    def _lose(self, act: Activation) -> None:
        self._lost |= {(act.task.engine, lane) for lane in act.task.lanes}

    def _replacement(self, act: Activation) -> Version | None:
        """Return the first plan that uses none of the lost lanes, including those of `act`."""
        lost = self._lost | {(act.task.engine, lane) for lane in act.task.lanes}
        for version in self._versions[1:]:
            used = {(task.engine, lane) for task in version.plan.tasks for lane in task.lanes}
            if version is not self._hub.version and not used & lost:
                return version
        return None

    def _take_over(self, act: Activation, now: int, why: str) -> None:
        hub = self._hub
        version = self._replacement(act)
        assert version is not None
        self._lose(act)
        old = hub.dispatcher
        old.close(now)
        hub.put_in_charge(version, old.trace, old.ledger)
        hub.dispatcher.inherit(old)
        text = f"{why}; {act.task.engine} is out of service, another plan takes over"
        old.trace.instants.append(Instant(now, "fault", act.task.name, act.job.frame, text))
