from socsched_kernel.arithmetic cimport SlotSet, slot_sets
from socsched_kernel.columns cimport column
from socsched_kernel.orders cimport Orders

cdef class Slots(Orders):
    cdef slot_sets last_slots, locked_slots, grouping
    cdef column resident, locked, stalled, stored_bytes, context, context_since, context_used_at
    cdef column host, corun_power
    cdef long long use_count
    cdef SlotSet find_slots(self, long long c, SlotSet taken) noexcept
    cdef SlotSet choose_slots(self, long long c, SlotSet free, long long wanted) noexcept
    cdef long long find_fastest(self, long long c, SlotSet idle) noexcept
    cdef long long admit_context(self, long long u, long long c, long long now) noexcept
    cdef void lock(self, long long c) noexcept
    cdef void unlock(self, long long c) noexcept
    cdef void occupy_slots(self, long long c, SlotSet slots, long long now) noexcept
    cdef void release_slots(self, long long c, long long now) noexcept
    cdef void busy_wait(self, long long t, long long home, long long now) noexcept
    cdef int return_to_engine(self, long long t, long long home, long long now) except -1
    cdef void stop_corunning(self, long long u, long long now) noexcept
    cdef void update_pace(self, long long t, long long now) noexcept
    cdef void regroup_slots(self, long long e, SlotSet slots, long long t) noexcept
    cdef void load_weights(self, long long e, long long t) noexcept
