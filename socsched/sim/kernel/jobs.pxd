from socsched_kernel.columns cimport column
from socsched_kernel.slots cimport Slots

cdef class Jobs(Slots):
    cdef column over_up, over_down, waiting, owes_switch, utilization, head, tail, launch_limit, launched_until, resumed_at, batch, blocked_since, random_numbers, random_next
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
