# What C needs to know of kernel.py: types of fields and methods, and the arithmetic of values.py as processor instructions.
# Numbers are macros: a name read from memory is no constant to the compiler.
cimport cython

cdef extern from *:
    const long long FAR "SOCSCHED_FAR", SHIFT "SOCSCHED_SHIFT", FULL "SOCSCHED_FULL", SEGMENT "SOCSCHED_SEGMENT"
    const long long NONE "SOCSCHED_NONE", RESTART "SOCSCHED_RESTART", SLOWDOWN "SOCSCHED_SLOWDOWN"
    const long long SKIP "SOCSCHED_SKIP", ABORT "SOCSCHED_ABORT"
    const long long DEGRADE "SOCSCHED_DEGRADE", LATEST "SOCSCHED_LATEST", DONE "SOCSCHED_DONE"
    const long long DROPPED "SOCSCHED_DROPPED", ABORTED "SOCSCHED_ABORTED", MISS "SOCSCHED_MISS"
    const long long UNFINISHED "SOCSCHED_UNFINISHED", QUEUE_FULL "SOCSCHED_QUEUE_FULL"
    const long long LOST_FRAME "SOCSCHED_LOST_FRAME", LATE_ABORT "SOCSCHED_LATE_ABORT", OVERRUN "SOCSCHED_OVERRUN"
    const long long SKIPPED "SOCSCHED_SKIPPED", KILLED "SOCSCHED_KILLED", SHED "SOCSCHED_SHED"
    const long long RAISED "SOCSCHED_RAISED", BINS "SOCSCHED_BINS", PAGE "SOCSCHED_PAGE", PAGES "SOCSCHED_PAGES"
    const long long FRAMES "SOCSCHED_FRAMES", RING "SOCSCHED_RING", PENDING "SOCSCHED_PENDING", LOST "SOCSCHED_LOST"
    const long long ARRIVED "SOCSCHED_ARRIVED", T_PRIORITY "SOCSCHED_T_PRIORITY", T_DEADLINE "SOCSCHED_T_DEADLINE"
    const long long T_ACTIVATION "SOCSCHED_T_ACTIVATION", T_PERIOD "SOCSCHED_T_PERIOD"
    const long long T_RELATIVE "SOCSCHED_T_RELATIVE", T_CRITICALITY "SOCSCHED_T_CRITICALITY"
    const long long T_LAXITY "SOCSCHED_T_LAXITY", T_TURN "SOCSCHED_T_TURN", T_SERVER "SOCSCHED_T_SERVER"
    const long long T_REMAINING "SOCSCHED_T_REMAINING", T_COST "SOCSCHED_T_COST", T_CUSTOM "SOCSCHED_T_CUSTOM"
    const long long T_CANDIDATE "SOCSCHED_T_CANDIDATE", T_CRITICAL "SOCSCHED_T_CRITICAL"
    const long long T_SERVICE "SOCSCHED_T_SERVICE", T_BEST_EFFORT "SOCSCHED_T_BEST_EFFORT", MOVING "SOCSCHED_MOVING"
    const long long DRAWS "SOCSCHED_DRAWS"

