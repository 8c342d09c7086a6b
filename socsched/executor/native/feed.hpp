// Frames of a sensor that come through a channel during the run: read ahead of their release, or released as they arrive.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "channel.hpp"
#include "data_slots.hpp"
#include "gate.hpp"

namespace socsched {

class Feed {
 public:
  struct Frame {
    Data* data = nullptr;
    std::string problem;  // why it is unusable
    Ns time = 0;          // when it arrived, monotonic
  };

  // `arrives` is called in the thread of the feed for every frame; without it, frames wait for `take`.
  Feed(const SensorSettings& settings, Guard& guard, std::function<void(const Frame&)> arrives);
  ~Feed();

  void start();
  bool ended() const { return ended_; }

  // With the guard held: whether `take` has a frame, and take it.  After the end, frames have a problem.
  bool ready() const { return !waiting_.empty() || ended_; }
  Frame take();
  void give_back(const Frame& frame);  // one that is lost

 private:
  void run();
  void read(const JsonFile& header, Frame& frame);

  StageSettings ports_;
  DataSlots slots_;
  Channel channel_;
  Guard& guard_;
  std::function<void(const Frame&)> arrives_;
  std::deque<Frame> waiting_;
  std::atomic<bool> ended_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace socsched
