from socsched_kernel.columns cimport column
from socsched_kernel.controllers cimport Controllers

cdef class Kernel(Controllers):
    cdef column s_nominal, s_base, s_delayed
    cdef long long now, next_fault, event_count
    cpdef object run_events(self, long long most)
    cpdef object get_time(self)
    cpdef object list_ready(self, long long u)
    cpdef object get_next_release(self, long long source)
    cdef int schedule_release(self, long long source, long long frame) except -1
    cdef int release_frame(self, long long source, long long now) except -1
    cdef int handle_event(self, long long source, long long now) except -1
    cdef int continue_job(self, long long t, long long g, long long now) except -1
    cdef int expire_budget(self, long long t, long long now) except -1
    cdef int emit_frames(self, long long source, long long now) except -1
    cdef int complete_segment(self, long long t, long long now) except -1
    cdef int abort_late(self, long long t, long long now) except -1
    cdef int expire_quantum(self, long long t, long long now) except -1
    cdef int apply_faults(self, long long now) except -1
    cdef int run_controllers(self, long long now) except -1
    cpdef object close(self, long long end)
