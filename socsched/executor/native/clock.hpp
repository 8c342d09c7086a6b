// The monotonic clock, and waiting for an instant of it.
#pragma once

#include <ctime>

#include "plan.hpp"

namespace socsched {

inline Ns clock_ns(clockid_t clock) {
  timespec at;
  clock_gettime(clock, &at);
  return Ns{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

inline Ns monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }

// The time of processors that this thread used, and all threads together.
inline Ns thread_time_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
inline Ns process_time_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

inline timespec timespec_of(Ns time) {
  return {static_cast<time_t>(time / 1'000'000'000), static_cast<long>(time % 1'000'000'000)};
}

// Sleep until an instant; a signal may end the sleep early.
inline void sleep_until(Ns time) {
  const timespec at = timespec_of(time);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

// A short wait that leaves the processor's resources to its other threads.  Hypervisors deschedule a guest that executes
// many `pause` in a row, so none is used.
inline void relax() {
#if defined(__aarch64__)
  __asm__ volatile("isb");
#else
  for (int n = 0; n < 16; n++) __asm__ volatile("nop");
#endif
}

}  // namespace socsched
