from socsched_kernel.columns cimport column, reals
from socsched_kernel.slack_stealing cimport SlackStealing

cdef class Controllers(SlackStealing):
    cdef column u_controller, u_sampling, u_choice0, u_sets_clock, u_weights0, c_term0, c_term1, c_dynamic, c_slow
    cdef column calm, choice, sample_due, busy_sampled, controlled
    cdef reals weights, mean_load, features
    cdef long long controlled_count, next_sample
    cdef int sample_controllers(self, long long now) except -1
    cdef double measure_load(self, long long u, long long now) noexcept
    cdef long long decide_switching(self, long long u, long long now, double load) noexcept
    cdef long long decide_choosing(self, long long u, long long now, double load) noexcept
    cdef void compute_features(self, long long u, long long now, double load) noexcept
    cdef double clamp(self, long long value, double unit) noexcept
    cdef int apply_choice(self, long long u, long long c, long long now) except -1
