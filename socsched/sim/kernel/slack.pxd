from socsched_kernel.columns cimport column
from socsched_kernel.dispatching cimport Dispatcher

cdef class Slack(Dispatcher):
    cdef column u_load0, u_loads, u_region, u_reach
    cdef column l_task, l_worst, l_share, l_cost, l_source, l_timer, l_period, l_deadline, l_jitter, l_gap
    cdef column guarded, ahead_order, ahead_due, point_due, point_work, sure
    cdef long long points, point_room, all_work
    cdef long long harmless(self, long long u, long long now, long long need) noexcept
    cdef long long slack(self, long long u, long long now, long long need) noexcept
    cdef long long present(self, long long u, long long now, long long least) noexcept
    cdef void under_way(self, long long load, long long now) noexcept
    cdef void add_point(self, long long due, long long work) noexcept
    cdef void sort_ahead(self, long long base, long long count) noexcept
