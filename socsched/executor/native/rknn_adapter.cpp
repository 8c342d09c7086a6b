// .rknn models through librknnrt, loaded at run time; declarations follow rknn_api.h of rknn-toolkit2 (rknpu2 runtime).
//
// Tensors lie in memory of the NPU (rknn_set_io_mem), which the executor gets through `place`: inputs as the model has
// them, channels last without gaps between rows, and outputs as floats, which the runtime writes.  Where the library or the
// model allows no such memory, the runtime copies (rknn_inputs_set).
#include <cmath>
#include <cstring>

#include "adapters.hpp"
#include "tensor.hpp"

namespace socsched {

namespace {

using Context = uint64_t;  // rknn_context on 64-bit systems

struct Count {             // rknn_input_output_num
  uint32_t inputs, outputs;
};

struct Attributes {        // rknn_tensor_attr
  uint32_t index, rank, shape[16];
  char name[256];
  uint32_t elements, bytes;
  int32_t format, type, quantisation;
  int8_t fraction;
  int32_t zero_point;
  float scale;
  uint32_t width_stride, bytes_with_stride;
  uint8_t pass_through;
  uint32_t height_stride;
};

struct Input {             // rknn_input
  uint32_t index;
  void* memory;
  uint32_t bytes;
  uint8_t pass_through;
  int32_t type, format;
};

struct Output {            // rknn_output
  uint8_t as_float, preallocated;
  uint32_t index;
  void* memory;
  uint32_t bytes;
};

struct Shared {            // rknn_tensor_mem
  void* memory;
  uint64_t physical;
  int32_t file, offset;    // of a dma-buf
  uint32_t bytes, flags;
  void* own;
};

// Memory of the NPU, by where it begins: any model of the process may have it, as the dma-buf that it is.
Memories<Shared>& shared_memory() {
  static Memories<Shared>& only = *new Memories<Shared>;  // never destroyed
  return only;
}

enum Query { IN_OUT_NUM = 0, INPUT_ATTR = 1, OUTPUT_ATTR = 2 };
constexpr int32_t NCHW = 0, NHWC = 1, UNDEFINED = 3;
constexpr int32_t TYPES[] = {0, 1, 2, 3, 6, 8, 9};  // rknn_tensor_type by SOCSCHED_FP32...
constexpr int CORE_AUTO = 0;

class Rknn {
 public:
  explicit Rknn(const socsched_artefact& artefact) : library_(artefact.vendor_library), artefact_(artefact.file) {
    library_.find("rknn_init", init_);
    library_.find("rknn_query", query_);
    library_.find("rknn_inputs_set", set_inputs_);
    library_.find("rknn_run", run_);
    library_.find("rknn_outputs_get", get_outputs_);
    library_.find("rknn_outputs_release", release_outputs_);
    library_.find("rknn_destroy", destroy_);
    for (const char* const* option = artefact.options; *option; option += 2)
      if (std::strcmp(option[0], "core_mask") == 0) cores_ = std::atoi(option[1]);
    open();
    Count count{};
    check(query_(context_, IN_OUT_NUM, &count, sizeof count), "rknn_query");
    if (count.inputs != artefact.input_count || count.outputs != artefact.output_count) throw std::runtime_error("has other inputs or outputs than it was built with");
    for (size_t i = 0; i < artefact.input_count; i++) {
      const socsched_port& port = artefact.inputs[i];
      const Attributes found = attributes(INPUT_ATTR, port, count.inputs);
      const int32_t format = port.rank != 4 ? UNDEFINED : std::strcmp(port.layout, "NHWC") == 0 ? NHWC : NCHW;
      inputs_.push_back({found.index, nullptr, static_cast<uint32_t>(port.bytes), 0, TYPES[port.dtype], format});
      given_.push_back({found, port.dtype, static_cast<uint32_t>(port.bytes), nullptr, nullptr});
    }
    // Results come in the order of indices: as floats, or as the type of the model where that is the port's.
    outputs_.resize(artefact.output_count);
    for (size_t i = 0; i < artefact.output_count; i++) {
      const socsched_port& port = artefact.outputs[i];
      Attributes found = attributes(OUTPUT_ATTR, port, count.outputs);
      const bool as_float = port.dtype == SOCSCHED_FP32;
      if (!as_float && TYPES[port.dtype] != found.type) throw std::runtime_error(std::string(port.name) + ": the model gives another data type");
      outputs_[found.index] = {as_float, 1, found.index, nullptr, static_cast<uint32_t>(port.bytes)};
      places_.push_back(found.index);
      found.type = TYPES[port.dtype];
      made_.push_back({found, port.dtype, static_cast<uint32_t>(port.bytes), nullptr, nullptr});
    }
    if (!(shares_ = shares(artefact))) reopen();
  }

