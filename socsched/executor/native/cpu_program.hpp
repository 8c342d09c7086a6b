// A network compiled for a CPU (socsched/executor/programs.py): its kernels, called in order without TVM's runtime.
#pragma once

#include <array>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "failure.hpp"
#include "realtime.hpp"
#include "json.hpp"
#include "launch_list.hpp"
#include "parallel.hpp"
#include "settings.hpp"
#include "stages.h"
#include "tensor.hpp"
#include "tvm_abi.hpp"

namespace socsched {

inline thread_local char raised[512];  // the message of the last kernel that failed

// Memory of a thread for temporary tensors of kernels; blocks are kept for the next call.
struct Workspace {
  struct Block {
    Memory memory;
    uint64_t bytes = 0;
    bool taken = false;
  };
  std::vector<Block> blocks;
};

inline thread_local Workspace workspace;

inline void* take_workspace(int, int, uint64_t bytes, int, int) {
  for (Workspace::Block& block : workspace.blocks)
    if (!block.taken && block.bytes >= bytes) {
      block.taken = true;
      return block.memory.get();
    }
  try {
    workspace.blocks.push_back({allocate(bytes), bytes, true});
  } catch (const std::exception&) {
    return nullptr;  // the kernel reports it; it cannot be unwound
  }
  return workspace.blocks.back().memory.get();
}

inline int return_workspace(int, int, void* memory) {
  for (Workspace::Block& block : workspace.blocks)
    if (block.memory.get() == memory) block.taken = false;
  return 0;
}

}  // namespace socsched

// Called by kernels whose arguments do not fit; exported to them by the linker (build.py).
extern "C" void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  size_t used = static_cast<size_t>(std::snprintf(socsched::raised, sizeof socsched::raised, "%s: ", kind));
  for (int32_t i = 0; i < count && used < sizeof socsched::raised; i++)
    if (parts[i]) used += static_cast<size_t>(std::snprintf(socsched::raised + used, sizeof socsched::raised - used, "%s", parts[i]));
}

namespace socsched {

constexpr int64_t MOST_SPACE = int64_t{1} << 36;
constexpr size_t MOST_TENSORS = 200'000;

const std::vector<std::string> DTYPES = {"float32", "float16", "int8", "uint8", "int32", "int64", "bool"};

inline tvm::DataType type_of(const std::string& name) {
  static const tvm::DataType types[] = {{2, 32, 1}, {2, 16, 1}, {0, 8, 1}, {1, 8, 1}, {0, 32, 1}, {0, 64, 1}, {6, 8, 1}};
  size_t number = 0;
  while (DTYPES[number] != name) number++;
  return types[number];
}

template <class F>
void supply(void* library, const char* slot, F* function) {
  if (void* const found = dlsym(library, slot)) __atomic_store_n(static_cast<F**>(found), function, __ATOMIC_RELEASE);
}

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
  explicit CpuProgram(const std::string& file) {
    const JsonFile json(file);
    read(json.root());
    load(path_next_to(file, json.root()["code"].text(LONGEST)), path_next_to(file, json.root()["weights"].text(LONGEST)));
  }

  CpuProgram(const CpuProgram&) = delete;
  CpuProgram& operator=(const CpuProgram&) = delete;

