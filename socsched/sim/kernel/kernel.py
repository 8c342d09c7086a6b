"""The simulation kernel: events, dispatching, progress and contention over flat int64 tables.

One source in the Python that Cython understands: compiled where a C compiler is at hand (`sim.build`), interpreted
elsewhere, with the same results to the last nanosecond.  `sim.lower` makes the tables, `sim.results` reads the outcome.

Meaning.  What happens at one instant is handled as a whole before anybody is dispatched: first faults begin and end,
then jobs complete (by task), sensors release, timers release, the controller acts, jobs are aborted, budgets and quanta
run out, and laxities are looked at.  A task serves its frames in order, one job at a time.  A dispatcher serves the
lanes of an engine greedily by policy order: fixed lanes are taken together, "any" lanes where some are free, jobs of
lower priority fill what is left.  Who resumes pays the switch first.  Running segments share the DRAM (`pace`): what is
left of a segment is kept in 2**-20 ns of its present pace and rounded up when the pace changes, so nothing finishes
early, and at one pace a segment takes exactly that long however often it is preempted.

Claims.  A task claims lanes with its current segment (claim `t`) and, while a segment runs elsewhere and the task
busy-waits, its home lanes too (claim `tasks + t`).
"""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.events import EventQueue
    from cython.cimports.socsched_kernel.memory import Combinations
    from cython.cimports.socsched_kernel.records import Log
    from cython.cimports.socsched_kernel.totals import Chains, Histograms
else:
    from .events import EventQueue
    from .memory import Combinations
    from .records import Log
    from .totals import Chains, Histograms

FAR = cython.declare(cython.longlong, 4611686018427387904)
SHIFT = cython.declare(cython.longlong, 20)
DRAWS = cython.declare(cython.longlong, 1024)
PARTS = cython.declare(cython.longlong, 64)
# preemption
FULL = cython.declare(cython.longlong, 0)
SEGMENT = cython.declare(cython.longlong, 1)
NONE = cython.declare(cython.longlong, 2)
RESTART = cython.declare(cython.longlong, 3)
# what to do with a job that will be late
SKIP = cython.declare(cython.longlong, 1)
ABORT = cython.declare(cython.longlong, 2)
DEGRADE = cython.declare(cython.longlong, 3)
# queues: 0 drops the newest frame, 1 the oldest that waits
LATEST = cython.declare(cython.longlong, 1)
# how a job ended
DONE = cython.declare(cython.longlong, 1)
DROPPED = cython.declare(cython.longlong, 2)
ABORTED = cython.declare(cython.longlong, 3)
# notes (`sim.results.NOTES`)
MISS = cython.declare(cython.longlong, 0)
UNFINISHED = cython.declare(cython.longlong, 1)
QUEUE_FULL = cython.declare(cython.longlong, 2)
LOST_FRAME = cython.declare(cython.longlong, 3)
LATE_ABORT = cython.declare(cython.longlong, 4)
OVERRUN = cython.declare(cython.longlong, 8)
SKIPPED = cython.declare(cython.longlong, 12)
KILLED = cython.declare(cython.longlong, 13)
# terms of a policy's order (`sim.policies`)
T_PRIORITY = cython.declare(cython.longlong, 1)
T_DEADLINE = cython.declare(cython.longlong, 2)
T_ACTIVATION = cython.declare(cython.longlong, 3)
T_PERIOD = cython.declare(cython.longlong, 4)
T_RELATIVE = cython.declare(cython.longlong, 5)
T_CRITICALITY = cython.declare(cython.longlong, 6)
T_LAXITY = cython.declare(cython.longlong, 7)
T_TURN = cython.declare(cython.longlong, 8)
T_SERVER = cython.declare(cython.longlong, 9)
T_REMAINING = cython.declare(cython.longlong, 10)
T_COST = cython.declare(cython.longlong, 11)
T_ASKED = cython.declare(cython.longlong, 12)


def scaled(value: i64, up: i64, down: i64) -> i64:
    """Return value * up / down rounded up, without overflow: factors beyond 2**31 lose their last bits upwards."""
    whole: i64
    rest: i64
    if down <= 0:
        return value
    while up >= 2147483648 or down >= 2147483648:
        up = (up + 1) >> 1
        down >>= 1
    whole = value // down
    rest = value - whole * down
    return whole * up + (rest * up + down - 1) // down


def bits(mask: i64) -> i64:
    """Return how many lanes a mask has."""
    count: i64 = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


def _figures(found: Histograms) -> tuple[object, object, object, object, object]:
    """Return counts a bin, sums, largest values, numbers of values and least values of histograms."""
    return found.bins, found.sum, found.most, found.number, found.least


