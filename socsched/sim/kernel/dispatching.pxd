from socsched_kernel.arithmetic cimport SlotSet, slot_sets
from socsched_kernel.columns cimport column
from socsched_kernel.corunning cimport CoRunners

cdef class Dispatcher(CoRunners):
    cdef slot_sets assigned
    cdef column preemption_cost
    cdef long long assigned_end
    cdef int settle(self, long long now) except -1
    cdef long long find_most_urgent(self) noexcept
    cdef int dispatch_unit(self, long long u, long long now, long long top) except -1
    cdef void limit_launches(self, long long u) noexcept
    cdef void assign_slots(self, long long u, long long now, long long top) noexcept
    cdef void limit_to_launched(self, long long u, long long top) noexcept
    cdef long long find_launched(self, long long t) noexcept
    cdef long long may_continue(self, long long c) noexcept
    cdef void drain_jobs(self, long long u, long long now) noexcept
    cdef long long should_drain(self, long long u, long long c, long long other, long long now) noexcept
    cdef void roll_back(self, long long t, long long u) noexcept
    cdef int apply_assignment(self, long long u, long long now) except -1
    cdef int resume_job(self, long long t, SlotSet slots, long long now) except -1
    cdef int start_claim(self, long long c, SlotSet slots, long long now) except -1
    cdef int preempt_claim(self, long long c, long long now) except -1
    cdef void account_blocking(self, long long u, long long now) noexcept
