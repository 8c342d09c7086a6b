from socsched_kernel.columns cimport column
from socsched_kernel.reservations cimport Reservations

cdef class Credits(Reservations):
    cdef column token, waits_from, service, bar, least
    cdef void credit(self, long long t, long long now) noexcept
    cdef void debit(self, long long t, long long ran) noexcept
    cdef long long share_of(self, long long t, long long ran) noexcept
    cdef void earn(self, long long t, long long now) noexcept
    cdef void raise_bar(self, long long u, long long most) noexcept
