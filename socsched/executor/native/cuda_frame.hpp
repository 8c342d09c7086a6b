// A frame of consecutive stages of a GPU: one graph, started by the first of them; the others wait for their parts of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "clock.hpp"
#include "cuda_driver.hpp"
#include "realtime.hpp"
#include "tensor.hpp"

namespace socsched::cuda {

// What stages see of a frame: by part, its outputs, and a byte in locked memory that the graph sets when they are there.
struct Frame {
  const Device* device = nullptr;
  Stream* stream = nullptr;
  std::vector<std::vector<Tensor>> ports;
  std::atomic<uint8_t>* ended = nullptr;
  static constexpr Ns LONG = 5'000'000;

  // The state of a part since a time, as the driver states that of an event; the driver is asked where it takes long.
  int state(size_t part, Ns since) const {
    if (ended[part].load(std::memory_order_acquire)) return 0;
    if (monotonic_ns() - since < LONG) return NOT_READY;
    const int status = device->driver().cuStreamQuery(stream);
    return status || ended[part].load(std::memory_order_acquire) ? status : NOT_READY;
  }
};

// Waits for work on a device that takes about as long each time.
//
// Sleeps until it is about to end, then in naps.  To wait for an interrupt of the driver costs more: it wakes a thread of
// the driver's, which wakes this one.  The sleep is shortened at once when it was too long, and lengthened slowly, since
// waking takes a varying time.
class Patience {
 public:
  // Wait for work that began at `since` until `look` returns something else than NOT_READY, and return that.
  template <class Look>
  int wait(Ns since, Look look) {
    if (const int found = look(); found != NOT_READY) return found;
    if (const Ns until = since + asleep_; monotonic_ns() < until) sleep_until(until);
    size_t naps = 0;
    int status;
    while ((status = look()) == NOT_READY) {
      const Ns now = monotonic_ns();
      sleep_until(now + std::max(NAP, (now - since) / 16));
      naps++;
    }
    asleep_ = naps ? asleep_ + (monotonic_ns() - since - asleep_) / 16 : std::max(asleep_ - NAP / 32, Ns{0});
    return status;
  }

  static constexpr Ns NAP = 20'000;  // between looks at work that is about to end

 private:
  Ns asleep_ = 0;
};

}  // namespace socsched::cuda
