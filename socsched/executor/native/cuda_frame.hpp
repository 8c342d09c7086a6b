// A frame of consecutive stages of a GPU: one graph, started by the first of them; the others wait for their parts of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "realtime.hpp"
#include "cuda_driver.hpp"
#include "tensor.hpp"

namespace socsched::cuda {

// Waits for work on a device that takes about as long each time.
//
// Sleeps until shortly before it ends, and then looks all the time for as long as a sleep costs, which is a timer and two
// switches.  To wait for an interrupt of the driver costs more: it wakes a thread of the driver's, which wakes this one.
class Patience {
 public:
  // Wait for work that began at `since` until `look` returns something else than NOT_READY, and return that.
  template <class Look>
  int wait(Ns since, Look look) {
    int status = look();
    if (status != NOT_READY) return status;
    if (const Ns until = since + asleep_; monotonic_ns() + LOOKING < until) {
      sleep_until(until);
      if ((status = look()) != NOT_READY) {
        asleep_ -= SPARE / 2;  // nobody knows by how much it was too long
        return status;
      }
    }
    const Ns woken = monotonic_ns();
    Ns now = woken;
    for (; status == NOT_READY && now - woken < LOOKING; now = monotonic_ns()) {
      relax();
      status = look();
    }
    for (; status == NOT_READY; now = monotonic_ns()) {
      sleep_until(now + std::max(NAP, (now - since) / 16));
      status = look();
    }
    asleep_ += (now - since - asleep_ - SPARE) / 8;
    return status;
  }

  static constexpr Ns NAP = 20'000;  // between looks at work that is long in ending

 private:
  static constexpr Ns LOOKING = 20'000, SPARE = 4'000;

  Ns asleep_ = 0;
};

// What stages see of a frame: by part, its outputs, and when it ended.  A part whose outputs nobody else reads is seen to
// have ended together with the next one that somebody waits for; the device's clock tells how long before.
struct Frame {
  const Device* device = nullptr;
  Stream* stream = nullptr;
  std::vector<std::vector<Tensor>> ports;
  std::atomic<uint8_t>* ended = nullptr;  // in locked memory, set by the graph for parts that are waited for
  std::vector<size_t> shown_by;           // by part: the first one from it on that is waited for
  std::vector<Event*> marks;              // by part: its end on the device's clock
  std::vector<Ns> ends;                   // by part: on the monotonic clock, 0 until it is seen
  Ns begun = 0;

  // The state of a part since a time, as the driver states that of an event; the driver is asked where it takes long.
  int state(size_t part, Ns since) const {
    if (ended[part].load(std::memory_order_acquire)) return 0;
    if (monotonic_ns() - since < LONG) return NOT_READY;
    const int status = device->driver().cuStreamQuery(stream);
    return status || ended[part].load(std::memory_order_acquire) ? status : NOT_READY;
  }

  // Wait for the end of a part; return the driver's status.
  int wait(size_t part, Ns since, Patience& patience) {
    if (ends[part]) return 0;
    const size_t shown = shown_by[part];
    if (const int status = patience.wait(since, [&] { return state(shown, since); })) return status;
    const Ns now = monotonic_ns();
    for (size_t i = part; i <= shown; i++) {
      float before = 0;  // ms
      if (i < shown)
        if (const int status = device->driver().cuEventElapsedTime(&before, marks[i], marks[shown])) return status;
      ends[i] = std::max(now - static_cast<Ns>(before * 1e6f), i ? ends[i - 1] : begun);
    }
    return 0;
  }

 private:
  static constexpr Ns LONG = 5'000'000;
};

}  // namespace socsched::cuda
