from socsched_kernel.columns cimport column
from socsched_kernel.records cimport Log
from socsched_kernel.totals cimport Chains, Histograms
from socsched_kernel.state cimport State

cdef class Accounting(State):
    cdef dict counters
    cdef column done, dropped, aborted, late, released, preempted, migrated, max_blocked, busy_time, busy, charged_until, recorded_level
    cdef long long power_now, metered_power, metered_at, sample_count, has_chains
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
