// A network compiled for a CPU (socsched/executor/programs.py): its kernels, called in order without TVM's runtime.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "json.hpp"
#include "stages.h"
#include "tensor.hpp"
#include "tvm_abi.hpp"

namespace socsched {

constexpr int MOST_AXES = 12;  // of packed weights

// While it exists, numbers below the least normal one count as 0 for the calling thread, and for ever for those it starts.
struct Flushed {
  const uint64_t before = socsched_flush_floats();
  ~Flushed() { socsched_restore_floats(before); }
};

class CpuProgram {
 public:
  // An output among the results of a frame.
  struct Output {
    uint64_t offset = 0, bytes = 0;  // for the most rows
    size_t tensor = 0;
  };

  // Loads code and constants; Failure if that is impossible.
  explicit CpuProgram(const std::string& file);
  CpuProgram(const CpuProgram&) = delete;
  CpuProgram& operator=(const CpuProgram&) = delete;

  // Compute one frame; inputs start at multiples of 64 bytes.  Return why it failed, empty if it did not.
  const std::string& run(const std::vector<const Tensor*>& inputs, void* results);

  size_t inputs() const { return inputs_.size(); }
  const std::vector<Output>& outputs() const { return outputs_; }
  int64_t rows(size_t output) const { return tensors_[outputs_[output].tensor].shape[0]; }  // of the last frame
  uint64_t results_bytes() const { return bytes_[RESULTS]; }
  int64_t most_rows() const { return most_; }
  bool is_parallel() const { return parallel_; }

 private:
  enum Space { MEMORY, CONSTANTS, RESULTS, INPUTS, SPACES };

  // A size that varies: the extent of an axis of an input.
  struct Symbol {
    size_t input = 0, axis = 0;
    int64_t most = 0, value = 0;
  };

  struct Place {
    Space space = MEMORY;
    size_t input = 0;
    uint64_t offset = 0, bytes = 0;  // bytes: for the most rows
    std::vector<std::pair<size_t, size_t>> varying;  // axes and their symbols
  };

  struct Form {  // a tensor as kernels see it
    std::array<int64_t, MOST_AXES> shape{};
    tvm::Array array{};
  };

  struct Call {
    tvm::Kernel kernel = nullptr;
    std::string name;
    std::vector<tvm::Any> arguments;
  };

  void read(const JsonField& root);
  void read_tensor(const JsonField& from);
  uint64_t used_bytes(const Form& form) const;
  void load(const std::string& library, const std::string& constants);

  std::array<uint64_t, SPACES> bytes_{};
  std::array<Memory, 2> owned_;
  std::vector<Symbol> symbols_;
  std::vector<Form> tensors_;
  std::vector<Place> places_;  // of tensors
  std::vector<size_t> inputs_;
  std::vector<Output> outputs_;
  std::vector<Call> calls_;
  int64_t most_ = 0;
  bool parallel_ = false;
  std::string error_;
};

}  // namespace socsched
