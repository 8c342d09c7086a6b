from socsched_kernel.columns cimport column
from socsched_kernel.memory cimport Combinations
from socsched_kernel.credits cimport Credits

cdef class Progress(Credits):
    cdef column left, pace, base, since, timed, demand, drawing, active, beside, guest, slice_row, slice_name
    cdef long long actives, guests, memory_changed, memory_limits, hog, slices_begun
    cdef double hog_rate
    cdef Combinations combinations
    cdef void load(self, long long t, long long g) noexcept
    cdef long long load_time(self, long long t, long long g) noexcept
    cdef void begin(self, long long t, long long now) noexcept
    cdef long long slowed(self, long long t, long long time) noexcept
    cdef void keep_pace(self, long long t, long long pace, long long now) noexcept
    cdef void advance(self, long long t, long long now) noexcept
    cdef void open_slice(self, long long c, long long now, long long name) noexcept
    cdef int end_slice(self, long long c, long long now) except -1
    cdef void enter_memory(self, long long t) noexcept
    cdef void leave_memory(self, long long t) noexcept
    cdef int share(self, long long now) except -1
