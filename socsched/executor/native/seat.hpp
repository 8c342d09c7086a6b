// A thread of a crew as the others see it: whether it computes a chunk, whether its processor runs somebody else
// meanwhile, and the processor that a waiting thread has given it then.
#pragma once

#include <atomic>
#include <cstdint>
#include <sched.h>
#include <sys/types.h>

#include "plan.hpp"

namespace socsched {

class Seat {
 public:
  void take();  // by the thread itself, before others look at it; its processors now are those of the crew

  // Around every chunk, by the thread itself.
  void begin() { computes_.store(true, std::memory_order_release); }
  void end() {
    computes_.store(false, std::memory_order_relaxed);
    if (state_.load(std::memory_order_acquire) == LENT) go_back();
  }

  // For a waiting thread: whether the thread got no processor time since the last call with the same `before`.
  bool is_held_up(Ns& before) const;

  // Let the thread go on where the calling thread is, which goes to sleep next; false if another has done so.
  bool lend();

 private:
  enum State { HOME, LENDING, LENT };

  void go_back();

  std::atomic<bool> computes_{false};
  std::atomic<State> state_{HOME};
  pid_t thread_ = 0;
  cpu_set_t processors_{};
};

}  // namespace socsched
