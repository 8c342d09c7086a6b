from socsched_kernel.columns cimport column
from socsched_kernel.books cimport Books

cdef class Reservations(Books):
    cdef column budget, server, throttled, turn
    cdef void serve(self, long long t, long long now) noexcept
    cdef void end_turn(self, long long t) noexcept
    cdef void consume(self, long long t, long long now) noexcept
    cdef void replenish(self, long long t, long long now) noexcept
