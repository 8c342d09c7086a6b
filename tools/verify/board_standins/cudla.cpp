// libcudla.so, as far as the executor's adapter calls it (cudla.h): a loadable is the text of a model, see model.hpp.
#include <cstring>

#include "model.hpp"

extern "C" {

typedef struct { char name[81]; uint64_t size, n, c, h, w; uint8_t kinds[5]; uint32_t stride[8]; } Descriptor;
typedef union { uint32_t count; Descriptor* descriptors; } Attribute;
typedef struct { standin::Model* model; uint64_t* const* outputs; uint32_t output_count, input_count; const uint64_t* const* inputs; const void* waits; void* signals; } Task;

int cudlaCreateDevice(uint64_t, void** handle, uint32_t) { return *handle = handle, 0; }

int cudlaModuleLoadFromMemory(void*, const uint8_t* text, size_t size, standin::Model** made, uint32_t) {
  try {
    std::istringstream stream(std::string(reinterpret_cast<const char*>(text), size));
    *made = new standin::Model(stream);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stand-in: cudlaModuleLoadFromMemory: %s\n", error.what());
    return 12;
  }
}

int cudlaModuleGetAttributes(standin::Model* model, int type, Attribute* attribute) {
  const auto& side = type % 2 ? model->outputs : model->inputs;
  if (type < 2) attribute->count = static_cast<uint32_t>(side.size());
  for (size_t i = 0; type >= 2 && i < side.size(); i++) {
    std::snprintf(attribute->descriptors[i].name, 81, "%s", side[i].name.c_str());
    attribute->descriptors[i].size = side[i].scale > 0 ? side[i].size() : side[i].own.bytes();
  }
  return 0;
}

int cudlaMemRegister(void*, const uint64_t* place, size_t, uint64_t** mapped, uint32_t) { return *mapped = const_cast<uint64_t*>(place), 0; }

int cudlaSubmitTask(void*, const Task* task, uint32_t, void*, uint32_t) {
  task->model->run(reinterpret_cast<const void* const*>(task->inputs), reinterpret_cast<void* const*>(task->outputs));
  return 0;
}

int cudlaGetLastError(void*) { return 0; }

}  // extern "C"
