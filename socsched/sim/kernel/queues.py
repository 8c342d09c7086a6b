"""From data to jobs: joins, queues of tasks, and the triggers of a finished job."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scale_ceil
    from cython.cimports.socsched_kernel.codes import DONE, DROPPED, FAR, LATEST, MISS, QUEUE_FULL, RAISED, SHED
    from cython.cimports.socsched_kernel.jobs import Jobs
else:
    from .arithmetic import scale_ceil
    from .codes import DONE, DROPPED, FAR, LATEST, MISS, QUEUE_FULL, RAISED, SHED
    from .jobs import Jobs


class Queues(Jobs):
    """`latest` is the newest output of every task and source; `marked_queues` lists tasks whose queue must be checked.

    A join of several inputs waits in `join_count` and `join_release` (the oldest release) from `t_join0` on, by frame
    modulo `t_join`: an input that lags by more frames than that is lost.  `high`: whether the level of criticality is
    high, at which work of the low level is dropped.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.marked_queues = self.fill(self.tasks, 0)
        self.queue_marked = self.fill(self.tasks, 0)
        self.depth = self.fill(self.tasks, 0)
        self.join_frame = self.fill(self.join_size, -1)
        self.join_count = self.fill(self.join_size, 0)
        self.join_release = self.fill(self.join_size, 0)
        self.latest = self.fill(self.tasks + self.sources, -1)
        self.marked_count = self.high = 0

    def deliver(self, t: i64, frame: i64, release: i64, now: i64) -> None:
        """Deliver data of a frame to a task, creating a job once all inputs have arrived."""
        if self.t_inputs[t] > 1:
            release = self.join_inputs(t, frame, release)
        if release < FAR:
            job: i64 = self.allocate_job(frame, now, release, release + self.t_deadline[t])
            self.released[t] += 1
            if self.high and self.t_low[t]:
                self.record_instant(now, SHED, t, frame, 0)
                self.end_job(t, job, now, DROPPED)
            elif self.job[t] < 0:
                self.promote(t, job, now)
            else:
                self.j_previous[job] = self.tail[t]
                if self.tail[t] >= 0:
                    self.j_next[self.tail[t]] = job
                else:
                    self.head[t] = job
                self.tail[t] = job
                self.waiting[t] += 1
            self.mark_queue(t)

    def join_inputs(self, t: i64, frame: i64, release: i64) -> i64:
        """Return the oldest release of the joined inputs, FAR as long as any is missing."""
        at: i64 = self.t_join0[t] + frame % self.t_join[t]
        if self.join_frame[at] != frame:
            self.join_frame[at], self.join_count[at], self.join_release[at] = frame, 0, release
        self.join_count[at] += 1
        if release < self.join_release[at]:
            self.join_release[at] = release
        if self.join_count[at] < self.t_inputs[t]:
            return FAR
        self.join_frame[at] = -1
        return self.join_release[at]

    def mark_queue(self, t: i64) -> None:
        """Mark the queue of a task to be checked before this instant ends."""
        if not self.queue_marked[t]:
            self.queue_marked[t] = 1
            self.marked_queues[self.marked_count] = t
            self.marked_count += 1

    def count_waiting(self, t: i64) -> i64:
        """Return the number of a task's jobs that have not begun."""
        return self.waiting[t] + (self.job[t] >= 0 and self.j_start[self.job[t]] < 0)

    def limit_queues(self, now: i64) -> None:
        """Drop the excess frames of the queues that changed."""
        i: i64 = 0
        while i < self.marked_count:
            t: i64 = self.marked_queues[i]
            self.queue_marked[t] = 0
            i += 1
            depth: i64 = self.count_waiting(t)
            while depth > self.t_queue[t]:
                # dropping a job may drop others too: those behind it that would be late anyway
                self.drop_job(t, now)
                depth = self.count_waiting(t)
            if depth != self.depth[t]:
                self.depth[t] = depth
                if self.record:
                    self.write_depth(t, depth, now)
        self.marked_count = 0

    def drop_job(self, t: i64, now: i64) -> None:
        """Drop a frame from a queue that is too long: its newest, or its oldest if the latest takes precedence."""
        job: i64 = self.job[t]
        oldest: i64 = self.t_overflow[t] == LATEST
        if self.tail[t] >= 0 and not (oldest and self.j_start[job] < 0):
            job = self.head[t] if oldest else self.tail[t]
            after: i64 = self.j_next[job]
            if self.j_previous[job] >= 0:
                self.j_next[self.j_previous[job]] = after
            else:
                self.head[t] = after
            if after >= 0:
                self.j_previous[after] = self.j_previous[job]
            else:
                self.tail[t] = self.j_previous[job]
            self.waiting[t] -= 1
            self.record_instant(now, QUEUE_FULL, t, self.j_frame[job], self.t_queue[t])
            self.end_job(t, job, now, DROPPED)
        else:
            self.record_instant(now, QUEUE_FULL, t, self.j_frame[job], self.t_queue[t])
            self.remove_job(t, now, DROPPED)

    def raise_level(self, t: i64, now: i64) -> None:
        """Begin the high level of criticality with an overrun of a task: drop the jobs of the low level that wait."""
        other: i64
        for other in range(0 if self.high else self.tasks):
            if not self.t_low[other]:
                continue
            while self.head[other] >= 0:
                job: i64 = self.head[other]
                self.head[other] = self.j_next[job]
                self.waiting[other] -= 1
                self.record_instant(now, SHED, other, self.j_frame[job], 0)
                self.end_job(other, job, now, DROPPED)
            self.tail[other] = -1
            if self.job[other] >= 0 and self.j_start[self.job[other]] < 0:
                self.record_instant(now, SHED, other, self.j_frame[self.job[other]], 0)
                self.remove_job(other, now, DROPPED)
            self.mark_queue(other)
        if not self.high:
            self.high = 1
            self.record_instant(now, RAISED, t, self.j_frame[self.job[t]], 0)

    def start_job(self, t: i64, now: i64) -> None:
        """Start a job for the first time: sample its inputs, and gather waiting jobs of its task into a batch."""
        job: i64 = self.job[t]
        self.j_start[job] = now
        if self.has_chains:
            self.chains.record_start(t, self.j_frame[job], self.latest)
        if self.record and self.t_reads[t]:
            self.write_sample(t, job, self.latest)
        if self.t_batch[t] > 1 and self.head[t] >= 0:
            self.gather_batch(t, now)
        if self.depth[t]:
            self.mark_queue(t)

    def gather_batch(self, t: i64, now: i64) -> None:
        """Serve waiting jobs of a task together with the starting one."""
        last: i64 = -1
        size: i64 = 1
        while self.head[t] >= 0 and size < self.t_batch[t]:
            job: i64 = self.head[t]
            self.head[t] = self.j_next[job]
            self.waiting[t] -= 1
            self.j_next[job] = self.j_previous[job] = -1
            if last < 0:
                self.batch[t] = job
            else:
                self.j_next[last] = job
            last = job
            size += 1
            self.j_start[job] = now
            if self.has_chains:
                self.chains.record_start(t, self.j_frame[job], self.latest)
            if self.record and self.t_reads[t]:
                self.write_sample(t, job, self.latest)
        if self.head[t] >= 0:
            self.j_previous[self.head[t]] = -1
        else:
            self.tail[t] = -1
        self.scale_time(t, 1000 + (size - 1) * self.t_batch_extra[t], 1000)
        self.load_segment(t, self.first[t] + self.current[t])

    def end_batch(self, t: i64, job: i64, now: i64) -> None:
        """Complete the other members of a finished job's batch."""
        i: i64
        while job >= 0:
            after: i64 = self.j_next[job]
            frame: i64 = self.j_frame[job]
            release: i64 = self.j_release[job]
            if now > self.j_deadline[job]:
                self.late[t] += 1
                self.record_instant(now, MISS, t, frame, now - self.j_deadline[job])
            self.latest[t] = frame
            self.end_job(t, job, now, DONE)
            if self.has_chains:
                self.chains.record_end(t, frame, now)
            for i in range(self.t_successors0[t], self.t_successors0[t] + self.t_successors[t]):
                self.deliver(self.successors[i], frame, release, now)
            job = after

    def complete_job(self, t: i64, now: i64) -> None:
        """Complete a job: deliver its output and promote the next job."""
        job: i64 = self.job[t]
        frame: i64 = self.j_frame[job]
        release: i64 = self.j_release[job]
        home: i64 = self.tasks + t
        i: i64
        if self.queued[home]:
            if self.running[home]:
                self.close_slice(home, now)
                self.release_slots(home, now)
            self.remove_claim(home)
        if now > self.j_deadline[job]:
            self.late[t] += 1
            self.record_instant(now, MISS, t, frame, now - self.j_deadline[job])
        self.release_slots(t, now)
        self.remove_claim(t)
        self.latest[t] = frame
        # its last segment may have run on another engine
        if self.n_governor[self.u_engine[self.g_unit[self.t_first[t]]]]:
            self.set_clock(t, scale_ceil(self.t_cost[t], self.up[t], self.down[t]), now)
        self.end_job(t, job, now, DONE)
        if self.has_chains:
            self.chains.record_end(t, frame, now)
        self.job[t] = -1
        others: i64 = self.batch[t]
        self.batch[t] = -1
        self.promote_next(t, now)
        for i in range(self.t_successors0[t], self.t_successors0[t] + self.t_successors[t]):
            self.deliver(self.successors[i], frame, release, now)
        if others >= 0:
            self.end_batch(t, others, now)

    def move_job(self, t: i64, g: i64, now: i64) -> None:
        """Move a job to its next segment's slots: release the present ones or busy-wait on them, and queue there."""
        home: i64 = self.tasks + t
        holds: i64 = self.g_hold[g]
        self.reset_level(t)
        if self.queued[home] and not holds:
            # back on the home slots: the claim that busy-waited there continues with the work
            self.waits_start[t] = self.g_waits0[g]
            if self.running[t]:
                self.release_slots(t, now)
            self.remove_claim(t)
            self.return_to_engine(t, home, now)
        else:
            if holds and not self.queued[home]:
                self.busy_wait(t, home, now)
            else:
                self.release_slots(t, now)
                self.remove_claim(t)
            self.set_claim(t, g)
            self.enqueue(t, now)
