from socsched_kernel.columns cimport column
from socsched_kernel.contention cimport ContentionCache
from socsched_kernel.fair_share cimport FairShare

cdef class Progress(FairShare):
    cdef column work_left, pace, base_pace, updated_at, timed, uses_dram, on_dram, dram_tasks, corun_time, corunner, corun_since, slice_row, slice_name
    cdef long long dram_count, corunner_count, dram_changed, dram_limited, hog, slice_count
    cdef double hog_rate
    cdef ContentionCache contention
    cdef void load_segment(self, long long t, long long g) noexcept
    cdef long long get_segment_time(self, long long t, long long g) noexcept
    cdef void begin_segment(self, long long t, long long now) noexcept
    cdef long long apply_slowdown(self, long long t, long long time) noexcept
    cdef void set_pace(self, long long t, long long pace, long long now) noexcept
    cdef void advance(self, long long t, long long now) noexcept
    cdef void open_slice(self, long long c, long long now, long long name) noexcept
    cdef int close_slice(self, long long c, long long now) except -1
    cdef void enter_dram(self, long long t) noexcept
    cdef void leave_dram(self, long long t) noexcept
    cdef int share_dram(self, long long now) except -1