cdef extern from *:
    """
    #ifndef SOCSCHED_WORDS
    #define SOCSCHED_WORDS 1
    #endif
    #define SOCSCHED_BIT_LENGTH(value) (64LL - __builtin_clzll((unsigned long long)(value) | 1ULL))
    static inline long long socsched_to_traffic(double rate) {
        return rate < 4e10 ? (long long)(rate * 1e5 + 0.5) : 1LL << 52;
    }
    static inline long long socsched_ceil_product(long long value, double factor) {
        double found = ceil((double)value * factor);
        return found < 4611686018427387904.0 ? (long long)found : 1LL << 62;
    }
    /* as Python divides: the remainder is exact, so that the quotient is next to a whole number */
    static inline long long socsched_ceil_quotient(double value, double divisor) {
        double rest = fmod(value, divisor), found = divisor > 0 ? rint((value - rest) / divisor) + (rest > 0) : 5e18;
        return found < 4611686018427387904.0 ? (long long)found : 1LL << 62;
    }
    /* products of 128 bits; results beyond 2**62 are 2**62, which is a time that never comes */
    static inline long long socsched_scale_ceil(long long value, long long up, long long down) {
        long long small;
        __int128 large;
        if (down <= 0) return value;
        if (!__builtin_mul_overflow(value, up, &small) && !__builtin_add_overflow(small, down - 1, &small))
            large = small / down;
        else
            large = ((__int128)value * up + down - 1) / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    static inline long long socsched_scale_floor(long long value, long long up, long long down) {
        long long small;
        if (!__builtin_mul_overflow(value, up, &small)) return small / down;
        __int128 large = (__int128)value * up / down;
        return large > (1LL << 62) ? 1LL << 62 : (long long)large;
    }
    #define SOCSCHED_PRODUCT_EXCEEDS(a, b, c, d) ((__int128)(a) * (b) > (__int128)(c) * (d))
    #if SOCSCHED_WORDS == 1
    typedef unsigned long long socsched_slots;
    #define SOCSCHED_NO_SLOTS() 0ULL
    #define SOCSCHED_SLOT(slot) (1ULL << (slot))
    #define SOCSCHED_INTERSECT(a, b) ((a) & (b))
    #define SOCSCHED_UNITE(a, b) ((a) | (b))
    #define SOCSCHED_SUBTRACT(a, b) ((a) & ~(b))
    #define SOCSCHED_HAS_ANY(a) ((a) != 0)
    #define SOCSCHED_OVERLAP(a, b) (((a) & (b)) != 0)
    #define SOCSCHED_EQUAL(a, b) ((a) == (b))
    #define SOCSCHED_CONTAINS(a, slot) ((long long)((a) >> (slot) & 1))
    #define SOCSCHED_COUNT_SLOTS(a) ((long long)__builtin_popcountll(a))
    #define SOCSCHED_FIRST_SLOT(a) ((long long)__builtin_ctzll(a))
    #define SOCSCHED_WORD(a, which) ((long long)(a))
    #else
    typedef struct { unsigned long long word[SOCSCHED_WORDS]; } socsched_slots;
    #define SOCSCHED_EACH for (int i = 0; i < SOCSCHED_WORDS; i++)
    static inline socsched_slots SOCSCHED_NO_SLOTS(void) {
        socsched_slots a; SOCSCHED_EACH a.word[i] = 0; return a;
    }
    static inline socsched_slots SOCSCHED_SLOT(long long slot) {
        socsched_slots a = SOCSCHED_NO_SLOTS(); a.word[slot >> 6] = 1ULL << (slot & 63); return a;
    }
    static inline socsched_slots SOCSCHED_INTERSECT(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] &= b.word[i]; return a;
    }
    static inline socsched_slots SOCSCHED_UNITE(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] |= b.word[i]; return a;
    }
    static inline socsched_slots SOCSCHED_SUBTRACT(socsched_slots a, socsched_slots b) {
        SOCSCHED_EACH a.word[i] &= ~b.word[i]; return a;
    }
    static inline int SOCSCHED_HAS_ANY(socsched_slots a) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i]; return found != 0;
    }
    static inline int SOCSCHED_OVERLAP(socsched_slots a, socsched_slots b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] & b.word[i]; return found != 0;
    }
    static inline int SOCSCHED_EQUAL(socsched_slots a, socsched_slots b) {
        unsigned long long found = 0; SOCSCHED_EACH found |= a.word[i] ^ b.word[i]; return found == 0;
    }
    static inline long long SOCSCHED_CONTAINS(socsched_slots a, long long slot) {
        return (long long)(a.word[slot >> 6] >> (slot & 63) & 1);
    }
    static inline long long SOCSCHED_COUNT_SLOTS(socsched_slots a) {
        long long found = 0; SOCSCHED_EACH found += __builtin_popcountll(a.word[i]); return found;
    }
    static inline long long SOCSCHED_FIRST_SLOT(socsched_slots a) {
        int i = 0; while (a.word[i] == 0) i++; return i * 64LL + __builtin_ctzll(a.word[i]);
    }
    #define SOCSCHED_WORD(a, which) ((long long)(a).word[which])
    #endif
    """
    ctypedef struct SlotSet "socsched_slots":
        pass
    long long WORDS "SOCSCHED_WORDS"
    long long to_traffic "socsched_to_traffic" (double rate) noexcept
    long long ceil_product "socsched_ceil_product" (long long value, double factor) noexcept
    long long ceil_quotient "socsched_ceil_quotient" (double value, double divisor) noexcept
    long long bit_length "SOCSCHED_BIT_LENGTH" (long long value) noexcept
    long long scale_ceil "socsched_scale_ceil" (long long value, long long up, long long down) noexcept
    long long scale_floor "socsched_scale_floor" (long long value, long long up, long long down) noexcept
    long long product_exceeds "SOCSCHED_PRODUCT_EXCEEDS" (long long a, long long b, long long c, long long d) noexcept
    SlotSet no_slots "SOCSCHED_NO_SLOTS" () noexcept
    SlotSet slot_set "SOCSCHED_SLOT" (long long slot) noexcept
    SlotSet intersect "SOCSCHED_INTERSECT" (SlotSet a, SlotSet b) noexcept
    SlotSet unite "SOCSCHED_UNITE" (SlotSet a, SlotSet b) noexcept
    SlotSet subtract "SOCSCHED_SUBTRACT" (SlotSet a, SlotSet b) noexcept
    long long has_any "SOCSCHED_HAS_ANY" (SlotSet a) noexcept
    long long overlap "SOCSCHED_OVERLAP" (SlotSet a, SlotSet b) noexcept
    long long equal "SOCSCHED_EQUAL" (SlotSet a, SlotSet b) noexcept
    long long contains "SOCSCHED_CONTAINS" (SlotSet a, long long slot) noexcept
    long long count_slots "SOCSCHED_COUNT_SLOTS" (SlotSet a) noexcept
    long long first_slot "SOCSCHED_FIRST_SLOT" (SlotSet a) noexcept
    long long word "SOCSCHED_WORD" (SlotSet a, long long which) noexcept

