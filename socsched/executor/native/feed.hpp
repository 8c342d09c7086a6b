// Frames of a sensor that come through a channel during the run: read ahead of their release, or released as they arrive.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <pthread.h>
#include <string>
#include <thread>

#include "channel.hpp"
#include "realtime.hpp"
#include "data_slots.hpp"
#include "failure.hpp"

namespace socsched {

constexpr size_t AHEAD = 8;  // frames that wait for their release

inline StageSettings with_outputs(const std::vector<TensorType>& ports) {
  StageSettings settings;
  settings.kind = "callback";
  settings.outputs = ports;
  return settings;
}

class Feed {
 public:
  struct Frame {
    Data* data = nullptr;
    std::string problem;  // why it is unusable
    Ns time = 0;          // when it arrived, monotonic
  };

  // `arrives` is called in the thread of the feed for every frame; without it, frames wait for `take`.
  Feed(const SensorSettings& settings, Guard& guard, std::function<void(const Frame&)> arrives)
      : ports_(with_outputs(settings.warm.ports)), slots_(AHEAD, ports_), channel_(settings.feed), guard_(guard), arrives_(std::move(arrives)) {}

  ~Feed() {
    stop_ = true;
    channel_.close();
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = std::thread([this] { run(); });
  }

  bool ended() const { return ended_; }

  // With the guard held: whether `take` has a frame, and take it.  After the end, frames have a problem.
  bool ready() const { return !waiting_.empty() || ended_; }

  Frame take() {
    if (waiting_.empty()) return {nullptr, "its data did not come", 0};
    const Frame frame = waiting_.front();
    waiting_.pop_front();
    return frame;
  }

  // One that is lost.
  void give_back(const Frame& frame) {
    if (!frame.data) return;
    retain(frame.data);
    drop(frame.data);
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "feed");
    try {
      channel_.send("");  // it may begin
      while (!stop_) {
        Frame frame;
        read(channel_.receive(), frame);
        if (arrives_) {
          arrives_(frame);
          continue;
        }
        for (bool full = true; full && !stop_;) {
          {
            std::lock_guard<Guard> lock(guard_);
            full = waiting_.size() >= AHEAD;
            if (!full) waiting_.push_back(frame);
          }
          if (full) sleep_until(monotonic_ns() + 1'000'000);
        }
      }
    } catch (const std::exception&) {  // no more frames
    }
    ended_ = true;
  }

  void read(const JsonFile& header, Frame& frame) {
    const JsonField root = header.root();
    frame.time = root["time_ns"].integer(0, INT64_MAX);
    if (root.has("problem")) {
      frame.problem = root["problem"].text(4000);
      return;
    }
    {
      std::lock_guard<Guard> lock(guard_);
      frame.data = slots_.take();
    }
    const std::vector<TensorType> types = Channel::tensors_of(header);
    if (types.size() != frame.data->ports.size()) throw Failure(USAGE, "a frame has another number of tensors than its sensor", "");
    for (size_t port = 0; port < types.size(); port++) {
      Tensor& tensor = frame.data->ports[port];
      tensor.type = types[port];
      tensor.data = slots_.room(*frame.data, port, tensor.type.bytes());
      channel_.read(tensor.data, tensor.type.bytes());
    }
  }

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
