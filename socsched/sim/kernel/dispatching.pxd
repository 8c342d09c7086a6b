from socsched_kernel.arithmetic cimport Lanes, lane_sets
from socsched_kernel.columns cimport column
from socsched_kernel.guests cimport Guests

cdef class Dispatcher(Guests):
    cdef lane_sets chosen
    cdef column toll
    cdef long long reach
    cdef int settle(self, long long now) except -1
    cdef long long most_urgent(self) noexcept
    cdef int dispatch(self, long long u, long long now, long long top) except -1
    cdef void ask_to_stop(self, long long u) noexcept
    cdef void choose(self, long long u, long long now, long long top) noexcept
    cdef void hold_back(self, long long u, long long top) noexcept
    cdef long long launched(self, long long t) noexcept
    cdef long long goes_on(self, long long c) noexcept
    cdef void spare(self, long long u, long long now) noexcept
    cdef long long finishes(self, long long u, long long c, long long other, long long now) noexcept
    cdef void go_back(self, long long t, long long u) noexcept
    cdef int exchange(self, long long u, long long now) except -1
    cdef int resume(self, long long t, Lanes place, long long now) except -1
    cdef int start(self, long long c, Lanes place, long long now) except -1
    cdef int preempt(self, long long c, long long now) except -1
    cdef void note_blocking(self, long long u, long long now) noexcept
