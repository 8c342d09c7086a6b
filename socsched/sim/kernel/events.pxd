cdef class EventQueue:
    cdef long long[::1] at
    cdef long long[::1] heap
    cdef long long[::1] place
    cdef long long count
    cdef long long first(self) noexcept
    cdef long long top(self) noexcept
    cdef long long set(self, long long source, long long time) noexcept
    cdef long long rise(self, long long source) noexcept
    cdef long long sink(self, long long source) noexcept
