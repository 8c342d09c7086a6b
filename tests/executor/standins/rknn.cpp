// A stand-in for librknnrt.so: a model of text lines "input NAME TYPE ELEMENTS" and "output NAME TYPE ELEMENTS".  Its outputs
// are the first input's values plus one, as the runtime hands them on; calls are noted in $STANDIN_LOG.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

extern "C" {

typedef uint64_t rknn_context;
typedef struct { uint32_t n_input, n_output; } rknn_input_output_num;
typedef struct {
  uint32_t index, n_dims, dims[16];
  char name[256];
  uint32_t n_elems, size;
  int fmt, type, qnt_type;
  int8_t fl;
  int32_t zp;
  float scale;
  uint32_t w_stride, size_with_stride;
  uint8_t pass_through;
  uint32_t h_stride;
} rknn_tensor_attr;
typedef struct { uint32_t index; void* buf; uint32_t size; uint8_t pass_through; int type, fmt; } rknn_input;
typedef struct { uint8_t want_float, is_prealloc; uint32_t index; void* buf; uint32_t size; } rknn_output;

static_assert(sizeof(rknn_tensor_attr) == 376 && sizeof(rknn_input) == 32 && sizeof(rknn_output) == 24, "the sizes of rknn_api.h on 64 bits");

struct Tensor { std::string name; int type; uint32_t elements; };
static std::vector<Tensor> sides[2];
static std::vector<float> values;

static void note(const char* text, long value) {
  if (std::FILE* const log = std::fopen(std::getenv("STANDIN_LOG"), "a")) {
    std::fprintf(log, "%s %ld\n", text, value);
    std::fclose(log);
  }
}

int rknn_init(rknn_context* context, void* model, uint32_t size, uint32_t flag, void* extend) {
  std::istringstream text(std::string(static_cast<const char*>(model), size));
  std::string side;
  Tensor tensor;
  while (text >> side >> tensor.name >> tensor.type >> tensor.elements) sides[side == "output"].push_back(tensor);
  *context = 7;
  return sides[0].empty() || flag || extend ? -1 : 0;
}

int rknn_query(rknn_context context, int command, void* info, uint32_t size) {
  if (context != 7) return -1;
  if (command == 0 && size == sizeof(rknn_input_output_num)) {
    *static_cast<rknn_input_output_num*>(info) = {uint32_t(sides[0].size()), uint32_t(sides[1].size())};
    return 0;
  }
  if ((command != 1 && command != 2) || size != sizeof(rknn_tensor_attr)) return -5;
  rknn_tensor_attr& attr = *static_cast<rknn_tensor_attr*>(info);
  const Tensor& tensor = sides[command - 1].at(attr.index);
  std::snprintf(attr.name, sizeof attr.name, "%s", tensor.name.c_str());
  attr.n_elems = tensor.elements, attr.type = tensor.type;
  return 0;
}

int rknn_set_core_mask(rknn_context, int mask) {
  note("cores", mask);
  return 0;
}

int rknn_inputs_set(rknn_context, uint32_t count, rknn_input* inputs) {
  if (count != sides[0].size() || inputs[0].type != 0 || inputs[0].size != 4 * sides[0][0].elements || inputs[0].pass_through) return -6;
  note("format", inputs[0].fmt);
  values.assign(static_cast<float*>(inputs[0].buf), static_cast<float*>(inputs[0].buf) + sides[0][0].elements);
  return 0;
}

int rknn_run(rknn_context, void* extend) {
  for (float& value : values) value += 1;
  note("run", long(values.size()));
  return extend ? -1 : 0;
}

int rknn_outputs_get(rknn_context, uint32_t count, rknn_output* outputs, void*) {
  for (uint32_t i = 0; i < count; i++) {
    rknn_output& output = outputs[i];
    const Tensor& tensor = sides[1].at(i);
    if (output.index != i || !output.is_prealloc || output.size != tensor.elements * (tensor.type == 6 || output.want_float ? 4 : 1)) return -7;
    for (uint32_t k = 0; k < tensor.elements; k++)
      if (output.want_float) static_cast<float*>(output.buf)[k] = values[k % values.size()];
      else static_cast<int32_t*>(output.buf)[k] = int32_t(values[k % values.size()]);
  }
  return 0;
}

int rknn_outputs_release(rknn_context, uint32_t, rknn_output*) { return 0; }

}  // extern "C"