  // Compute one frame; inputs start at multiples of 64 bytes.  Return why it failed, empty if it did not.
  const std::string& run(const std::vector<const Tensor*>& inputs, void* results) {
    error_.clear();
    for (Symbol& symbol : symbols_) {
      std::array<int64_t, MOST_RANK> shape{};
      inputs[symbol.input]->type.physical(shape);
      symbol.value = shape[symbol.axis];
      if (symbol.value < 0 || symbol.value > symbol.most)
        return error_ = "an input has " + std::to_string(symbol.value) + " rows, there is room for " + std::to_string(symbol.most);
    }
    for (size_t i = 0; i < tensors_.size(); i++) {
      const Place& place = places_[i];
      for (const auto& [axis, symbol] : place.varying) tensors_[i].shape[axis] = symbols_[symbol].value;
      if (place.space == RESULTS) tensors_[i].array.data = static_cast<char*>(results) + place.offset;
      if (place.space == INPUTS) tensors_[i].array.data = static_cast<char*>(inputs[place.input]->data) + place.offset;
    }
    for (size_t i = 0; i < inputs_.size(); i++)
      if (inputs[i]->type.bytes() != used_bytes(tensors_[inputs_[i]])) return error_ = "an input has another size than was compiled";
    for (size_t i = 0; i < tensors_.size(); i++)
      if (places_[i].space == INPUTS && places_[i].offset + used_bytes(tensors_[i]) > inputs[places_[i].input]->type.bytes())
        return error_ = "an input is shorter than what kernels read of it";
    const Flushed flushed;
    for (const Call& call : calls_) {
      tvm::Any result{};
      raised[0] = 0;
      pass_gate();
      if (call.kernel(nullptr, call.arguments.data(), static_cast<int32_t>(call.arguments.size()), &result) != 0)
        return error_ = call.name + " failed: " + raised;
    }
    return error_;
  }

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

  void read(const JsonField& root) {
    root["format"].one_of({"socsched-calls"});
    root["version"].integer(1, 1);
    bytes_[MEMORY] = static_cast<uint64_t>(root["memory"].integer(0, MOST_SPACE));
    bytes_[CONSTANTS] = static_cast<uint64_t>(root["constants"].integer(0, MOST_SPACE));
    bytes_[RESULTS] = static_cast<uint64_t>(root["results"].integer(0, MOST_SPACE));
    for (const JsonField& entry : root["symbols"].items(MOST_PORTS)) {
      Symbol& symbol = symbols_.emplace_back();
      symbol.input = static_cast<size_t>(entry["input"].integer(0, MOST_PORTS - 1));
      symbol.axis = static_cast<size_t>(entry["axis"].integer(0, MOST_RANK - 1));
      symbol.most = symbol.value = entry["most"].integer(1, MOST_ELEMENTS);
      most_ = std::max(most_, symbol.most);
    }
    for (const JsonField& entry : root["inputs"].items(MOST_PORTS)) {
      inputs_.push_back(tensors_.size());
      read_tensor(entry);
      if (places_.back().space != INPUTS || places_.back().input + 1 != inputs_.size()) entry["in"].fail("expected inputs in order");
    }
    for (const Symbol& symbol : symbols_)
      if (symbol.input >= inputs_.size() || static_cast<int32_t>(symbol.axis) >= tensors_[inputs_[symbol.input]].array.rank)
        root["symbols"].fail("expected axes of inputs");
    for (const JsonField& entry : root["outputs"].items(MOST_PORTS)) {
      read_tensor(entry);
      if (places_.back().space != RESULTS) entry["in"].fail("expected results");
      outputs_.push_back({places_.back().offset, places_.back().bytes, tensors_.size() - 1});
    }
    const size_t first = tensors_.size();
    for (const JsonField& entry : root["tensors"].items(MOST_TENSORS)) read_tensor(entry);
    for (size_t i = 0; i < tensors_.size(); i++) {
      tensors_[i].array.shape = tensors_[i].shape.data();
      if (places_[i].space == INPUTS && places_[i].offset + places_[i].bytes > places_[inputs_[places_[i].input]].bytes)
        root["tensors"].fail("expected tensors within their inputs");
    }
    for (const JsonField& entry : root["launches"].items(MOST_LAUNCHES)) {
      Call& call = calls_.emplace_back();
      call.name = entry["kernel"].text(LONGEST);
      for (const JsonField& argument : entry["arguments"].items(MOST_ARGUMENTS)) {
        tvm::Any& any = call.arguments.emplace_back();
        any.type_index = tvm::ARRAY_POINTER;
        any.array = &tensors_[first + static_cast<size_t>(argument.integer(0, static_cast<int64_t>(tensors_.size() - first) - 1))].array;
      }
    }
  }

