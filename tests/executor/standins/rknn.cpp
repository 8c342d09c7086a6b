// A stand-in for librknnrt.so: a model of text lines "input NAME TYPE ELEMENTS" and "output NAME TYPE ELEMENTS".  Its outputs
// are the first input's values plus one, as the runtime hands them on, or what is computed of a "stage NAME 0 0"; calls are
// noted in $STANDIN_LOG.  TYPE is rknn_tensor_type; bytes are multiples of SCALE from ZERO on.  With $STANDIN_COPIES no memory
// can be shared; $STANDIN_STRIDE is the elements between two rows.

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

typedef struct { void* virt_addr; uint64_t phys_addr; int32_t fd, offset; uint32_t size, flags; void* priv_data; } rknn_tensor_mem;

static_assert(sizeof(rknn_tensor_mem) == 40, "its size in rknn_api.h on 64 bits");

enum { FLOAT32 = 0, FLOAT16 = 1, INT8 = 2, INT32 = 6 };
static const float SCALE = 0.125f, ZERO = 3;

struct Tensor { std::string name; int type; uint32_t elements; };
struct Bound { standin::Bytes bytes; int type; };
struct Model {
  std::vector<Tensor> sides[2];
  std::string stage;
  std::vector<Bound> inputs, outputs;  // outputs: in shared memory only
  std::vector<float> values;
};

static uint32_t size_of(int type) { return type == FLOAT16 ? 2 : type == INT8 ? 1 : 4; }

static void note(const char* text, long value) { standin::note("%s %ld", text, value); }

static float value(const Bound& from, uint32_t i) {
  if (from.type == INT8) return SCALE * (static_cast<int8_t*>(from.bytes.memory)[i] - ZERO);
  if (from.type == FLOAT32) return static_cast<float*>(from.bytes.memory)[i];
  uint16_t half;
  std::memcpy(&half, static_cast<char*>(from.bytes.memory) + 2 * i, 2);
  const uint32_t bits = (half & 0x8000u) << 16 | (half & 0x7fffu ? (half & 0x7fffu) * 0x2000u + 0x38000000u : 0);  // of normal numbers
  float made;
  std::memcpy(&made, &bits, 4);
  return made;
}

static void give(const std::vector<float>& values, const Bound& to, uint32_t count) {
  for (uint32_t k = 0; k < count; k++)
    if (to.type == FLOAT32) static_cast<float*>(to.bytes.memory)[k] = values[k % values.size()];
    else static_cast<int32_t*>(to.bytes.memory)[k] = int32_t(values[k % values.size()]);
}

static std::vector<standin::Bytes> bytes_of(const std::vector<Bound>& side) {
  std::vector<standin::Bytes> found;
  for (const Bound& one : side) found.push_back(one.bytes);
  return found;
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
  model->outputs.resize(model->sides[1].size());
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
  if (const char* const stride = std::getenv("STANDIN_STRIDE")) attr.w_stride = uint32_t(std::atoi(stride));
  attr.fmt = command == 1 ? 1 : 0, attr.zp = int(ZERO), attr.scale = SCALE, attr.size = attr.size_with_stride = tensor.elements * size_of(tensor.type);
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
    if (input.index >= count || input.type > FLOAT16 || input.size != size_of(input.type) * model.sides[0][input.index].elements || input.pass_through) return -6;
    model.inputs[input.index] = {{input.buf, input.size}, input.type};
    note("copied", input.size);
  }
  note("format", inputs[0].fmt);
  return 0;
}

rknn_tensor_mem* rknn_create_mem(rknn_context, uint32_t size) {
  if (std::getenv("STANDIN_COPIES")) return nullptr;
  const int file = memfd_create("rknn", 0);
  void* const memory = ftruncate(file, size) ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  note("memory", size);
  return memory == MAP_FAILED ? nullptr : new rknn_tensor_mem{memory, 0, file, 0, size, 1, nullptr};
}

rknn_tensor_mem* rknn_create_mem_from_fd(rknn_context, int32_t file, void* memory, uint32_t size, int32_t offset) {
  note("imported", size);
  return new rknn_tensor_mem{memory, 0, file, offset, size, 2, nullptr};
}

int rknn_destroy_mem(rknn_context, rknn_tensor_mem* memory) {
  delete memory;
  return 0;
}

int rknn_destroy(rknn_context context) {
  delete &at(context);
  return 0;
}

int rknn_set_io_mem(rknn_context context, rknn_tensor_mem* memory, rknn_tensor_attr* attr) {
  Model& model = at(context);
  for (const int side : {0, 1})
    for (uint32_t i = 0; i < model.sides[side].size(); i++) {
      const Tensor& tensor = model.sides[side][i];
      if (tensor.name != attr->name) continue;
      const bool known = attr->type == tensor.type || (side && attr->type == FLOAT32);
      if (!known || memory->size < tensor.elements * size_of(attr->type) || attr->pass_through || attr->index != i) return -5;
      (side ? model.outputs : model.inputs)[i] = {{memory->virt_addr, tensor.elements * size_of(attr->type)}, attr->type};
      note(side ? "bound out" : "bound in", memory->fd);
      return 0;
    }
  return -5;
}

int rknn_run(rknn_context context, void* extend) {
  Model& model = at(context);
  model.values.clear();
  for (uint32_t i = 0; i < model.sides[0][0].elements && model.stage.empty(); i++) model.values.push_back(value(model.inputs[0], i) + 1);
  note("run", long(model.values.size()));
  if (extend) return -1;
  if (!model.outputs[0].bytes.memory) return 0;
  for (uint32_t i = 0; i < model.outputs.size() && model.stage.empty(); i++) give(model.values, model.outputs[i], model.sides[1][i].elements);
  return model.stage.empty() || standin::compute(model.stage, bytes_of(model.inputs), bytes_of(model.outputs)) ? 0 : -8;
}

int rknn_outputs_get(rknn_context context, uint32_t count, rknn_output* outputs, void*) {
  Model& model = at(context);
  std::vector<Bound> places;
  for (uint32_t i = 0; i < count; i++) {
    rknn_output& output = outputs[i];
    const Tensor& tensor = model.sides[1].at(i);
    if (output.index != i || !output.is_prealloc || output.size != tensor.elements * (tensor.type == INT32 || output.want_float ? 4 : 1)) return -7;
    places.push_back({{output.buf, output.size}, output.want_float ? FLOAT32 : tensor.type});
    note("copied", output.size);
    if (model.stage.empty()) give(model.values, places.back(), tensor.elements);
  }
  return model.stage.empty() || standin::compute(model.stage, bytes_of(model.inputs), bytes_of(places)) ? 0 : -8;
}

int rknn_outputs_release(rknn_context, uint32_t, rknn_output*) { return 0; }

}  // extern "C"
