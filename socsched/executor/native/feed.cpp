#include "feed.hpp"

#include <mutex>
#include <pthread.h>

#include "clock.hpp"
#include "failure.hpp"

namespace socsched {

namespace {

constexpr size_t AHEAD = 8;  // frames that wait for their release

StageSettings with_outputs(const std::vector<TensorType>& ports) {
  StageSettings settings;
  settings.kind = "callback";
  settings.outputs = ports;
  return settings;
}

}  // namespace

Feed::Feed(const SensorSettings& settings, Guard& guard, std::function<void(const Frame&)> arrives)
    : ports_(with_outputs(settings.warm.ports)), slots_(AHEAD, ports_), channel_(settings.feed), guard_(guard), arrives_(std::move(arrives)) {}

Feed::~Feed() {
  stop_ = true;
  channel_.close();
  if (thread_.joinable()) thread_.join();
}

void Feed::start() {
  thread_ = std::thread([this] { run(); });
}

void Feed::run() {
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

void Feed::read(const JsonFile& header, Frame& frame) {
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

Feed::Frame Feed::take() {
  if (waiting_.empty()) return {nullptr, "its data did not come", 0};
  const Frame frame = waiting_.front();
  waiting_.pop_front();
  return frame;
}

void Feed::give_back(const Frame& frame) {
  if (!frame.data) return;
  retain(frame.data);
  drop(frame.data);
}

}  // namespace socsched
