from socsched_kernel.columns cimport column
from socsched_kernel.orders cimport Orders

cdef class Places(Orders):
    cdef column resident, last, locked, frozen, held, shape, stored, holder, held_from, used_at
    cdef column host, guest_from, guest_power
    cdef long long uses
    cdef long long find_place(self, long long c, long long taken) noexcept
    cdef long long pick(self, long long c, long long free, long long wanted) noexcept
    cdef long long admits(self, long long u, long long c, long long now) noexcept
    cdef void lock(self, long long c) noexcept
    cdef void unlock(self, long long c) noexcept
    cdef void move_in(self, long long c, long long place, long long now) noexcept
    cdef void vacate(self, long long c, long long now) noexcept
    cdef void stay(self, long long t, long long home, long long now) noexcept
    cdef int come_home(self, long long t, long long home, long long now) except -1
    cdef void part(self, long long u, long long now) noexcept
    cdef void pace_again(self, long long t, long long now) noexcept
    cdef void reshape(self, long long e, long long place, long long t) noexcept
    cdef void bring(self, long long e, long long t) noexcept
