// librknnrt.so, as far as the executor's adapter calls it (rknn_api.h): see model.hpp.
#include <cstring>

#include "model.hpp"

extern "C" {

typedef struct { uint32_t index, n_dims, dims[16]; char name[256]; uint32_t n_elems, size; int fmt, type, rest[8]; } Attribute;
typedef struct { uint32_t index; void* buf; uint32_t size; uint8_t pass_through; int type, fmt; } Input;
typedef struct { uint8_t want_float, is_prealloc; uint32_t index; void* buf; uint32_t size; } Output;

int rknn_init(uint64_t* context, void*, uint32_t size, uint32_t, void*) {
  try {
    *context = reinterpret_cast<uint64_t>(standin::model_of(size).release());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stand-in: rknn_init: %s\n", error.what());
    return -1;
  }
}

static std::vector<const void*> given;

int rknn_query(uint64_t context, int command, void* info, uint32_t) {
  const auto& model = *reinterpret_cast<standin::Model*>(context);
  if (command == 0) {
    static_cast<uint32_t*>(info)[0] = static_cast<uint32_t>(model.inputs.size());
    static_cast<uint32_t*>(info)[1] = static_cast<uint32_t>(model.outputs.size());
    return 0;
  }
  Attribute& attribute = *static_cast<Attribute*>(info);
  const standin::Port& port = (command == 1 ? model.inputs : model.outputs)[attribute.index];
  std::snprintf(attribute.name, sizeof attribute.name, "%s", port.name.c_str());
  attribute.n_elems = static_cast<uint32_t>(port.own.elements());
  attribute.type = 2;  // int8, as of a quantised model
  return 0;
}

int rknn_set_core_mask(uint64_t, int mask) { return mask & ~7; }

int rknn_inputs_set(uint64_t, uint32_t count, Input* inputs) {
  given.assign(count, nullptr);
  for (uint32_t i = 0; i < count; i++) given[inputs[i].index] = inputs[i].buf;
  return 0;
}

int rknn_run(uint64_t, void*) { return 0; }

int rknn_outputs_get(uint64_t context, uint32_t count, Output* outputs, void*) {
  std::vector<void*> to(count);
  for (uint32_t i = 0; i < count; i++) to[outputs[i].index] = outputs[i].buf;
  reinterpret_cast<standin::Model*>(context)->run(given.data(), to.data());
  return 0;
}

int rknn_outputs_release(uint64_t, uint32_t, Output*) { return 0; }

}  // extern "C"
