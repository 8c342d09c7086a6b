// Device memory in which networks take turns: the weights of one at a time, copied there from locked host memory.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "tensor.hpp"

namespace socsched::cuda {

// Kernels and copies are put in order on the device: a copy waits for the kernels that read what is there, kernels for the
// copy of what they read.  A load brings weights as scheduled work; the job of a network whose weights are not there copies
// them itself, so that a late frame computes what a punctual one does.
class Slot {
 public:
  // A slot of a device, made when it is first asked for with room for the largest of its networks.
  static Slot& of(const Device& device, int number, uint64_t bytes);

  Address address() const { return memory_; }

  // A network's number here.  Failure if its weights do not fit.
  size_t add(const std::string& task, const std::vector<char>& weights, uint64_t bytes);
  size_t find(const std::string& task) const;  // Failure for a task that is not there

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

  Slot(const Device& device, uint64_t bytes);
  int copy(size_t network, Stream* stream);

  const Device& device_;
  const uint64_t bytes_;
  Address memory_ = 0;
  Event *copied_ = nullptr, *read_ = nullptr;
  mutable std::mutex guard_;
  std::vector<Weights> networks_;
  size_t owner_ = SIZE_MAX;
};

}  // namespace socsched::cuda
