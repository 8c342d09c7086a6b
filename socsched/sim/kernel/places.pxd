from socsched_kernel.arithmetic cimport Lanes, lane_sets
from socsched_kernel.columns cimport column
from socsched_kernel.orders cimport Orders

cdef class Places(Orders):
    cdef lane_sets last, held, shape
    cdef column resident, locked, frozen, stored, holder, held_from, used_at
    cdef column host, guest_from, guest_power
    cdef long long uses
    cdef Lanes find_place(self, long long c, Lanes taken) noexcept
    cdef Lanes pick(self, long long c, Lanes free, long long wanted) noexcept
    cdef long long fastest(self, long long c, Lanes idle) noexcept
    cdef long long admits(self, long long u, long long c, long long now) noexcept
    cdef void lock(self, long long c) noexcept
    cdef void unlock(self, long long c) noexcept
    cdef void move_in(self, long long c, Lanes place, long long now) noexcept
    cdef void vacate(self, long long c, long long now) noexcept
    cdef void stay(self, long long t, long long home, long long now) noexcept
    cdef int come_home(self, long long t, long long home, long long now) except -1
    cdef void part(self, long long u, long long now) noexcept
    cdef void pace_again(self, long long t, long long now) noexcept
    cdef void reshape(self, long long e, Lanes place, long long t) noexcept
    cdef void bring(self, long long e, long long t) noexcept
