from socsched_kernel.columns cimport column
from socsched_kernel.places cimport Places

cdef class Jobs(Places):
    cdef column waiting, owes, util, head, tail, stop, ahead, begun, mates, blocked, drawn, draw_at
    cdef int promote(self, long long t, long long slot, long long now) except -1
    cdef int sample_time(self, long long t) except -1
    cdef void lengthen(self, long long t, long long up, long long down) noexcept
    cdef long long draw(self, long long stream) except *
    cdef int follow(self, long long t, long long now) except -1
    cdef int kill(self, long long t, long long now, long long status) except -1
    cdef int govern(self, long long t, long long cost, long long now) except -1
    cdef long long needed(self, long long u) noexcept
    cdef int adapt(self, long long e, long long now) except -1
    cdef int freeze(self, long long c, long long now) except -1
