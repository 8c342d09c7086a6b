from socsched_kernel.columns cimport column
from socsched_kernel.reservations cimport Reservations

cdef class FairShare(Reservations):
    cdef column waits_start, waited, waiting_since, vruntime, inverse_weight, unit_level, min_vruntime, token_level, steps_passed, sorted_waits
    cdef void reset_waiting(self, long long t, long long now) noexcept
    cdef void reset_level(self, long long t) noexcept
    cdef void charge_vruntime(self, long long t, long long ran) noexcept
    cdef long long scale_vruntime(self, long long t, long long ran) noexcept
    cdef void sort_waits(self, long long first, long long count) noexcept
    cdef long long update_level(self, long long u, long long t) noexcept
    cdef long long rank_candidate(self, long long u, long long t) noexcept
    cdef long long time_to_level(self, long long u, long long t) noexcept
