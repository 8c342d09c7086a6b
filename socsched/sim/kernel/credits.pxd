from socsched_kernel.columns cimport column
from socsched_kernel.reservations cimport Reservations

cdef class Credits(Reservations):
    cdef column levels_at, waited, waits_from, service, pull, bar, least, reached, stepped, steps
    cdef void credit(self, long long t, long long now) noexcept
    cdef void credit_anew(self, long long t) noexcept
    cdef void debit(self, long long t, long long ran) noexcept
    cdef long long share_of(self, long long t, long long ran) noexcept
    cdef void put_in_order(self, long long first, long long count) noexcept
    cdef long long level_of(self, long long u, long long t) noexcept
    cdef long long candidate(self, long long u, long long t) noexcept
    cdef long long time_to_level(self, long long u, long long t) noexcept