  void read_tensor(const JsonField& from) {
    static const std::vector<std::string> names = {"memory", "constants", "results", "inputs"};
    Form& form = tensors_.emplace_back();
    Place& place = places_.emplace_back();
    const std::string space = from["in"].one_of(names);
    while (names[place.space] != space) place.space = static_cast<Space>(place.space + 1);
    if (place.space == INPUTS) {
      if (inputs_.empty()) from["in"].fail("expected another place: there are no inputs");
      place.input = static_cast<size_t>(from["input"].integer(0, static_cast<int64_t>(inputs_.size()) - 1));
    }
    form.array.dtype = type_of(from["dtype"].one_of(DTYPES));
    form.array.device_type = tvm::CPU;
    double bytes = form.array.dtype.bits / 8;
    for (const JsonField& size : from["shape"].items(MOST_AXES)) {
      int64_t value = size.integer(-static_cast<int64_t>(symbols_.size()), MOST_ELEMENTS);
      const size_t axis = static_cast<size_t>(form.array.rank++);
      if (value < 0) {
        const size_t symbol = static_cast<size_t>(-1 - value);
        place.varying.emplace_back(axis, symbol);
        value = symbols_[symbol].most;
      }
      form.shape[axis] = value;
      bytes *= static_cast<double>(value);
    }
    if (bytes > static_cast<double>(MOST_SPACE)) from["shape"].fail("expected at most 64 GiB");
    place.bytes = static_cast<uint64_t>(bytes);
    place.offset = static_cast<uint64_t>(from["offset"].integer(0, MOST_SPACE));
    if (place.offset % (form.array.dtype.bits / 8)) from["offset"].fail("expected a multiple of the size of its numbers");
    if (place.space != INPUTS && place.offset + place.bytes > bytes_[place.space]) from["offset"].fail("expected a place in the " + space);
  }

  uint64_t used_bytes(const Form& form) const {
    uint64_t bytes = form.array.dtype.bits / 8;
    for (int32_t i = 0; i < form.array.rank; i++) bytes *= static_cast<uint64_t>(form.shape[static_cast<size_t>(i)]);
    return bytes;
  }

  void load(const std::string& library, const std::string& constants) {
    void* const code = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!code) throw Failure(MACHINE, library + ": cannot be loaded: " + dlerror(), "compile the stage for this machine");
    for (Call& call : calls_) {
      call.kernel = reinterpret_cast<tvm::Kernel>(dlsym(code, ("__tvm_ffi_" + call.name).c_str()));
      if (!call.kernel) throw Failure(MACHINE, library + ": has no kernel " + call.name, "compile the stage again");
    }
    parallel_ = dlsym(code, "__TVMBackendParallelLaunch") != nullptr;
    supply(code, "__TVMBackendParallelLaunch", &launch_in_parallel);
    supply(code, "__TVMBackendAllocWorkspace", &take_workspace);
    supply(code, "__TVMBackendFreeWorkspace", &return_workspace);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(constants.c_str(), "rb"), [](std::FILE* f) { return f ? std::fclose(f) : 0; });
    struct stat status;
    const bool whole = file && fstat(fileno(file.get()), &status) == 0 && S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) >= bytes_[CONSTANTS];
    for (const Space space : {MEMORY, CONSTANTS})
      if (whole) owned_[space] = allocate(bytes_[space]);
    if (!whole || std::fread(owned_[CONSTANTS].get(), 1, bytes_[CONSTANTS], file.get()) != bytes_[CONSTANTS])
      throw Failure(USAGE, constants + ": cannot be read, or is shorter than its launch list says", "compile the stage again");
    for (size_t i = 0; i < tensors_.size(); i++)
      if (const Place& place = places_[i]; place.space == MEMORY || place.space == CONSTANTS)
        tensors_[i].array.data = static_cast<char*>(owned_[place.space].get()) + place.offset;
  }

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
