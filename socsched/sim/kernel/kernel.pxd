from socsched_kernel.columns cimport column
from socsched_kernel.steering cimport Steered

cdef class Kernel(Steered):
    cdef column s_nominal, s_base, s_held
    cdef long long now, edge_at, events_seen
    cpdef object run_on(self, long long most)
    cpdef object time(self)
    cpdef object ready(self, long long u)
    cpdef object expected(self, long long source)
    cdef int expect(self, long long source, long long frame) except -1
    cdef int release(self, long long source, long long now) except -1
    cdef int handle(self, long long source, long long now) except -1
    cdef int go_on(self, long long t, long long g, long long now) except -1
    cdef int withhold(self, long long t, long long now) except -1
    cdef int emit(self, long long source, long long now) except -1
    cdef int complete(self, long long t, long long now) except -1
    cdef int expire(self, long long t, long long now) except -1
    cdef int pass_on(self, long long t, long long now) except -1
    cdef int edge(self, long long now) except -1
    cdef int control(self, long long now) except -1
    cpdef object close(self, long long end)
