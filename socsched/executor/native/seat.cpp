#include "seat.hpp"

#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.hpp"

namespace socsched {

void Seat::take() {
  thread_ = static_cast<pid_t>(syscall(SYS_gettid));
  sched_getaffinity(0, sizeof processors_, &processors_);
}

bool Seat::is_held_up(Ns& before) const {
  if (!computes_.load(std::memory_order_acquire)) return false;
  timespec used{};
  if (clock_gettime(~thread_ * 8 | 6, &used) != 0) return false;  // its CPU time, as pthread_getcpuclockid names it
  const Ns now = Ns{used.tv_sec} * 1'000'000'000 + used.tv_nsec, last = before;
  before = now;
  return now == last;
}

bool Seat::lend() {
  State home = HOME;
  if (!state_.compare_exchange_strong(home, LENDING)) return false;
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &here);
  const bool moved = sched_setaffinity(thread_, sizeof here, &here) == 0;  // refused for SCHED_DEADLINE
  state_.store(moved ? LENT : HOME, std::memory_order_release);
  return moved;
}

void Seat::go_back() {
  cpu_set_t others = processors_;
  CPU_CLR(static_cast<size_t>(sched_getcpu()), &others);
  if (CPU_COUNT(&others)) sched_setaffinity(0, sizeof others, &others);
  sched_setaffinity(0, sizeof processors_, &processors_);
  state_.store(HOME);
}

}  // namespace socsched
