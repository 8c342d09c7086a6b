// A stand-in for libcudla.so next to the stand-in driver: a loadable of text lines "input NAME BYTES" and "output NAME BYTES",
// whose outputs are the first bytes of its first input.  Calls are noted in $STANDIN_LOG.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

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
static std::vector<Tensor> sides[2];
static std::vector<const void*> registered;
static int error = 0;

static void note(const char* text, unsigned long value) {
  if (std::FILE* const log = std::fopen(std::getenv("STANDIN_LOG"), "a")) {
    std::fprintf(log, "%s %lu\n", text, value);
    std::fclose(log);
  }
}

int cudlaCreateDevice(uint64_t device, void** handle, uint32_t flags) {
  note("dla", device);
  *handle = &sides;
  return flags || device > 1 ? 1 : 0;
}

int cudlaModuleLoadFromMemory(void*, const uint8_t* module, size_t size, void** made, uint32_t) {
  std::istringstream text(std::string(reinterpret_cast<const char*>(module), size));
  std::string side;
  Tensor tensor;
  while (text >> side >> tensor.name >> tensor.bytes) sides[side == "output"].push_back(tensor);
  *made = &registered;
  return sides[0].empty() ? 12 : 0;
}

int cudlaModuleGetAttributes(void*, int type, cudlaModuleAttribute* attribute) {
  const std::vector<Tensor>& side = sides[type % 2];
  if (type < 2) attribute->numInputTensors = uint32_t(side.size());
  for (size_t i = 0; type >= 2 && i < side.size(); i++) {
    std::snprintf(attribute->inputTensorDesc[i].name, 81, "%s", side[i].name.c_str());
    attribute->inputTensorDesc[i].size = side[i].bytes;
  }
  return 0;
}

int cudlaMemRegister(void*, const uint64_t* place, size_t bytes, uint64_t** mapped, uint32_t) {
  registered.push_back(place);
  note("registered", bytes);
  *mapped = const_cast<uint64_t*>(place);
  return 0;
}

int cudlaSubmitTask(void*, const cudlaTask* task, uint32_t count, void* stream, uint32_t flags) {
  if (count != 1 || !stream || flags || task->waitEvents || task->signalEvents || task->numInputTensors != sides[0].size()) return 1;
  for (uint32_t i = 0; i < task->numOutputTensors; i++) std::memcpy(task->outputTensor[i], task->inputTensor[0], sides[1][i].bytes);
  note("submitted", task->numOutputTensors);
  return 0;
}

int cudlaGetLastError(void*) { return error; }

}  // extern "C"
