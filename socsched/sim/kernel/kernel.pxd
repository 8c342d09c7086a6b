from socsched_kernel.events cimport EventQueue
from socsched_kernel.memory cimport Combinations
from socsched_kernel.records cimport Log
from socsched_kernel.totals cimport Chains, Histograms

cdef class Kernel:
    cdef long long tasks, units, engines, sources, end, width, record, now, edge_at, hog, levels
    # tables of tasks
    cdef long long[::1] t_need, t_queue, t_full, t_deadline, t_priority, t_period, t_criticality, t_first, t_count
    cdef long long[::1] t_cost, t_reads0, t_reads, t_next0, t_next, t_late, t_alt, t_alts, t_stream, t_table0, t_table
    cdef long long[::1] t_between, t_over, t_chance, t_up, t_down, t_budget, t_server, t_weights, reads, nexts, times
    # segments
    cdef long long[::1] g_time, g_bytes, g_unit, g_mask, g_width, g_hold, g_name, g_rest
    # units and engines
    cdef long long[::1] u_engine, u_mask, u_kind, u_flight, u_reset, u_term0, u_term1, u_dynamic, u_quantum, u_tick
    cdef long long[::1] u_across, u_serves, n_switch, n_migrate, n_reshape, n_lane0, n_lanes, n_power, n_clock
    cdef long long[::1] n_level, n_governor, n_slow, n_fast, n_still, n_memory, n_swap, lane_speed
    # sources
    cdef long long[::1] s_period, s_offset, s_jitter, s_gap, s_stream, s_lost, s_delay, s_burst, s_behind, s_due, s_held
    cdef long long[::1] s_next0, s_next
    # state of sources
    cdef long long[::1] s_frame, s_last, s_nominal, s_base, latest, drawn, draw_at
    # state of tasks
    cdef long long[::1] job, head, tail, waiting, first, count, place, up, down, left, pace, base, since, timed
    cdef long long[::1] drawing, owes, prefix, stop, touched, marked, depth, turn, budget, server, throttled, demand
    cdef long long[::1] resident, part_frame, part_have, part_release
    # state of claims
    cdef long long[::1] unit, mask, wide, lanes, last, key0, key1, listed, running, locked, chosen, sliced, slice_row
    cdef long long[::1] slice_name, blocked
    # state of units and engines
    cdef long long[::1] order, ordered, run, runs, held, dirty, dirt, shape, busy, mark, spent, stored
    # job slots
    cdef long long[::1] j_frame, j_activation, j_release, j_deadline, j_start, j_exec, j_blocked, j_preempted
    cdef long long[::1] j_migrated, j_number, j_sample, j_next, j_before
    cdef long long j_room, j_free
    # memory
    cdef long long[::1] active, toll, util, slice_from, frozen
    cdef long long actives, memory_changed, memory_limits, hog_state
    cdef double hog_rate
    cdef Combinations combinations
    # counters
    cdef long long dirts, touches, turns, uses, load_now, shown_load, read_at, n_uneven
    cdef double rate, shown_rate, peak_rate, traffic, most_power, scale, picojoule, static
    cdef long long number, slices_begun, samples_made, events_seen
    cdef long long[::1] done, dropped, aborted, late, released, preempted, migrated, most_blocked
    # event sources
    cdef long long from_abort, from_budget, from_tick, from_control
    cdef EventQueue events
    cdef Chains chains
    cdef Histograms execs, responses
    cdef Log job_log, slice_log, note_log, step_log, depth_log, sample_log, release_log
    cdef object hooks, rates
    cpdef object time(self)
    cpdef object run_on(self, long long most)
    cdef long long expect(self, long long source, long long frame) except? -9
    cdef long long release(self, long long source, long long now) except? -9
    cdef long long draw(self, long long stream) except? -9
    cdef long long complete(self, long long t, long long now) except? -9
    cdef long long hand_over(self, long long t, long long g, long long now) except? -9
    cdef long long stay(self, long long t, long long home, long long now) except? -9
    cdef long long come_home(self, long long t, long long home, long long now) except? -9
    cdef long long deliver(self, long long t, long long frame, long long release, long long now) except? -9
    cdef long long touch(self, long long t) except? -9
    cdef long long promote(self, long long t, long long slot, long long now) except? -9
    cdef long long sample_time(self, long long t) except? -9
    cdef long long aim(self, long long t, long long g) except? -9
    cdef long long enlist(self, long long t, long long now) except? -9
    cdef long long set_keys(self, long long t, long long now) except? -9
    cdef long long term(self, long long code, long long t, long long now) except? -9
    cdef long long remaining(self, long long t, long long now) except? -9
    cdef long long load_time(self, long long t, long long g) except? -9
    cdef long long retire(self, long long t, long long now) except? -9
    cdef long long follow(self, long long t, long long now) except? -9
    cdef long long finish(self, long long t, long long slot, long long now, long long status) except? -9
    cdef long long write_job(self, long long t, long long slot, long long finish, long long status) except? -9
    cdef long long kill(self, long long t, long long now, long long status) except? -9
    cdef long long expire(self, long long t, long long now) except? -9
    cdef long long soil(self, long long u) except? -9
    cdef long long list_claim(self, long long c) except? -9
    cdef long long before(self, long long a, long long b) except? -9
    cdef long long unlist(self, long long c) except? -9
    cdef long long sort(self, long long u, long long now) except? -9
    cdef long long requeue(self, long long t, long long now) except? -9
    cdef long long settle(self, long long now) except? -9
    cdef long long most_urgent(self) except? -9
    cdef long long dispatch(self, long long u, long long now, long long top) except? -9
    cdef long long find_place(self, long long c, long long taken) except? -9
    cdef long long pick(self, long long c, long long free, long long wanted) except? -9
    cdef long long ask_to_stop(self, long long u) except? -9
    cdef long long start(self, long long c, long long place, long long now) except? -9
    cdef long long sample(self, long long t, long long slot, long long now) except? -9
    cdef long long reshape(self, long long e, long long place, long long t) except? -9
    cdef long long bring(self, long long e, long long t) except? -9
    cdef long long lock(self, long long c) except? -9
    cdef long long unlock(self, long long c) except? -9
    cdef long long preempt(self, long long c, long long now) except? -9
    cdef long long vacate(self, long long c, long long now) except? -9
    cdef long long limit_queues(self, long long now) except? -9
    cdef long long drop(self, long long t, long long now) except? -9
    cdef long long note_blocking(self, long long u, long long now) except? -9
    cdef long long load(self, long long t, long long g) except? -9
    cdef long long begin(self, long long t, long long now) except? -9
    cdef long long slowed(self, long long t, long long time) except? -9
    cdef long long keep_pace(self, long long t, long long pace, long long now) except? -9
    cdef long long advance(self, long long t, long long now) except? -9
    cdef long long open_slice(self, long long c, long long now, long long name) except? -9
    cdef long long end_slice(self, long long c, long long now) except? -9
    cdef long long enter_memory(self, long long t) except? -9
    cdef long long leave_memory(self, long long t) except? -9
    cdef long long share(self, long long now) except? -9
    cdef long long serve(self, long long t, long long now) except? -9
    cdef long long consume(self, long long t, long long now) except? -9
    cdef long long replenish(self, long long t, long long now) except? -9
    cdef long long exhaust(self, long long t, long long now) except? -9
    cdef long long govern(self, long long t, long long cost, long long now) except? -9
    cdef long long adapt(self, long long e, long long now) except? -9
    cdef long long freeze(self, long long c, long long now) except? -9
    cdef long long edge(self, long long now) except? -9
    cdef long long control(self, long long now) except? -9
    cdef long long charge(self, long long e, long long now) except? -9
    cdef long long occupy(self, long long e, long long lanes, long long now) except? -9
    cdef long long read_meters(self, long long now) except? -9
    cdef long long note(self, long long now, long long code, long long subject, long long frame, long long value) except? -9
    cpdef object close(self, long long end)

cdef long long scaled(long long value, long long up, long long down) noexcept
cdef long long bits(long long mask) noexcept