  void* place(bool is_output, size_t number, uint64_t bytes) {
    const Bound& port = (is_output ? made_ : given_)[number];
    return shares_ && bytes == port.bytes && TYPES[port.dtype] == port.attributes.type ? fresh(port.bytes) : nullptr;
  }

  void run(const socsched_memory* inputs, const socsched_memory* outputs) {
    if (!shares_) return copied(inputs, outputs);
    for (size_t i = 0; i < given_.size(); i++) {
      const bool lies = TYPES[given_[i].dtype] == given_[i].attributes.type && bind(given_[i], inputs[i].host);
      if (!lies) write(given_[i], inputs[i].host);
    }
    std::vector<bool> lie(made_.size());
    for (size_t i = 0; i < made_.size(); i++) lie[i] = bind(made_[i], outputs[i].host) || (bind(made_[i], own(made_[i])), false);
    check(run_(context_, nullptr), "rknn_run");
    for (size_t i = 0; i < made_.size(); i++)
      if (!lie[i]) std::memcpy(outputs[i].host, made_[i].own, made_[i].bytes);
  }

 private:
  // A tensor of the model, the port that it is, the memory that it lies in, and memory of its own.
  struct Bound {
    Attributes attributes;
    int32_t dtype;
    uint32_t bytes;       // of the port
    void* lies;
    void* own;
  };

  void open() {
    std::vector<char> model = read_artefact(artefact_);
    check(init_(&context_, model.data(), static_cast<uint32_t>(model.size()), 0, nullptr), "rknn_init");
    if (cores_ != CORE_AUTO) choose_cores(cores_);
  }

  // Start anew: a context takes shared memory or copies, not both.
  void reopen() {
    for (const auto& [memory, handle] : handles_) destroy_memory_(context_, handle);
    destroy_(context_);
    open();
  }

  // Whether the library and the model take tensors in shared memory, each being bound once.
  bool shares(const socsched_artefact& artefact) {
    if (!library_.has("rknn_create_mem", create_) || !library_.has("rknn_create_mem_from_fd", import_) || !library_.has("rknn_set_io_mem", set_memory_) ||
        !library_.has("rknn_destroy_mem", destroy_memory_))
      return false;
    for (size_t i = 0; i < given_.size(); i++) {
      const Attributes& found = given_[i].attributes;
      const int64_t width = artefact.inputs[i].rank == 4 ? artefact.inputs[i].shape[2] : 0;
      const bool converts = given_[i].dtype == SOCSCHED_FP32 && (found.type == TYPES[SOCSCHED_FP16] || (found.type == TYPES[SOCSCHED_INT8] && found.scale > 0));
      if (found.type != TYPES[given_[i].dtype] && !converts) return false;
      if (artefact.inputs[i].rank == 4 && (found.format != NHWC || inputs_[i].format != NHWC || (found.width_stride && found.width_stride != width))) return false;
    }
    for (std::vector<Bound>* const side : {&given_, &made_})
      for (Bound& port : *side)
        if (!own(port) || !bind(port, port.own)) return false;
    return true;
  }

  // Memory of a tensor's own, in the model's data type; null if there is none.
  void* own(Bound& port) {
    if (port.own) return port.own;
    return port.own = fresh(static_cast<uint32_t>(port.attributes.elements * size_of_type(port.attributes.type)));
  }

  static size_t size_of_type(int32_t type) {
    for (size_t dtype = 0; dtype < std::size(TYPES); dtype++)
      if (TYPES[dtype] == type) return size_of(static_cast<Dtype>(dtype));
    return 0;
  }

  // New memory of the NPU, null if there is none left.
  void* fresh(uint32_t bytes) {
    Shared* const made = create_(context_, bytes);
    if (!made || !made->memory) return nullptr;
    shared_memory().add(made->memory, *made);
    handles_[made->memory] = made;
    return made->memory;
  }

  // Let a tensor lie in memory of the NPU; false if it is other memory, or the runtime refuses it.
  bool bind(Bound& port, void* memory) {
    if (memory == port.lies) return true;
    Shared*& handle = handles_[memory];
    if (const Shared* const found = handle ? nullptr : shared_memory().find(memory)) handle = import_(context_, found->file, found->memory, found->bytes, found->offset);
    if (!handle || set_memory_(context_, handle, &port.attributes) < 0) return false;
    port.lies = memory;
    return true;
  }