ctypedef SlotSet *slot_sets


ctypedef long long *column
ctypedef double *doubles

cdef class Columns:
    cdef list buffers
    cdef column own(self, object values) except NULL
    cdef column fill(self, long long count, long long value) except NULL
    cdef doubles own_doubles(self, object values) except NULL
    cdef slot_sets own_sets(self, object values) except NULL
    cdef slot_sets fill_sets(self, long long count) except NULL


@cython.final
cdef class EventQueue(Columns):
    cdef column times, heap, position
    cdef long long count
    cdef void set(self, long long source, long long time) noexcept
    cdef void remove(self, long long index) noexcept
    cdef void sift_up(self, long long index, long long source, long long time) noexcept
    cdef void sift_down(self, long long index, long long source, long long time) noexcept


@cython.final
cdef class Contention(Columns):
    cdef object resolve
    cdef column time, size, fixed, engine, row, pace, order
    cdef doubles draw, ratio, curves, demand, share
    cdef double limit, longest
    cdef long long stated, curved
    cdef int find_paces(self, long long count, long long foreign) except -1
    cdef long long compute(self, long long count) noexcept
    cdef void divide(self, long long count) noexcept
    cdef void stretch(self, long long i) noexcept
    cdef double get_speed(self, long long i, long long count) noexcept


@cython.final
cdef class Log(Columns):
    cdef column block
    cdef object block_array
    cdef long long width, limit, used
    cdef list blocks
    cdef int add_row(self) except -1
    cpdef object flush(self)
    cpdef object take(self)


cdef long long bin_of(long long value) noexcept

@cython.final
cdef class Histograms(Columns):
    cdef tuple arrays
    cdef object bin_array
    cdef long long pages, page_limit
    cdef column page, bins, sum, carries, largest, count, smallest
    cdef int add(self, long long which, long long value) except -1
    cdef long long add_page(self, long long where) except *
    cpdef object export(self)

@cython.final
cdef class Chains(Columns):
    cdef dict counters
    cdef long long count
    cdef column deadline, max_age, exact, occurrence0, occurrences, chain, mode, row, previous, producer, last, loses, start0, starts
    cdef column start_chain, ring, release, state, head, tail, next_frame, missed, dropped, completed, stale
    cdef Histograms histograms
    cdef void record_release(self, long long source, long long now, long long lost) noexcept
    cdef void record_loss(self, long long task, long long frame) noexcept
    cdef void record_start(self, long long task, long long frame, column latest) noexcept
    cdef int record_end(self, long long task, long long frame, long long now) except -1
    cdef int complete_frame(self, long long c, long long frame, long long now) except -1
    cpdef object close(self, long long end)

