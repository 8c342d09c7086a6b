// Networks compiled for a CPU: kernels of a launch list, computed by the worker and its helpers.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "failure.hpp"
#include "json.hpp"
#include "launch_list.hpp"
#include "parallel.hpp"
#include "realtime.hpp"
#include "settings.hpp"
#include "stage.hpp"
#include "stages.h"
#include "tensor.hpp"

// The part of TVM's C ABI that calling compiled kernels needs, as in tvm/ffi/c_api.h of tvm-ffi 0.1 and dlpack.h.
namespace socsched::tvm {

enum TypeIndex : int32_t { NONE = 0, ARRAY_POINTER = 7 };

constexpr int32_t CPU = 1;

struct DataType {
  uint8_t code, bits;  // codes: 0 int, 1 uint, 2 float, 6 bool
  uint16_t lanes;
};

struct Array {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // null: without gaps
  uint64_t offset;
};

struct Any {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t integer;
    Array* array;
  };
};

using Kernel = int (*)(void* self, const Any* arguments, int32_t count, Any* result);

}  // namespace socsched::tvm

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

// A network compiled for a CPU (socsched/executor/programs.py): its kernels, called in order without TVM's runtime.
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

namespace {

class NetworkStage : public DataStage {
 public:
  using DataStage::DataStage;

  void prepare() override {
    program_ = std::make_unique<CpuProgram>(settings().programs.at(0));
    if (program_->inputs() != settings().inputs.size() || program_->outputs().size() != settings().outputs.size())
      throw Failure(USAGE, place_.task.name + ": its launch list has other inputs or outputs than the settings", "write the settings again");
    operands_.resize(program_->inputs());
    inside_.resize(program_->inputs());
    for (size_t i = 0; i < inside_.size(); i++) {
      inside_[i].tensor.type = settings().code_inputs[i];
      if (settings().code_inputs[i].lies_as(settings().inputs[i].type)) continue;
      inside_[i].bytes = largest(settings().code_inputs[i]).bytes();
      inside_[i].memory = allocate(inside_[i].bytes);
      inside_[i].tensor.data = inside_[i].memory.get();
    }
    size_t room = 0;
    for (size_t port = 0; port < settings().outputs.size(); port++) {
      const TensorType code = largest(settings().code_outputs[port]), given = largest(settings().outputs[port]);
      relaid_ |= !code.lies_as(given);
      if (code.bytes() != program_->outputs()[port].bytes || code.form(given).bytes() != given.bytes() || !given.fixed())
        throw Failure(USAGE, place_.task.name + ": its launch list has other outputs than the settings", "write the settings again");
      room += given.bytes();
    }
    require_room(relaid_ ? room : program_->results_bytes(), place_.slots.count(), place_.task.name);
    if (relaid_) results_ = allocate(program_->results_bytes());
    for (size_t i = 0; i < place_.slots.count(); i++) make_room(*place_.slots.slot(i));
  }

  Progress launch(const Job& job) override {
    for (size_t i = 0; i < operands_.size(); i++) {
      operands_[i] = input(job, i);
      if (!operands_[i]) return Progress::failed;
      if (!inside_[i].memory) continue;
      const TensorType& code = settings().code_inputs[i];
      if (operands_[i]->type.rank != code.rank || operands_[i]->type.form(code).bytes() > inside_[i].bytes)
        return fail("data from " + settings().inputs[i].from + " have another shape than was compiled");
      if (!convert(*operands_[i], inside_[i].tensor)) return fail("no conversion between its data types");
      operands_[i] = &inside_[i].tensor;
    }
    void* const results = make_room(*job.output);
    {
      std::optional<Crew::Job> shared;
      if (program_->is_parallel()) shared.emplace(crew_of(settings().threads ? settings().threads : static_cast<int>(place_.task.lanes.size())));
      if (const std::string& why = program_->run(operands_, results); !why.empty()) return fail(why);
    }
    for (size_t port = 0; port < settings().outputs.size(); port++) {
      Tensor& tensor = job.output->ports[port];
      if (relaid_) {
        Tensor code;
        code.data = static_cast<char*>(results) + program_->outputs()[port].offset;
        code.type = sized(settings().code_outputs[port], program_->rows(port));
        tensor.type = settings().outputs[port];
        if (!convert(code, tensor)) return fail("no conversion between its data types");
      } else {
        tensor.type = sized(settings().outputs[port], program_->rows(port));
      }
    }
    return Progress::done;
  }

 private:
  struct Inside {
    Tensor tensor;
    Memory memory;  // none for an input that kernels take as it is
    size_t bytes = 0;
  };

  const StageSettings& settings() const { return place_.settings; }

  static TensorType sized(TensorType type, int64_t rows) {
    if (type.rank && type.shape[0] < 0) type.shape[0] = rows;
    return type;
  }

  TensorType largest(const TensorType& type) const { return sized(type, program_->most_rows()); }

  // Return the memory of a frame's results: one block of the slot, unless each is converted into its own.
  void* make_room(Data& slot) {
    if (relaid_) {
      for (size_t port = 0; port < slot.ports.size(); port++)
        slot.ports[port].data = place_.slots.room(slot, port, largest(settings().outputs[port]).bytes());
      return results_.get();
    }
    char* const whole = static_cast<char*>(place_.slots.room(slot, 0, program_->results_bytes()));
    for (size_t port = 0; port < slot.ports.size(); port++) slot.ports[port].data = whole + program_->outputs()[port].offset;
    return whole;
  }

  static Crew& crew_of(int threads) {
    thread_local std::vector<std::unique_ptr<Crew>> crews;  // of a worker, whose stages run one at a time; made in the warm-up
    for (const auto& known : crews)
      if (known->threads() == threads) return *known;
    const Flushed inherited;
    return *crews.emplace_back(std::make_unique<Crew>(threads));
  }

  std::unique_ptr<CpuProgram> program_;
  std::vector<const Tensor*> operands_;
  std::vector<Inside> inside_;
  Memory results_;
  bool relaid_ = false;
};

}  // namespace

std::unique_ptr<Stage> make_network_stage(const StagePlace& place) { return std::make_unique<NetworkStage>(place); }

}  // namespace socsched
