from socsched_kernel.columns cimport column
from socsched_kernel.dispatching cimport Dispatcher

cdef class SlackStealing(Dispatcher):
    cdef column u_guarded0, u_guarded, u_region, u_slack_horizon
    cdef column d_task, d_worst, d_share, d_cost, d_source, d_timer, d_period, d_deadline, d_jitter, d_gap
    cdef column guarded, next_order, next_due, point_due, point_work, slack_until
    cdef long long points, point_limit, total_work
    cdef long long get_slack(self, long long u, long long now, long long need) noexcept
    cdef long long compute_slack(self, long long u, long long now, long long need) noexcept
    cdef long long collect_present(self, long long u, long long now, long long least) noexcept
    cdef void collect_in_transit(self, long long number, long long now) noexcept
    cdef void add_point(self, long long due, long long work) noexcept
    cdef void sort_next_deadlines(self, long long base, long long count) noexcept
