// A launch list (socsched/executor/gpu_programs.py): kernels of cubins with fixed sizes over three pieces of memory.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "json.hpp"

namespace socsched::cuda {

// A place in the program's own memory, its constants, or the results of one frame.
struct Place {
  enum Space { memory, constants, results } space = memory;
  uint64_t offset = 0;
};

struct Input {
  Place place;
  uint64_t bytes = 0, row_bytes = 0;  // row_bytes: of a row, if their number varies; the rest is filled
  uint8_t fill = 0;
  bool counts = false, filled = true;
  Place count;                        // takes the number of rows, if `counts`; kernels that read it need nothing filled
};

struct Output {
  uint64_t offset = 0, bytes = 0;     // among the results
};

class Program {
 public:
  // The program of the first file whose code the device can load, on that device; Failure if there is none.  Code of a
  // newer major version of CUDA than the driver's is tried last.
  static Program load(const std::vector<std::string>& files, const Device& device);

  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  uint64_t results_bytes() const { return results_bytes_; }
  size_t kernels() const { return launches_.size(); }
  Address address(const Place& place, Address results) const;

  // Queue the kernels from number `first` to before `last`, with results at an address.
  void queue(const Device& device, Stream* stream, Address results, size_t first, size_t last) const;

 private:
  struct Argument {
    enum Kind { place, value } kind = value;
    Place where;
    uint64_t bits = 0;                // of a value, in the machine's byte order
  };

  struct Launch {
    Function* function = nullptr;
    std::string kernel;
    size_t code = 0;
    std::array<unsigned, 3> grid{}, block{};
    unsigned shared = 0;
    std::vector<Argument> arguments;
  };

  Program(const std::string& file, const Device& device);

  void read(const JsonField& root, const std::string& file, std::vector<std::string>& code, std::string& constants, uint64_t& bytes);
  static Place read_place(const JsonField& from, const std::array<uint64_t, 3>& room);
  static Argument read_argument(const JsonField& from, const std::array<uint64_t, 3>& room);

  uint64_t memory_bytes_ = 0, constants_bytes_ = 0, results_bytes_ = 0;
  Address memory_ = 0, constants_ = 0;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Launch> launches_;
};

}  // namespace socsched::cuda
