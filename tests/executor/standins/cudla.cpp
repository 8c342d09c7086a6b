// A stand-in for libcudla.so next to the stand-in driver: a loadable of text lines "input NAME BYTES" and "output NAME BYTES",
// whose outputs are the first bytes of its first input, or what is computed of a "stage NAME 0".  Calls are noted in
// $STANDIN_LOG.
#include <cstdio>

#include "computed.hpp"

extern "C" {

typedef struct {
  char name[80 + 1];
  uint64_t size, n, c, h, w;
  uint8_t dataFormat, dataType, dataCategory, pixelFormat, pixelMapping;
  uint32_t stride[8];
} cudlaModuleTensorDescriptor;

typedef union {
  uint32_t numInputTensors, numOutputTensors;
  cudlaModuleTensorDescriptor *inputTensorDesc, *outputTensorDesc;
} cudlaModuleAttribute;

typedef struct {
  void* moduleHandle;
  uint64_t* const* outputTensor;
  uint32_t numOutputTensors, numInputTensors;
  const uint64_t* const* inputTensor;
  const void* waitEvents;
  void* signalEvents;
} cudlaTask;

static_assert(sizeof(cudlaModuleTensorDescriptor) == 168 && sizeof(cudlaTask) == 48, "the sizes of cudla.h on 64 bits");

struct Tensor { std::string name; uint64_t bytes; };
struct Model { std::vector<Tensor> sides[2]; std::string stage; };
static Model device;
static int error = 0;

static void note(const char* text, unsigned long value) {
  if (std::FILE* const log = std::fopen(std::getenv("STANDIN_LOG"), "a")) {
    std::fprintf(log, "%s %lu\n", text, value);
    std::fclose(log);
  }
}

int cudlaCreateDevice(uint64_t core, void** handle, uint32_t flags) {
  note("dla", core);
  *handle = &device;
  return flags || core > 1 ? 1 : 0;
}

int cudlaModuleLoadFromMemory(void*, const uint8_t* loadable, size_t size, Model** made, uint32_t) {
  std::istringstream text = standin::model_text(loadable, size);
  *made = new Model;
  std::string side;
  Tensor tensor;
  while (text >> side >> tensor.name >> tensor.bytes)
    if (side == "stage") (*made)->stage = tensor.name;
    else (*made)->sides[side == "output"].push_back(tensor);
  return (*made)->sides[0].empty() ? 12 : 0;
}

int cudlaModuleGetAttributes(const Model* model, int type, cudlaModuleAttribute* attribute) {
  const std::vector<Tensor>& side = model->sides[type % 2];
  if (type < 2) attribute->numInputTensors = uint32_t(side.size());
  for (size_t i = 0; type >= 2 && i < side.size(); i++) {
    std::snprintf(attribute->inputTensorDesc[i].name, 81, "%s", side[i].name.c_str());
    attribute->inputTensorDesc[i].size = side[i].bytes;
  }
  return 0;
}

int cudlaMemRegister(void*, const uint64_t* place, size_t bytes, uint64_t** mapped, uint32_t) {
  note("registered", bytes);
  *mapped = const_cast<uint64_t*>(place);
  return 0;
}

int cudlaSubmitTask(void*, const cudlaTask* task, uint32_t count, void* stream, uint32_t flags) {
  const Model& model = *static_cast<const Model*>(task->moduleHandle);
  if (count != 1 || !stream || flags || task->waitEvents || task->signalEvents || task->numInputTensors != model.sides[0].size()) return 1;
  std::vector<standin::Bytes> inputs, outputs;
  for (uint32_t i = 0; i < task->numInputTensors; i++) inputs.push_back({const_cast<uint64_t*>(task->inputTensor[i]), model.sides[0][i].bytes});
  for (uint32_t i = 0; i < task->numOutputTensors; i++) outputs.push_back({task->outputTensor[i], model.sides[1][i].bytes});
  for (const standin::Bytes& output : outputs)
    if (model.stage.empty()) std::memcpy(output.memory, inputs[0].memory, output.count);
  note("submitted", task->numOutputTensors);
  return model.stage.empty() || standin::compute(model.stage, inputs, outputs) ? 0 : 2;
}

int cudlaGetLastError(void*) { return error; }

}  // extern "C"
