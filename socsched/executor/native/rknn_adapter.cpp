// .rknn models through librknnrt, loaded at run time; declarations follow rknn_api.h of rknn-toolkit2 (rknpu2 runtime).
#include <cstring>

#include "adapters.hpp"

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

enum Query { IN_OUT_NUM = 0, INPUT_ATTR = 1, OUTPUT_ATTR = 2 };
constexpr int32_t NCHW = 0, NHWC = 1, UNDEFINED = 3;
constexpr int32_t TYPES[] = {0, 1, 2, 3, 6, 8, 9};  // rknn_tensor_type by SOCSCHED_FP32...
constexpr int CORE_AUTO = 0;

class Rknn {
 public:
  explicit Rknn(const socsched_artefact& artefact) : library_(artefact.vendor_library) {
    library_.find("rknn_init", init_);
    library_.find("rknn_query", query_);
    library_.find("rknn_inputs_set", set_inputs_);
    library_.find("rknn_run", run_);
    library_.find("rknn_outputs_get", get_outputs_);
    library_.find("rknn_outputs_release", release_outputs_);
    std::vector<char> model = read_artefact(artefact.file);
    check(init_(&context_, model.data(), static_cast<uint32_t>(model.size()), 0, nullptr), "rknn_init");
    for (const char* const* option = artefact.options; *option; option += 2)
      if (std::strcmp(option[0], "core_mask") == 0) choose_cores(std::atoi(option[1]));
    Count count{};
    check(query_(context_, IN_OUT_NUM, &count, sizeof count), "rknn_query");
    if (count.inputs != artefact.input_count || count.outputs != artefact.output_count) throw std::runtime_error("has other inputs or outputs than it was built with");
    for (size_t i = 0; i < artefact.input_count; i++) {
      const socsched_port& port = artefact.inputs[i];
      const Attributes found = attributes(INPUT_ATTR, port, count.inputs);
      const int32_t format = port.rank != 4 ? UNDEFINED : std::strcmp(port.layout, "NHWC") == 0 ? NHWC : NCHW;
      inputs_.push_back({found.index, nullptr, static_cast<uint32_t>(port.bytes), 0, TYPES[port.dtype], format});
    }
    // Results come in the order of indices: as floats, or as the type of the model where that is the port's.
    outputs_.resize(artefact.output_count);
    for (size_t i = 0; i < artefact.output_count; i++) {
      const socsched_port& port = artefact.outputs[i];
      const Attributes found = attributes(OUTPUT_ATTR, port, count.outputs);
      const bool as_float = port.dtype == SOCSCHED_FP32;
      if (!as_float && TYPES[port.dtype] != found.type) throw std::runtime_error(std::string(port.name) + ": the model gives another data type");
      outputs_[found.index] = {as_float, 1, found.index, nullptr, static_cast<uint32_t>(port.bytes)};
      places_.push_back(found.index);
    }
  }

  void run(const socsched_memory* inputs, const socsched_memory* outputs) {
    for (size_t i = 0; i < inputs_.size(); i++) inputs_[i].memory = inputs[i].host;
    for (size_t i = 0; i < outputs_.size(); i++) outputs_[places_[i]].memory = outputs[i].host;
    check(set_inputs_(context_, static_cast<uint32_t>(inputs_.size()), inputs_.data()), "rknn_inputs_set");
    check(run_(context_, nullptr), "rknn_run");
    check(get_outputs_(context_, static_cast<uint32_t>(outputs_.size()), outputs_.data(), nullptr), "rknn_outputs_get");
    release_outputs_(context_, static_cast<uint32_t>(outputs_.size()), outputs_.data());
  }

 private:
  static void check(int status, const char* what) {
    if (status < 0) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(status));
  }

  void choose_cores(int mask) {
    if (mask == CORE_AUTO) return;
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
  Context context_ = 0;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;   // by index
  std::vector<uint32_t> places_;  // by port: its index
};

}  // namespace

const socsched_adapter* rknn_adapter() { return adapter_of<Rknn>(); }

}  // namespace socsched
