from socsched_kernel.columns cimport column
from socsched_kernel.progress cimport Progress

cdef class Orders(Progress):
    cdef column key0, key1, listed, latest_start, order, run, runs, ordered, dirty, dirt, wakes
    cdef long long dirts, turns
    cdef int enlist(self, long long t, long long now) except -1
    cdef void catch_up(self, long long t, long long now) noexcept
    cdef void resume_turns(self, long long u, long long now) noexcept
    cdef void aim(self, long long t, long long g) noexcept
    cdef void list_claim(self, long long c) noexcept
    cdef void unlist(self, long long c) noexcept
    cdef int requeue(self, long long t, long long now) except -1
    cdef void soil(self, long long u) noexcept
    cdef void wake(self, long long u, long long instant) noexcept
    cdef long long before(self, long long a, long long b) noexcept
    cdef long long had(self, long long t, long long now) noexcept
    cdef int sort(self, long long u, long long now, long long anew) except -1
    cdef long long ticks_until(self, long long u, long long now) noexcept
    cdef void count_tokens(self, long long u, long long now) noexcept
    cdef int set_keys(self, long long t, long long now) except -1
    cdef long long term(self, long long code, long long t, long long now) noexcept
    cdef long long remaining(self, long long t, long long now) noexcept
