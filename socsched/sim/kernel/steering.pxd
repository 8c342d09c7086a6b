from socsched_kernel.columns cimport column, reals
from socsched_kernel.slack cimport Slack

cdef class Steered(Slack):
    cdef column u_steer, u_look, u_choice0, u_clock, u_real0, c_term0, c_term1, c_moves, c_slow
    cdef column calm, choice, look_due, spent_seen, steered
    cdef reals weights, mean, sight
    cdef long long steers, look_at
    cdef int look(self, long long now) except -1
    cdef double load_of(self, long long u, long long now) noexcept
    cdef long long switched(self, long long u, long long now, double load) noexcept
    cdef long long best(self, long long u, long long now, double load) noexcept
    cdef void observe(self, long long u, long long now, double load) noexcept
    cdef double at_most(self, long long value, double unit) noexcept
    cdef int follow_choice(self, long long u, long long c, long long now) except -1