@cython.final
cdef class Kernel(Columns):
    cdef int make_tables(self, dict tables) except -1
    cdef int take_tasks(self, dict tables) except -1
    cdef int take_segments(self, dict tables) except -1
    cdef int take_units(self, dict tables) except -1
    cdef int take_engines(self, dict tables) except -1
    cdef int take_sources(self, dict tables) except -1

    cdef long long tasks, units, engines, sources, end, record, levels, n_uneven, claims, classes, segments, words, order_size, join_size
    cdef object hooks
    cdef slot_sets g_mask, u_mask
    # tasks
    cdef column t_inputs, t_queue, t_overflow, t_deadline, t_priority, t_period, t_criticality, t_first, t_count, t_cost
    cdef column t_reads0, t_reads, t_successors0, t_successors, t_on_late, t_degraded0, t_degraded, t_stream, t_times0, t_times, t_interpolate
    cdef column t_overrun_stream, t_overrun_chance, t_overrun_up, t_overrun_down, t_budget, t_server_period, t_weight_bytes, reads, successors, times
    cdef column t_over, t_low, t_loop_source, t_closes_loop, t_process, t_weight, t_join0, t_join
    # segments
    cdef column g_time, g_bytes, g_unit, g_width, g_waits0, g_hold, g_name, g_rest, g_class, host_times, corunner_times
    # units
    cdef column u_engine, u_order0, u_preemption, u_in_flight, u_reset, u_term0, u_term1, u_dynamic, u_quantum, u_tick
    cdef column u_across, u_reservations, u_global, u_save, u_restore, u_restart_job, u_drain, u_tokens
    cdef column u_fair, u_margin, u_corun_once, u_corun, waits
    # engines
    cdef column n_switch, n_migrate, n_reshape, n_slot0, n_slots, n_power, n_clock, n_level, n_top, n_governor, n_slow
    cdef column n_fast, n_stalled, n_memory, n_swap_rate, n_linger, n_quantum, slot_speed
    # sources
    cdef column s_period, s_offset, s_jitter, s_gap, s_stream, s_lost, s_delay, s_burst, s_jitter_after, s_successors0, s_successors
    cdef column s_loop

    cdef int make_jobpool(self, dict tables) except -1

    cdef list job_columns
    cdef long long pool_size, next_number, j_free, live
    cdef column j_frame, j_activation, j_release, j_deadline, j_start, j_exec, j_blocked, j_preempted, j_migrated
    cdef column j_number, j_sample, j_next, j_previous
    cdef int grow_pool(self) except -1
    cdef int allocate_job(self, long long frame, long long activation, long long release, long long deadline) except -1
    cdef void free_job(self, long long job) noexcept

    cdef int make_state(self, dict tables) except -1

    cdef column job, first, count, current, overhead, up, down, unit, width, running, slice_open, slice_start
    cdef slot_sets mask, slots
    cdef column s_frame, s_ended, s_waits, s_last, s_due
    cdef long long control_event, abort_event0, budget_event0, quantum_event0, tick_event0
    cdef EventQueue events

    cdef int make_accounting(self, dict tables) except -1

    cdef dict counters
    cdef column done, dropped, aborted, late, released, preempted, migrated, max_blocked, busy_time, busy, charged_until, recorded_level
    cdef long long power_now, metered_power, metered_at, sample_count, jobs_written, has_chains, traffic_now
    cdef double scale, energy_per_byte, static_power, rate, metered_rate, peak_rate, traffic, peak_power, corun_energy
    cdef Chains chains
    cdef Histograms exec_times, response_times
    cdef Log job_log, slice_log, instant_log, meter_log, depth_log, sample_log, release_log, level_log
    cdef void charge_busy(self, long long e, long long now) noexcept
    cdef void occupy_engine(self, long long e, long long slots, long long now) noexcept
    cdef int update_meters(self, long long now) except -1
    cdef int record_instant(self, long long now, long long code, long long subject, long long frame, long long value) except -1
    cdef int write_job(self, long long t, long long job, long long finish, long long status) except -1
    cdef int write_sample(self, long long t, long long job, column latest) except -1
    cdef int write_slice(self, long long c, long long number, long long name, long long job, long long now) except -1
    cdef int write_depth(self, long long t, long long depth, long long now) except -1
    cdef int write_level(self, long long e, long long level, long long now) except -1
    cdef int write_release(self, long long source, long long at) except -1
    cdef int end_job(self, long long t, long long job, long long now, long long status) except -1
    cdef void end_loop_frame(self, long long source, long long now) noexcept
    cdef void add_totals(self, long long t, long long job) noexcept
    cdef object collect_figures(self, long long end)

    cdef int make_reservations(self, dict tables) except -1

    cdef column budget, server_deadline, throttled, quantum_end
    cdef void start_budget(self, long long t, long long now) noexcept
    cdef void end_quantum(self, long long t) noexcept
    cdef void charge_budget(self, long long t, long long now) noexcept
    cdef void replenish(self, long long t, long long now) noexcept

    cdef int make_fairshare(self, dict tables) except -1

    cdef column waits_start, waited, waiting_since, vruntime, inverse_weight, unit_level, min_vruntime, token_level, steps_passed, sorted_waits
    cdef void reset_waiting(self, long long t, long long now) noexcept
    cdef void reset_level(self, long long t) noexcept
    cdef void charge_vruntime(self, long long t, long long ran) noexcept
    cdef long long scale_vruntime(self, long long t, long long ran) noexcept
    cdef void sort_waits(self, long long first, long long count) noexcept
    cdef long long update_level(self, long long u, long long t) noexcept
    cdef long long rank_candidate(self, long long u, long long t) noexcept
    cdef long long time_to_level(self, long long u, long long t) noexcept

    cdef int make_progress(self, dict tables) except -1

    cdef column work_left, pace, base_pace, updated_at, timed, uses_dram, on_dram, dram_tasks, corun_time, corunner, corun_since, slice_row, slice_name
    cdef long long dram_count, corunner_count, dram_changed, dram_limited, hog, slice_count
    cdef double hog_rate
    cdef Contention contention
    cdef void load_segment(self, long long t, long long g) noexcept
    cdef long long get_segment_time(self, long long t, long long g) noexcept
    cdef void begin_segment(self, long long t, long long now) noexcept
    cdef long long apply_slowdown(self, long long t, long long time) noexcept
    cdef void set_pace(self, long long t, long long pace, long long now) noexcept
    cdef void advance(self, long long t, long long now) noexcept
    cdef void open_slice(self, long long c, long long now, long long name) noexcept
    cdef int close_slice(self, long long c, long long now) except -1
    cdef void enter_dram(self, long long t) noexcept
    cdef void leave_dram(self, long long t) noexcept
    cdef int share_dram(self, long long now) except -1

    cdef int make_orders(self, dict tables) except -1

    cdef column key0, key1, queued, latest_start, order, running_claims, running_count, order_length, dirty, dirty_units, dispatch_at
    cdef long long dirty_count, last_turn
    cdef int enqueue(self, long long t, long long now) except -1
    cdef void catch_up_vruntime(self, long long t, long long now) noexcept
    cdef void resume_quanta(self, long long u, long long now) noexcept
    cdef void set_claim(self, long long t, long long g) noexcept
    cdef void insert_claim(self, long long c) noexcept
    cdef void remove_claim(self, long long c) noexcept
    cdef int requeue(self, long long t, long long now) except -1
    cdef void mark_dirty(self, long long u) noexcept
    cdef void schedule_dispatch(self, long long u, long long instant) noexcept
    cdef long long precedes(self, long long a, long long b) noexcept
    cdef long long get_vruntime(self, long long t, long long now) noexcept
    cdef int sort_claims(self, long long u, long long now) except -1
    cdef long long count_ticks(self, long long u, long long now) noexcept
    cdef void update_waiting(self, long long u, long long now) noexcept
    cdef int set_keys(self, long long t, long long now) except -1
    cdef long long compute_term(self, long long code, long long t, long long now) noexcept
    cdef long long get_executed(self, long long t, long long now) noexcept
    cdef long long get_remaining(self, long long t, long long now) noexcept

    cdef int make_slots(self, dict tables) except -1

    cdef slot_sets last_slots, locked_slots, grouping
    cdef column resident, locked, stalled, stored_bytes, context, context_since, context_used_at
    cdef column host, corun_power
    cdef long long use_count
    cdef SlotSet find_slots(self, long long c, SlotSet taken) noexcept
    cdef SlotSet choose_slots(self, long long c, SlotSet free, long long wanted) noexcept
    cdef long long find_fastest(self, long long c, SlotSet idle) noexcept
    cdef long long admit_context(self, long long u, long long c, long long now) noexcept
    cdef void lock(self, long long c) noexcept
    cdef void unlock(self, long long c) noexcept
    cdef void occupy_slots(self, long long c, SlotSet slots, long long now) noexcept
    cdef void release_slots(self, long long c, long long now) noexcept
    cdef void busy_wait(self, long long t, long long home, long long now) noexcept
    cdef int return_to_engine(self, long long t, long long home, long long now) except -1
    cdef void stop_corunning(self, long long u, long long now) noexcept
    cdef void update_pace(self, long long t, long long now) noexcept
    cdef void regroup_slots(self, long long e, SlotSet slots, long long t) noexcept
    cdef void load_weights(self, long long e, long long t) noexcept

    cdef int make_jobs(self, dict tables) except -1

    cdef column over_up, over_down, waiting, owes_switch, utilization, head, tail, launch_limit, launched_until, resumed_at, blocked_since, random_numbers, random_next
    cdef int promote(self, long long t, long long job, long long now) except -1
    cdef int draw_time(self, long long t) except -1
    cdef void scale_time(self, long long t, long long up, long long down) noexcept
    cdef long long draw_random(self, long long stream) except *
    cdef int promote_next(self, long long t, long long now) except -1
    cdef int remove_job(self, long long t, long long now, long long status) except -1
    cdef int set_clock(self, long long t, long long cost, long long now) except -1
    cdef long long find_required_speed(self, long long u) noexcept
    cdef int adapt_engine(self, long long e, long long now) except -1
    cdef int stall_claim(self, long long c, long long now) except -1

    cdef int make_queues(self, dict tables) except -1

    cdef column marked_queues, queue_marked, depth, join_frame, join_count, join_release, latest
    cdef long long marked_count, high
    cdef int deliver(self, long long t, long long frame, long long release, long long now) except -1
    cdef long long join_inputs(self, long long t, long long frame, long long release) noexcept
    cdef long long count_waiting(self, long long t) noexcept
    cdef void mark_queue(self, long long t) noexcept
    cdef int limit_queues(self, long long now) except -1
    cdef int drop_job(self, long long t, long long now) except -1
    cdef int raise_level(self, long long t, long long now) except -1
    cdef int start_job(self, long long t, long long now) except -1
    cdef int complete_job(self, long long t, long long now) except -1
    cdef int move_job(self, long long t, long long g, long long now) except -1

    cdef int make_corunners(self, dict tables) except -1

    cdef column corun_closed
    cdef int admit_corunner(self, long long u, long long now) except -1
    cdef long long find_corunner(self, long long u, long long host) noexcept
    cdef int start_corunner(self, long long u, long long host, long long t, long long now) except -1
    cdef int end_corun_segment(self, long long t, long long now) except -1

    cdef int make_dispatcher(self, dict tables) except -1

    cdef slot_sets assigned
    cdef column preemption_cost
    cdef long long assigned_end
    cdef int settle(self, long long now) except -1
    cdef long long find_most_urgent(self) noexcept
    cdef int dispatch_unit(self, long long u, long long now, long long top) except -1
    cdef void limit_launches(self, long long u) noexcept
    cdef void assign_slots(self, long long u, long long now, long long top) noexcept
    cdef void limit_to_launched(self, long long u, long long top) noexcept
    cdef long long find_launched(self, long long t) noexcept
    cdef long long may_continue(self, long long c) noexcept
    cdef void drain_jobs(self, long long u, long long now) noexcept
    cdef long long should_drain(self, long long u, long long c, long long other, long long now) noexcept
    cdef void roll_back(self, long long t, long long u) noexcept
    cdef int apply_assignment(self, long long u, long long now) except -1
    cdef int resume_job(self, long long t, SlotSet slots, long long now) except -1
    cdef int start_claim(self, long long c, SlotSet slots, long long now) except -1
    cdef int preempt_claim(self, long long c, long long now) except -1
    cdef void account_blocking(self, long long u, long long now) noexcept

    cdef column s_nominal, s_base, s_delayed
    cdef long long now, next_fault, event_count
    cpdef object run_events(self, long long most)
    cpdef object get_time(self)
    cdef int schedule_release(self, long long source, long long frame) except -1
    cdef int release_frame(self, long long source, long long now) except -1
    cdef int handle_event(self, long long source, long long now) except -1
    cdef int continue_job(self, long long t, long long g, long long now) except -1
    cdef int expire_budget(self, long long t, long long now) except -1
    cdef int emit_frames(self, long long source, long long now) except -1
    cdef int complete_segment(self, long long t, long long now) except -1
    cdef int abort_late(self, long long t, long long now) except -1
    cdef int expire_quantum(self, long long t, long long now) except -1
    cdef int apply_faults(self, long long now) except -1
    cdef int run_controllers(self, long long now) except -1
    cpdef object close(self, long long end)

