from socsched_kernel.columns cimport column
from socsched_kernel.progress cimport Progress

cdef class Orders(Progress):
    cdef column key0, key1, queued, latest_start, order, running_claims, running_count, order_length, dirty, dirty_units, dispatch_at
    cdef long long dirty_count, last_turn
    cdef int enqueue(self, long long t, long long now) except -1
    cdef void catch_up_vruntime(self, long long t, long long now) noexcept
    cdef void resume_quanta(self, long long u, long long now) noexcept
    cdef void set_claim(self, long long t, long long g) noexcept
    cdef void insert_claim(self, long long c) noexcept
    cdef void remove_claim(self, long long c) noexcept
    cdef int requeue(self, long long t, long long now) except -1
    cdef void mark_dirty(self, long long u) noexcept
    cdef void schedule_dispatch(self, long long u, long long instant) noexcept
    cdef long long precedes(self, long long a, long long b) noexcept
    cdef long long get_vruntime(self, long long t, long long now) noexcept
    cdef int sort_claims(self, long long u, long long now, long long anew) except -1
    cdef long long count_ticks(self, long long u, long long now) noexcept
    cdef void update_waiting(self, long long u, long long now) noexcept
    cdef int set_keys(self, long long t, long long now) except -1
    cdef long long compute_term(self, long long code, long long t, long long now) noexcept
    cdef long long get_executed(self, long long t, long long now) noexcept
    cdef long long get_remaining(self, long long t, long long now) noexcept