class Kernel:
    """One simulation under way: `run` until the end of time, then `close`.

    `tables`: flat arrays by name (`sim.lower`).  `hooks`: what the kernel asks Python for, rarely: `stretch(uids, hog)`
    (ns each co-running segment takes), `draws(stream)` (random numbers), `edge(now)` and `control(now)` (faults and the
    board's own control; both change the tables and return a mask of engines), `asked(task, now, ...)` (keys of policies
    written in Python).  `record`: whether rows are kept for a trace; figures are kept always.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        numbers = tables["numbers"]
        self.end, self.record, self.hooks = end, record, hooks
        self.tasks, self.units = len(tables["t_need"]), len(tables["u_engine"])
        self.engines, self.sources = len(tables["n_lanes"]), len(tables["s_period"])
        self.levels, self.n_uneven = numbers["levels"], numbers["uneven"]
        self.scale, self.picojoule, self.static = numbers["scale"], numbers["picojoule"], numbers["static"]
        self.memory_limits = numbers["capacity"]
        self.t_need = tables["t_need"]
        self.t_queue = tables["t_queue"]
        self.t_full = tables["t_full"]
        self.t_deadline = tables["t_deadline"]
        self.t_priority = tables["t_priority"]
        self.t_period = tables["t_period"]
        self.t_criticality = tables["t_criticality"]
        self.t_first = tables["t_first"]
        self.t_count = tables["t_count"]
        self.t_cost = tables["t_cost"]
        self.t_reads0 = tables["t_reads0"]
        self.t_reads = tables["t_reads"]
        self.t_next0 = tables["t_next0"]
        self.t_next = tables["t_next"]
        self.t_late = tables["t_late"]
        self.t_alt = tables["t_alt"]
        self.t_alts = tables["t_alts"]
        self.t_stream = tables["t_stream"]
        self.t_table0 = tables["t_table0"]
        self.t_table = tables["t_table"]
        self.t_between = tables["t_between"]
        self.t_over = tables["t_over"]
        self.t_chance = tables["t_chance"]
        self.t_up = tables["t_up"]
        self.t_down = tables["t_down"]
        self.t_budget = tables["t_budget"]
        self.t_server = tables["t_server"]
        self.t_weights = tables["t_weights"]
        self.reads = tables["reads"]
        self.nexts = tables["nexts"]
        self.times = tables["times"]
        self.g_time = tables["g_time"]
        self.g_bytes = tables["g_bytes"]
        self.g_unit = tables["g_unit"]
        self.g_mask = tables["g_mask"]
        self.g_width = tables["g_width"]
        self.g_hold = tables["g_hold"]
        self.g_name = tables["g_name"]
        self.g_rest = tables["g_rest"]
        self.u_engine = tables["u_engine"]
        self.u_mask = tables["u_mask"]
        self.u_kind = tables["u_kind"]
        self.u_flight = tables["u_flight"]
        self.u_reset = tables["u_reset"]
        self.u_term0 = tables["u_term0"]
        self.u_term1 = tables["u_term1"]
        self.u_dynamic = tables["u_dynamic"]
        self.u_quantum = tables["u_quantum"]
        self.u_tick = tables["u_tick"]
        self.u_across = tables["u_across"]
        self.u_serves = tables["u_serves"]
        self.n_switch = tables["n_switch"]
        self.n_migrate = tables["n_migrate"]
        self.n_reshape = tables["n_reshape"]
        self.n_lane0 = tables["n_lane0"]
        self.n_lanes = tables["n_lanes"]
        self.n_power = tables["n_power"]
        self.n_clock = tables["n_clock"]
        self.n_level = tables["n_level"]
        self.n_governor = tables["n_governor"]
        self.n_slow = tables["n_slow"]
        self.n_fast = tables["n_fast"]
        self.n_still = tables["n_still"]
        self.n_memory = tables["n_memory"]
        self.n_swap = tables["n_swap"]
        self.lane_speed = tables["lane_speed"]
        self.s_period = tables["s_period"]
        self.s_offset = tables["s_offset"]
        self.s_jitter = tables["s_jitter"]
        self.s_gap = tables["s_gap"]
        self.s_stream = tables["s_stream"]
        self.s_lost = tables["s_lost"]
        self.s_delay = tables["s_delay"]
        self.s_burst = tables["s_burst"]
        self.s_behind = tables["s_behind"]
        self.s_next0 = tables["s_next0"]
        self.s_next = tables["s_next"]
        self._clear_tasks(tables)
        self._clear_claims()
        self._clear_slots()
        self.events = EventQueue(3 * self.tasks + self.sources + self.units + 1)
        self.from_control = self.tasks + self.sources
        self.from_abort = self.from_control + 1
        self.from_budget = self.from_abort + self.tasks
        self.from_tick = self.from_budget + self.tasks
        self.combinations = Combinations(hooks.stretch, self.tasks + 2)
        self.rates: list[float] = []
        self.now = self.hog = self.actives = self.memory_changed = self.dirts = self.touches = self.turns = (
            self.uses
        ) = 0
        self.load_now = self.shown_load = self.read_at = self.number = self.slices_begun = self.samples_made = 0
        self.events_seen = 0
        self.rate = self.shown_rate = self.peak_rate = self.traffic = self.most_power = self.hog_rate = 0.0
        self.chains = Chains(tables)
        self.execs, self.responses = Histograms(self.tasks), Histograms(self.tasks)
        self.job_log, self.slice_log, self.note_log = Log(13), Log(7), Log(5)
        self.step_log, self.depth_log, self.sample_log, self.release_log = Log(3), Log(3), Log(1), Log(2)
        self.edge_at = numbers["first_edge"]
        self._prime(numbers["first_control"])

    def _clear_tasks(self, tables: dict[str, Any]) -> None:
        n: i64 = max(self.tasks, 1)
        (
            self.waiting, self.first, self.count, self.place, self.left, self.pace, self.base, self.since, self.timed,
            self.drawing, self.owes, self.prefix, self.touched, self.marked, self.depth, self.turn, self.budget,
            self.server, self.throttled, self.demand, self.resident, self.done, self.dropped, self.aborted, self.late,
            self.released, self.preempted, self.migrated, self.most_blocked, self.active, self.util,
        ) = (array("q", bytes(8 * n)) for _ in range(31))  # fmt: skip
        self.job, self.head, self.tail, self.stop = (array("q", [-1]) * n for _ in range(4))
        self.up, self.down = array("q", [1]) * n, array("q", [1]) * n
        self.part_frame = array("q", [-1]) * (n * PARTS)
        self.part_have, self.part_release = array("q", bytes(8 * n * PARTS)), array("q", bytes(8 * n * PARTS))
        streams: i64 = max(tables["numbers"]["streams"], 1)
        self.drawn = array("q", bytes(8 * streams * DRAWS))
        self.draw_at = array("q", [DRAWS]) * streams
        s: i64 = max(self.sources, 1)
        self.s_frame, self.s_last, self.s_nominal, self.s_base, self.s_due = (
            array("q", bytes(8 * s)) for _ in range(5)
        )
        self.s_held = array("q", bytes(8 * s))
        self.latest = array("q", [-1]) * (n + s)

    def _clear_claims(self) -> None:
        n: i64 = max(2 * self.tasks, 1)
        (
            self.unit, self.mask, self.wide, self.lanes, self.last, self.key0, self.key1, self.listed, self.running,
            self.locked, self.chosen, self.sliced, self.slice_row, self.slice_name, self.slice_from,
        ) = (array("q", bytes(8 * n)) for _ in range(15))  # fmt: skip
        self.blocked = array("q", [-1]) * n
        self.frozen = array("q", bytes(8 * n))
        self.width = n
        u: i64 = max(self.units, 1)
        self.order, self.run = array("q", bytes(8 * n * u)), array("q", bytes(8 * n * u))
        self.ordered, self.runs, self.held, self.dirty, self.dirt, self.toll = (
            array("q", bytes(8 * u)) for _ in range(6)
        )
        e: i64 = max(self.engines, 1)
        self.busy, self.mark, self.stored = (array("q", bytes(8 * e)) for _ in range(3))
        self.spent = array("q", bytes(8 * e * self.levels))
        self.shape = array("q", [-1]) * max(len(self.lane_speed), 1)

    def _clear_slots(self) -> None:
        self.j_room = 64
        (
            self.j_frame, self.j_activation, self.j_release, self.j_deadline, self.j_start, self.j_exec, self.j_blocked,
            self.j_preempted, self.j_migrated, self.j_number, self.j_sample, self.j_next, self.j_before,
        ) = (array("q", bytes(8 * 64)) for _ in range(13))  # fmt: skip
        self.j_free = -1
        for slot in range(63, -1, -1):
            self.j_next[slot] = self.j_free
            self.j_free = slot

    def _more_slots(self) -> None:
        room: i64 = self.j_room
        (
            self.j_frame, self.j_activation, self.j_release, self.j_deadline, self.j_start, self.j_exec, self.j_blocked,
            self.j_preempted, self.j_migrated, self.j_number, self.j_sample, self.j_next, self.j_before,
        ) = (
            array("q", list(column)) + array("q", bytes(8 * room))
            for column in (
                self.j_frame, self.j_activation, self.j_release, self.j_deadline, self.j_start, self.j_exec,
                self.j_blocked, self.j_preempted, self.j_migrated, self.j_number, self.j_sample, self.j_next,
                self.j_before,
            )
        )  # fmt: skip
        self.j_room = 2 * room
        for slot in range(2 * room - 1, room - 1, -1):
            self.j_next[slot] = self.j_free
            self.j_free = slot

    def _prime(self, control: i64) -> None:
        s: i64
        for s in range(self.sources):
            self.s_base[s] = self.s_offset[s]
            self.expect(s, 0)
        if control < FAR:
            self.events.set(self.from_control, control)

    # -- the loop

    def run_on(self, most: i64) -> bool:
        """Handle up to about `most` events; return whether there is more to do."""
        events: EventQueue = self.events
        seen: i64 = 0
        now: i64
        who: i64
        while seen < most:
            now = events.first()
            if self.edge_at < now:
                now = self.edge_at
            if now > self.end:
                self.events_seen += seen
                return False
            self.now = now
            if self.edge_at == now:
                self.edge(now)
            while events.first() == now:
                seen += 1
                who = events.top()
                if who < self.tasks:
                    self.complete(who, now)
                elif who < self.from_control:
                    self.release(who - self.tasks, now)
                elif who == self.from_control:
                    self.control(now)
                elif who < self.from_budget:
                    self.expire(who - self.from_abort, now)
                elif who < self.from_tick:
                    self.exhaust(who - self.from_budget, now)
                else:
                    events.set(who, FAR)
                    self.soil(who - self.from_tick)
            if now < self.end:
                self.settle(now)
        self.events_seen += seen
        return True

    def time(self) -> int:
        """Return the instant last handled (ns)."""
        return self.now

    # -- events

    def expect(self, source: i64, frame: i64) -> i64:
        """Expect the release of a frame: its nominal instant plus jitter, never before its predecessor."""
        nominal: i64
        instant: i64
        if self.s_gap[source] and frame:
            nominal = (
                self.s_nominal[source]
                + self.s_period[source]
                + self.draw(self.s_stream[source]) % (self.s_gap[source] + 1)
            )
        else:
            nominal = self.s_base[source] + frame * self.s_period[source]
        self.s_nominal[source] = nominal
        instant = nominal
        if self.s_jitter[source]:
            instant += self.draw(self.s_stream[source]) % (self.s_jitter[source] + 1)
        if instant < self.s_last[source]:
            instant = self.s_last[source]
        self.s_last[source] = instant
        # jitter of arrival moves the release; jitter behind it leaves deadlines where they are
        self.s_due[source] = nominal if self.s_behind[source] else instant
        # after a frame that came late the next one may be due already
        if instant < self.now:
            instant = self.now
        self.s_frame[source] = frame
        self.events.set(self.tasks + source, instant if instant < self.end else FAR)
        return 0

    def release(self, source: i64, now: i64) -> i64:
        extra: i64 = self.s_burst[source]
        frame: i64
        at: i64 = self.s_due[source]
        i: i64
        row: i64
        lost: i64
        if self.s_delay[source] and not self.s_held[source]:
            self.s_held[source] = 1
            instant: i64 = now + self.s_delay[source]
            self.events.set(self.tasks + source, instant if instant < self.end else FAR)
            return 0
        self.s_held[source] = 0
        while True:
            frame = self.s_frame[source]
            lost = self.s_lost[source] > 0
            self.chains.released(source, at, lost)
            if self.record:
                row = self.release_log.row()
                self.release_log.block[row] = source
                self.release_log.block[row + 1] = at
            if lost:
                self.note(now, LOST_FRAME, self.tasks + source, frame, 0)
            else:
                self.latest[self.tasks + source] = frame
                for i in range(self.s_next0[source], self.s_next0[source] + self.s_next[source]):
                    self.deliver(self.nexts[i], frame, at, now)
            if extra <= 0:
                break
            extra -= 1
            # one frame more than planned: what follows keeps its instant and moves up one number
            self.s_frame[source] = frame + 1
            self.s_base[source] -= self.s_period[source]
        self.s_burst[source] = 0
        self.expect(source, self.s_frame[source] + 1)
        return 0

    def draw(self, stream: i64) -> i64:
        """Return a random number from 0 to 2**62 - 1."""
        at: i64 = self.draw_at[stream]
        i: i64
        base: i64 = stream * DRAWS
        if at == DRAWS:
            fresh = self.hooks.draws(stream)
            for i in range(DRAWS):
                self.drawn[base + i] = fresh[i]
            at = 0
        self.draw_at[stream] = at + 1
        return self.drawn[base + at]

    def complete(self, t: i64, now: i64) -> i64:
        """A task's prefix (a switch, say) or its segment is over."""
        g: i64
        u: i64 = self.unit[t]
        self.events.set(t, FAR)
        self.end_slice(t, now)
        if self.prefix[t]:
            self.prefix[t] = 0
            self.begin(t, now)
            return 0
        if self.drawing[t]:
            self.leave_memory(t)
        self.place[t] += 1
        if self.place[t] == self.count[t]:
            self.retire(t, now)
            return 0
        g = self.first[t] + self.place[t]
        self.load(t, g)
        if self.g_unit[g] != u or (self.wide[t] == 0 and self.g_mask[g] != self.mask[t]):
            self.hand_over(t, g, now)
        elif self.u_kind[u] == SEGMENT:
            if self.u_flight[u] <= 1 or 0 <= self.stop[t] <= self.place[t]:
                self.unlock(t)
            else:
                self.begin(t, now)
            self.soil(u)
            if self.u_quantum[u] and self.turn[t] <= now:
                self.turn[t] = 0
                self.requeue(t, now)
        else:
            self.begin(t, now)
        return 0

    def hand_over(self, t: i64, g: i64, now: i64) -> i64:
        """The next segment runs on other lanes: leave these, or wait busily on them, and queue up there."""
        home: i64 = self.tasks + t
        holds: i64 = self.g_hold[g]
        if self.listed[home] and not holds:
            # back home: the claim that waited there goes on with the work, on the lanes it holds
            if self.running[t]:
                self.vacate(t, now)
            self.unlist(t)
            self.come_home(t, home, now)
            return 0
        if holds and not self.listed[home]:
            self.stay(t, home, now)
        else:
            self.vacate(t, now)
            self.unlist(t)
        self.aim(t, g)
        self.enlist(t, now)
        return 0

    def stay(self, t: i64, home: i64, now: i64) -> i64:
        """Let the busy-waiting claim take the place of the working one."""
        i: i64
        u: i64 = self.unit[t]
        self.unit[home], self.mask[home], self.wide[home] = u, self.mask[t], self.wide[t]
        self.lanes[home], self.last[home] = self.lanes[t], self.last[t]
        self.key0[home], self.key1[home] = self.key0[t], self.key1[t]
        self.running[home], self.locked[home], self.frozen[home] = 1, self.locked[t], self.frozen[t]
        self.running[t] = self.locked[t] = self.frozen[t] = 0
        self.unlist(t)
        self.list_claim(home)
        for i in range(self.runs[u]):
            if self.run[u * self.width + i] == t:
                self.run[u * self.width + i] = home
        self.open_slice(home, now, 1)
        self.soil(u)
        return 0

    def come_home(self, t: i64, home: i64, now: i64) -> i64:
        i: i64
        u: i64 = self.unit[home]
        ran: i64 = self.running[home]
        self.end_slice(home, now)
        self.unlist(home)
        self.unit[t], self.mask[t], self.wide[t] = u, self.mask[home], self.wide[home]
        self.lanes[t], self.last[t] = self.lanes[home], self.last[home]
        self.key0[t], self.key1[t] = self.key0[home], self.key1[home]
        self.running[t], self.locked[t], self.frozen[t] = ran, self.locked[home], self.frozen[home]
        self.running[home] = self.locked[home] = self.frozen[home] = 0
        self.list_claim(t)
        self.soil(u)
        if ran:
            for i in range(self.runs[u]):
                if self.run[u * self.width + i] == home:
                    self.run[u * self.width + i] = t
            self.begin(t, now)
        return 0

    # -- from data to jobs

    def deliver(self, t: i64, frame: i64, release: i64, now: i64) -> i64:
        at: i64
        slot: i64
        if self.t_need[t] > 1:
            at = t * PARTS + frame % PARTS
            if self.part_frame[at] != frame:
                self.part_frame[at], self.part_have[at], self.part_release[at] = frame, 0, release
            self.part_have[at] += 1
            if release < self.part_release[at]:
                self.part_release[at] = release
            if self.part_have[at] < self.t_need[t]:
                return 0
            release = self.part_release[at]
            self.part_frame[at] = -1
        if self.j_free < 0:
            self._more_slots()
        slot = self.j_free
        self.j_free = self.j_next[slot]
        self.j_frame[slot], self.j_activation[slot], self.j_release[slot] = frame, now, release
        self.j_deadline[slot] = release + self.t_deadline[t]
        self.j_start[slot] = self.j_sample[slot] = -1
        self.j_exec[slot] = self.j_blocked[slot] = self.j_preempted[slot] = self.j_migrated[slot] = 0
        self.j_number[slot] = self.number
        self.number += 1
        self.released[t] += 1
        self.j_next[slot] = -1
        if self.job[t] < 0:
            self.promote(t, slot, now)
        else:
            self.j_before[slot] = self.tail[t]
            if self.tail[t] >= 0:
                self.j_next[self.tail[t]] = slot
            else:
                self.head[t] = slot
            self.tail[t] = slot
            self.waiting[t] += 1
        self.touch(t)
        return 0

    def touch(self, t: i64) -> i64:
        if not self.marked[t]:
            self.marked[t] = 1
            self.touched[self.touches] = t
            self.touches += 1
        return 0

    def promote(self, t: i64, slot: i64, now: i64) -> i64:
        """Make a waiting job the one its task works on."""
        g: i64
        late: i64 = self.t_late[t]
        self.job[t] = slot
        self.first[t], self.count[t] = self.t_first[t], self.t_count[t]
        self.stop[t] = -1
        self.up[t] = self.down[t] = 1
        if self.t_stream[t] >= 0:
            self.sample_time(t)
        if self.t_over[t] >= 0 and (self.draw(self.t_over[t]) >> 9) < self.t_chance[t]:
            # a job that overruns takes a factor of whatever it would have taken
            self.up[t] *= self.t_up[t]
            self.down[t] *= self.t_down[t]
            self.note(now, OVERRUN, t, self.j_frame[slot], self.t_up[t] * 1000000 // self.t_down[t])
        if late and now + scaled(self.t_cost[t], self.up[t], self.down[t]) > self.j_deadline[slot]:
            if late == SKIP:
                self.note(now, SKIPPED, t, self.j_frame[slot], 0)
                self.finish(t, slot, now, DROPPED)
                self.job[t] = -1
                self.follow(t, now)
                return 0
            if late == DEGRADE and self.t_alts[t]:
                self.first[t], self.count[t] = self.t_alt[t], self.t_alts[t]
        if late == ABORT:
            self.events.set(self.from_abort + t, self.j_deadline[slot] if self.j_deadline[slot] > now else now)
        self.place[t] = 0
        g = self.first[t]
        self.load(t, g)
        self.aim(t, g)
        if self.n_governor[self.u_engine[self.unit[t]]]:
            self.govern(t, self.t_cost[t], now)
        if self.u_serves[self.unit[t]]:
            self.replenish(t, now)
        self.enlist(t, now)
        return 0

    def sample_time(self, t: i64) -> i64:
        """Draw how long this job takes: a sample, or a place between two quantiles."""
        drawn: i64 = self.draw(self.t_stream[t]) >> 30
        size: i64 = self.t_table[t]
        at: i64
        rest: i64
        value: i64
        if self.t_between[t]:
            at = drawn * (size - 1) >> 32
            rest = drawn * (size - 1) - (at << 32)
            value = self.times[self.t_table0[t] + at]
            # 2**12 steps between two quantiles keep the product small
            value += (self.times[self.t_table0[t] + at + 1] - value) * (rest >> 20) >> 12
        else:
            value = self.times[self.t_table0[t] + (drawn * size >> 32)]
        self.up[t], self.down[t] = value, self.t_cost[t]
        return 0

    def aim(self, t: i64, g: i64) -> i64:
        """Claim the lanes of a segment."""
        self.unit[t], self.mask[t], self.wide[t] = self.g_unit[g], self.g_mask[g], self.g_width[g]
        return 0

    def enlist(self, t: i64, now: i64) -> i64:
        """Put a task's claim in the order of its unit."""
        u: i64 = self.unit[t]
        self.set_keys(t, now)
        if not self.throttled[t]:
            self.list_claim(t)
        self.soil(u)
        return 0

    def set_keys(self, t: i64, now: i64) -> i64:
        u: i64 = self.unit[t]
        if self.u_term0[u] == T_ASKED:
            slot: i64 = self.job[t]
            keys = self.hooks.asked(
                u, t, self.j_frame[slot], self.j_activation[slot], self.j_release[slot], self.j_deadline[slot],
                self.j_start[slot], self.j_exec[slot], self.remaining(t, now), self.running[t], now,
            )  # fmt: skip
            self.key0[t], self.key1[t] = keys
        else:
            self.key0[t] = self.term(self.u_term0[u], t, now)
            self.key1[t] = self.term(self.u_term1[u], t, now)
        return 0

    def term(self, code: i64, t: i64, now: i64) -> i64:
        slot: i64 = self.job[t]
        if code == T_DEADLINE:
            return self.j_deadline[slot]
        if code == T_ACTIVATION:
            return self.j_activation[slot]
        if code == T_PRIORITY:
            return self.t_priority[t]
        if code == T_PERIOD:
            return self.t_period[t]
        if code == T_RELATIVE:
            return self.t_deadline[t]
        if code == T_CRITICALITY:
            return self.t_criticality[t]
        if code == T_LAXITY:
            return self.j_deadline[slot] - self.remaining(t, now)
        if code == T_TURN:
            self.turns += 1
            return self.turns
        if code == T_SERVER:
            return self.server[t] if self.t_budget[t] else self.j_deadline[slot]
        if code == T_REMAINING:
            return self.remaining(t, now)
        if code == T_COST:
            return self.t_cost[t]
        return 0

    def remaining(self, t: i64, now: i64) -> i64:
        """Return what is left of a task's job (ns), alone on the board."""
        g: i64 = self.first[t] + self.place[t]
        rest: i64 = self.left[t] + (1 << SHIFT) - 1 >> SHIFT
        if self.timed[t] and self.sliced[t] and not self.prefix[t]:
            rest = scaled(rest, self.pace[t], self.base[t]) - (now - self.since[t])
            if rest < 0:
                rest = 0
            rest = scaled(rest, self.load_time(t, g), self.pace[t])
        elif self.base[t] > 0:
            rest = scaled(rest, self.load_time(t, g), self.base[t])
        return rest + scaled(self.g_rest[g], self.up[t], self.down[t])

    def load_time(self, t: i64, g: i64) -> i64:
        if self.up[t] == self.down[t]:
            return self.g_time[g]
        return scaled(self.g_time[g], self.up[t], self.down[t])

    def retire(self, t: i64, now: i64) -> i64:
        """A job is done: hand its output on and take up the next."""
        slot: i64 = self.job[t]
        frame: i64 = self.j_frame[slot]
        release: i64 = self.j_release[slot]
        home: i64 = self.tasks + t
        i: i64
        e: i64
        if self.listed[home]:
            if self.running[home]:
                self.end_slice(home, now)
                self.vacate(home, now)
            self.unlist(home)
        if now > self.j_deadline[slot]:
            self.late[t] += 1
            self.note(now, MISS, t, frame, now - self.j_deadline[slot])
        self.vacate(t, now)
        self.unlist(t)
        self.latest[t] = frame
        e = self.u_engine[self.unit[t]]
        if self.n_governor[e]:
            self.govern(t, scaled(self.t_cost[t], self.up[t], self.down[t]), now)
        self.finish(t, slot, now, DONE)
        self.chains.finished(t, frame, now)
        self.job[t] = -1
        self.follow(t, now)
        for i in range(self.t_next0[t], self.t_next0[t] + self.t_next[t]):
            self.deliver(self.nexts[i], frame, release, now)
        return 0

    def follow(self, t: i64, now: i64) -> i64:
        """Take up the oldest waiting job of a task."""
        slot: i64 = self.head[t]
        self.blocked[t] = -1
        if self.t_late[t] == ABORT:
            self.events.set(self.from_abort + t, FAR)
        if slot >= 0:
            self.head[t] = self.j_next[slot]
            if self.head[t] >= 0:
                self.j_before[self.head[t]] = -1
            else:
                self.tail[t] = -1
            self.waiting[t] -= 1
            self.promote(t, slot, now)
        return 0

    def finish(self, t: i64, slot: i64, now: i64, status: i64) -> i64:
        """Book a job that ended, and free its slot."""
        if status == DONE:
            self.done[t] += 1
            self.execs.add(t, self.j_exec[slot])
            self.responses.add(t, now - self.j_release[slot])
        else:
            if status == DROPPED:
                self.dropped[t] += 1
                self.chains.lost(t, self.j_frame[slot])
            else:
                self.aborted[t] += 1
        self.preempted[t] += self.j_preempted[slot]
        self.migrated[t] += self.j_migrated[slot]
        if self.j_blocked[slot] > self.most_blocked[t]:
            self.most_blocked[t] = self.j_blocked[slot]
        if self.record:
            self.write_job(t, slot, now if status == DONE else -1, status)
        self.j_next[slot] = self.j_free
        self.j_free = slot
        return 0

    def write_job(self, t: i64, slot: i64, finish: i64, status: i64) -> i64:
        log: Log = self.job_log
        at: i64 = log.row()
        log.block[at] = self.j_number[slot]
        log.block[at + 1] = t
        log.block[at + 2] = self.j_frame[slot]
        log.block[at + 3] = self.j_activation[slot]
        log.block[at + 4] = self.j_deadline[slot]
        log.block[at + 5] = self.j_start[slot]
        log.block[at + 6] = finish
        log.block[at + 7] = self.j_exec[slot]
        log.block[at + 8] = self.j_blocked[slot]
        log.block[at + 9] = self.j_preempted[slot]
        log.block[at + 10] = self.j_migrated[slot]
        log.block[at + 11] = status
        log.block[at + 12] = self.j_sample[slot]
        return 0

    def kill(self, t: i64, now: i64, status: i64) -> i64:
        """Take a task's job away, wherever it is."""
        slot: i64 = self.job[t]
        home: i64 = self.tasks + t
        claim: i64
        for claim in (home, t):
            if self.listed[claim]:
                if self.running[claim]:
                    if self.sliced[claim]:
                        self.end_slice(claim, now)
                    if claim == t and self.drawing[t]:
                        self.leave_memory(t)
                    self.vacate(claim, now)
                self.unlist(claim)
        self.events.set(t, FAR)
        self.soil(self.unit[t])
        self.owes[t] = self.prefix[t] = self.timed[t] = 0
        self.finish(t, slot, now, status)
        self.job[t] = -1
        self.follow(t, now)
        return 0

    def expire(self, t: i64, now: i64) -> i64:
        """A job that is not to outlive its deadline reaches it."""
        self.events.set(self.from_abort + t, FAR)
        if self.job[t] >= 0:
            self.note(now, LATE_ABORT, t, self.j_frame[self.job[t]], 0)
            self.kill(t, now, ABORTED)
        return 0

    # -- the order of a unit

    def soil(self, u: i64) -> i64:
        """Have a unit dispatched before this instant ends."""
        if not self.dirty[u]:
            self.dirty[u] = 1
            self.dirt[self.dirts] = u
            self.dirts += 1
        return 0

    def list_claim(self, c: i64) -> i64:
        u: i64 = self.unit[c]
        base: i64 = u * self.width
        at: i64 = self.ordered[u]
        other: i64
        while at > 0:
            other = self.order[base + at - 1]
            if self.before(other, c):
                break
            self.order[base + at] = other
            at -= 1
        self.order[base + at] = c
        self.ordered[u] += 1
        self.listed[c] = 1
        return 0

    def before(self, a: i64, b: i64) -> i64:
        """Return whether claim `a` is served before claim `b`."""
        if self.key0[a] != self.key0[b]:
            return self.key0[a] < self.key0[b]
        if self.key1[a] != self.key1[b]:
            return self.key1[a] < self.key1[b]
        return a < b

    def unlist(self, c: i64) -> i64:
        u: i64 = self.unit[c]
        base: i64 = u * self.width
        at: i64 = 0
        if not self.listed[c]:
            return 0
        while self.order[base + at] != c:
            at += 1
        self.ordered[u] -= 1
        while at < self.ordered[u]:
            self.order[base + at] = self.order[base + at + 1]
            at += 1
        self.listed[c] = 0
        self.soil(u)
        return 0

    def sort(self, u: i64, now: i64) -> i64:
        """Put a unit in order again, whose keys depend on time."""
        base: i64 = u * self.width
        i: i64
        at: i64
        c: i64
        for i in range(self.ordered[u]):
            c = self.order[base + i]
            if c < self.tasks:
                self.set_keys(c, now)
            else:
                self.key0[c], self.key1[c] = self.key0[c - self.tasks], self.key1[c - self.tasks]
            at = i
            while at > 0 and not self.before(self.order[base + at - 1], c):
                self.order[base + at] = self.order[base + at - 1]
                at -= 1
            self.order[base + at] = c
        return 0

    def requeue(self, t: i64, now: i64) -> i64:
        """A quantum is over: go to the end of the round."""
        if self.listed[t]:
            self.unlist(t)
            self.enlist(t, now)
        return 0

    # -- dispatching, once an instant

    def settle(self, now: i64) -> i64:
        i: i64
        u: i64
        top: i64
        while self.dirts or self.touches:
            i = 0
            while i < self.dirts:
                u = self.dirt[i]
                self.dirty[u] = 0
                i += 1
                if self.u_across[u]:
                    top = self.most_urgent()
                    for u in range(self.units):
                        if self.u_across[u]:
                            self.dispatch(u, now, top)
                else:
                    self.dispatch(u, now, -FAR)
            self.dirts = 0
            if self.touches:
                self.limit_queues(now)
        if self.memory_changed:
            self.share(now)
        if self.load_now != self.shown_load or self.rate != self.shown_rate:
            self.read_meters(now)
        return 0

    def most_urgent(self) -> i64:
        """Return the first key of the most urgent claim of all units that are served together."""
        u: i64
        found: i64 = FAR
        for u in range(self.units):
            if self.u_across[u] and self.ordered[u] and self.key0[self.order[u * self.width]] < found:
                found = self.key0[self.order[u * self.width]]
        return found

    def dispatch(self, u: i64, now: i64, top: i64) -> i64:
        base: i64 = u * self.width
        everything: i64 = self.u_mask[u]
        taken: i64 = self.held[u]
        i: i64
        c: i64
        place: i64
        if self.n_still[self.u_engine[u]]:
            return 0
        if self.u_dynamic[u]:
            self.sort(u, now)
        for i in range(self.ordered[u]):
            if taken == everything:
                break
            c = self.order[base + i]
            if self.locked[c] or (top > -FAR and self.key0[c] > top):
                continue
            place = self.find_place(c, taken)
            if place:
                self.chosen[c] = place
                taken |= place
        if self.u_flight[u] > 1:
            self.ask_to_stop(u)
        i = 0
        while i < self.runs[u]:
            c = self.run[base + i]
            if not self.locked[c] and self.chosen[c] != self.lanes[c]:
                self.preempt(c, now)
            else:
                i += 1
        for i in range(self.ordered[u]):
            c = self.order[base + i]
            if not self.chosen[c]:
                continue
            if not self.running[c]:
                self.start(c, self.chosen[c], now)
            elif self.u_kind[u] == SEGMENT and not self.locked[c] and not self.sliced[c]:
                self.lock(c)
                self.begin(c, now)
            self.chosen[c] = 0
        if self.u_kind[u] != FULL and self.u_kind[u] != RESTART:
            self.note_blocking(u, now)
        if self.u_tick[u] and self.ordered[u] > self.runs[u]:
            self.events.set(self.from_tick + u, now + self.u_tick[u])
        return 0

    def find_place(self, c: i64, taken: i64) -> i64:
        """Return the lanes a claim gets while `taken` are gone, 0 for none."""
        mask: i64 = self.mask[c]
        free: i64
        wanted: i64 = self.wide[c]
        if wanted == 0:
            return mask if mask & taken == 0 else 0
        if self.running[c] and self.lanes[c] & taken == 0:
            return self.lanes[c]
        free = mask & ~taken
        if bits(free) < wanted:
            return 0
        return self.pick(c, free, wanted)

    def pick(self, c: i64, free: i64, wanted: i64) -> i64:
        """Choose lanes: where it ran last, then idle ones, then those of the least urgent; faster lanes first."""
        u: i64 = self.unit[c]
        base: i64 = u * self.width
        lane0: i64 = self.n_lane0[self.u_engine[u]]
        found: i64 = 0
        idle: i64 = free
        i: i64
        lane: i64
        best: i64
        rest: i64
        other: i64
        for i in range(self.runs[u]):
            if self.run[base + i] != c:
                idle &= ~self.lanes[self.run[base + i]]
        if self.last[c] and self.last[c] & ~idle == 0 and bits(self.last[c]) == wanted and not self.n_uneven:
            return self.last[c]
        while wanted and idle:
            best = -1
            lane = 0
            rest = idle
            while rest:
                if rest & 1 and (
                    best < 0
                    or self.lane_speed[lane0 + lane] > self.lane_speed[lane0 + best]
                    or (
                        self.lane_speed[lane0 + lane] == self.lane_speed[lane0 + best]
                        and self.last[c] >> lane & 1 > self.last[c] >> best & 1
                    )
                ):
                    best = lane
                rest >>= 1
                lane += 1
            found |= 1 << best
            idle &= ~(1 << best)
            wanted -= 1
        i = self.ordered[u] - 1
        while wanted and i >= 0:
            other = self.order[base + i]
            i -= 1
            if other == c or not self.running[other]:
                continue
            rest = self.lanes[other] & free & ~found
            while wanted and rest:
                found |= rest & -rest
                rest &= rest - 1
                wanted -= 1
        return found if wanted == 0 else 0

    def ask_to_stop(self, u: i64) -> i64:
        """Tell running jobs behind a more urgent one to launch nothing more; what is in flight still runs."""
        base: i64 = u * self.width
        waits: i64 = 0
        i: i64
        c: i64
        for i in range(self.ordered[u]):
            c = self.order[base + i]
            if not self.running[c]:
                waits = 1
            elif waits and c < self.tasks and self.stop[c] < 0:
                self.stop[c] = self.place[c] + self.u_flight[u]
        return 0

    def start(self, c: i64, place: i64, now: i64) -> i64:
        u: i64 = self.unit[c]
        e: i64 = self.u_engine[u]
        t: i64 = c if c < self.tasks else c - self.tasks
        slot: i64 = self.job[t]
        self.running[c] = 1
        self.run[u * self.width + self.runs[u]] = c
        self.runs[u] += 1
        self.lanes[c] = place
        self.occupy(e, bits(place), now)
        if c >= self.tasks:
            if self.u_kind[u] != FULL:
                self.lock(c)
            self.open_slice(c, now, 1)
            return 0
        if self.j_start[slot] < 0:
            self.j_start[slot] = now
            self.sample(t, slot, now)
            if self.depth[t]:
                self.touch(t)
        if self.owes[t]:
            self.prefix[t] = self.n_switch[e]
            self.owes[t] = 0
        if self.wide[c] and self.j_exec[slot] and self.last[c] != place:
            self.j_migrated[slot] += 1
            self.prefix[t] += self.n_migrate[e]
        if self.n_reshape[e]:
            self.reshape(e, place, t)
        if self.n_memory[e]:
            self.bring(e, t)
        self.prefix[t] += self.toll[u]
        self.toll[u] = 0
        self.last[c] = place
        self.stop[t] = -1
        if self.u_kind[u] == SEGMENT or self.u_kind[u] == NONE:
            self.lock(c)
        self.begin(t, now)
        return 0

    def sample(self, t: i64, slot: i64, now: i64) -> i64:
        """Take the latest outputs of what the task reads."""
        i: i64
        row: i64
        self.chains.started(t, self.j_frame[slot], self.latest)
        if self.record and self.t_reads[t]:
            self.j_sample[slot] = self.samples_made
            for i in range(self.t_reads0[t], self.t_reads0[t] + self.t_reads[t]):
                row = self.sample_log.row()
                self.sample_log.block[row] = self.latest[self.reads[i]]
                self.samples_made += 1
        return 0

    def reshape(self, e: i64, place: i64, t: i64) -> i64:
        """Lanes that were last used in another grouping are regrouped first."""
        lane: i64 = self.n_lane0[e]
        rest: i64 = place
        changed: i64 = 0
        while rest:
            if rest & 1:
                if self.shape[lane] >= 0 and self.shape[lane] != place:
                    changed = 1
                self.shape[lane] = place
            rest >>= 1
            lane += 1
        if changed:
            self.prefix[t] += self.n_reshape[e]
        return 0

    def bring(self, e: i64, t: i64) -> i64:
        """Weights that are not in the engine's memory are fetched; those used longest ago make room."""
        other: i64
        oldest: i64
        self.uses += 1
        if self.resident[t]:
            self.resident[t] = self.uses
            return 0
        while self.stored[e] + self.t_weights[t] > self.n_memory[e]:
            oldest = -1
            for other in range(self.tasks):
                if (
                    self.resident[other]
                    and self.u_engine[self.g_unit[self.t_first[other]]] == e
                    and (oldest < 0 or self.resident[other] < self.resident[oldest])
                ):
                    oldest = other
            if oldest < 0:
                break
            self.resident[oldest] = 0
            self.stored[e] -= self.t_weights[oldest]
        self.resident[t] = self.uses
        self.stored[e] += self.t_weights[t]
        self.prefix[t] += scaled(self.t_weights[t], 1000000000, self.n_swap[e])
        return 0

    def lock(self, c: i64) -> i64:
        """Nobody may take a running claim's lanes."""
        self.locked[c] = 1
        self.held[self.unit[c]] |= self.lanes[c]
        return 0

    def unlock(self, c: i64) -> i64:
        self.locked[c] = 0
        self.held[self.unit[c]] &= ~self.lanes[c]
        return 0

    def preempt(self, c: i64, now: i64) -> i64:
        u: i64 = self.unit[c]
        t: i64 = c
        if c >= self.tasks:
            self.end_slice(c, now)
            self.vacate(c, now)
            return 0
        if self.sliced[c]:
            self.end_slice(c, now)
            if not self.prefix[t]:
                self.advance(t, now)
                if self.drawing[t]:
                    self.leave_memory(t)
                if self.u_kind[u] == RESTART:
                    self.note(now, KILLED, t, self.j_frame[self.job[t]], 0)
                    self.load(t, self.first[t] + self.place[t])
                    self.toll[u] = self.u_reset[u]
        self.vacate(c, now)
        self.j_preempted[self.job[t]] += 1
        self.owes[t] = 1
        self.prefix[t] = self.turn[t] = 0
        self.events.set(t, FAR)
        return 0

    def vacate(self, c: i64, now: i64) -> i64:
        """Give a claim's lanes back."""
        u: i64 = self.unit[c]
        e: i64 = self.u_engine[u]
        base: i64 = u * self.width
        at: i64 = 0
        if not self.running[c]:
            return 0
        self.running[c] = 0
        if self.locked[c]:
            self.unlock(c)
        while self.run[base + at] != c:
            at += 1
        self.runs[u] -= 1
        while at < self.runs[u]:
            self.run[base + at] = self.run[base + at + 1]
            at += 1
        if self.frozen[c]:
            self.frozen[c] = 0
        else:
            self.occupy(e, -bits(self.lanes[c]), now)
        return 0

    def limit_queues(self, now: i64) -> i64:
        i: i64
        t: i64
        depth: i64
        row: i64
        i = 0
        while i < self.touches:
            t = self.touched[i]
            self.marked[t] = 0
            i += 1
            depth = self.waiting[t] + (self.job[t] >= 0 and self.j_start[self.job[t]] < 0)
            while depth > self.t_queue[t]:
                self.drop(t, now)
                depth -= 1
            if depth != self.depth[t]:
                self.depth[t] = depth
                if self.record:
                    row = self.depth_log.row()
                    self.depth_log.block[row] = now
                    self.depth_log.block[row + 1] = t
                    self.depth_log.block[row + 2] = depth
        self.touches = 0
        return 0

    def drop(self, t: i64, now: i64) -> i64:
        """A queue is too long: give up its newest frame, or its oldest where the latest counts."""
        slot: i64 = self.job[t]
        after: i64
        oldest: i64 = self.t_full[t] == LATEST
        if self.tail[t] >= 0 and not (oldest and self.j_start[slot] < 0):
            slot = self.head[t] if oldest else self.tail[t]
            after = self.j_next[slot]
            if self.j_before[slot] >= 0:
                self.j_next[self.j_before[slot]] = after
            else:
                self.head[t] = after
            if after >= 0:
                self.j_before[after] = self.j_before[slot]
            else:
                self.tail[t] = self.j_before[slot]
            self.waiting[t] -= 1
            self.note(now, QUEUE_FULL, t, self.j_frame[slot], self.t_queue[t])
            self.finish(t, slot, now, DROPPED)
        else:
            self.note(now, QUEUE_FULL, t, self.j_frame[slot], self.t_queue[t])
            self.kill(t, now, DROPPED)
        return 0

    def note_blocking(self, u: i64, now: i64) -> i64:
        """Book the time of jobs whose every obstacle is of lower priority and could not be preempted."""
        base: i64 = u * self.width
        i: i64
        j: i64
        c: i64
        other: i64
        hindered: i64
        for i in range(self.ordered[u]):
            c = self.order[base + i]
            if c >= self.tasks:
                continue
            hindered = 0
            if not self.running[c]:
                for j in range(self.runs[u]):
                    other = self.run[base + j]
                    if self.lanes[other] & self.mask[c]:
                        hindered = 1
                        if self.before(other, c):
                            hindered = 0
                            break
            if hindered:
                if self.blocked[c] < 0:
                    self.blocked[c] = now
            elif self.blocked[c] >= 0:
                self.j_blocked[self.job[c]] += now - self.blocked[c]
                self.blocked[c] = -1
        return 0

    # -- progress of the segments of running jobs

    def load(self, t: i64, g: i64) -> i64:
        time: i64 = self.load_time(t, g)
        self.pace[t] = self.base[t] = time
        self.left[t] = time << SHIFT
        self.demand[t] = self.g_bytes[g] > 0 and time > 0
        self.timed[t] = 0
        return 0

    def begin(self, t: i64, now: i64) -> i64:
        u: i64 = self.unit[t]
        if self.n_still[self.u_engine[u]]:
            return 0
        self.since[t] = now
        self.serve(t, now)
        if self.prefix[t]:
            self.open_slice(t, now, 0)
            self.events.set(t, now + self.prefix[t])
            return 0
        self.open_slice(t, now, self.g_name[self.first[t] + self.place[t]])
        self.timed[t] = 0
        if self.demand[t]:
            self.enter_memory(t)
        else:
            self.keep_pace(t, self.slowed(t, self.load_time(t, self.first[t] + self.place[t])), now)
        return 0

    def slowed(self, t: i64, time: i64) -> i64:
        """Return how long a segment takes on its lanes as clocks and faults are."""
        e: i64 = self.u_engine[self.unit[t]]
        slowest: i64
        lane: i64
        rest: i64
        if self.n_slow[e] != self.n_fast[e]:
            time = scaled(time, self.n_slow[e], self.n_fast[e])
        if self.n_level[e] != self.levels - 1:
            time = scaled(
                time, self.n_clock[e * self.levels + self.levels - 1], self.n_clock[e * self.levels + self.n_level[e]]
            )
        if self.n_uneven:
            slowest = 1024
            lane = self.n_lane0[e]
            rest = self.lanes[t]
            while rest:
                if rest & 1 and self.lane_speed[lane] < slowest:
                    slowest = self.lane_speed[lane]
                rest >>= 1
                lane += 1
            if slowest < 1024:
                time = scaled(time, 1024, slowest)
        return time

    def keep_pace(self, t: i64, pace: i64, now: i64) -> i64:
        """Let the running segment take `pace` ns as a whole from now on, and expect its end accordingly."""
        left: i64
        if self.timed[t]:
            if self.pace[t] == pace:
                return 0
            self.advance(t, now)
        self.pace[t] = pace
        self.timed[t] = 1
        left = self.left[t]
        if pace != self.base[t]:
            left = scaled(left, pace, self.base[t])
        self.events.set(t, now + ((left + (1 << SHIFT) - 1) >> SHIFT))
        return 0

    def advance(self, t: i64, now: i64) -> i64:
        elapsed: i64 = now - self.since[t]
        self.since[t] = now
        # a pace that held for no time must leave no rounding behind
        if elapsed and self.timed[t]:
            if self.pace[t] != self.base[t]:
                self.left[t] = scaled(self.left[t], self.pace[t], self.base[t])
                self.base[t] = self.pace[t]
            self.left[t] -= elapsed << SHIFT
            if self.left[t] < 0:
                self.left[t] = 0
        return 0

    def open_slice(self, c: i64, now: i64, name: i64) -> i64:
        self.sliced[c] = 1
        self.slice_name[c] = name
        self.slice_row[c] = self.slices_begun
        self.slice_from[c] = now
        self.slices_begun += 1
        return 0

    def end_slice(self, c: i64, now: i64) -> i64:
        t: i64 = c if c < self.tasks else c - self.tasks
        at: i64
        log: Log
        if not self.sliced[c]:
            return 0
        self.sliced[c] = 0
        if c < self.tasks:
            self.j_exec[self.job[t]] += now - self.slice_from[c]
            self.consume(t, now)
        if self.record:
            log = self.slice_log
            at = log.row()
            log.block[at] = self.slice_row[c]
            log.block[at + 1] = self.u_engine[self.unit[c]]
            log.block[at + 2] = self.lanes[c]
            log.block[at + 3] = self.j_number[self.job[t]]
            log.block[at + 4] = self.slice_name[c]
            log.block[at + 5] = self.slice_from[c]
            log.block[at + 6] = now
        return 0

    def enter_memory(self, t: i64) -> i64:
        at: i64 = self.actives
        while at > 0 and self.active[at - 1] > t:
            self.active[at] = self.active[at - 1]
            at -= 1
        self.active[at] = t
        self.actives += 1
        self.drawing[t] = 1
        self.memory_changed = 1
        return 0

    def leave_memory(self, t: i64) -> i64:
        at: i64 = 0
        while self.active[at] != t:
            at += 1
        self.actives -= 1
        while at < self.actives:
            self.active[at] = self.active[at + 1]
            at += 1
        self.drawing[t] = 0
        self.memory_changed = 1
        return 0

    def share(self, now: i64) -> i64:
        """Give every segment that draws on the DRAM the pace it has among the present ones."""
        mixes: Combinations = self.combinations
        i: i64
        t: i64
        g: i64
        at: i64
        pace: i64
        rate: cython.double = 0.0
        size: cython.double
        if self.memory_limits:
            for i in range(self.actives):
                mixes.key[i] = self.first[self.active[i]] + self.place[self.active[i]]
            mixes.key[self.actives] = -1 - self.hog
            mixes.length = self.actives + (self.hog > 0)
            at = mixes.find()
        else:
            at = 0
        for i in range(self.actives):
            t = self.active[i]
            g = self.first[t] + self.place[t]
            size = self.g_bytes[g]
            if self.up[t] != self.down[t]:
                size = scaled(self.g_bytes[g], self.up[t], self.down[t])
            if self.memory_limits:
                pace = mixes.pool[at + i]
                if self.up[t] != self.down[t]:
                    pace = scaled(pace, self.up[t], self.down[t])
            else:
                pace = self.load_time(t, g)
            self.keep_pace(t, self.slowed(t, pace), now)
            rate += size / self.pace[t]
        if self.hog:
            rate += mixes.pool[at + self.actives] / 1e9 if self.memory_limits else self.hog_rate
        self.memory_changed = 0
        self.rate = rate
        return 0

    # -- reservations, quanta, clocks

    def serve(self, t: i64, now: i64) -> i64:
        """A task runs from now: its budget or quantum runs too."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.events.set(self.from_budget + t, now + self.budget[t])
        elif self.u_quantum[u] and not self.turn[t]:
            self.turn[t] = now + self.u_quantum[u]
            if self.u_kind[u] == FULL:
                self.events.set(self.from_budget + t, self.turn[t])
        return 0

    def consume(self, t: i64, now: i64) -> i64:
        """A task ran until now."""
        u: i64 = self.unit[t]
        if self.u_serves[u] and self.t_budget[t]:
            self.budget[t] -= now - self.slice_from[t]
            if not self.throttled[t]:
                self.events.set(self.from_budget + t, FAR)
        return 0

    def replenish(self, t: i64, now: i64) -> i64:
        """Wake a reservation up: a new deadline unless what is left fits before the old one (CBS, rule of wake-up)."""
        if not self.t_budget[t] or self.throttled[t]:
            return 0
        if self.server[t] <= now or self.budget[t] > (self.server[t] - now) * self.t_budget[t] // self.t_server[t]:
            self.server[t] = now + self.t_server[t]
            self.budget[t] = self.t_budget[t]
        return 0

    def exhaust(self, t: i64, now: i64) -> i64:
        """A budget is used up or given back, or a quantum is over."""
        u: i64 = self.unit[t]
        self.events.set(self.from_budget + t, FAR)
        if not self.u_serves[u]:
            self.turn[t] = 0
            if self.running[t] and self.listed[t]:
                self.requeue(t, now)
                self.turn[t] = now + self.u_quantum[u]
                self.events.set(self.from_budget + t, self.turn[t])
            return 0
        if not self.throttled[t]:
            self.throttled[t] = 1
            if self.running[t]:
                self.preempt(t, now)
            if self.listed[t]:
                self.unlist(t)
            if self.server[t] > now:
                self.events.set(self.from_budget + t, self.server[t])
                return 0
        self.throttled[t] = 0
        self.server[t] = (self.server[t] if self.server[t] > 0 else now) + self.t_server[t]
        self.budget[t] = self.t_budget[t]
        if self.job[t] >= 0 and not self.listed[t]:
            self.enlist(t, now)
        return 0

    def govern(self, t: i64, cost: i64, now: i64) -> i64:
        """Set the slowest clock that still carries the load: cycle-conserving EDF (Pillai & Shin, SOSP 2001)."""
        e: i64 = self.u_engine[self.g_unit[self.t_first[t]]]
        other: i64
        sum: i64 = 0
        level: i64 = 0
        base: i64 = e * self.levels
        top: i64 = self.n_clock[base + self.levels - 1]
        self.util[t] = scaled(cost, 1 << SHIFT, self.t_period[t]) if self.t_period[t] else 0
        for other in range(self.tasks):
            if self.u_engine[self.g_unit[self.t_first[other]]] == e:
                sum += self.util[other]
        while level < self.levels - 1 and self.n_clock[base + level] * (self.n_lanes[e] << SHIFT) < sum * top:
            level += 1
        if level != self.n_level[e]:
            self.charge(e, now)
            self.n_level[e] = level
            self.adapt(e, now)
        return 0

    def adapt(self, e: i64, now: i64) -> i64:
        """Clocks, faults or stops of an engine changed: what runs there goes on accordingly."""
        u: i64
        i: i64
        c: i64
        t: i64
        engine: i64
        self.load_now = 0
        for engine in range(self.engines):
            self.load_now += self.busy[engine] * self.n_power[engine * self.levels + self.n_level[engine]]
        for u in range(self.units):
            if self.u_engine[u] != e:
                continue
            self.soil(u)
            i = 0
            while i < self.runs[u]:
                c = self.run[u * self.width + i]
                t = c if c < self.tasks else c - self.tasks
                if self.n_still[e] == 2:
                    self.kill(t, now, ABORTED)
                    i = 0
                    continue
                i += 1
                if self.n_still[e]:
                    self.freeze(c, now)
                    continue
                if self.frozen[c]:
                    self.frozen[c] = 0
                    self.occupy(e, bits(self.lanes[c]), now)
                if not self.sliced[c]:
                    if self.u_kind[u] != SEGMENT or self.locked[c]:
                        if c < self.tasks:
                            self.begin(c, now)
                        else:
                            self.open_slice(c, now, 1)
                elif c < self.tasks and not self.prefix[c]:
                    if self.drawing[c]:
                        self.memory_changed = 1
                    else:
                        self.keep_pace(c, self.slowed(c, self.load_time(c, self.first[c] + self.place[c])), now)
        return 0

    def freeze(self, c: i64, now: i64) -> i64:
        """An engine stands still: what runs keeps its lanes and makes no progress."""
        if not self.frozen[c]:
            self.frozen[c] = 1
            self.occupy(self.u_engine[self.unit[c]], -bits(self.lanes[c]), now)
        if not self.sliced[c]:
            return 0
        self.end_slice(c, now)
        if c < self.tasks:
            self.events.set(c, FAR)
            if not self.prefix[c]:
                self.advance(c, now)
                if self.drawing[c]:
                    self.leave_memory(c)
        return 0

    def edge(self, now: i64) -> i64:
        """A fault begins or ends: Python changes the tables, what runs adapts."""
        e: i64
        changed: i64
        following, changed_engines, hog, hog_rate = self.hooks.edge(now)
        self.edge_at = following
        self.hog = hog
        self.hog_rate = hog_rate
        self.memory_changed = 1
        changed = changed_engines
        for e in range(self.engines):
            if changed >> e & 1:
                self.charge(e, now)
                self.adapt(e, now)
        return 0

    def control(self, now: i64) -> i64:
        """The board looks at power and temperature."""
        e: i64
        changed: i64
        for e in range(self.engines):
            self.charge(e, now)
        self.read_meters(now)
        following, changed_engines = self.hooks.control(now, self.spent, self.traffic)
        self.events.set(self.from_control, following)
        changed = changed_engines
        for e in range(self.engines):
            if changed >> e & 1:
                self.adapt(e, now)
        return 0

    # -- books

    def charge(self, e: i64, now: i64) -> i64:
        """Book the lanes' busy time up to now under the present clock."""
        self.spent[e * self.levels + self.n_level[e]] += self.busy[e] * (now - self.mark[e])
        self.mark[e] = now
        return 0

    def occupy(self, e: i64, lanes: i64, now: i64) -> i64:
        """Count lanes of an engine as busy from now on, or no longer."""
        self.charge(e, now)
        self.busy[e] += lanes
        self.load_now += self.n_power[e * self.levels + self.n_level[e]] * lanes
        return 0

    def read_meters(self, now: i64) -> i64:
        row: i64
        power: cython.double
        if now > self.read_at:
            self.traffic += self.shown_rate * (now - self.read_at)
            power = self.static + self.shown_load / self.scale + self.shown_rate * self.picojoule
            if power > self.most_power:
                self.most_power = power
            if self.shown_rate > self.peak_rate:
                self.peak_rate = self.shown_rate
            self.read_at = now
        if self.record and (self.load_now != self.shown_load or self.rate != self.shown_rate):
            row = self.step_log.row()
            self.step_log.block[row] = now
            self.step_log.block[row + 1] = self.load_now
            self.rates.append(self.rate)
        self.shown_load = self.load_now
        self.shown_rate = self.rate
        return 0

    def note(self, now: i64, code: i64, subject: i64, frame: i64, value: i64) -> i64:
        row: i64
        if self.record:
            row = self.note_log.row()
            self.note_log.block[row] = now
            self.note_log.block[row + 1] = code
            self.note_log.block[row + 2] = subject
            self.note_log.block[row + 3] = frame
            self.note_log.block[row + 4] = value
        return 0

    def close(self, end: i64) -> dict[str, Any]:
        """End the simulation at `end` (ns) and return what it found, as plain arrays and numbers by name."""
        t: i64
        c: i64
        slot: i64
        e: i64
        overdue = array("q", bytes(8 * max(self.tasks, 1)))
        for t in range(self.tasks):
            for c in (t, self.tasks + t):
                if self.sliced[c]:
                    self.end_slice(c, end)
            slot = self.job[t]
            if slot >= 0 and self.blocked[t] >= 0:
                self.j_blocked[slot] += end - self.blocked[t]
            while slot >= 0:
                if self.j_deadline[slot] <= end:
                    overdue[t] += 1
                    self.note(self.j_deadline[slot], UNFINISHED, t, self.j_frame[slot], 0)
                if self.j_blocked[slot] > self.most_blocked[t]:
                    self.most_blocked[t] = self.j_blocked[slot]
                self.preempted[t] += self.j_preempted[slot]
                self.migrated[t] += self.j_migrated[slot]
                if self.record:
                    self.write_job(t, slot, -1, 0)
                slot = self.head[t] if slot == self.job[t] else self.j_next[slot]
        for e in range(self.engines):
            self.charge(e, end)
        self.load_now, self.rate = self.shown_load, self.shown_rate
        self.read_meters(end)
        self.chains.close(end)
        found = {
            "done": self.done, "dropped": self.dropped, "aborted": self.aborted, "late": self.late, "overdue": overdue,
            "released": self.released, "preempted": self.preempted, "migrated": self.migrated,
            "blocked": self.most_blocked, "spent": self.spent, "chain_released": self.chains.tail,
            "chain_completed": self.chains.completed, "chain_missed": self.chains.missed,
            "chain_dropped": self.chains.dropped, "execs": _figures(self.execs), "responses": _figures(self.responses),
            "chains": _figures(self.chains.figures),
        }  # fmt: skip
        found["power_peak"], found["traffic"], found["rate_peak"] = self.most_power, self.traffic, self.peak_rate
        found["events"] = self.events_seen
        found["rates"] = self.rates
        for name, log in (
            ("jobs", self.job_log), ("slices", self.slice_log), ("notes", self.note_log), ("steps", self.step_log),
            ("depths", self.depth_log), ("samples", self.sample_log), ("releases", self.release_log),
        ):  # fmt: skip
            found[name] = log.flush()
        return found
