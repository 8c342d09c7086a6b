// Device memory in which networks take turns: the weights of one at a time, copied there from locked host memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "cuda_frame.hpp"
#include "failure.hpp"
#include "stage.hpp"
#include "tensor.hpp"

namespace socsched {

namespace cuda {

// Kernels and copies are put in order on the device: a copy waits for the kernels that read what is there, kernels for the
// copy of what they read.  A load brings weights as scheduled work; the job of a network whose weights are not there copies
// them itself, so that a late frame computes what a punctual one does.
class Slot {
 public:
  // A slot of a device, made when it is first asked for with room for the largest of its networks.
  static Slot& of(const Device& device, int number, uint64_t bytes) {
    static std::mutex guard;
    static std::map<std::pair<int, int>, std::unique_ptr<Slot>> slots;
    const std::lock_guard<std::mutex> lock(guard);
    std::unique_ptr<Slot>& slot = slots[{device.number(), number}];
    if (!slot) slot.reset(new Slot(device, bytes));
    return *slot;
  }

  Address address() const { return memory_; }

  // A network's number here.  Failure if its weights do not fit.
  size_t add(const std::string& task, const std::vector<char>& weights, uint64_t bytes) {
    if (bytes > bytes_) throw Failure(USAGE, task + ": its weights are larger than their slot", "write the settings again");
    Weights network{task, allocate(whole_pages(bytes) + PAGE), nullptr, bytes};
    network.data = first_page(network.memory.get());
    std::memcpy(network.data, weights.data(), bytes);
    if (bytes) device_.check(device_.driver().cuMemHostRegister_v2(network.data, whole_pages(bytes), 0), "locking weights");
    const std::lock_guard<std::mutex> lock(guard_);
    networks_.push_back(std::move(network));
    return networks_.size() - 1;
  }

  // Failure for a task that is not there
  size_t find(const std::string& task) const {
    const std::lock_guard<std::mutex> lock(guard_);
    const auto found = std::find_if(networks_.begin(), networks_.end(), [&](const Weights& one) { return one.task == task; });
    if (found == networks_.end()) throw Failure(USAGE, task + ": its weights are not loaded into this slot", "write the settings again");
    return static_cast<size_t>(found - networks_.begin());
  }

  // Queue the copy of a network's weights; the driver's status.
  int load(size_t network, Stream* stream) {
    const std::lock_guard<std::mutex> lock(guard_);
    return copy(network, stream);
  }

  // Queue work that reads a network's weights; the driver's status.  `copies` counts those that no load had brought.
  template <class Work>
  int use(size_t network, Stream* stream, int64_t& copies, Work queue) {
    const std::lock_guard<std::mutex> lock(guard_);
    if (owner_ != network) copies++;
    int status = owner_ != network ? copy(network, stream) : device_.driver().cuStreamWaitEvent(stream, copied_, 0);
    if (!status) status = queue();
    return status ? status : device_.driver().cuEventRecord(read_, stream);
  }

 private:
  struct Weights {
    std::string task;
    Memory memory;
    void* data = nullptr;
    uint64_t bytes = 0;
  };

  Slot(const Device& device, uint64_t bytes) : device_(device), bytes_(bytes) {
    device.check(device.driver().cuMemAlloc_v2(&memory_, std::max(bytes, uint64_t{1})), "allocating a slot of weights");
    for (Event** event : {&copied_, &read_}) device.check(device.driver().cuEventCreate(event, DISABLE_TIMING), "making an event");
  }

  int copy(size_t network, Stream* stream) {
    const Driver& driver = device_.driver();
    const Weights& weights = networks_[network];
    int status = driver.cuStreamWaitEvent(stream, read_, 0);
    if (!status) status = driver.cuStreamWaitEvent(stream, copied_, 0);
    if (!status && weights.bytes) status = driver.cuMemcpyHtoDAsync_v2(memory_, weights.data, weights.bytes, stream);
    if (status) return status;
    owner_ = network;
    return driver.cuEventRecord(copied_, stream);
  }

  const Device& device_;
  const uint64_t bytes_;
  Address memory_ = 0;
  Event *copied_ = nullptr, *read_ = nullptr;
  mutable std::mutex guard_;
  std::vector<Weights> networks_;
  size_t owner_ = SIZE_MAX;
};

}  // namespace cuda

namespace {

// Copies the weights of a network into their slot, before its job of the same frame.
class LoadStage : public DataStage {
 public:
  using DataStage::DataStage;

  void prepare() override {
    fine_timers();
    const StageSettings& how = place_.settings;
    device_ = &cuda::Device::open(how.device);
    slot_ = &cuda::Slot::of(*device_, how.slot, how.slot_bytes);
    stream_ = device_->stream(static_cast<int>(place_.task.criticality));
  }

  Progress launch(const Job&) override {
    device_->enter();  // the last job may have run in another thread
    if (network_ == SIZE_MAX) network_ = slot_->find(place_.settings.loads);  // which is prepared by now
    since_ = monotonic_ns();
    return came_to(slot_->load(network_, stream_)) ? Progress::running : Progress::failed;
  }

  Progress poll() override {
    const int status = patience_.wait(since_, [this] { return device_->driver().cuStreamQuery(stream_); });
    return came_to(status) ? Progress::done : Progress::failed;
  }

 private:
  bool came_to(int status) {
    if (status) fail(device_->error(status, "copying weights"));
    return !status;
  }

  const cuda::Device* device_ = nullptr;
  cuda::Slot* slot_ = nullptr;
  cuda::Stream* stream_ = nullptr;
  cuda::Patience patience_;
  size_t network_ = SIZE_MAX;
  Ns since_ = 0;
};

}  // namespace

std::unique_ptr<Stage> make_load_stage(const StagePlace& place) { return std::make_unique<LoadStage>(place); }

}  // namespace socsched
