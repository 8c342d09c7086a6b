// A stand-in for librknnrt.so: a model of text lines "input NAME TYPE ELEMENTS" and "output NAME TYPE ELEMENTS".  Its outputs
// are the first input's values plus one, as the runtime hands them on, or what is computed of a "stage NAME 0 0"; calls are
// noted in $STANDIN_LOG.
#include <cstdio>

#include "computed.hpp"

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
struct Model { std::vector<Tensor> sides[2]; std::string stage; std::vector<standin::Bytes> inputs; std::vector<float> values; };

static void note(const char* text, long value) {
  if (std::FILE* const log = std::fopen(std::getenv("STANDIN_LOG"), "a")) {
    std::fprintf(log, "%s %ld\n", text, value);
    std::fclose(log);
  }
}

static Model& at(rknn_context context) { return *reinterpret_cast<Model*>(context); }

int rknn_init(rknn_context* context, void* artefact, uint32_t size, uint32_t flag, void* extend) {
  std::istringstream text = standin::model_text(artefact, size);
  Model* const model = new Model;
  std::string side;
  Tensor tensor;
  while (text >> side >> tensor.name >> tensor.type >> tensor.elements)
    if (side == "stage") model->stage = tensor.name;
    else model->sides[side == "output"].push_back(tensor);
  model->inputs.resize(model->sides[0].size());
  *context = reinterpret_cast<rknn_context>(model);
  return model->inputs.empty() || flag || extend ? -1 : 0;
}

int rknn_query(rknn_context context, int command, void* info, uint32_t size) {
  const Model& model = at(context);
  if (command == 0 && size == sizeof(rknn_input_output_num)) {
    *static_cast<rknn_input_output_num*>(info) = {uint32_t(model.sides[0].size()), uint32_t(model.sides[1].size())};
    return 0;
  }
  if ((command != 1 && command != 2) || size != sizeof(rknn_tensor_attr)) return -5;
  rknn_tensor_attr& attr = *static_cast<rknn_tensor_attr*>(info);
  const Tensor& tensor = model.sides[command - 1].at(attr.index);
  std::snprintf(attr.name, sizeof attr.name, "%s", tensor.name.c_str());
  attr.n_elems = tensor.elements, attr.type = tensor.type;
  return 0;
}

int rknn_set_core_mask(rknn_context, int mask) {
  note("cores", mask);
  return 0;
}

int rknn_inputs_set(rknn_context context, uint32_t count, rknn_input* inputs) {
  Model& model = at(context);
  if (count != model.inputs.size()) return -6;
  for (uint32_t i = 0; i < count; i++) {
    const rknn_input& input = inputs[i];
    if (input.index >= count || input.type != 0 || input.size != 4 * model.sides[0][input.index].elements || input.pass_through) return -6;
    model.inputs[input.index] = {input.buf, input.size};
  }
  note("format", inputs[0].fmt);
  const float* const first = static_cast<float*>(model.inputs[0].memory);
  if (model.stage.empty()) model.values.assign(first, first + model.sides[0][0].elements);
  return 0;
}

int rknn_run(rknn_context context, void* extend) {
  for (float& value : at(context).values) value += 1;
  note("run", long(at(context).values.size()));
  return extend ? -1 : 0;
}

int rknn_outputs_get(rknn_context context, uint32_t count, rknn_output* outputs, void*) {
  Model& model = at(context);
  std::vector<standin::Bytes> places;
  for (uint32_t i = 0; i < count; i++) {
    rknn_output& output = outputs[i];
    const Tensor& tensor = model.sides[1].at(i);
    if (output.index != i || !output.is_prealloc || output.size != tensor.elements * (tensor.type == 6 || output.want_float ? 4 : 1)) return -7;
    places.push_back({output.buf, output.size});
    for (uint32_t k = 0; k < tensor.elements && model.stage.empty(); k++)
      if (output.want_float) static_cast<float*>(output.buf)[k] = model.values[k % model.values.size()];
      else static_cast<int32_t*>(output.buf)[k] = int32_t(model.values[k % model.values.size()]);
  }
  return model.stage.empty() || standin::compute(model.stage, model.inputs, places) ? 0 : -8;
}

int rknn_outputs_release(rknn_context, uint32_t, rknn_output*) { return 0; }

}  // extern "C"
