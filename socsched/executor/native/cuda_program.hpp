// A launch list on a CUDA GPU: its code loaded, its memory taken.
#pragma once

#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "launch_list.hpp"

namespace socsched::cuda {

using socsched::Place;
using Input = LaunchList::Input;
using Output = LaunchList::Output;

class Program {
 public:
  // The program of the first file whose code the device can load, on that device; Failure if there is none.  Code of a
  // newer major version of CUDA than the driver's is tried last.
  // Constants are copied to the device, unless they are `elsewhere`, and `place_constants` tells where.
  static Program load(const std::vector<std::string>& files, const Device& device, bool elsewhere = false);
  void place_constants(Address address) { constants_ = address; }

  const std::vector<Input>& inputs() const { return list_.inputs; }
  const std::vector<Output>& outputs() const { return list_.outputs; }
  uint64_t results_bytes() const { return list_.results; }
  uint64_t constants_bytes() const { return list_.constants; }
  const std::string& weights() const { return list_.weights; }
  bool only_writes_results() const;  // whether each result is an argument of one kernel
  size_t kernels() const { return list_.launches.size(); }
  // Where a place is, with results at an address; inputs that lie elsewhere, by number, are read there (0: in its memory).
  Address address(const Place& place, Address results, const std::vector<Address>& inputs = {}) const;

  // Queue the kernels from number `first` to before `last`.
  void queue(const Device& device, Stream* stream, Address results, size_t first, size_t last, const std::vector<Address>& inputs = {}) const;

 private:
  Program(const std::string& file, const Device& device, bool elsewhere);

  LaunchList list_;
  std::vector<Function*> functions_;  // by launch
  Address memory_ = 0, constants_ = 0;
};

}  // namespace socsched::cuda
