// Where a worker waits for its next job: asleep on a futex, or awake on its processor for a while before one is expected.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "realtime.hpp"
#include "job.hpp"

namespace socsched {

// One owner takes jobs; any thread may put one if the last one was taken.
class Mailbox {
 public:
  void put(Job* job) {
    job_.store(job);
    wake();
  }

  void stop() {
    stopped_.store(true);
    wake();
  }

  // Keep the owner awake from `from` until `until` (monotonic), unless a job arrives before.  With `quietly`, an owner
  // that sleeps learns of it when `ring` is called, so that the caller needs no system call.
  void expect(Ns from, Ns until, bool quietly) {
    from_.store(from, std::memory_order_relaxed);
    until_.store(until, std::memory_order_relaxed);
    if (quietly)
      unheard_.store(true, std::memory_order_release);
    else
      wake();
  }

  void ring() {
    if (unheard_.exchange(false)) wake();
  }

  // Return the owner from `take`, so that it can set another alarm.
  void nudge() {
    nudged_.store(true);
    wake();
  }

  enum class Woken { job, soon, time, stop };

  // Wait for a job, the end, or the instant `alarm` (monotonic, -1: none).  Be awake `lead` before that instant, which
  // is reported once: as much earlier as this processor came late out of its sleeps, a hundred microseconds and more in
  // virtual machines.  Without a lead no more than that is made up for, and no more than a `MOST_EARLY` (-1: nothing is).
  Woken take(Job** job, Ns alarm, Ns lead) {
    const Ns early = lead > 0 ? lead + late_ : lead < 0 ? 0 : std::min(late_, MOST_EARLY);
    while (true) {
      if ((*job = job_.exchange(nullptr, std::memory_order_acq_rel))) return Woken::job;
      if (stopped_.load(std::memory_order_acquire)) return Woken::stop;
      if (nudged_.exchange(false)) return Woken::time;
      const Ns now = monotonic_ns();
      if (alarm >= 0 && now >= alarm) return Woken::time;
      const Ns from = from_.load(std::memory_order_relaxed), until = until_.load(std::memory_order_relaxed);
      const bool soon = alarm >= 0 && now >= alarm - early;
      if (soon && announced_ != alarm) {
        announced_ = alarm;
        return Woken::soon;
      }
      if ((from <= now && now < until) || soon) {
        for (int n = 0; n < 32 && !job_.load(std::memory_order_relaxed); n++) relax();
        continue;
      }
      const uint32_t bell = bell_.load();
      asleep_.store(true);
      if (!job_.load() && !stopped_.load() && !nudged_.load()) {
        Ns wake_at = alarm < 0 ? alarm : alarm - early;
        if (now < from && (wake_at < 0 || from < wake_at)) wake_at = from;
        const timespec at = timespec_of(wake_at);
        if (syscall(SYS_futex, &bell_, FUTEX_WAIT_BITSET_PRIVATE, bell, wake_at < 0 ? nullptr : &at, nullptr, FUTEX_BITSET_MATCH_ANY) && errno == ETIMEDOUT)
          late_ = std::min(std::max(late_ - late_ / 8, monotonic_ns() - wake_at), MOST_LATE);
      }
      asleep_.store(false);
    }
  }

 private:
  void wake() {
    bell_.fetch_add(1);
    if (asleep_.load()) syscall(SYS_futex, &bell_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  alignas(64) std::atomic<Job*> job_{nullptr};
  std::atomic<uint32_t> bell_{0};
  std::atomic<bool> asleep_{false}, stopped_{false}, nudged_{false}, unheard_{false};
  std::atomic<Ns> from_{0}, until_{0};
  static constexpr Ns MOST_LATE = 1'000'000, MOST_EARLY = 100'000;
  Ns announced_ = -1, late_ = 0;  // the owner's
};

}  // namespace socsched
