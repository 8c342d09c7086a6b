from socsched_kernel.columns cimport column
from socsched_kernel.records cimport Log
from socsched_kernel.totals cimport Chains, Histograms
from socsched_kernel.state cimport State

cdef class Books(State):
    cdef dict books
    cdef column done, dropped, aborted, late, released, preempted, migrated, most_blocked, spent, busy, mark, noted
    cdef long long load_now, shown_load, read_at, samples_made, chained
    cdef double scale, picojoule, static, rate, shown_rate, peak_rate, traffic, most_power, guest_energy
    cdef Chains chains
    cdef Histograms execs, responses
    cdef Log job_log, slice_log, note_log, step_log, depth_log, sample_log, release_log, level_log
    cdef void charge(self, long long e, long long now) noexcept
    cdef void occupy(self, long long e, long long lanes, long long now) noexcept
    cdef int read_meters(self, long long now) except -1
    cdef int note(self, long long now, long long code, long long subject, long long frame, long long value) except -1
    cdef int write_job(self, long long t, long long slot, long long finish, long long status) except -1
    cdef int write_sample(self, long long t, long long slot, column latest) except -1
    cdef int write_slice(self, long long c, long long number, long long name, long long slot, long long now) except -1
    cdef int write_depth(self, long long t, long long depth, long long now) except -1
    cdef int write_level(self, long long e, long long level, long long now) except -1
    cdef int write_release(self, long long source, long long at) except -1
    cdef int finish(self, long long t, long long slot, long long now, long long status) except -1
    cdef void ended(self, long long source, long long now) noexcept
    cdef void add_up(self, long long t, long long slot) noexcept
    cdef object all_figures(self, long long end)
