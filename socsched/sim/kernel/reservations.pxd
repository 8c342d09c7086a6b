from socsched_kernel.columns cimport column
from socsched_kernel.accounting cimport Accounting

cdef class Reservations(Accounting):
    cdef column budget, server_deadline, throttled, quantum_end
    cdef void start_budget(self, long long t, long long now) noexcept
    cdef void end_quantum(self, long long t) noexcept
    cdef void charge_budget(self, long long t, long long now) noexcept
    cdef void replenish(self, long long t, long long now) noexcept
