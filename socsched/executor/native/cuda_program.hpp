// A launch list on a CUDA GPU: its code loaded, its memory taken.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "failure.hpp"
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

namespace {

// The version of CUDA that made a program's code, 13000 for 13.0; 0 if its file does not tell.
int made_by(const std::string& file) {
  const JsonFile json(file);
  return json.root().has("toolkit") ? static_cast<int>(json.root()["toolkit"].integer(0, 1'000'000)) : 0;
}

}  // namespace

Program Program::load(const std::vector<std::string>& files, const Device& device, bool elsewhere) {
  std::string tried;
  std::vector<std::string> ordered = files;
  const auto is_newer = [&](const std::string& file) { return made_by(file) / 1000 > device.version() / 1000; };
  std::stable_partition(ordered.begin(), ordered.end(), [&](const std::string& file) { return !is_newer(file); });
  for (const std::string& file : ordered) {
    const JsonFile json(file);
    const std::string& architecture = json.root()["arch"].text(LONGEST);
    std::string why = "for " + architecture;
    if (device.runs(architecture)) {
      try {
        return Program(file, device, elsewhere);
      } catch (const Failure& failure) {
        if (failure.code != MACHINE) throw;
        why = failure.what();  // of another toolkit's major version, perhaps
      }
    }
    tried += (tried.empty() ? "" : "; ") + file + " (" + why + ")";
  }
  throw Failure(MACHINE, "no code for this GPU, sm_" + std::to_string(device.capability()) + " under CUDA " +
                             std::to_string(device.version() / 1000) + "." + std::to_string(device.version() % 1000 / 10) + ": " + tried,
                "compile the stage for this GPU");
}

Program::Program(const std::string& file, const Device& device, bool elsewhere) : list_(file) {
  const Driver& driver = device.driver();
  std::vector<Module*> modules;
  for (const std::string& path : list_.code) {
    Module* module = nullptr;
    device.check(driver.cuModuleLoadData(&module, read_code(path).data()), ("loading " + path).c_str());
    modules.push_back(module);
  }
  for (const LaunchList::Launch& launch : list_.launches) {
    Function*& function = functions_.emplace_back();
    device.check(driver.cuModuleGetFunction(&function, modules[launch.code], launch.kernel.c_str()), ("finding " + launch.kernel).c_str());
    if (launch.shared > SHARED_MEMORY_LIMIT)
      device.check(driver.cuFuncSetAttribute(function, DYNAMIC_SHARED, static_cast<int>(launch.shared)), "reserving shared memory");
  }
  const std::vector<char> weights = read_code(list_.weights);
  if (weights.size() - 1 < list_.constants) throw Failure(USAGE, list_.weights + ": is shorter than its launch list says", "compile the stage again");
  if (list_.memory) device.check(driver.cuMemAlloc_v2(&memory_, list_.memory), "allocating memory");
  if (list_.constants && !elsewhere) {
    device.check(driver.cuMemAlloc_v2(&constants_, list_.constants), "allocating memory");
    device.check(driver.cuMemcpyHtoD_v2(constants_, weights.data(), list_.constants), "copying the weights");
  }
}

bool Program::only_writes_results() const {
  std::set<uint64_t> seen;
  for (const LaunchList::Launch& launch : list_.launches)
    for (const LaunchList::Argument& argument : launch.arguments)
      if (argument.kind == LaunchList::Argument::place && argument.where.space == Place::results && !seen.insert(argument.where.offset).second) return false;
  return true;
}

Address Program::address(const Place& place, Address results, const std::vector<Address>& inputs) const {
  for (size_t i = 0; i < inputs.size(); i++) {
    const Input& input = list_.inputs[i];
    if (inputs[i] && place.space == input.place.space && place.offset >= input.place.offset && place.offset < input.place.offset + input.bytes)
      return inputs[i] + (place.offset - input.place.offset);
  }
  return (place.space == Place::memory ? memory_ : place.space == Place::constants ? constants_ : results) + place.offset;
}

void Program::queue(const Device& device, Stream* stream, Address results, size_t first, size_t last, const std::vector<Address>& inputs) const {
  for (size_t i = first; i < last; i++) {
    const LaunchList::Launch& launch = list_.launches[i];
    const size_t count = launch.arguments.size();
    std::vector<uint64_t> words(count);
    std::vector<void*> pointers(count);
    for (size_t k = 0; k < count; k++) {
      const LaunchList::Argument& argument = launch.arguments[k];
      words[k] = argument.kind == LaunchList::Argument::value ? argument.bits : address(argument.where, results, inputs);
      pointers[k] = &words[k];
    }
    device.check(device.driver().cuLaunchKernel(functions_[i], launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
                                                launch.block[2], launch.shared, stream, pointers.data(), nullptr),
                 launch.kernel.c_str());
  }
}

}  // namespace socsched::cuda
