"""From data to jobs: joins, queues of tasks, and the triggers of a finished job."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scaled
    from cython.cimports.socsched_kernel.codes import DONE, DROPPED, FAR, LATEST, MISS, QUEUE_FULL
    from cython.cimports.socsched_kernel.jobs import Jobs
else:
    from .arithmetic import scaled
    from .codes import DONE, DROPPED, FAR, LATEST, MISS, QUEUE_FULL
    from .jobs import Jobs


class Queues(Jobs):
    """`latest` is the newest output of every task and source; `touched` lists tasks whose queue must be checked.

    A join of several inputs waits in `part_have` and `part_release` (the oldest release) from `t_part0` on, by frame
    modulo `t_parts`: an input that lags by more frames than that is lost.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.touched = self.fill(self.tasks, 0)
        self.marked = self.fill(self.tasks, 0)
        self.depth = self.fill(self.tasks, 0)
        self.part_frame = self.fill(self.join_room, -1)
        self.part_have = self.fill(self.join_room, 0)
        self.part_release = self.fill(self.join_room, 0)
        self.latest = self.fill(self.tasks + self.sources, -1)
        self.touches = 0

    def deliver(self, t: i64, frame: i64, release: i64, now: i64) -> None:
        """Deliver data of a frame to a task, creating a job once all inputs have arrived."""
        if self.t_need[t] > 1:
            release = self.join(t, frame, release)
        if release < FAR:
            slot: i64 = self.take_slot(frame, now, release, release + self.t_deadline[t])
            self.released[t] += 1
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

    def join(self, t: i64, frame: i64, release: i64) -> i64:
        """Return the oldest release of the joined inputs, FAR as long as any is missing."""
        at: i64 = self.t_part0[t] + frame % self.t_parts[t]
        if self.part_frame[at] != frame:
            self.part_frame[at], self.part_have[at], self.part_release[at] = frame, 0, release
        self.part_have[at] += 1
        if release < self.part_release[at]:
            self.part_release[at] = release
        if self.part_have[at] < self.t_need[t]:
            return FAR
        self.part_frame[at] = -1
        return self.part_release[at]

    def touch(self, t: i64) -> None:
        """Mark the queue of a task to be checked before this instant ends."""
        if not self.marked[t]:
            self.marked[t] = 1
            self.touched[self.touches] = t
            self.touches += 1

    def length(self, t: i64) -> i64:
        """Return the number of a task's jobs that have not begun."""
        return self.waiting[t] + (self.job[t] >= 0 and self.j_start[self.job[t]] < 0)

    def limit_queues(self, now: i64) -> None:
        """Drop the excess frames of the queues that changed."""
        i: i64 = 0
        while i < self.touches:
            t: i64 = self.touched[i]
            self.marked[t] = 0
            i += 1
            depth: i64 = self.length(t)
            while depth > self.t_queue[t]:
                # dropping a job may drop others too: those behind it that would be late anyway
                self.drop(t, now)
                depth = self.length(t)
            if depth != self.depth[t]:
                self.depth[t] = depth
                if self.record:
                    self.write_depth(t, depth, now)
        self.touches = 0

    def drop(self, t: i64, now: i64) -> None:
        """Drop a frame from a queue that is too long: its newest, or its oldest if the latest takes precedence."""
        slot: i64 = self.job[t]
        oldest: i64 = self.t_full[t] == LATEST
        if self.tail[t] >= 0 and not (oldest and self.j_start[slot] < 0):
            slot = self.head[t] if oldest else self.tail[t]
            after: i64 = self.j_next[slot]
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

    def take_up(self, t: i64, now: i64) -> None:
        """Start a job for the first time: sample its inputs, and gather waiting jobs of its task into a batch."""
        slot: i64 = self.job[t]
        self.j_start[slot] = now
        if self.chained:
            self.chains.started(t, self.j_frame[slot], self.latest)
        if self.record and self.t_reads[t]:
            self.write_sample(t, slot, self.latest)
        if self.t_batch[t] > 1 and self.head[t] >= 0:
            self.gather(t, now)
        if self.depth[t]:
            self.touch(t)

    def gather(self, t: i64, now: i64) -> None:
        """Serve waiting jobs of a task together with the starting one."""
        last: i64 = -1
        size: i64 = 1
        while self.head[t] >= 0 and size < self.t_batch[t]:
            slot: i64 = self.head[t]
            self.head[t] = self.j_next[slot]
            self.waiting[t] -= 1
            self.j_next[slot] = self.j_before[slot] = -1
            if last < 0:
                self.mates[t] = slot
            else:
                self.j_next[last] = slot
            last = slot
            size += 1
            self.j_start[slot] = now
            if self.chained:
                self.chains.started(t, self.j_frame[slot], self.latest)
            if self.record and self.t_reads[t]:
                self.write_sample(t, slot, self.latest)
        if self.head[t] >= 0:
            self.j_before[self.head[t]] = -1
        else:
            self.tail[t] = -1
        self.lengthen(t, 1000 + (size - 1) * self.t_more[t], 1000)
        self.load(t, self.first[t] + self.place[t])

    def end_mates(self, t: i64, slot: i64, now: i64) -> None:
        """Complete the jobs that were served together with a finished one."""
        i: i64
        while slot >= 0:
            after: i64 = self.j_next[slot]
            frame: i64 = self.j_frame[slot]
            release: i64 = self.j_release[slot]
            if now > self.j_deadline[slot]:
                self.late[t] += 1
                self.note(now, MISS, t, frame, now - self.j_deadline[slot])
            self.latest[t] = frame
            self.finish(t, slot, now, DONE)
            if self.chained:
                self.chains.finished(t, frame, now)
            for i in range(self.t_next0[t], self.t_next0[t] + self.t_next[t]):
                self.deliver(self.nexts[i], frame, release, now)
            slot = after

    def retire(self, t: i64, now: i64) -> None:
        """Complete a job: deliver its output and promote the next job."""
        slot: i64 = self.job[t]
        frame: i64 = self.j_frame[slot]
        release: i64 = self.j_release[slot]
        home: i64 = self.tasks + t
        i: i64
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
        # its last segment may have run on another engine
        if self.n_governor[self.u_engine[self.g_unit[self.t_first[t]]]]:
            self.govern(t, scaled(self.t_cost[t], self.up[t], self.down[t]), now)
        self.finish(t, slot, now, DONE)
        if self.chained:
            self.chains.finished(t, frame, now)
        self.job[t] = -1
        mates: i64 = self.mates[t]
        self.mates[t] = -1
        self.follow(t, now)
        for i in range(self.t_next0[t], self.t_next0[t] + self.t_next[t]):
            self.deliver(self.nexts[i], frame, release, now)
        if mates >= 0:
            self.end_mates(t, mates, now)

    def hand_over(self, t: i64, g: i64, now: i64) -> None:
        """Move a job to its next segment's lanes: release the present ones or busy-wait on them, and queue there."""
        home: i64 = self.tasks + t
        holds: i64 = self.g_hold[g]
        self.credit_anew(t)
        if self.listed[home] and not holds:
            # back on the home lanes: the claim that busy-waited there continues with the work
            self.levels_at[t] = self.g_levels[g]
            if self.running[t]:
                self.vacate(t, now)
            self.unlist(t)
            self.come_home(t, home, now)
        else:
            if holds and not self.listed[home]:
                self.stay(t, home, now)
            else:
                self.vacate(t, now)
                self.unlist(t)
            self.aim(t, g)
            self.enlist(t, now)