  // Write an input into its own memory, in the model's data type.
  void write(Bound& port, void* from) {
    if (!bind(port, own(port))) throw std::runtime_error("rknn_set_io_mem failed");
    if (TYPES[port.dtype] == port.attributes.type) {
      std::memcpy(port.own, from, port.bytes);
      return;
    }
    const size_t count = port.attributes.elements;
    if (port.attributes.type == TYPES[SOCSCHED_FP16]) {
      Tensor floats, halves;
      floats.data = from, halves.data = port.own;
      floats.type.rank = halves.type.rank = 1;
      floats.type.shape[0] = static_cast<int64_t>(count);
      halves.type.dtype = Dtype::fp16;
      convert(floats, halves);
      return;
    }
    const float steps = 1 / port.attributes.scale, zero = static_cast<float>(port.attributes.zero_point);
    for (size_t i = 0; i < count; i++)
      static_cast<int8_t*>(port.own)[i] = static_cast<int8_t>(std::lrintf(std::min(std::max(static_cast<const float*>(from)[i] * steps + zero, -128.0f), 127.0f)));
  }

  void copied(const socsched_memory* inputs, const socsched_memory* outputs) {
    for (size_t i = 0; i < inputs_.size(); i++) inputs_[i].memory = inputs[i].host;
    for (size_t i = 0; i < outputs_.size(); i++) outputs_[places_[i]].memory = outputs[i].host;
    check(set_inputs_(context_, static_cast<uint32_t>(inputs_.size()), inputs_.data()), "rknn_inputs_set");
    check(run_(context_, nullptr), "rknn_run");
    check(get_outputs_(context_, static_cast<uint32_t>(outputs_.size()), outputs_.data(), nullptr), "rknn_outputs_get");
    release_outputs_(context_, static_cast<uint32_t>(outputs_.size()), outputs_.data());
  }

  static void check(int status, const char* what) {
    if (status < 0) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(status));
  }

  void choose_cores(int mask) {
    int (*set)(Context, int);
    library_.find("rknn_set_core_mask", set);
    check(set(context_, mask), "rknn_set_core_mask");
  }

  // The model's tensor of a port's name, which has to have as many elements.
  Attributes attributes(Query query, const socsched_port& port, uint32_t count) const {
    uint64_t elements = 1;
    for (int axis = 0; axis < port.rank; axis++) elements *= static_cast<uint64_t>(port.shape[axis]);
    for (uint32_t i = 0; i < count; i++) {
      Attributes found{};
      found.index = i;
      check(query_(context_, query, &found, sizeof found), "rknn_query");
      if (std::strncmp(found.name, port.name, sizeof found.name) != 0) continue;
      if (found.elements != elements) throw std::runtime_error(std::string(port.name) + ": the model's tensor has another size");
      return found;
    }
    throw std::runtime_error(std::string(port.name) + ": no tensor of the model has this name");
  }

  Library library_;
  int (*init_)(Context*, void*, uint32_t, uint32_t, void*) = nullptr;
  int (*query_)(Context, int, void*, uint32_t) = nullptr;
  int (*set_inputs_)(Context, uint32_t, Input*) = nullptr;
  int (*run_)(Context, void*) = nullptr;
  int (*get_outputs_)(Context, uint32_t, Output*, void*) = nullptr;
  int (*release_outputs_)(Context, uint32_t, Output*) = nullptr;
  int (*destroy_)(Context) = nullptr;
  Shared* (*create_)(Context, uint32_t) = nullptr;
  Shared* (*import_)(Context, int32_t, void*, uint32_t, int32_t) = nullptr;
  int (*set_memory_)(Context, Shared*, Attributes*) = nullptr;
  int (*destroy_memory_)(Context, Shared*) = nullptr;
  std::string artefact_;
  int cores_ = CORE_AUTO;
  Context context_ = 0;
  bool shares_ = false;
  std::map<const void*, Shared*> handles_;  // of memory of the NPU, as this model calls it; null of other memory
  std::vector<Bound> given_, made_;  // by port
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;   // by index
  std::vector<uint32_t> places_;  // by port: its index
};

}  // namespace

const socsched_adapter* rknn_adapter() { return adapter_of<Rknn>(); }

}  // namespace socsched
